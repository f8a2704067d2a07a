//! Processors, memory and NUMA nodes.

use std::collections::BTreeSet;

use facts::inventory::{Cpu, NumaNode, Seen};
use units::Bytes;

use super::tree::{Tree, list, number, raw};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

pub(super) fn cpu(tree: &Tree) -> Cpu {
    let online = tree.whole(&format!("{CPUS}/online")).then(|text| list(&text));
    Cpu {
        model: model(tree),
        sockets: distinct(tree, &online, &["topology/physical_package_id"]),
        cores: distinct(tree, &online, &["topology/core_cpus_list", "topology/thread_siblings_list"]),
        threads: online.then(|cpus| count(cpus.len())),
    }
}

fn count(length: usize) -> Result<u32, String> {
    u32::try_from(length).map_err(|error| error.to_string())
}

/// How many different values the online CPUs show in the first of `files` that they have. One CPU
/// that cannot be read makes the sum unknown.
fn distinct(tree: &Tree, online: &Seen<Vec<u32>>, files: &[&str]) -> Seen<u32> {
    let cpus = match online {
        Seen::Value { value, .. } => value,
        missing => return missing.clone().map(|_| 0),
    };
    let mut values = BTreeSet::new();
    for cpu in cpus {
        let read = |file: &&str| tree.word(&format!("{CPUS}/cpu{cpu}/{file}"));
        let seen = files.iter().map(read).reduce(|first, next| first.or(|| next));
        match seen {
            Some(Seen::Value { value, .. }) => drop(values.insert(value)),
            Some(missing) => return missing.map(|_| 0),
            None => {}
        }
    }
    Seen::new(values.len(), format!("/{CPUS}/cpu*/{}", files[0])).then(count)
}

/// `model name` on x86; ARM kernels have none in this file.
fn model(tree: &Tree) -> Seen<String> {
    let path = "proc/cpuinfo";
    match tree.whole(path) {
        Seen::Value { value, source } => {
            let line = value.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
            line.map_or_else(
                || Seen::absent(format!("{source} has no model name")),
                |(_, model)| Seen::new(raw(model.trim()), source.clone()),
            )
        }
        missing => missing,
    }
}

/// Memory in use by the kernel and below, from `proc/meminfo`.
pub(super) fn memory(tree: &Tree) -> Seen<Bytes> {
    tree.whole("proc/meminfo").then(|text| kib(&text, "MemTotal:"))
}

/// The amount after `name` in a table of `name: N kB`.
fn kib(text: &str, name: &str) -> Result<Bytes, String> {
    let line = text.lines().find_map(|line| line.split_once(name));
    let (_, amount) = line.ok_or_else(|| format!("has no {name}"))?;
    let amount =
        amount.trim().strip_suffix(" kB").ok_or_else(|| format!("{name}{} has no unit", raw(amount)))?;
    let kib: u64 = number(amount)?;
    kib.checked_mul(1_024).map(Bytes).ok_or_else(|| format!("{name} {kib} kB is too much"))
}

pub(super) fn numa(tree: &Tree) -> Vec<NumaNode> {
    let ids = tree.names(NODES).into_iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
    let node = |id: u32| NumaNode {
        id,
        cpus: tree.word(&format!("{NODES}/node{id}/cpulist")),
        memory: tree.whole(&format!("{NODES}/node{id}/meminfo")).then(|text| kib(&text, "MemTotal:")),
    };
    ids.map(node).collect()
}
