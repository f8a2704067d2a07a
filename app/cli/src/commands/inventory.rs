//! `inventory`: what this machine has, or what a copy of another one's files shows.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use facts::inventory::{Disk, Gpu, Inventory, Nic, RdmaKind, RdmaPort, Seen, Software};
use machine::{Look, NvmlProbe};
use server::wire::Time;
use units::Bytes;

use crate::failure::{Doing, Failure};
use crate::offer::model;
use crate::output::{Printer, plain, table};
use crate::when;

/// Looks at this machine, whose server keeps its jobs below `state`.
pub(crate) fn of_this_machine(state: &Path) -> Result<Inventory, Failure> {
    let program = std::env::current_exe().doing(|| "cannot tell this program's path".to_owned())?;
    let nvml = nvml_probe(program);
    let look = Look { root: Path::new("/"), nvml: Some(&nvml), own: Some(&state.join("node")) };
    machine::inventory(&look).doing(|| "cannot look at this machine".to_owned())
}

/// Who asks NVIDIA's library. A static program can load none, and has another one do it.
fn nvml_probe(program: PathBuf) -> NvmlProbe {
    match program.parent().filter(|_| cfg!(target_env = "musl")) {
        Some(bin) => NvmlProbe::new(bin.join("../lib/fourplane/fourplane-nvml"), &[]),
        None => NvmlProbe::new(program, &["nvml-probe"]),
    }
}

/// Shows an inventory.
pub(crate) fn run(printer: Printer, state: &Path, root: Option<&PathBuf>) -> Result<u8, Failure> {
    let found = match root {
        None => of_this_machine(state)?,
        Some(root) => machine::inventory(&Look { root, nvml: None, own: None })
            .doing(|| format!("cannot look at {}", root.display()))?,
    };
    if printer.is_json() {
        printer.json(&found);
    } else {
        printer.data(text(&found).as_bytes());
    }
    Ok(0)
}

/// A figure, or that there is none; `--json` says why.
fn show<T>(seen: &Seen<T>, say: impl FnOnce(&T) -> String) -> String {
    seen.value().map_or_else(|| "not seen".to_owned(), |value| plain(&say(value)))
}

fn word<T: ToString>(seen: &Seen<T>) -> String {
    show(seen, T::to_string)
}

/// Decimal, as networks count.
fn rate(bits: &Seen<u64>) -> String {
    show(bits, |bits| match bits % 1_000_000_000 {
        0 => format!("{} Gb/s", bits / 1_000_000_000),
        _ => format!("{} Mb/s", bits / 1_000_000),
    })
}

fn text(found: &Inventory) -> String {
    let host = &found.host;
    let maker = format!("{} {}", word(&host.vendor), word(&host.product));
    let maker = if maker.contains("not seen") { "maker not seen".to_owned() } else { maker };
    let cpu = &found.cpu;
    let held = match found.clock.synchronised.value() {
        Some(true) => "synchronised",
        Some(false) => "not synchronised",
        None => "synchronisation not seen",
    };
    let mut text = format!(
        "host      {}: {maker}, {}, kernel {}, {}\n\
         cpu       {}: sockets {}, cores {}, threads {}\n\
         memory    {}, NUMA nodes {}\n\
         clock     {}, {held}\n\
         cgroups   {}\n\
         drivers   {}\n\
         runtimes  {}\n\
         engines   {}\n",
        word(&host.name),
        word(&host.os),
        word(&host.kernel),
        word(&host.architecture),
        word(&cpu.model),
        word(&cpu.sockets),
        word(&cpu.cores),
        word(&cpu.threads),
        word(&found.memory),
        found.numa.len(),
        word(&found.clock.clocksource),
        show(&found.cgroups, |driver| format!("{driver:?}").to_lowercase()),
        software(&found.drivers),
        software(&found.runtimes),
        software(&found.engines),
    );
    let mut part = |name: &str, header: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            // A string takes everything.
            let _ = write!(text, "\n{name}\n{}", table(header, &rows, true));
        }
    };
    part("GPUs", &GPU, found.gpus.iter().enumerate().map(gpu).collect());
    part("RDMA ports", &RDMA, found.rdma.iter().map(rdma).collect());
    part("Network interfaces", &NIC, found.nics.iter().map(nic).collect());
    let (header, ways) = ways(found);
    part("From network to GPU", &header.iter().map(String::as_str).collect::<Vec<_>>(), ways);
    part("Disks", &["DISK", "MODEL", "SIZE", "KIND", "NUMA"], found.disks.iter().map(disk).collect());
    part("File systems", &["MOUNT", "TYPE", "SIZE", "FREE", "DEVICE"], filesystems(found));
    part("Outside: holds a GPU and was not started here", &OUTSIDE, outside(found));
    if !found.findings.is_empty() {
        let lines = found.findings.iter().map(|finding| plain(finding) + "\n");
        text.push_str("\nFindings\n");
        text.extend(lines);
    }
    text
}

fn software(all: &[Software]) -> String {
    let one = |software: &Software| match software.version.value() {
        Some(version) => format!("{} {}", software.name, plain(version)),
        None => software.name.clone(),
    };
    if all.is_empty() { "none seen".to_owned() } else { all.iter().map(one).collect::<Vec<_>>().join(", ") }
}

const GPU: [&str; 8] = ["GPU", "ADDRESS", "MODEL", "MEMORY", "NUMA", "PCIE", "LINKS", "STATE"];

