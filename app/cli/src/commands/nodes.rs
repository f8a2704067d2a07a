//! `nodes`: this machine's cores, memory and devices, and who holds them; `drain` and `resume`.

use server::wire::{Done, Node, Schedulable};
use units::Bytes;

use crate::cli::Common;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{Printer, plain, table};

/// Shows nodes and their devices.
pub(crate) async fn run(common: &Common, printer: Printer) -> Result<u8, Failure> {
    let nodes: Vec<Node> = Client::new(common)?.get("/nodes").await?;
    if printer.is_json() {
        printer.json(&nodes);
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = nodes.iter().map(node_row).collect();
    printer.data(table(&["NODE", "STATE", "CORES", "MEMORY", "GPUS"], &rows, true).as_bytes());
    let devices: Vec<Vec<String>> = nodes.iter().flat_map(device_rows).collect();
    if !devices.is_empty() {
        printer.line("");
        printer.data(table(&["NODE", "GPU", "MODEL", "MEMORY", "HELD BY"], &devices, true).as_bytes());
    }
    Ok(0)
}

/// Lets a node have new work, or not.
pub(crate) async fn set_schedulable(
    common: &Common,
    printer: Printer,
    named: Option<&str>,
    schedulable: bool,
    reason: &str,
) -> Result<u8, Failure> {
    let mut client = Client::new(common)?;
    let nodes: Vec<Node> = client.get("/nodes").await?;
    let node = choose(&nodes, named)?;
    let body = Schedulable { schedulable, reason: reason.to_owned() };
    let done: Done = client.post(&format!("/nodes/{}/schedulable", node.id), &body).await?;
    if printer.is_json() {
        printer.json(&done);
    } else if schedulable {
        printer.say(&format!("resumed: {} takes new work", plain(&node.name)));
    } else {
        let held = if node.cores_held > 0 { "what runs there goes on" } else { "nothing runs there" };
        printer.say(&format!("drained: {} takes no new work; {held}", plain(&node.name)));
    }
    Ok(0)
}

/// The node called so, or the only one.
fn choose<'a>(nodes: &'a [Node], named: Option<&str>) -> Result<&'a Node, Failure> {
    let found = match (named, nodes) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), _) => nodes.iter().find(|node| node.name == name || node.id.to_string() == name),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let said =
            named.map_or_else(|| "which node?".to_owned(), |name| format!("there is no node '{name}'"));
        Failure::usage(said).hint(format!("the nodes are {}", plain(&names.join(", "))))
    })
}

fn node_row(node: &Node) -> Vec<String> {
    let state = match (node.schedulable, node.reason.is_empty()) {
        (true, _) => "ready".to_owned(),
        (false, true) => "drained".to_owned(),
        (false, false) => format!("drained: {}", plain(&node.reason)),
    };
    let held = node
        .devices
        .iter()
        .filter(|device| device.holder.is_some() || device.leaked || device.outside)
        .count();
    vec![
        plain(&node.name),
        state,
        format!("{}/{}", node.cores_held, node.cores),
        format!("{}/{}", Bytes(node.memory_held_bytes), Bytes(node.memory_bytes)),
        format!("{held}/{}", node.devices.len()),
    ]
}

fn device_rows(node: &Node) -> impl Iterator<Item = Vec<String>> + '_ {
    node.devices.iter().map(|device| {
        let holder = match (&device.holder, device.leaked) {
            (Some(holder), false) => format!("job {} of {}", holder.job, plain(&holder.owner)),
            (Some(holder), true) => {
                format!("job {} of {}, cannot be freed", holder.job, plain(&holder.owner))
            }
            (None, true) => "cannot be freed".to_owned(),
            (None, false) => "-".to_owned(),
        };
        let holder = match (device.outside, device.holder.is_some() || device.leaked) {
            (false, _) => holder,
            (true, false) => "outside".to_owned(),
            (true, true) => format!("{holder}, and outside"),
        };
        let model = plain(&device.model);
        vec![
            plain(&node.name),
            device.index.to_string(),
            if device.simulated { format!("{model} (simulated)") } else { model },
            if device.memory_bytes == 0 {
                "not measured".to_owned()
            } else {
                Bytes(device.memory_bytes).to_string()
            },
            holder,
        ]
    })
}
