//! Network interfaces, and ports of remote direct memory access.

use facts::inventory::{Nic, NumaNode, RdmaKind, RdmaPort, Seen};

use super::pci::{self, thousandths};
use super::tree::{Tree, raw};

const NET: &str = "sys/class/net";
const RDMA: &str = "sys/class/infiniband";

/// What the kernel says where it knows no speed: -1 as 16 or 32 bits.
const NO_SPEED: [u64; 2] = [0xffff, 0xffff_ffff];

/// Interfaces with hardware behind them.
pub(super) fn nics(tree: &Tree, nodes: &[NumaNode]) -> Vec<Nic> {
    let nic = |name: String| {
        let dir = format!("{NET}/{name}");
        let state = tree.whole(&format!("{dir}/operstate")).map(|text| raw(text.trim()));
        let bits_per_second = match state.value().map(String::as_str) {
            Some("up" | "unknown") => speed(tree, &dir),
            Some(other) => Seen::absent(format!("the link is {other}")),
            None => state.clone().map(|_| 0),
        };
        Nic {
            driver: tree.link_name(&format!("{dir}/device/driver")),
            mtu: tree.number(&format!("{dir}/mtu")),
            virtual_function: tree.exists(&format!("{dir}/device/physfn")),
            pci: off_bus_is_absent(pci::place(tree, nodes, &format!("{dir}/device"))),
            bits_per_second,
            state,
            name,
        }
    };
    let is_hardware = |name: &String| {
        let dir = format!("{NET}/{name}");
        tree.leads_to_itself(&dir) && tree.exists(&format!("{dir}/device"))
    };
    tree.names(NET).into_iter().filter(is_hardware).map(nic).collect()
}

/// A paravirtual device need not be on a PCI bus.
fn off_bus_is_absent<T>(place: Seen<T>) -> Seen<T> {
    match place {
        Seen::Failed { failed } if failed.ends_with("is not on a PCI bus") => Seen::Absent { absent: failed },
        seen => seen,
    }
}

/// The kernel tells megabits, and refuses to where it knows none.
fn speed(tree: &Tree, dir: &str) -> Seen<u64> {
    match tree.number::<u64>(&format!("{dir}/speed")) {
        Seen::Value { value, source } if NO_SPEED.contains(&value) || value == 0 => {
            Seen::absent(format!("{source} says {value}"))
        }
        Seen::Failed { failed } if failed.contains("Invalid argument") => Seen::Absent { absent: failed },
        seen => {
            seen.then(|mega| mega.checked_mul(1_000_000).ok_or_else(|| format!("{mega} Mb/s are too many")))
        }
    }
}

pub(super) fn rdma(tree: &Tree, nodes: &[NumaNode]) -> Vec<RdmaPort> {
    let mut ports = Vec::new();
    let devices = tree.names(RDMA).into_iter();
    for device in devices.filter(|name| tree.leads_to_itself(&format!("{RDMA}/{name}"))) {
        let numbers = tree.names(&format!("{RDMA}/{device}/ports"));
        ports.extend(
            numbers
                .into_iter()
                .filter_map(|number| number.parse().ok())
                .map(|number| port(tree, nodes, &device, number)),
        );
    }
    ports
}

fn port(tree: &Tree, nodes: &[NumaNode], device: &str, port: u32) -> RdmaPort {
    let dir = format!("{RDMA}/{device}");
    let own = format!("{dir}/ports/{port}");
    let state = numbered(tree, &format!("{own}/state"));
    let bits_per_second = match state.value().map(String::as_str) {
        Some("ACTIVE") => tree.whole(&format!("{own}/rate")).then(|text| rate(&text)),
        // A port that is down shows the lowest rate that its adapter knows.
        Some(other) => Seen::absent(format!("the port is {other}")),
        None => state.clone().map(|_| 0),
    };
    RdmaPort {
        device: device.to_owned(),
        port,
        kind: kind(tree, &dir, &own),
        physical_state: numbered(tree, &format!("{own}/phys_state")),
        bits_per_second,
        adapter: tree.line(&format!("{dir}/hca_type")),
        firmware: tree.line(&format!("{dir}/fw_ver")),
        board: tree.line(&format!("{dir}/board_id")),
        interfaces: tree.names(&format!("{dir}/device/net")),
        virtual_function: tree.exists(&format!("{dir}/device/physfn")),
        pci: off_bus_is_absent(pci::place(tree, nodes, &format!("{dir}/device"))),
        state,
    }
}

/// EFA has no link layer of the standard's; iWARP is told by the kind of node.
fn kind(tree: &Tree, dir: &str, port: &str) -> Seen<RdmaKind> {
    let driver = tree.link_name(&format!("{dir}/device/driver"));
    if driver.value().is_some_and(|name| name == "efa") {
        return driver.map(|_| RdmaKind::Efa);
    }
    let node = numbered(tree, &format!("{dir}/node_type"));
    if node.value().is_some_and(|kind| kind == "RNIC") {
        return node.map(|_| RdmaKind::Iwarp);
    }
    tree.whole(&format!("{port}/link_layer")).then(|text| match text.trim() {
        "InfiniBand" => Ok(RdmaKind::InfiniBand),
        "Ethernet" => Ok(RdmaKind::Roce),
        other => Err(format!("{:?} is no link layer that is known here", raw(other))),
    })
}

/// `4: ACTIVE` is `ACTIVE`.
fn numbered(tree: &Tree, path: &str) -> Seen<String> {
    tree.whole(path).then(|text| {
        let (number, word) = text.trim().split_once(": ").unwrap_or_default();
        let formed = number.parse::<u32>().is_ok() && !word.is_empty();
        if formed { Ok(raw(word)) } else { Err(format!("{:?} is no state", raw(text.trim()))) }
    })
}

/// `400 Gb/sec (4X NDR)` in bits per second.
fn rate(text: &str) -> Result<u64, String> {
    let read = || thousandths(text.trim().split_once(" Gb/sec")?.0)?.checked_mul(1_000_000);
    read().filter(|bits| *bits > 0).ok_or_else(|| format!("{:?} is no rate", raw(text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_unit() {
        for (text, expect) in [
            ("400 Gb/sec (4X NDR)\n", Some(400_000_000_000)),
            ("2.5 Gb/sec (1X SDR)\n", Some(2_500_000_000)),
            ("0 Gb/sec\n", None),
            ("400", None),
            ("400 Gb", None),
            ("", None),
        ] {
            assert_eq!(rate(text).ok(), expect, "{text:?}");
        }
    }
}
