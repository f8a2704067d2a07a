//! GPUs: what the bus shows, and what their drivers say of them.

use facts::inventory::{
    Gpu, GpuFabric, GpuMaker, GpuPart, NumaNode, Partition, PciPlace, SHARES, Seen, gpu_uuid, identity,
    sentinel, shares,
};
use units::{Bytes, GpuName};

use super::amd;
use super::nvml::{Answer, Card, NO_LIBRARY, Part, Report};
use super::pci::{self, Function};
use super::tree::{Tree, number, raw};

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
/// PCI base class of display controllers.
const DISPLAY: u32 = 0x03;
/// PCI class and subclass of processing accelerators.
const ACCELERATOR: u32 = 0x1200;

/// What NVIDIA's library said, or why it was not asked.
pub(super) type NvmlAnswer = Answer<Report>;

/// All GPUs of both makers, in the order of their PCI addresses.
pub(super) fn gpus(
    tree: &Tree,
    nodes: &[NumaNode],
    nvml: &NvmlAnswer,
    findings: &mut Vec<String>,
) -> Vec<Gpu> {
    let machine = tree.line("etc/machine-id").then(|id| {
        let formed = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if formed { Ok(id) } else { Err(format!("{id:?} is no machine id")) }
    });
    let mut cards: Vec<&Card> = Vec::new();
    for answer in nvml.iter().flat_map(|report| &report.gpus) {
        match answer {
            Ok(card) => cards.push(card),
            Err(error) => findings.push(format!("NVML: {error}")),
        }
    }
    let mut gpus = Vec::new();
    for function in pci::functions(tree, nodes, findings) {
        let is_display = function.class >> 16 == DISPLAY;
        match function.vendor {
            NVIDIA if is_display => {
                let at = cards.iter().position(|card| card.address == function.place.address);
                let card = at.map(|at| cards.swap_remove(at));
                gpus.push(nvidia(tree, &machine, nvml, &function, card));
            }
            AMD if is_display || function.class >> 8 == ACCELERATOR => {
                gpus.push(amd::gpu(tree, &machine, &function));
            }
            _ => {}
        }
    }
    // A container may hide the bus and still have the library.
    for card in cards {
        findings.push(format!("NVML: GPU {} is not on the PCI bus that /sys shows", card.address));
        let place = PciPlace {
            address: card.address.clone(),
            root: String::new(),
            bridges: Vec::new(),
            numa: Seen::absent(format!("{} is not below /sys/bus/pci", card.address)),
        };
        let dir = format!("sys/bus/pci/devices/{}", card.address);
        let function = Function { dir, vendor: NVIDIA, device: 0, class: DISPLAY << 16, place };
        gpus.push(nvidia(tree, &machine, nvml, &function, Some(card)));
    }
    gpus.sort_by(|a, b| a.pci.address.cmp(&b.pci.address));
    gpus
}

/// Whether anything shows that NVIDIA's library is worth asking.
pub(super) fn may_have_nvidia(tree: &Tree) -> bool {
    tree.first(&["proc/driver/nvidia", "dev/nvidiactl", "dev/dxg"]).is_some()
}

/// The canonical name of a model, by the table of names.
pub(super) fn canonical(model: &Seen<String>) -> Seen<String> {
    match model {
        Seen::Value { value, source } => value.parse::<GpuName>().map_or_else(
            |error| Seen::absent(format!("{source}: {error}")),
            |name| Seen::new(name.model.name().to_owned(), format!("{source}, by the table of names")),
        ),
        missing => missing.clone(),
    }
}

/// An answer of the library as a figure.
fn told<T>(card: Option<&Card>, why: &str, read: impl FnOnce(&Card) -> Answer<T>) -> Seen<T> {
    match card.map(read) {
        Some(Ok(value)) => Seen::new(value, "NVML"),
        Some(Err(error)) if error.contains("not support") => Seen::absent(format!("NVML: {error}")),
        Some(Err(error)) => Seen::failed(format!("NVML: {error}")),
        None => Seen::absent(why),
    }
}

/// A figure of the driver's file about one GPU.
fn field(information: &Seen<String>, name: &str) -> Seen<String> {
    match information {
        Seen::Value { value, source } => {
            let text = value.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            match text.map(|text| (text.trim(), sentinel(text))) {
                Some((_, Ok(text))) => Seen::new(raw(text), source.clone()),
                Some((text, Err(_))) if text == "0" => Seen::new(text.to_owned(), source.clone()),
                Some((text, Err(_))) => Seen::failed(format!("{source}: {name} is {:?}", raw(text))),
                None => Seen::failed(format!("{source} has no {name}")),
            }
        }
        missing => missing.clone(),
    }
}

