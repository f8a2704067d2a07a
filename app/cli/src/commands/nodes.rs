//! `nodes`: this machine's cores, memory and devices, and who holds them.

use server::wire::Node;
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

fn node_row(node: &Node) -> Vec<String> {
    let state = match (node.schedulable, node.reason.is_empty()) {
        (true, _) => "ready".to_owned(),
        (false, true) => "drained".to_owned(),
        (false, false) => format!("drained: {}", plain(&node.reason)),
    };
    let held = node.devices.iter().filter(|device| device.holder.is_some() || device.leaked).count();
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
