//! What this machine has, read from a tree of files and, on the machine itself, from its kernel and
//! its GPU library. Nothing stops it: what cannot be read is told in its place.

mod amd;
mod cpu;
mod disk;
mod gpu;
mod net;
mod nvml;
mod os;
mod outside;
mod pci;
mod tree;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use facts::inventory::{FORMAT, Gpu, GpuPath, Inventory, Nic, PciPlace, RdmaPort, pcie_path};

pub use nvml::{NvmlProbe, nvml_main};
use tree::Tree;

use crate::cgroup::{CgroupKind, Cgroups};
use crate::supervisor::cgroup_base;

/// Where to look, and how.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The root of the tree; `/` is the machine itself.
    pub root: &'a Path,
    /// How to ask NVIDIA's library, which speaks of the machine itself and not of a copy.
    pub nvml: Option<&'a NvmlProbe>,
    /// The supervisor's directory, whose jobs are not outside.
    pub own: Option<&'a Path>,
}

/// Looks. Fails only where there is no such tree.
pub fn inventory(look: &Look<'_>) -> io::Result<Inventory> {
    let tree = Tree::open(look.root)?;
    let nvml = match look.nvml {
        None => Err("not asked".to_owned()),
        Some(_) if !gpu::may_have_nvidia(&tree) => Err("not asked: no NVIDIA driver is loaded".to_owned()),
        Some(probe) => probe.ask(),
    };
    let own = look.own.map(|dir| cgroup_base(&dir.canonicalize().unwrap_or_else(|_| dir.to_owned())));
    let own = own.as_deref().and_then(Path::to_str);
    Ok(survey(&tree, &nvml, own))
}

/// Puts all of it together.
fn survey(tree: &Tree, nvml: &gpu::NvmlAnswer, own: Option<&str>) -> Inventory {
    let mut findings = Vec::new();
    if let Err(error) = nvml
        && !error.starts_with("not asked")
    {
        findings.push(format!("NVML: {error}"));
    }
    let numa = cpu::numa(tree);
    let gpus = gpu::gpus(tree, &numa, nvml, &mut findings);
    let nics = net::nics(tree, &numa);
    let rdma = net::rdma(tree, &numa);
    // Without a GPU nobody can hold one, and thousands of processes need no look.
    let outside =
        if gpus.is_empty() { Vec::new() } else { outside::outside(tree, &gpus, nvml, own, &mut findings) };
    let mut inventory = Inventory {
        format: FORMAT,
        host: os::host(tree),
        cpu: cpu::cpu(tree),
        memory: cpu::memory(tree),
        disks: disk::disks(tree, &numa),
        filesystems: disk::filesystems(tree, &mut findings),
        gpu_paths: paths(&gpus, &nics, &rdma),
        drivers: os::drivers(tree, nvml),
        runtimes: os::runtimes(tree),
        engines: os::engines(tree),
        clock: os::clock(tree),
        cgroups: os::cgroups(tree),
        findings: Vec::new(),
        numa,
        nics,
        rdma,
        gpus,
        outside,
    };
    if let Ok(all) = serde_json::to_value(&inventory) {
        failures(&all, &mut findings);
    }
    findings.sort();
    findings.dedup();
    inventory.findings = findings;
    inventory
}

/// Every figure that failed is a finding.
fn failures(value: &serde_json::Value, findings: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            findings.extend(fields.get("failed").and_then(|why| Some(why.as_str()?.to_owned())));
            fields.values().for_each(|field| failures(field, findings));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| failures(item, findings)),
        _ => {}
    }
}

/// From each GPU to each network function, whatever names it has. Parts of a function are left out.
fn paths(gpus: &[Gpu], nics: &[Nic], rdma: &[RdmaPort]) -> Vec<GpuPath> {
    let mut functions: BTreeMap<&str, (&PciPlace, Vec<String>)> = BTreeMap::new();
    for port in rdma.iter().filter(|port| !port.virtual_function) {
        if let Some(place) = port.pci.value() {
            let names = &mut functions.entry(&place.address).or_insert((place, Vec::new())).1;
            names.push(port.device.clone());
            names.dedup();
        }
    }
    let mut plain: BTreeMap<&str, (&PciPlace, Vec<String>)> = BTreeMap::new();
    for nic in nics.iter().filter(|nic| !nic.virtual_function) {
        if let Some(place) = nic.pci.value().filter(|place| !functions.contains_key(place.address.as_str())) {
            plain.entry(&place.address).or_insert((place, Vec::new())).1.push(nic.name.clone());
        }
    }
    functions.append(&mut plain);
    let path = |gpu: &Gpu, (place, names): &(&PciPlace, Vec<String>)| GpuPath {
        gpu: gpu.pci.address.clone(),
        nic: place.address.clone(),
        names: names.clone(),
        path: pcie_path(&gpu.pci, place),
    };
    gpus.iter().flat_map(|gpu| functions.values().map(move |function| path(gpu, function))).collect()
}

/// How tasks are held to their limits here, and whether they are kept from the GPUs that they were
/// not given, or only advised.
pub fn enforcement() -> (CgroupKind, bool) {
    Cgroups::offered()
}