fn nvidia(
    tree: &Tree,
    machine: &Seen<String>,
    nvml: &NvmlAnswer,
    function: &Function,
    card: Option<&Card>,
) -> Gpu {
    let address = &function.place.address;
    let why = match nvml {
        Ok(_) => format!("NVML does not list {address}"),
        Err(error) => format!("NVML: {error}"),
    };
    let information = tree.whole(&format!("proc/driver/nvidia/gpus/{address}/information"));
    let uuid = told(card, &why, |card| card.uuid.clone())
        .or(|| field(&information, "GPU UUID"))
        .then(|uuid| gpu_uuid(&uuid));
    // Each of them has a UUID: where none is told the driver does not have the GPU.
    let uuid = match uuid {
        Seen::Absent { absent } => Seen::Failed { failed: absent },
        seen => seen,
    };
    let serial = told(card, &why, |card| card.serial.clone());
    let model = told(card, &why, |card| card.model.clone()).or(|| field(&information, "Model"));
    let model = model.or(|| {
        let name = format!("PCI {:04x}:{:04x}", function.vendor, function.device);
        Seen::new(name, format!("/{}/device", function.dir))
    });
    let minor = told(card, &why, |card| card.minor.clone())
        .or(|| field(&information, "Device Minor").then(|text| number(&text)));
    let key = identity(&uuid, &serial, machine, address);
    let driver = tree.link_name(&format!("{}/driver", function.dir));
    let excluded = field(&information, "GPU Excluded").value().is_some_and(|word| word != "No");
    let unusable = match (nvml, card, driver.value().map(String::as_str)) {
        (_, _, Some(other)) if other != "nvidia" => Some(format!("the driver {other} has it")),
        _ if excluded => Some("the driver was told to leave it alone".to_owned()),
        (Ok(_), None, _) => Some(why.clone()),
        // Without the library nothing is said against the GPU; any other error meets jobs as well.
        (Err(error), _, _) if !error.starts_with("not asked") && !error.starts_with(NO_LIBRARY) => {
            Some(format!("NVML: {error}"))
        }
        _ => key.missing().map(|why| format!("its identity is not known: {why}")),
    };
    Gpu {
        canonical: canonical(&model),
        maker: GpuMaker::Nvidia,
        link: pci::link(tree, &function.dir),
        memory: told(card, &why, |card| card.memory.clone()).map(Bytes),
        fabric: nvlink(card, &why),
        partition: mig(card, &why),
        pci: function.place.clone(),
        key,
        model,
        driver,
        minor,
        serial,
        unusable,
    }
}

fn nvlink(card: Option<&Card>, why: &str) -> Seen<GpuFabric> {
    let links = told(card, why, |card| card.links.clone());
    match links.value().map(Vec::len) {
        Some(0) => Seen::absent("NVML: it has no NVLink"),
        _ => links.map(|links| {
            let count = |links: usize| u32::try_from(links).unwrap_or(u32::MAX);
            let active = count(links.iter().filter(|active| **active).count());
            GpuFabric { kind: "nvlink".to_owned(), active, links: count(links.len()) }
        }),
    }
}

/// MIG devices, with shares by their compute slices. A part that cannot be read makes the whole
/// partition unknown: its share would go to the remainder.
fn mig(card: Option<&Card>, why: &str) -> Seen<Partition> {
    let Some(card) = card else { return Seen::absent(why) };
    match &card.mig {
        Ok(true) => {}
        Ok(false) => return Seen::absent("NVML: MIG is off"),
        Err(error) => return Seen::absent(format!("NVML: {error}")),
    }
    let read = || -> Answer<Partition> {
        let parts: Vec<Part> = card.parts.iter().cloned().collect::<Answer<_>>()?;
        let whole = card.slices.clone()?;
        let slices: Vec<u32> = parts.iter().map(|part| part.slices).collect();
        let given = shares(&slices, whole)
            .ok_or_else(|| format!("its MIG devices have {slices:?} slices of {whole}"))?;
        let parts = parts.into_iter().zip(given.parts).map(|(part, share)| {
            Ok(GpuPart {
                key: gpu_uuid(&part.uuid)?,
                profile: Seen::new(profile(&part.name), "NVML"),
                share,
                memory: Seen::new(Bytes(part.memory_mb.saturating_mul(1 << 20)), "NVML"),
            })
        });
        let parts = parts.collect::<Answer<_>>()?;
        Ok(Partition { mode: "mig".to_owned(), parts, partition_remainder: given.remainder })
    };
    match read() {
        Ok(partition) => Seen::new(partition, "NVML"),
        Err(error) => Seen::failed(format!("NVML: {}: {error}", card.address)),
    }
}

/// `NVIDIA H100 80GB HBM3 MIG 1g.10gb` is `1g.10gb`.
fn profile(name: &str) -> String {
    name.rsplit_once(" MIG ").map_or(name, |(_, profile)| profile).to_owned()
}

/// Parts of equal make: each has a share by its weight, and nothing is left over.
pub(super) fn even_parts(mode: String, parts: Vec<(String, u32, Seen<Bytes>)>) -> Option<Partition> {
    let weights: Vec<u32> = parts.iter().map(|(_, weight, _)| *weight).collect();
    let given = shares(&weights, weights.iter().copied().fold(0, u32::saturating_add))?;
    let part = |((key, _, memory), share): ((String, u32, Seen<Bytes>), u32)| GpuPart {
        key,
        profile: Seen::absent("parts of this mode have no profile"),
        share,
        memory,
    };
    debug_assert_eq!(given.parts.iter().sum::<u32>() + given.remainder, SHARES);
    let parts = parts.into_iter().zip(given.parts).map(part).collect();
    Some(Partition { mode, parts, partition_remainder: given.remainder })
}