fn gpu((at, gpu): (usize, &Gpu)) -> Vec<String> {
    let parts = gpu
        .partition
        .value()
        .map(|partition| format!("{} in {} parts", partition.mode, partition.parts.len()));
    let state = match (&gpu.unusable, parts) {
        (Some(why), _) => format!("unusable: {}", plain(why)),
        (None, Some(parts)) => plain(&parts),
        (None, None) => "whole".to_owned(),
    };
    let pcie = match (gpu.link.megatransfers.value(), gpu.link.lanes.value()) {
        (Some(speed), Some(lanes)) => format!("{}.{} GT/s x{lanes}", speed / 1_000, speed % 1_000 / 100),
        _ => "not seen".to_owned(),
    };
    vec![
        at.to_string(),
        gpu.pci.address.clone(),
        model(gpu),
        word(&gpu.memory),
        word(&gpu.pci.numa),
        pcie,
        show(&gpu.fabric, |fabric| format!("{} of {} {}", fabric.active, fabric.links, fabric.kind)),
        state,
    ]
}

const RDMA: [&str; 8] = ["DEVICE", "PORT", "KIND", "STATE", "RATE", "ADAPTER", "FIRMWARE", "NUMA"];

fn rdma(port: &RdmaPort) -> Vec<String> {
    let kind = |kind: &RdmaKind| match kind {
        RdmaKind::InfiniBand => "InfiniBand".to_owned(),
        RdmaKind::Roce => "RoCE".to_owned(),
        RdmaKind::Iwarp => "iWARP".to_owned(),
        RdmaKind::Efa => "EFA".to_owned(),
    };
    vec![
        plain(&port.device),
        port.port.to_string(),
        show(&port.kind, kind),
        word(&port.state),
        rate(&port.bits_per_second),
        word(&port.adapter),
        word(&port.firmware),
        port.pci.value().map_or_else(|| "not seen".to_owned(), |pci| word(&pci.numa)),
    ]
}

const NIC: [&str; 6] = ["INTERFACE", "STATE", "RATE", "MTU", "DRIVER", "NUMA"];

fn nic(nic: &Nic) -> Vec<String> {
    vec![
        plain(&nic.name),
        word(&nic.state),
        rate(&nic.bits_per_second),
        word(&nic.mtu),
        word(&nic.driver),
        nic.pci.value().map_or_else(|| "not seen".to_owned(), |pci| word(&pci.numa)),
    ]
}

/// One row a network function, one column a GPU, as `nvidia-smi topo -m` shows them.
fn ways(found: &Inventory) -> (Vec<String>, Vec<Vec<String>>) {
    let gpus = (0..found.gpus.len()).map(|at| format!("GPU{at}"));
    let header = std::iter::once("NETWORK".to_owned()).chain(gpus).collect();
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for path in &found.gpu_paths {
        let way = show(&path.path, ToString::to_string);
        match rows.iter_mut().find(|(nic, _)| *nic == path.nic) {
            Some((_, row)) => row.push(way),
            None => rows.push((&path.nic, vec![plain(&path.names.join(",")), way])),
        }
    }
    (header, rows.into_iter().map(|(_, row)| row).collect())
}

fn disk(disk: &Disk) -> Vec<String> {
    let kind = |turns: &bool| if *turns { "turning" } else { "solid" }.to_owned();
    vec![
        plain(&disk.name),
        word(&disk.model),
        word(&disk.size),
        show(&disk.rotational, kind),
        word(&disk.numa),
    ]
}

fn filesystems(found: &Inventory) -> Vec<Vec<String>> {
    let row = |fs: &facts::inventory::Filesystem| {
        vec![plain(&fs.mount), plain(&fs.kind), word::<Bytes>(&fs.size), word(&fs.free), plain(&fs.device)]
    };
    found.filesystems.iter().map(row).collect()
}

const OUTSIDE: [&str; 6] = ["PID", "UID", "GPU", "SINCE", "MEMORY", "COMMAND"];

fn outside(found: &Inventory) -> Vec<Vec<String>> {
    let zone = when::zone();
    let row = |held: &facts::inventory::OutsideUse| {
        vec![
            held.pid.to_string(),
            word(&held.uid),
            held.gpu.clone().unwrap_or_else(|| "any".to_owned()),
            show(&held.since, |since| {
                format!("{} {}", when::local(Time(*since), &zone), when::zone_name(&zone))
            }),
            word(&held.memory),
            word(&held.command),
        ]
    };
    found.outside.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(root.path().join("proc/sys/kernel/hostname"), "bare\n").unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: 2048 kB\n").unwrap();
        let found = machine::inventory(&Look { root: root.path(), nvml: None, own: None }).unwrap();
        assert_eq!(
            text(&found),
            "host      bare: maker not seen, not seen, kernel not seen, not seen\n\
             cpu       not seen: sockets not seen, cores not seen, threads not seen\n\
             memory    2 MiB, NUMA nodes 0\n\
             clock     not seen, synchronisation not seen\n\
             cgroups   not seen\n\
             drivers   none seen\n\
             runtimes  none seen\n\
             engines   none seen\n\
             \n\
             Findings\n\
             file systems: /proc/mounts is not there\n"
        );
    }

    #[test]
    fn rates_are_decimal() {
        for (bits, expect) in [(400_000_000_000, "400 Gb/s"), (2_500_000_000, "2500 Mb/s")] {
            assert_eq!(rate(&Seen::new(bits, "test")), expect);
        }
    }
}
