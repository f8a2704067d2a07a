//! What this machine has.

use std::path::Path;

use units::Bytes;

use crate::cgroup::{CgroupKind, Cgroups};

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// What identifies it for ever: its UUID (decision D11).
    pub key: String,
    /// Its model, as the driver says it.
    pub model: String,
    /// Whether it is made up, for rehearsals and tests.
    pub simulated: bool,
}

/// What this machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Its name.
    pub hostname: String,
    /// Cores that are online.
    pub cores: u32,
    /// Main memory.
    pub memory: Bytes,
    /// Its GPUs, in the order of their device files; a GPU's position is its index.
    pub gpus: Vec<Gpu>,
    /// How tasks are held to their limits.
    pub cgroups: CgroupKind,
    /// Whether a task is kept from the GPUs it was not given, or only advised.
    pub confines_devices: bool,
}

/// Looks at the machine whose `/proc` and `/sys` are below `root` (`/` but in tests), and adds
/// `simulated` made-up GPUs.
pub fn inventory(root: &Path, simulated: u16) -> std::io::Result<Inventory> {
    let found = nvidia_gpus(&root.join("proc/driver/nvidia/gpus"));
    let mut gpus: Vec<Gpu> = found.into_iter().map(|(_, gpu)| gpu).collect();
    gpus.extend((0..simulated).map(|index| Gpu {
        key: format!("SIMULATED-{index}"),
        model: "simulated".to_owned(),
        simulated: true,
    }));
    let (cgroups, confines_devices) = Cgroups::offered();
    Ok(Inventory {
        hostname: std::fs::read_to_string(root.join("proc/sys/kernel/hostname"))?.trim().to_owned(),
        cores: online_cores(&std::fs::read_to_string(root.join("sys/devices/system/cpu/online"))?),
        memory: total_memory(&std::fs::read_to_string(root.join("proc/meminfo"))?),
        gpus,
        cgroups,
        confines_devices,
    })
}

/// Reads a list such as `0-3,8`.
fn online_cores(list: &str) -> u32 {
    let count = |range: &str| -> Option<u32> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.trim().split(',').filter_map(count).sum()
}

fn total_memory(meminfo: &str) -> Bytes {
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    Bytes(kib.unwrap_or(0) * 1_024)
}

/// What the NVIDIA driver says of its GPUs, each with the minor number of its device file, by
/// which they are ordered.
pub(crate) fn nvidia_gpus(dir: &Path) -> Vec<(u32, Gpu)> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("information")).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let minor: u32 = field("Device Minor:")?.parse().ok()?;
        let gpu =
            Gpu { key: field("GPU UUID:")?.to_owned(), model: field("Model:")?.to_owned(), simulated: false };
        Some((minor, gpu))
    };
    let mut gpus: Vec<(u32, Gpu)> = std::fs::read_dir(dir).into_iter().flatten().filter_map(read).collect();
    gpus.sort_by_key(|(minor, _)| *minor);
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_counted() {
        for (list, expect) in [("0\n", 1), ("0-1\n", 2), ("0-3,8,10-11\n", 7), ("", 0), ("3-1", 0)] {
            assert_eq!(online_cores(list), expect, "{list:?}");
        }
    }

    #[test]
    fn gpus_come_in_the_order_of_their_device_files() {
        let root = tempfile::tempdir().unwrap();
        for (bus, minor) in [("0000:01:00.0", 1), ("0000:02:00.0", 0)] {
            let dir = root.path().join(bus);
            std::fs::create_dir(&dir).unwrap();
            let text =
                format!("Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n");
            std::fs::write(dir.join("information"), text).unwrap();
        }
        let found: Vec<_> =
            nvidia_gpus(root.path()).into_iter().map(|(minor, gpu)| (minor, gpu.key)).collect();
        assert_eq!(found, [(0, "GPU-0".to_owned()), (1, "GPU-1".to_owned())]);
    }

    #[test]
    fn this_machine_has_something() {
        let seen = inventory(Path::new("/"), 2).unwrap();
        assert!(seen.cores > 0 && seen.memory.0 > 1 << 20 && !seen.hostname.is_empty());
        assert_eq!(seen.gpus.iter().filter(|gpu| gpu.simulated).count(), 2);
    }
}
