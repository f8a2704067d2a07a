//! Functions on the PCI bus and where they are plugged in.

use facts::inventory::{NumaNode, PciPlace, PcieLink, Seen};

use super::tree::{Tree, raw};

const DEVICES: &str = "sys/bus/pci/devices";

/// One PCI function.
pub(super) struct Function {
    /// Its directory.
    pub(super) dir: String,
    pub(super) vendor: u32,
    pub(super) device: u32,
    /// Base class, subclass and interface, one byte each.
    pub(super) class: u32,
    pub(super) place: PciPlace,
}

/// Every function whose vendor, device and class can be read; a display or an accelerator that
/// cannot be is a finding of the caller's.
pub(super) fn functions(tree: &Tree, nodes: &[NumaNode], findings: &mut Vec<String>) -> Vec<Function> {
    let mut functions = Vec::new();
    for name in tree.names(DEVICES).into_iter().filter(|name| is_address(name)) {
        let dir = format!("{DEVICES}/{name}");
        let figures = (
            tree.hex(&format!("{dir}/vendor")),
            tree.hex(&format!("{dir}/device")),
            tree.hex(&format!("{dir}/class")),
        );
        match (figures, place(tree, nodes, &dir)) {
            (
                (
                    Seen::Value { value: vendor, .. },
                    Seen::Value { value: device, .. },
                    Seen::Value { value: class, .. },
                ),
                Seen::Value { value: place, .. },
            ) if place.address == name => functions.push(Function { dir, vendor, device, class, place }),
            ((vendor, device, class), place) => {
                let why = [vendor.missing(), device.missing(), class.missing(), place.missing()];
                let why = why.into_iter().flatten().next().unwrap_or("its link leads to another one");
                findings.push(format!("/{dir}: not understood, so left out: {why}"));
            }
        }
    }
    functions
}

/// Whether a name is a PCI address: `0000:1b:00.0`, with a longer domain below a VMD.
pub(super) fn is_address(name: &str) -> bool {
    let hex = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let [domain, bus, device, function] = parts[..] else { return false };
    hex(domain, 4, 8) && hex(bus, 2, 2) && hex(device, 2, 2) && hex(function, 1, 1)
}

/// Where the function is plugged in that a path below `/sys` leads to.
pub(super) fn place(tree: &Tree, nodes: &[NumaNode], path: &str) -> Seen<PciPlace> {
    tree.place(path).then(|real| {
        let parts: Vec<&str> = real.split('/').collect();
        let is_root = |part: &&str| part.strip_prefix("pci").is_some_and(|rest| rest.contains(':'));
        let root = parts.iter().rposition(is_root).ok_or_else(|| format!("/{real} is not on a PCI bus"))?;
        let chain: Vec<&str> =
            parts[root + 1..].iter().copied().take_while(|part| is_address(part)).collect();
        let (address, bridges) = chain.split_last().ok_or_else(|| format!("/{real} names no function"))?;
        let dir = parts[..=root + chain.len()].join("/");
        Ok(PciPlace {
            address: (*address).to_owned(),
            root: parts[root].to_owned(),
            bridges: bridges.iter().map(|bridge| (*bridge).to_owned()).collect(),
            numa: numa(tree, nodes, &dir),
        })
    })
}

/// The NUMA node of a function. Where the firmware names none and there is only one, it is that.
fn numa(tree: &Tree, nodes: &[NumaNode], dir: &str) -> Seen<u32> {
    match (tree.number(&format!("{dir}/numa_node")), nodes) {
        (Seen::Absent { .. }, [only]) => Seen::new(only.id, "/sys/devices/system/node has only one"),
        (seen, _) => seen,
    }
}

pub(super) fn link(tree: &Tree, dir: &str) -> PcieLink {
    let speed = |file: &str| match tree.line(&format!("{dir}/{file}")) {
        Seen::Value { value, source } => Seen::new(value, source).then(|text| megatransfers(&text)),
        missing => missing.map(|_| 0),
    };
    let lanes = |file: &str| match tree.number::<u32>(&format!("{dir}/{file}")) {
        Seen::Value { value, source } if !(1..=32).contains(&value) => {
            Seen::absent(format!("{source} says {value}"))
        }
        seen => seen,
    };
    PcieLink {
        megatransfers: speed("current_link_speed"),
        lanes: lanes("current_link_width"),
        max_megatransfers: speed("max_link_speed"),
        max_lanes: lanes("max_link_width"),
    }
}

/// `32.0 GT/s PCIe` is 32,000.
fn megatransfers(text: &str) -> Result<u32, String> {
    let bad = || format!("{:?} is no link speed", raw(text));
    let (number, _) = text.split_once(" GT/s").ok_or_else(bad)?;
    thousandths(number).and_then(|speed| u32::try_from(speed).ok()).ok_or_else(bad)
}

/// A decimal number in thousandths: `2.5` is 2,500.
pub(super) fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 3 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(format!("{fraction:0<3}").parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_speeds_have_their_form() {
        for (name, expect) in [
            ("0000:1b:00.0", true),
            ("10000:e1:00.0", true),
            ("0000:1b:00", false),
            ("pci0000:15", false),
            ("0000:1b:00.0x", false),
            ("virtio0", false),
        ] {
            assert_eq!(is_address(name), expect, "{name}");
        }
        for (text, expect) in [
            ("32.0 GT/s PCIe", Some(32_000)),
            ("2.5 GT/s PCIe", Some(2_500)),
            ("16 GT/s", Some(16_000)),
            ("Unknown", None),
            ("32.0 GT", None),
            ("-1 GT/s", None),
        ] {
            assert_eq!(megatransfers(text).ok(), expect, "{text}");
        }
    }
}
