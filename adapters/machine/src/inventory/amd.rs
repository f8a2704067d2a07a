//! AMD GPUs: the amdgpu driver's files on the bus, and the compute driver's topology. The formats
//! are those of the kernel's `amdgpu` and `amdkfd` documentation and sources.

use std::collections::BTreeMap;

use facts::inventory::{Gpu, GpuFabric, GpuMaker, Partition, Seen, identity};
use units::Bytes;

use super::gpu::{canonical, even_parts};
use super::pci::{self, Function};
use super::tree::{Tree, number, raw};

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
/// `HSA_IOLINKTYPE_XGMI`.
const XGMI: u64 = 11;

/// A table of `name number` lines.
fn properties(tree: &Tree, path: &str) -> Seen<BTreeMap<String, u64>> {
    tree.whole(path).then(|text| {
        let entry = |line: &str| {
            let (name, value) =
                line.split_once(' ').ok_or_else(|| format!("{:?} is no figure", raw(line)))?;
            Ok((name.to_owned(), number(value)?))
        };
        text.lines().map(entry).collect()
    })
}

/// A node of the compute driver's, which is a whole GPU or one partition of it.
struct Node {
    dir: String,
    simd: u64,
}

/// The nodes of the GPU at a PCI address. A partition's number stands in the upper bits of its
/// `location_id`; the lower 16 are bus, device and function.
fn nodes(tree: &Tree, address: &str) -> (Vec<Node>, Option<String>) {
    let (mut found, mut trouble) = (Vec::new(), None);
    for name in tree.names(NODES) {
        let dir = format!("{NODES}/{name}");
        let table = match properties(tree, &format!("{dir}/properties")) {
            Seen::Value { value, .. } => value,
            missing => {
                trouble = missing.missing().map(str::to_owned);
                continue;
            }
        };
        let get = |name: &str| table.get(name).copied();
        let (Some(location), Some(simd)) = (get("location_id"), get("simd_count")) else { continue };
        let (domain, place) = (get("domain").unwrap_or(0), location & 0xffff);
        let own = format!("{domain:04x}:{:02x}:{:02x}.{:x}", place >> 8, place >> 3 & 0x1f, place & 7);
        if simd > 0 && own == address {
            found.push(Node { dir, simd });
        }
    }
    (found, trouble)
}

pub(super) fn gpu(tree: &Tree, machine: &Seen<String>, function: &Function) -> Gpu {
    let dir = &function.dir;
    let address = &function.place.address;
    // 16 digits, so that one that was cut short is no other GPU's.
    let unique = tree.line(&format!("{dir}/unique_id")).then(|id| {
        let formed = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if formed { Ok(format!("GPU-{}", id.to_ascii_lowercase())) } else { Err(format!("{id:?} is no id")) }
    });
    let serial = tree.line(&format!("{dir}/serial_number"));
    let key = identity(&unique, &serial, machine, address);
    // Boards without a readable name are known by their number only, which no table here has.
    let model = tree.line(&format!("{dir}/product_name")).or(|| {
        Seen::new(format!("PCI {:04x}:{:04x}", function.vendor, function.device), format!("/{dir}/device"))
    });
    let driver = tree.link_name(&format!("{dir}/driver"));
    let (kfd, trouble) = nodes(tree, address);
    let not_listed = || trouble.clone().unwrap_or_else(|| format!("/{NODES} does not list {address}"));
    let unusable = match driver.value().map(String::as_str) {
        Some(other) if other != "amdgpu" => Some(format!("the driver {other} has it")),
        None => Some("no driver has it".to_owned()),
        _ if kfd.is_empty() => Some(format!("it takes no compute work: {}", not_listed())),
        _ => key.missing().map(|why| format!("its identity is not known: {why}")),
    };
    let minor = tree.names(&format!("{dir}/drm")).into_iter().find_map(|name| {
        Some(Seen::new(name.strip_prefix("renderD")?.parse().ok()?, format!("/{dir}/drm/{name}")))
    });
    Gpu {
        canonical: canonical(&model),
        maker: GpuMaker::Amd,
        link: pci::link(tree, dir),
        memory: tree.number(&format!("{dir}/mem_info_vram_total")).map(Bytes),
        fabric: xgmi(tree, &kfd, &not_listed),
        partition: partition(tree, dir, &key, &kfd, trouble.as_ref()),
        pci: function.place.clone(),
        minor: minor.unwrap_or_else(|| Seen::absent(format!("/{dir}/drm has no render node"))),
        key,
        model,
        driver,
        serial,
        unusable,
    }
}

