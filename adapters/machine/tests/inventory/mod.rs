//! The inventory over trees of files that look like machines, whole and damaged.

mod damage;
mod nvml;
mod tree;

use std::fmt::Write as _;
use std::path::Path;

use facts::inventory::{CgroupDriver, Evidence, Gpu, GpuFabric, Inventory, RdmaKind, SHARES, Seen};
use fourplane_machine::{Look, inventory};
use units::{Bytes, Timestamp};

fn look(root: &Path) -> Inventory {
    inventory(&Look { root, nvml: None, own: None }).unwrap()
}

/// What is seen of a tree that is whole.
fn see(name: &str) -> Inventory {
    look(tree::build(&tree::parse(name)).path())
}

fn value<T: Clone>(seen: &Seen<T>) -> Option<T> {
    seen.value().cloned()
}

/// Why a figure is not there.
fn missing<T>(seen: &Seen<T>) -> &str {
    seen.missing().unwrap_or("it is there")
}

/// The ways between GPUs and RDMA devices as a table, devices in the order of their names.
fn matrix(seen: &Inventory) -> String {
    let mut text = String::new();
    for port in seen.rdma.iter().filter(|port| !port.virtual_function) {
        let ways = seen.gpus.iter().map(|gpu| {
            let is_way = |path: &&facts::inventory::GpuPath| {
                path.gpu == gpu.pci.address && path.names.contains(&port.device)
            };
            let path = seen.gpu_paths.iter().find(is_way).unwrap();
            value(&path.path).map_or("?".to_owned(), |path| path.to_string())
        });
        writeln!(text, "{} {}", port.device, ways.collect::<Vec<_>>().join(" ")).unwrap();
    }
    text
}

/// As `nvidia-smi topo -m` shows it in github.com/vllm-project/vllm/issues/6746: the rows of the
/// network devices, the columns of the GPUs.
const DGX_H100: &str = "\
mlx5_0 PXB NODE NODE NODE SYS SYS SYS SYS
mlx5_1 NODE NODE NODE NODE SYS SYS SYS SYS
mlx5_2 NODE NODE NODE NODE SYS SYS SYS SYS
mlx5_3 NODE PXB NODE NODE SYS SYS SYS SYS
mlx5_4 NODE NODE PXB NODE SYS SYS SYS SYS
mlx5_5 NODE NODE NODE PXB SYS SYS SYS SYS
mlx5_6 SYS SYS SYS SYS PXB NODE NODE NODE
mlx5_7 SYS SYS SYS SYS NODE NODE NODE NODE
mlx5_8 SYS SYS SYS SYS NODE NODE NODE NODE
mlx5_9 SYS SYS SYS SYS NODE PXB NODE NODE
mlx5_10 SYS SYS SYS SYS NODE NODE PXB NODE
mlx5_11 SYS SYS SYS SYS NODE NODE NODE PXB
";

#[test]
fn the_ways_of_a_dgx_h100_are_those_that_were_published() {
    assert_eq!(matrix(&see("dgx-h100")), DGX_H100);
}

#[test]
fn a_dgx_h100_is_seen_whole() {
    let seen = see("dgx-h100");
    assert_eq!(value(&seen.host.name).unwrap(), "dgx-h100");
    assert_eq!(value(&seen.host.os).unwrap(), "Ubuntu 22.04.4 LTS");
    assert_eq!(value(&seen.cpu.model).unwrap(), "Intel(R) Xeon(R) Platinum 8480C");
    assert_eq!(
        (value(&seen.cpu.sockets), value(&seen.cpu.cores), value(&seen.cpu.threads)),
        (Some(2), Some(112), Some(224))
    );
    assert_eq!(seen.memory, Seen::new(Bytes(2_113_508_476 * 1_024), "/proc/meminfo"));
    assert_eq!(seen.numa.len(), 2);
    assert_eq!(value(&seen.numa[1].cpus).unwrap(), "56-111,168-223");
    let kinds: Vec<_> = seen.rdma.iter().map(|port| value(&port.kind).unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == RdmaKind::InfiniBand).count(), 8);
    assert_eq!(kinds.iter().filter(|kind| **kind == RdmaKind::Roce).count(), 4);
    assert_eq!(value(&seen.rdma[0].bits_per_second), Some(400_000_000_000));
    assert_eq!(missing(&seen.rdma[2].bits_per_second), "the port is DOWN");
    assert_eq!(seen.rdma[1].interfaces, ["enp41s0f0np0"]);
    assert_eq!(seen.nics.len(), 4, "bond and loopback are no hardware");
    assert_eq!(value(&seen.nics[0].bits_per_second), Some(400_000_000_000));
    assert_eq!(missing(&seen.nics[1].bits_per_second), "the link is down");
    assert_eq!(seen.disks.len(), 8);
    assert_eq!(value(&seen.disks[7].numa), Some(1));
    let mounts: Vec<_> = seen.filesystems.iter().map(|fs| fs.mount.as_str()).collect();
    assert_eq!(mounts, ["/", "/dev/shm", "/home dirs", "/raid", "/scratch"]);
    assert_eq!(value(&seen.cgroups), Some(CgroupDriver::V2));
    let named = |list: &[facts::inventory::Software]| -> Vec<String> {
        list.iter()
            .map(|software| format!("{}={}", software.name, value(&software.version).unwrap_or_default()))
            .collect()
    };
    assert_eq!(
        named(&seen.drivers),
        ["nvidia=535.129.03", "nvidia_peermem=535.129.03", "mlx5_core=23.10-0.5.5", "cuda-toolkit=12.2.2"]
    );
    assert_eq!(named(&seen.engines), ["slurm="]);
    assert_eq!(seen.findings, Vec::<String>::new());
}

