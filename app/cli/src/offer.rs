//! What of this machine jobs may use, and how that is said.

use std::collections::BTreeSet;

use facts::event::DeviceV1;
use facts::inventory::{Evidence, Gpu, GpuMaker, Inventory, OutsideUse};
use ops::core::NodeFacts;
use units::{Bytes, Cores, DeviceIndex};

use crate::failure::Failure;
use crate::output::plain;
use crate::values::SimulatedGpus;

/// What jobs may use.
pub(crate) struct Offer {
    /// As the scheduler is told.
    pub(crate) node: NodeFacts,
    /// Memory kept for the system and for ourselves.
    pub(crate) reserve: Bytes,
    /// GPUs that are there and not offered, and why.
    pub(crate) withheld: Vec<String>,
}

/// Offers every core, the memory less a reserve, and the GPUs: those that exist, or in their place
/// those of a rehearsal.
pub(crate) fn offer(
    found: &Inventory,
    cores: Option<u32>,
    simulated: Option<&SimulatedGpus>,
) -> Result<Offer, Failure> {
    let unknown = |what: &str, why: Option<&str>| {
        Failure::failed(format!("cannot tell {what}: {}", why.unwrap_or("nothing was read")))
    };
    let memory = *found
        .memory
        .value()
        .ok_or_else(|| unknown("how much memory this machine has", found.memory.missing()))?;
    let cores = cores
        .or(found.cpu.threads.value().copied())
        .ok_or_else(|| unknown("how many cores this machine has", found.cpu.threads.missing()))?;
    let name = found.host.name.value();
    let name = name.ok_or_else(|| unknown("the name of this machine", found.host.name.missing()))?;
    let (devices, withheld) = match simulated {
        Some(simulated) => (rehearsal(simulated), Vec::new()),
        None => existing(&found.gpus),
    };
    let reserve = Bytes((memory.0 / 16).min(4 << 30));
    let node =
        NodeFacts { name: name.clone(), cores: Cores(cores), memory: Bytes(memory.0 - reserve.0), devices };
    Ok(Offer { node, reserve, withheld })
}

fn rehearsal(simulated: &SimulatedGpus) -> Vec<DeviceV1> {
    let device = |(index, model): (usize, &String)| DeviceV1 {
        key: format!("SIMULATED-{index}"),
        model: model.clone(),
        memory: Bytes(0),
        simulated: true,
    };
    simulated.0.iter().enumerate().map(device).collect()
}

/// A device's index is its place among the device files, for the supervisor and for the job. So one
/// GPU without use ends the list: behind it places and files no longer agree.
fn existing(gpus: &[Gpu]) -> (Vec<DeviceV1>, Vec<String>) {
    let nvidia = gpus.iter().any(|gpu| gpu.maker == GpuMaker::Nvidia);
    let mut ordered: Vec<&Gpu> = gpus.iter().collect();
    ordered.sort_by_key(|gpu| (gpu.maker, gpu.minor.value().copied().unwrap_or(u32::MAX), &gpu.pci.address));
    let (mut devices, mut withheld) = (Vec::new(), Vec::new());
    for gpu in ordered {
        let place = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let why = match (&gpu.unusable, gpu.maker, gpu.minor.value()) {
            (Some(why), ..) => Some(plain(why)),
            (None, GpuMaker::Amd, _) if nvidia => Some("NVIDIA GPUs are here as well".to_owned()),
            (None, GpuMaker::Nvidia, None) => Some("its device file is not known".to_owned()),
            (None, GpuMaker::Nvidia, Some(minor)) if *minor != place => {
                Some("a GPU before it has no use".to_owned())
            }
            _ => None,
        };
        match (why, gpu.key.value()) {
            (None, Some(key)) => devices.push(DeviceV1 {
                key: key.clone(),
                model: model(gpu),
                // Nothing measured is shown as such.
                memory: gpu.memory.value().copied().unwrap_or(Bytes(0)),
                simulated: false,
            }),
            (why, _) => {
                let why = why.unwrap_or_else(|| "its identity is not known".to_owned());
                withheld.push(format!("{} ({why})", gpu.pci.address));
            }
        }
    }
    (devices, withheld)
}

/// Which of `devices` processes hold that were not started here. Where the driver lists who uses a
/// GPU, an open file alone is no use: services that watch GPUs open all of them.
pub(crate) fn held_outside(
    gpus: &[Gpu],
    outside: &[OutsideUse],
    devices: &[DeviceV1],
) -> BTreeSet<DeviceIndex> {
    let index = |address: &str| {
        let gpu = gpus.iter().find(|gpu| gpu.pci.address == address)?;
        let at = devices.iter().position(|device| Some(&device.key) == gpu.key.value())?;
        u16::try_from(at).ok().map(DeviceIndex)
    };
    uses(outside).iter().filter_map(|held| index(held.gpu.as_deref()?)).collect()
}

/// What counts as use of a GPU from outside.
fn uses(outside: &[OutsideUse]) -> Vec<&OutsideUse> {
    let listed = |evidence: &[Evidence]| evidence.contains(&Evidence::DriverList);
    let has_list = outside.iter().any(|held| listed(&held.evidence));
    outside.iter().filter(|held| !has_list || listed(&held.evidence)).collect()
}

/// The canonical name, else what the driver says.
pub(crate) fn model(gpu: &Gpu) -> String {
    let name = gpu.canonical.value().or(gpu.model.value());
    name.map_or_else(|| "unknown".to_owned(), |name| plain(name))
}

