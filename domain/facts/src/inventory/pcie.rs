//! How far two PCI devices are apart.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Seen;

/// Where a PCI function is plugged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciPlace {
    /// Its address, `DDDD:BB:DD.F`.
    pub address: String,
    /// The host bridge, for example `pci0000:15`.
    pub root: String,
    /// Addresses of the bridges from the host bridge down to it.
    pub bridges: Vec<String>,
    /// The NUMA node that it is near to.
    pub numa: Seen<u32>,
}

/// The worst that is crossed between two devices, named and ordered as by `nvidia-smi topo -m`.
/// Source of names and meanings: the legend which that command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PciePath {
    /// At most one PCI Express bridge.
    Pix,
    /// Several PCI Express bridges, and no host bridge.
    Pxb,
    /// A host bridge, commonly the CPU.
    Phb,
    /// The connection between host bridges of one NUMA node.
    Node,
    /// The connection between NUMA nodes.
    Sys,
}

impl fmt::Display for PciePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        })
    }
}

/// How far two devices are apart. Two downstream ports of one switch are what the legend calls a
/// single bridge; a port deeper on either side makes it several.
pub fn pcie_path(a: &PciPlace, b: &PciPlace) -> Seen<PciePath> {
    let source = format!("places of {} and {} in /sys/devices", a.address, b.address);
    if a.root != b.root {
        return match (a.numa.value(), b.numa.value()) {
            (Some(a), Some(b)) if a == b => Seen::new(PciePath::Node, source),
            (Some(_), Some(_)) => Seen::new(PciePath::Sys, source),
            _ => Seen::failed(format!("{source}: other host bridges, and no NUMA node is known")),
        };
    }
    let shared = a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| a == b).count();
    let deepest = a.bridges.len().max(b.bridges.len()) - shared;
    Seen::new(
        match (shared, deepest) {
            (0, _) => PciePath::Phb,
            (_, 0 | 1) => PciePath::Pix,
            _ => PciePath::Pxb,
        },
        source,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, numa: Option<u32>) -> PciPlace {
        let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        let (root, address) = (parts.remove(0), parts.pop().unwrap());
        let numa = numa.map_or(Seen::absent("-1"), |node| Seen::new(node, "test"));
        PciPlace { address, root, bridges: parts, numa }
    }

    #[test]
    fn the_worst_crossing_names_the_way() {
        let check = |a: (&str, Option<u32>), b: (&str, Option<u32>), expect: Option<PciePath>| {
            let (a, b) = (place(a.0, a.1), place(b.0, b.1));
            assert_eq!(pcie_path(&a, &b).value().copied(), expect, "{a:?} {b:?}");
            assert_eq!(pcie_path(&b, &a).value().copied(), expect, "not symmetric");
        };
        let gpu = ("pci0000:15/15:01.0/16:00.0/17:00.0/18:00.0", Some(0));
        check(gpu, gpu, Some(PciePath::Pix));
        check(gpu, ("pci0000:15/15:01.0/16:00.0/17:03.0/1b:00.0", Some(0)), Some(PciePath::Pix));
        check(
            gpu,
            ("pci0000:15/15:01.0/16:00.0/17:02.0/19:00.0/1a:00.0/1b:00.0", Some(0)),
            Some(PciePath::Pxb),
        );
        check(gpu, ("pci0000:15/15:02.0/20:00.0", Some(0)), Some(PciePath::Phb));
        check(gpu, ("pci0000:3a/3a:01.0/3b:00.0", Some(0)), Some(PciePath::Node));
        check(gpu, ("pci0000:9a/9a:01.0/9b:00.0", Some(1)), Some(PciePath::Sys));
        check(gpu, ("pci0000:9a/9a:01.0/9b:00.0", None), None);
        check(("pci0000:00/00:02.0", None), ("pci0000:00/00:1f.6", None), Some(PciePath::Phb));
    }
}