#[test]
fn gpus_of_a_dgx_h100_have_identity_and_place() {
    let seen = see("dgx-h100");
    assert_eq!(seen.gpus.len(), 8);
    let gpu = &seen.gpus[2];
    assert_eq!(value(&gpu.key).unwrap(), "GPU-5f1e0a12-0b1c-4d2e-8f30-a1b2c3d4e502");
    assert_eq!(value(&gpu.canonical).unwrap(), "H100-SXM-80GB");
    assert_eq!(
        (gpu.pci.address.as_str(), value(&gpu.pci.numa), value(&gpu.minor)),
        ("0000:52:00.0", Some(0), Some(2))
    );
    assert_eq!((value(&gpu.link.megatransfers), value(&gpu.link.lanes)), (Some(32_000), Some(16)));
    assert_eq!(missing(&gpu.memory), "NVML: not asked", "absent is not zero");
    assert_eq!(gpu.unusable, None);
}

#[test]
fn a_uuid_that_was_cut_or_is_not_known_is_no_identity() {
    let check = |name: &str, from: &str, to: &str| {
        let mut entries = tree::parse(name);
        for (_, entry) in &mut entries {
            if let tree::Entry::File(bytes) = entry {
                *bytes = String::from_utf8(bytes.clone()).unwrap().replace(from, to).into_bytes();
            }
        }
        let seen = look(tree::build(&entries).path());
        let gpu = &seen.gpus[0];
        assert!(gpu.key.value().is_none() && gpu.unusable.is_some(), "{gpu:?}");
        assert!(!seen.findings.is_empty());
    };
    check("dgx-h100", "GPU-5f1e0a10-0b1c-4d2e-8f30-a1b2c3d4e500", "GPU-5f1e0a10-0b1c-4d2e-8f30-a1b2");
    check("dgx-h100", "GPU-5f1e0a10-0b1c-4d2e-8f30-a1b2c3d4e500", "[N/A]");
    check("h100-mig", "", "");
    check("mi300x", "2f1c5a7e90b30d00", "2f1c5a7e");
}

#[test]
fn who_holds_a_gpu_and_was_not_started_here_is_outside() {
    let seen = see("dgx-h100");
    let first = &seen.outside[0];
    assert_eq!(
        (first.pid, first.gpu.as_deref(), value(&first.uid)),
        (4711, Some("0000:1b:00.0"), Some(1001))
    );
    assert_eq!(value(&first.command).unwrap(), "python3");
    assert_eq!(value(&first.since), Some(Timestamp(1_764_547_200_000_000_000 + 123_450_000_000)));
    assert_eq!(first.evidence, [Evidence::OpenFile]);
    let held: Vec<_> = seen.outside.iter().map(|held| (held.pid, held.gpu.as_deref().unwrap())).collect();
    assert_eq!(held, [(4711, "0000:1b:00.0"), (4711, "0000:43:00.0"), (4712, "0000:52:00.0")]);
}

#[test]
fn jobs_of_our_own_are_not_outside() {
    let root = tree::build(&tree::parse("dgx-h100"));
    // The tree's group has the name that the supervisor of this directory gives its groups.
    let own = Some(Path::new("/fourplane-test/node"));
    let seen = inventory(&Look { root: root.path(), nvml: None, own }).unwrap();
    assert!(
        seen.outside.iter().all(|held| held.pid == 4711) && seen.outside.len() == 2,
        "{:?}",
        seen.outside
    );
}

