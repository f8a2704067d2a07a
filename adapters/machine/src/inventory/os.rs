//! What runs on the machine: system, drivers, container runtimes, other engines, clock and cgroups.

use facts::inventory::{CgroupDriver, ClockSync, Host, Seen, Software};

use super::nvml::Report;
use super::tree::{Tree, one_line, raw};
use crate::sys;

/// Kernel modules whose version matters to GPU work, where they are loaded.
const MODULES: [&str; 8] =
    ["nvidia", "nvidia_peermem", "nvidia_fs", "gdrdrv", "amdgpu", "mlx5_core", "efa", "lustre"];

/// Compute stacks by the file that holds their version.
const STACKS: [(&str, &str); 2] =
    [("cuda-toolkit", "usr/local/cuda/version.json"), ("rocm", "opt/rocm/.info/version")];

/// Programs that tell what else is here, by where they are found.
const RUNTIMES: [(&str, &[&str]); 9] = [
    ("docker", &["run/docker.sock", "usr/bin/docker", "usr/local/bin/docker"]),
    ("containerd", &["run/containerd/containerd.sock", "usr/bin/containerd", "usr/local/bin/containerd"]),
    ("cri-o", &["run/crio/crio.sock", "usr/bin/crio"]),
    ("podman", &["usr/bin/podman", "usr/local/bin/podman"]),
    ("enroot", &["usr/bin/enroot", "usr/local/bin/enroot"]),
    ("apptainer", &["usr/bin/apptainer", "usr/local/bin/apptainer"]),
    ("singularity", &["usr/bin/singularity", "usr/local/bin/singularity"]),
    ("nvidia-container-toolkit", &["usr/bin/nvidia-ctk", "usr/local/bin/nvidia-ctk"]),
    ("nvidia-fabricmanager", &["run/nvidia-fabricmanager/nv-fabricmanager.pid", "usr/bin/nv-fabricmanager"]),
];

/// Engines by what their daemons on a node leave. A client alone is none.
const ENGINES: [(&str, &[&str]); 2] = [
    ("slurm", &["run/slurmd.pid", "run/slurm/slurmd.pid", "etc/slurm/slurm.conf", "var/spool/slurmd"]),
    (
        "kubernetes",
        &["var/lib/kubelet/config.yaml", "etc/kubernetes/kubelet.conf", "etc/rancher/k3s/k3s.yaml"],
    ),
];

pub(super) fn host(tree: &Tree) -> Host {
    let release = || tree.text("etc/os-release").or(|| tree.text("usr/lib/os-release"));
    let os = release().then(|text| {
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        name.map(|name| raw(name.trim_matches(['"', '\'']))).ok_or_else(|| "has no PRETTY_NAME".to_owned())
    });
    let architecture = tree.line("proc/sys/kernel/arch").or(|| {
        if tree.is_live() {
            Seen::new(std::env::consts::ARCH.to_owned(), "this program")
        } else {
            Seen::absent("/proc/sys/kernel/arch is not there")
        }
    });
    Host {
        name: tree.line("proc/sys/kernel/hostname"),
        vendor: tree.line("sys/class/dmi/id/sys_vendor"),
        product: tree
            .line("sys/class/dmi/id/product_name")
            .or(|| tree.line("sys/firmware/devicetree/base/model")),
        os,
        kernel: tree.line("proc/sys/kernel/osrelease"),
        architecture,
    }
}

pub(super) fn drivers(tree: &Tree, nvml: &Result<Report, String>) -> Vec<Software> {
    let module = |name: &&str| {
        let path = format!("sys/module/{name}");
        let version = tree.line(&format!("{path}/version"));
        tree.exists(&path).then(|| Software { name: (*name).to_owned(), version, path: format!("/{path}") })
    };
    let stack = |(name, path): &(&str, &str)| {
        let version = match *name {
            "cuda-toolkit" => tree.text(path).then(|text| cuda_toolkit(&text)),
            // Its maker may leave out the end of the line.
            _ => tree.text(path).then(|text| one_line(&text)),
        };
        tree.exists(path).then(|| Software { name: (*name).to_owned(), version, path: format!("/{path}") })
    };
    let mut found: Vec<Software> = MODULES.iter().filter_map(module).collect();
    if let Ok(report) = nvml {
        let cuda = match &report.cuda {
            Ok(version) => Seen::new(format!("{}.{}", version / 1_000, version % 1_000 / 10), "NVML"),
            Err(error) => Seen::failed(format!("NVML: {error}")),
        };
        found.push(Software { name: "cuda".to_owned(), version: cuda, path: "NVML".to_owned() });
    }
    found.extend(STACKS.iter().filter_map(stack));
    found
}

/// The version of the whole in the toolkit's own list of its parts.
fn cuda_toolkit(text: &str) -> Result<String, String> {
    let parts: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let version = parts["cuda"]["version"].as_str();
    version.map(raw).ok_or_else(|| "has no cuda.version".to_owned())
}

fn present(tree: &Tree, table: &[(&str, &[&str])]) -> Vec<Software> {
    let found = |(name, paths): &(&str, &[&str])| {
        Some(Software {
            name: (*name).to_owned(),
            version: Seen::absent("not asked"),
            path: format!("/{}", tree.first(paths)?),
        })
    };
    table.iter().filter_map(found).collect()
}

pub(super) fn runtimes(tree: &Tree) -> Vec<Software> {
    present(tree, &RUNTIMES)
}

pub(super) fn engines(tree: &Tree) -> Vec<Software> {
    present(tree, &ENGINES)
}

pub(super) fn clock(tree: &Tree) -> ClockSync {
    let (synchronised, max_error_us) = if tree.is_live() {
        match sys::clock_state() {
            Ok((held, error)) => (Seen::new(held, "adjtimex"), Seen::new(error, "adjtimex")),
            Err(error) => {
                (Seen::failed(format!("adjtimex: {error}")), Seen::failed(format!("adjtimex: {error}")))
            }
        }
    } else {
        let why = "not asked: this is not the machine itself";
        (Seen::absent(why), Seen::absent(why))
    };
    ClockSync {
        clocksource: tree.line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        synchronised,
        max_error_us,
    }
}

/// Told by what is mounted; whether it may be used is another question.
pub(super) fn cgroups(tree: &Tree) -> Seen<CgroupDriver> {
    match tree.whole("proc/mounts") {
        Seen::Value { value, source } => {
            let mounted = |kind: &str| {
                // `name=systemd` is a tree without controllers.
                let is_used = |options: &str| !options.contains("name=");
                value.lines().any(|line| {
                    let mut fields = line.split(' ').skip(2);
                    fields.next() == Some(kind) && (kind == "cgroup2" || fields.next().is_some_and(is_used))
                })
            };
            match (mounted("cgroup"), mounted("cgroup2")) {
                (true, true) => Seen::new(CgroupDriver::Hybrid, source),
                (true, false) => Seen::new(CgroupDriver::V1, source),
                (false, true) => Seen::new(CgroupDriver::V2, source),
                (false, false) => Seen::absent(format!("{source} lists no cgroup tree")),
            }
        }
        missing => missing.map(|_| CgroupDriver::V2),
    }
}
