//! Who holds a GPU and was not started here: by the driver's list, and by open device files.

use std::collections::{BTreeMap, BTreeSet};

use facts::inventory::{Evidence, Gpu, GpuMaker, OutsideUse, Seen};
use units::{Bytes, Timestamp};

use super::nvml::{Report, User};
use super::tree::{Tree, number, raw};

/// `USER_HZ`, in which every Linux tells start times whatever its own clock runs at.
const TICKS: i64 = 100;

/// A process and the GPU, if it is known which.
type Hold = (u32, Option<String>);

/// Processes outside of the groups below `own` that hold a GPU.
pub(super) fn outside(
    tree: &Tree,
    gpus: &[Gpu],
    nvml: &Result<Report, String>,
    own: Option<&str>,
    findings: &mut Vec<String>,
) -> Vec<OutsideUse> {
    let mut holds: BTreeMap<Hold, (BTreeSet<Evidence>, Option<u64>)> = BTreeMap::new();
    for (pid, file) in open_files(tree, findings) {
        let gpu = owner_of(gpus, &file);
        if gpu.is_some() || file == KFD {
            holds.entry((pid, gpu)).or_default().0.insert(Evidence::OpenFile);
        } else if nvidia_minor(&file).is_some() {
            findings.push(format!("/proc/{pid}/fd: {file} is held and is no GPU that was found"));
        }
    }
    for card in nvml.iter().flat_map(|report| report.gpus.iter().flatten()) {
        match &card.users {
            Ok(users) => {
                for User { pid, memory } in users {
                    let hold = holds.entry((*pid, Some(card.address.clone()))).or_default();
                    hold.0.insert(Evidence::DriverList);
                    hold.1 = *memory;
                }
            }
            Err(error) => findings.push(format!("NVML: processes on {}: {error}", card.address)),
        }
    }
    let boot = boot_time(tree);
    holds
        .into_iter()
        .filter(|((pid, _), _)| !is_own(tree, *pid, own, findings))
        .map(|((pid, gpu), (evidence, memory))| OutsideUse {
            pid,
            gpu,
            uid: uid(tree, pid),
            since: since(tree, pid, &boot),
            command: tree.word(&format!("proc/{pid}/comm")),
            memory: memory.map_or(Seen::absent("not told"), |bytes| Seen::new(Bytes(bytes), "NVML")),
            evidence: evidence.into_iter().collect(),
        })
        .collect()
}

/// GPU device files that processes have open.
fn open_files(tree: &Tree, findings: &mut Vec<String>) -> BTreeSet<(u32, String)> {
    let mut files = BTreeSet::new();
    let mut hidden = 0_u32;
    for pid in tree.names("proc").into_iter().filter_map(|name| name.parse::<u32>().ok()) {
        let dir = format!("proc/{pid}/fd");
        let listing = tree.listing(&dir);
        hidden += u32::from(matches!(listing, Seen::Failed { .. }));
        for name in listing.value().into_iter().flatten() {
            if let Seen::Value { value, .. } = tree.link(&format!("{dir}/{name}"))
                && is_gpu_file(&value)
            {
                files.insert((pid, value));
            }
        }
    }
    if hidden > 0 {
        findings.push(format!(
            "/proc: {hidden} processes of other users could not be looked into; root sees them"
        ));
    }
    // The compute driver's one file stands for all of its GPUs; a render node says which.
    let told: BTreeSet<u32> =
        files.iter().filter(|(_, file)| file.starts_with(RENDER)).map(|(pid, _)| *pid).collect();
    files.retain(|(pid, file)| file != KFD || !told.contains(pid));
    files
}

const KFD: &str = "/dev/kfd";
const RENDER: &str = "/dev/dri/renderD";

fn nvidia_minor(file: &str) -> Option<u32> {
    file.strip_prefix("/dev/nvidia")?.parse().ok()
}

fn is_gpu_file(file: &str) -> bool {
    file == KFD || file.starts_with(RENDER) || nvidia_minor(file).is_some()
}

/// The GPU of a device file. The compute driver's stands for all; render nodes of other graphics
/// are no GPU's that is counted here.
fn owner_of(gpus: &[Gpu], file: &str) -> Option<String> {
    let (maker, minor) = match nvidia_minor(file) {
        Some(minor) => (GpuMaker::Nvidia, minor),
        None => (GpuMaker::Amd, file.strip_prefix(RENDER)?.parse().ok()?),
    };
    let gpu = gpus.iter().find(|gpu| gpu.maker == maker && gpu.minor.value() == Some(&minor));
    gpu.map(|gpu| gpu.pci.address.clone())
}

/// Whether a process is in a group of ours. One that cannot be told is not.
fn is_own(tree: &Tree, pid: u32, own: Option<&str>, findings: &mut Vec<String>) -> bool {
    let Some(own) = own else { return false };
    let path = format!("proc/{pid}/cgroup");
    let groups = tree.whole(&path);
    if let Some(why) = groups.missing() {
        findings.push(format!("process {pid} counts as outside: {why}"));
    }
    let is_below = |line: &str| {
        let group = line.splitn(3, ':').nth(2);
        group.is_some_and(|group| group.split('/').any(|part| part == own))
    };
    groups.value().is_some_and(|text| text.lines().any(is_below))
}

/// The real user, from the second field of the line `Uid:`.
fn uid(tree: &Tree, pid: u32) -> Seen<u32> {
    tree.whole(&format!("proc/{pid}/status")).then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Uid:")).ok_or("has no Uid")?;
        number(line.split_whitespace().next().unwrap_or_default())
    })
}

/// When the machine started, in seconds since the Unix epoch.
fn boot_time(tree: &Tree) -> Seen<i64> {
    tree.whole("proc/stat").then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("btime "));
        line.ok_or_else(|| "has no btime".to_owned()).and_then(number)
    })
}

/// Field 22 of `stat` counts ticks from the start of the machine. The name before it may hold
/// anything, so the fields are counted from its end.
fn since(tree: &Tree, pid: u32, boot: &Seen<i64>) -> Seen<Timestamp> {
    tree.whole(&format!("proc/{pid}/stat")).then(|text| {
        let boot = boot.value().ok_or("the start of the machine is not known")?;
        let (_, fields) = text.rsplit_once(") ").ok_or_else(|| format!("{:?} is no process", raw(&text)))?;
        let ticks: i64 = number(fields.split(' ').nth(19).unwrap_or_default())?;
        let nanos = ticks.checked_mul(1_000_000_000 / TICKS);
        let at = nanos.and_then(|nanos| boot.checked_mul(1_000_000_000)?.checked_add(nanos));
        at.map(Timestamp).ok_or_else(|| format!("{ticks} ticks are too many"))
    })
}