#[test]
fn every_figure_of_amd_gpus_is_from_the_kernel() {
    let seen = see("mi300x");
    assert_eq!(seen.gpus.len(), 8);
    let gpu = &seen.gpus[1];
    assert_eq!(value(&gpu.key).unwrap(), "GPU-2f1c5a7e90b31e11");
    assert_eq!(value(&gpu.serial).unwrap(), "692324000001");
    assert_eq!(value(&gpu.canonical).unwrap(), "MI300X-OAM-192GB");
    assert_eq!(value(&gpu.memory), Some(Bytes(206_141_652_992)));
    assert_eq!(value(&gpu.fabric), Some(GpuFabric { kind: "xgmi".to_owned(), active: 7, links: 7 }));
    assert_eq!(
        missing(&gpu.partition),
        "/sys/bus/pci/devices/0000:26:00.0/current_compute_partition says SPX"
    );
    assert_eq!((value(&gpu.minor), &gpu.unusable), (Some(136), &None));
    let ways = matrix(&seen);
    for (row, line) in ways.lines().enumerate() {
        let expect: Vec<&str> = (0..8)
            .map(|gpu| {
                if gpu == row {
                    "PIX"
                } else if gpu / 4 == row / 4 {
                    "NODE"
                } else {
                    "SYS"
                }
            })
            .collect();
        assert_eq!(line, format!("mlx5_{row} {}", expect.join(" ")));
    }
    let held: Vec<_> = seen.outside.iter().map(|held| (held.pid, held.gpu.as_deref())).collect();
    assert_eq!(held, [(900, Some("0000:26:00.0")), (901, None)]);
}

#[test]
fn partitions_of_an_amd_gpu_are_its_children() {
    let seen = see("mi300x-cpx");
    assert_eq!(seen.gpus.len(), 1, "one device, eight parts");
    let partition = value(&seen.gpus[0].partition).unwrap();
    assert_eq!((partition.mode.as_str(), partition.parts.len()), ("CPX", 8));
    assert_eq!(partition.parts[7].key, "GPU-2f1c5a7e90b30d00-7");
    assert_eq!(value(&partition.parts[7].memory), Some(Bytes(25_767_706_624)));
    assert_eq!(partition.parts.iter().map(|part| part.share).collect::<Vec<_>>(), [SHARES / 8; 8]);
    assert_eq!(partition.partition_remainder, 0);
}

#[test]
fn cards_without_numa_and_without_their_driver_are_told_apart() {
    let seen = see("l40s-pcie");
    let [first, second]: &[Gpu; 2] = seen.gpus.as_slice().try_into().unwrap();
    assert_eq!(value(&first.canonical).unwrap(), "L40S-PCIE-48GB");
    assert_eq!(value(&first.pci.numa), Some(0), "the only node");
    assert_eq!(first.unusable, None);
    assert_eq!(second.unusable.as_deref(), Some("the driver vfio-pci has it"));
    assert!(second.key.value().is_none());
    assert_eq!(matrix(&seen), "mlx5_0 PHB PHB\nmlx5_1 PHB PHB\n");
    assert_eq!(value(&seen.cgroups), Some(CgroupDriver::Hybrid));
    assert!(seen.rdma[2].virtual_function);
    assert_eq!(
        seen.disks.iter().map(|disk| value(&disk.rotational)).collect::<Vec<_>>(),
        [Some(false), Some(true)]
    );
    assert!(seen.outside.is_empty());
}

#[test]
fn a_cloud_instance_has_elastic_fabric_adapters() {
    let seen = see("p5-efa");
    assert_eq!(seen.rdma.iter().map(|port| value(&port.kind)).collect::<Vec<_>>(), [Some(RdmaKind::Efa); 2]);
    assert_eq!(matrix(&seen), "rdmap79s0 PIX\nrdmap80s0 PIX\n");
    // The driver's files are hidden, and nobody asked its library: its identity is not known.
    assert!(seen.gpus[0].unusable.as_deref().unwrap().starts_with("its identity is not known"));
    assert_eq!(value(&seen.cgroups), Some(CgroupDriver::V1));
}

#[test]
fn a_laptop_has_no_gpu_to_give() {
    let seen = see("laptop");
    assert!(seen.gpus.is_empty() && seen.outside.is_empty() && seen.rdma.is_empty());
    assert_eq!((seen.nics.len(), seen.disks.len()), (1, 1));
    assert_eq!(missing(&seen.nics[0].bits_per_second), "/sys/class/net/wlp0s20f3/speed is not there");
    assert_eq!(seen.filesystems.len(), 2, "one mount a device");
    assert_eq!(seen.findings, Vec::<String>::new());
}

#[test]
fn an_empty_tree_says_what_was_looked_for() {
    let root = tempfile::tempdir().unwrap();
    let seen = look(root.path());
    assert_eq!(missing(&seen.memory), "/proc/meminfo is not there");
    assert_eq!(missing(&seen.cpu.threads), "/sys/devices/system/cpu/online is not there");
    assert!(seen.gpus.is_empty() && seen.disks.is_empty());
    let text = serde_json::to_string(&seen).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), seen, "JSON reads back");
}

#[test]
fn this_machine_has_something() {
    let seen = look(Path::new("/"));
    assert!(value(&seen.cpu.threads).unwrap() > 0);
    assert!(value(&seen.memory).unwrap() > Bytes(1 << 20));
    assert!(seen.filesystems.iter().any(|fs| value(&fs.size).is_some_and(|size| size > Bytes(0))));
}
