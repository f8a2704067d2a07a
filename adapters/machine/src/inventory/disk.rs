//! Disks and mounted file systems.

use std::collections::BTreeMap;

use facts::inventory::{Disk, Filesystem, NumaNode, Seen};
use units::Bytes;

use super::pci;
use super::tree::Tree;

/// File systems of this machine's own disks, which answer at once.
const LOCAL: [&str; 10] =
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "vfat", "xfs", "zfs"];
/// File systems over a network, which may hang.
const REMOTE: [&str; 14] = [
    "9p",
    "afs",
    "beegfs",
    "beegfs_nodev",
    "ceph",
    "cifs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "pvfs2",
    "smb3",
    "virtiofs",
    "wekafs",
];

pub(super) fn disks(tree: &Tree, nodes: &[NumaNode]) -> Vec<Disk> {
    // What is made of other disks, of memory or of files has no device behind it.
    let is_disk = |name: &String| {
        let dir = format!("sys/block/{name}");
        !name.starts_with("sr")
            && tree.leads_to_itself(&dir)
            && tree.exists(&format!("{dir}/device"))
            && tree.number::<u32>(&format!("{dir}/hidden")).value().is_none_or(|hidden| *hidden == 0)
    };
    let disk = |name: String| {
        let dir = format!("sys/block/{name}");
        // The kernel counts sectors of 512 bytes here, whatever the disk's own are.
        let size = tree.number::<u64>(&format!("{dir}/size")).then(|sectors| {
            sectors.checked_mul(512).map(Bytes).ok_or_else(|| format!("{sectors} sectors are too many"))
        });
        let numa = match pci::place(tree, nodes, &dir) {
            Seen::Value { value, .. } => value.numa,
            missing => missing.map(|_| 0),
        };
        Disk {
            model: tree.line(&format!("{dir}/device/model")),
            rotational: tree.number::<u32>(&format!("{dir}/queue/rotational")).map(|turns| turns != 0),
            size,
            // A virtual disk is near to no node, which is nothing wrong.
            numa: match numa {
                Seen::Failed { failed } => Seen::Absent { absent: failed },
                seen => seen,
            },
            name,
        }
    };
    tree.names("sys/block").into_iter().filter(is_disk).map(disk).collect()
}

/// The mount table; of a device that is mounted often, the place nearest to the root.
pub(super) fn filesystems(tree: &Tree, findings: &mut Vec<String>) -> Vec<Filesystem> {
    let table = tree.whole("proc/mounts");
    if let Some(why) = table.missing() {
        findings.push(format!("file systems: {why}"));
    }
    let mut found: BTreeMap<(String, String), String> = BTreeMap::new();
    for line in table.value().map(String::as_str).unwrap_or_default().lines() {
        let mut fields = line.split(' ').map(unescape);
        let (Some(device), Some(mount), Some(kind)) = (fields.next(), fields.next(), fields.next()) else {
            findings.push(format!("/proc/mounts: not understood: {line:?}"));
            continue;
        };
        let holds_data = LOCAL.contains(&kind.as_str())
            || REMOTE.contains(&kind.as_str())
            || kind.starts_with("fuse.")
            || mount == "/dev/shm";
        if holds_data {
            let kept = found.entry((device, kind)).or_insert_with(|| mount.clone());
            if mount.len() < kept.len() {
                *kept = mount;
            }
        }
    }
    let mut all: Vec<Filesystem> =
        found.into_iter().map(|((device, kind), mount)| filesystem(tree, device, kind, mount)).collect();
    all.sort_by(|a, b| a.mount.cmp(&b.mount));
    all
}

fn filesystem(tree: &Tree, device: String, kind: String, mount: String) -> Filesystem {
    let is_local = LOCAL.contains(&kind.as_str()) || kind == "tmpfs";
    let (size, free) = if !tree.is_live() {
        let why = "not asked: this is not the machine itself";
        (Seen::absent(why), Seen::absent(why))
    } else if !is_local {
        let why = format!("not asked: {kind} may hang");
        (Seen::absent(why.clone()), Seen::absent(why))
    } else {
        match rustix::fs::statvfs(mount.as_str()) {
            Ok(told) => {
                let bytes = |blocks: u64| Seen::new(Bytes(blocks.saturating_mul(told.f_frsize)), "statvfs");
                (bytes(told.f_blocks), bytes(told.f_bavail))
            }
            Err(error) => {
                let why = format!("statvfs {mount}: {error}");
                (Seen::failed(why.clone()), Seen::failed(why))
            }
        }
    };
    Filesystem { mount, kind, device, size, free }
}

/// The kernel writes blanks and backslashes as `\` and three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_mounts_are_read() {
        for (field, expect) in [("/data\\040set", "/data set"), ("/a\\134b", "/a\\b"), ("/x\\9", "/x\\9")] {
            assert_eq!(unescape(field), expect);
        }
    }
}
