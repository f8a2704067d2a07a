//! A damaged tree never brings the reader down and never shows a device that is not there.

use std::collections::BTreeSet;

use facts::inventory::{Inventory, SHARES};
use proptest::prelude::*;
use proptest::sample::Index;

use super::tree::{ALL, Entry, build, parse};
use super::{look, value};

#[derive(Clone, Debug)]
enum Damage {
    /// Only so many bytes are left.
    Cut(Index),
    /// Something else stands there.
    Junk(Vec<u8>),
    Missing,
    /// A link to itself.
    Loop,
    /// A directory in place of it.
    Directory,
    /// A link leads where another one does.
    Elsewhere(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<Index>().prop_map(Damage::Cut),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Damage::Junk),
        prop_oneof!["-1", "0xFFFF", "[N/A]", "Unknown", "4294967295", "99999999999999999999"]
            .prop_map(|text| Damage::Junk(format!("{text}\n").into_bytes())),
        Just(Damage::Missing),
        Just(Damage::Loop),
        Just(Damage::Directory),
        any::<Index>().prop_map(Damage::Elsewhere),
    ]
}

fn apply(entries: &mut Vec<(String, Entry)>, at: usize, damage: Damage) {
    let links: Vec<String> = entries
        .iter()
        .filter_map(|(_, entry)| if let Entry::Link(target) = entry { Some(target.clone()) } else { None })
        .collect();
    let (path, entry) = &mut entries[at];
    match (damage, &mut *entry) {
        (Damage::Cut(at), Entry::File(bytes)) => bytes.truncate(at.index(bytes.len().max(1))),
        (Damage::Junk(junk), Entry::File(bytes)) => *bytes = junk,
        (Damage::Loop, _) => *entry = Entry::Link(path.rsplit('/').next().unwrap().to_owned()),
        (Damage::Directory, _) => *entry = Entry::Directory,
        (Damage::Elsewhere(other), Entry::Link(target)) => target.clone_from(other.get(&links)),
        _ => drop(entries.remove(at)),
    }
}

/// Every device by its kind and name, and every identity of one.
fn devices(seen: &Inventory) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for gpu in &seen.gpus {
        all.insert(format!("gpu {}", gpu.pci.address));
        // Without a UUID it is told by its place, which is no other device.
        let placed = |key: &String| key.starts_with("machine-") && key.ends_with(&gpu.pci.address);
        let serial = gpu.serial.value().map(|serial| format!("serial-{serial}"));
        all.extend(value(&gpu.key).filter(|key| !placed(key) && Some(key) != serial.as_ref()));
        let partition = value(&gpu.partition);
        all.extend(partition.into_iter().flat_map(|partition| partition.parts).map(|part| part.key));
    }
    all.extend(seen.disks.iter().map(|disk| format!("disk {}", disk.name)));
    all.extend(seen.nics.iter().map(|nic| format!("nic {}", nic.name)));
    all.extend(seen.rdma.iter().map(|port| format!("port {} {}", port.device, port.port)));
    all.extend(seen.numa.iter().map(|node| format!("node {}", node.id)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_made_up(
        tree in 0..ALL.len(),
        damages in proptest::collection::vec((any::<Index>(), damage()), 1..60),
    ) {
        let mut entries = parse(ALL[tree].0);
        // Most files of a large machine are about its CPUs, which are no devices.
        entries.retain(|(path, _)| !path.contains("/topology/"));
        let whole = look(build(&entries).path());
        for (at, damage) in damages {
            let at = at.index(entries.len());
            apply(&mut entries, at, damage);
        }
        let seen = look(build(&entries).path());
        let (known, shown) = (devices(&whole), devices(&seen));
        let invented: Vec<_> = shown.difference(&known).collect();
        prop_assert!(invented.is_empty(), "made up: {:?}", invented);
        for gpu in &seen.gpus {
            if let Some(partition) = value(&gpu.partition) {
                let sum: u32 = partition.parts.iter().map(|part| part.share).sum();
                prop_assert_eq!(sum + partition.partition_remainder, SHARES);
            }
        }
    }
}