/// `8 H100-SXM-80GB`, or several of those.
pub(crate) fn count(models: impl Iterator<Item = String>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for model in models {
        match counts.iter_mut().find(|(known, _)| *known == model) {
            Some((_, count)) => *count += 1,
            None => counts.push((model, 1)),
        }
    }
    let counts: Vec<String> = counts.into_iter().map(|(model, count)| format!("{count} {model}")).collect();
    counts.join(", ")
}

/// Who holds GPUs and was not started here, in one line; none where nobody does. Where the driver
/// has no list, an open file is all that is known.
pub(crate) fn busy(found: &Inventory) -> Option<String> {
    let holds = uses(&found.outside);
    let first = holds.first()?;
    let mut gpus: Vec<&str> = holds.iter().filter_map(|held| held.gpu.as_deref()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let who = first.command.value().map_or_else(String::new, |name| format!("{}, ", plain(name)));
    let uid = first.uid.value().map_or_else(String::new, |uid| format!(", uid {uid}"));
    let more = match holds.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let what = if first.evidence.contains(&Evidence::DriverList) { "in use" } else { "opened" };
    let gpus = if gpus.is_empty() { "GPUs".to_owned() } else { format!("{} GPUs", gpus.len()) };
    Some(format!("{gpus} {what} by others: {who}pid {}{uid}{more} (fourplane inventory)", first.pid))
}

#[cfg(test)]
mod tests {
    use facts::inventory::{PciPlace, PcieLink, Seen};

    use super::*;

    fn gpu(maker: GpuMaker, minor: Option<u32>, unusable: Option<&str>) -> Gpu {
        let none = || Seen::absent("not made up for this test");
        let address = format!("0000:{:02x}:00.0", minor.unwrap_or(0x99));
        Gpu {
            key: Seen::new(format!("GPU-{address}"), "test"),
            maker,
            model: Seen::new("NVIDIA H100 80GB HBM3".to_owned(), "test"),
            canonical: Seen::new("H100-SXM-80GB".to_owned(), "test"),
            pci: PciPlace { address, root: String::new(), bridges: Vec::new(), numa: Seen::absent("test") },
            link: PcieLink {
                megatransfers: Seen::absent("test"),
                lanes: Seen::absent("test"),
                max_megatransfers: Seen::absent("test"),
                max_lanes: Seen::absent("test"),
            },
            driver: none(),
            minor: minor.map_or(Seen::absent("test"), |minor| Seen::new(minor, "test")),
            serial: none(),
            memory: Seen::absent("test"),
            fabric: Seen::absent("test"),
            partition: Seen::absent("test"),
            unusable: unusable.map(str::to_owned),
        }
    }

    #[test]
    fn a_device_index_is_the_place_of_its_file() {
        use GpuMaker::{Amd, Nvidia};
        let check = |gpus: &[Gpu], offered: &[&str], withheld: usize| {
            let (devices, kept) = existing(gpus);
            assert_eq!(devices.iter().map(|device| device.key.as_str()).collect::<Vec<_>>(), offered);
            assert_eq!(kept.len(), withheld, "{kept:?}");
        };
        let (zero, one, two) = ("GPU-0000:00:00.0", "GPU-0000:01:00.0", "GPU-0000:02:00.0");
        let whole = |minor| gpu(Nvidia, Some(minor), None);
        check(&[whole(1), whole(0), whole(2)], &[zero, one, two], 0);
        check(&[whole(0), gpu(Nvidia, Some(1), Some("lost")), whole(2)], &[zero], 2);
        check(&[whole(1)], &[], 1);
        check(&[gpu(Nvidia, None, None)], &[], 1);
        check(
            &[gpu(Amd, Some(128), None), gpu(Amd, Some(136), None)],
            &["GPU-0000:80:00.0", "GPU-0000:88:00.0"],
            0,
        );
        check(&[whole(0), gpu(Amd, Some(128), None)], &[zero], 1);
    }

    #[test]
    fn what_others_use_is_held_outside() {
        use Evidence::{DriverList, OpenFile};
        let gpus: Vec<Gpu> = (0..3).map(|minor| gpu(GpuMaker::Nvidia, Some(minor), None)).collect();
        let (devices, _) = existing(&gpus);
        let check = |uses: &[(Option<usize>, &[Evidence])], expect: &[u16]| {
            let held = |(gpu, evidence): &(Option<usize>, &[Evidence])| OutsideUse {
                pid: 7,
                gpu: gpu.map(|at| gpus[at].pci.address.clone()),
                uid: Seen::absent("test"),
                since: Seen::absent("test"),
                command: Seen::absent("test"),
                memory: Seen::absent("test"),
                evidence: evidence.to_vec(),
            };
            let outside: Vec<_> = uses.iter().map(held).collect();
            let expect: BTreeSet<_> = expect.iter().copied().map(DeviceIndex).collect();
            assert_eq!(held_outside(&gpus, &outside, &devices[..2]), expect, "{uses:?}");
        };
        check(&[], &[]);
        check(&[(Some(1), &[OpenFile])], &[1]);
        check(&[(Some(0), &[DriverList]), (Some(1), &[OpenFile])], &[0]);
        check(&[(Some(0), &[OpenFile, DriverList]), (Some(1), &[DriverList])], &[0, 1]);
        check(&[(Some(2), &[DriverList])], &[]);
        check(&[(None, &[OpenFile])], &[]);
    }

    #[test]
    fn models_are_counted() {
        assert_eq!(count(["a", "b", "a"].map(str::to_owned).into_iter()), "2 a, 1 b");
    }
}