fn xgmi(tree: &Tree, kfd: &[Node], not_listed: &dyn Fn() -> String) -> Seen<GpuFabric> {
    let Some(node) = kfd.first() else { return Seen::absent(not_listed()) };
    let dir = format!("{}/io_links", node.dir);
    let mut links = 0;
    for name in tree.names(&dir) {
        match properties(tree, &format!("{dir}/{name}/properties")) {
            Seen::Value { value, .. } => links += u32::from(value.get("type") == Some(&XGMI)),
            missing => return missing.map(|_| GpuFabric { kind: String::new(), active: 0, links: 0 }),
        }
    }
    match links {
        0 => Seen::absent(format!("/{dir} lists no XGMI link")),
        links => Seen::new(GpuFabric { kind: "xgmi".to_owned(), active: links, links }, format!("/{dir}")),
    }
}

/// A compute partition mode other than `SPX` cuts the GPU into as many nodes. One node that cannot
/// be read makes all shares unknown.
fn partition(
    tree: &Tree,
    dir: &str,
    key: &Seen<String>,
    kfd: &[Node],
    trouble: Option<&String>,
) -> Seen<Partition> {
    let mode = tree.line(&format!("{dir}/current_compute_partition"));
    if mode.value().is_some_and(|mode| mode == "SPX") {
        return Seen::absent(format!("/{dir}/current_compute_partition says SPX"));
    }
    mode.then(|mode| {
        if let Some(trouble) = trouble {
            return Err(format!("mode {mode}: {trouble}"));
        }
        let count = match mode.as_str() {
            "DPX" => Some(2),
            "TPX" => Some(3),
            "QPX" => Some(4),
            // As many as there are compute dies, which differs between models.
            "CPX" => Some(kfd.len()).filter(|count| *count > 1),
            _ => None,
        };
        if count != Some(kfd.len()) {
            return Err(format!("mode {mode:?} with {} nodes below /{NODES}", kfd.len()));
        }
        let key = key.value().ok_or("the GPU's identity is not known")?;
        let part = |(index, node): (usize, &Node)| {
            let weight = u32::try_from(node.simd).map_err(|error| error.to_string())?;
            Ok((format!("{key}-{index}"), weight, local_memory(tree, &node.dir)))
        };
        let parts = kfd.iter().enumerate().map(part).collect::<Result<_, String>>()?;
        even_parts(mode, parts).ok_or_else(|| "its parts have no compute units".to_owned())
    })
}

/// Memory banks of a node that are the GPU's own: heaps 1 and 2 are frame buffer.
fn local_memory(tree: &Tree, node: &str) -> Seen<Bytes> {
    let dir = format!("{node}/mem_banks");
    let mut sum = 0_u64;
    for name in tree.names(&dir) {
        match properties(tree, &format!("{dir}/{name}/properties")) {
            Seen::Value { value, .. } => {
                let is_local = matches!(value.get("heap_type"), Some(1 | 2));
                sum =
                    sum.saturating_add(value.get("size_in_bytes").copied().filter(|_| is_local).unwrap_or(0));
            }
            missing => return missing.map(|_| Bytes(0)),
        }
    }
    if sum == 0 {
        Seen::absent(format!("/{dir} lists no local memory"))
    } else {
        Seen::new(Bytes(sum), format!("/{dir}"))
    }
}
