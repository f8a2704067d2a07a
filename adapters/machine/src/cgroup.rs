//! Cgroups: limits, counters, and proof that a task is gone. One trait, two hierarchies; a
//! hybrid machine is both at once, and one without rights is none.

mod device_program;
mod v1;
mod v2;

use std::io;
use std::path::{Path, PathBuf};

use units::Bytes;

/// What this machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupKind {
    /// One v2 tree with controllers.
    V2,
    /// v1 controllers only.
    V1,
    /// v1 controllers beside a v2 tree without them.
    Hybrid,
    /// No rights to any: limits are advisory, and what is left of a task is found by descent
    /// from its shim.
    None,
}

/// What a task's group is held to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Memory; none is unlimited.
    pub(crate) memory: Option<Bytes>,
    /// Cores' worth of CPU time; 0 is unlimited.
    pub(crate) cores: u32,
    /// Processes and threads.
    pub(crate) pids: u32,
    /// Devices as (major, minor) and whether they may be used.
    pub(crate) devices: Vec<(u32, u32, bool)>,
}

/// One mounted hierarchy. `group` is a path below its root.
pub(crate) trait Hierarchy {
    /// Makes the group, if it is not there.
    fn create(&self, group: &Path) -> io::Result<()>;
    /// Removes the group, if it is empty.
    fn remove(&self, group: &Path) -> io::Result<()>;
    /// Sets its limits and restarts its high-water marks.
    fn limit(&self, group: &Path, limits: &Limits) -> io::Result<()>;
    /// Whether it keeps a group from the devices that it may not use.
    fn confines_devices(&self) -> bool;
    /// Makes a group, which must be empty, ready for its next user: the memory high-water mark
    /// starts again where the kernel can, and nothing is frozen.
    fn reset(&self, group: &Path);
    /// Moves the calling process in.
    fn join(&self, group: &Path) -> io::Result<()>;
    /// Every process in it.
    fn processes(&self, group: &Path) -> io::Result<Vec<i32>>;
    /// Whether nothing lives in it.
    fn is_empty(&self, group: &Path) -> io::Result<bool>;
    /// Sends SIGKILL to all of it.
    fn kill(&self, group: &Path) -> io::Result<()>;
    /// How often the kernel killed in it for want of memory, ever; none where it cannot tell.
    fn oom_kills(&self, group: &Path) -> Option<u64>;
    /// Memory high-water mark in bytes; none where it cannot tell.
    fn memory_peak(&self, group: &Path) -> Option<u64>;
}

/// All hierarchies that a task's group lives in.
pub(crate) struct Cgroups {
    kind: CgroupKind,
    base: PathBuf,
    parts: Vec<Box<dyn Hierarchy>>,
}

impl Cgroups {
    /// Removes every group below `base`, and `base`. Fails where a process is left.
    pub(crate) fn remove_all(base: &Path) -> io::Result<()> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let v1 = v1::V1::find(&mounts, true);
        let v2 = v2::V2::find(&mounts);
        let roots = v1.iter().flat_map(v1::V1::roots).chain(v2.iter().map(v2::V2::root));
        for dir in roots.map(|root| root.join(base)).filter(|dir| dir.exists()) {
            for entry in std::fs::read_dir(&dir)?.flatten() {
                if entry.file_type()?.is_dir() {
                    std::fs::remove_dir(entry.path())?;
                }
            }
            std::fs::remove_dir(dir)?;
        }
        Ok(())
    }

    /// What this machine offers, and whether devices can be confined, leaving nothing behind.
    pub(crate) fn offered() -> (CgroupKind, bool) {
        let base = PathBuf::from(format!("fourplane-probe-{}", std::process::id()));
        let cgroups = Self::detect(&base, true);
        cgroups.parts.iter().for_each(|part| drop(part.remove(&base)));
        (cgroups.kind, cgroups.parts.iter().any(|part| part.confines_devices()))
    }

    /// Finds what this machine offers and may be used. Groups are made below `base`. With
    /// `devices` they are confined: by the v1 controller, else by a program on v2.
    pub(crate) fn detect(base: &Path, devices: bool) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let usable = |part: &dyn Hierarchy| part.create(base).is_ok();
        let v1 = v1::V1::find(&mounts, devices).filter(|part| usable(part));
        let on_v2 = devices && !v1.as_ref().is_some_and(Hierarchy::confines_devices);
        let v2 = v2::V2::find(&mounts).filter(|part| usable(part));
        let v2 = v2.map(|part| if on_v2 { part.with_devices(base) } else { part });
        let kind = match (&v1, &v2) {
            (Some(_), Some(_)) => CgroupKind::Hybrid,
            (Some(_), None) => CgroupKind::V1,
            (None, Some(_)) => CgroupKind::V2,
            (None, None) => CgroupKind::None,
        };
        let mut parts: Vec<Box<dyn Hierarchy>> = Vec::new();
        // v2 first: it kills a whole group at once and tells emptiness by one word.
        parts.extend(v2.map(|part| Box::new(part) as Box<dyn Hierarchy>));
        parts.extend(v1.map(|part| Box::new(part) as Box<dyn Hierarchy>));
        Self { kind, base: base.to_owned(), parts }
    }

    /// Whether a group can prove that nothing of a task is left.
    pub(crate) fn can_prove(&self) -> bool {
        !self.parts.is_empty()
    }

    fn group(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    pub(crate) fn create(&self, name: &str) -> io::Result<()> {
        let group = self.group(name);
        self.parts.iter().try_for_each(|part| part.create(&group))
    }

    pub(crate) fn limit(&self, name: &str, limits: &Limits) -> io::Result<()> {
        let group = self.group(name);
        self.parts.iter().try_for_each(|part| part.limit(&group, limits))
    }

    pub(crate) fn reset(&self, name: &str) {
        let group = self.group(name);
        self.parts.iter().for_each(|part| part.reset(&group));
    }

    pub(crate) fn join(&self, name: &str) -> io::Result<()> {
        let group = self.group(name);
        self.parts.iter().try_for_each(|part| part.join(&group))
    }

    /// Every process of a group, whichever hierarchy still has it.
    pub(crate) fn processes(&self, name: &str) -> io::Result<Vec<i32>> {
        let group = self.group(name);
        let mut pids = Vec::new();
        for part in &self.parts {
            pids.extend(part.processes(&group)?);
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Whether no hierarchy has anything of it. An error is no proof, but a group that is not
    /// there is: only an empty one can be removed.
    pub(crate) fn is_empty(&self, name: &str) -> bool {
        let group = self.group(name);
        self.parts.iter().all(|part| part.is_empty(&group).unwrap_or(false))
    }

    pub(crate) fn kill(&self, name: &str) {
        let group = self.group(name);
        for part in &self.parts {
            // What cannot be killed now is tried again, and told when it lasts.
            let _ = part.kill(&group);
        }
    }

    pub(crate) fn oom_kills(&self, name: &str) -> Option<u64> {
        let group = self.group(name);
        self.parts.iter().find_map(|part| part.oom_kills(&group))
    }

    pub(crate) fn memory_peak(&self, name: &str) -> Option<u64> {
        let group = self.group(name);
        self.parts.iter().find_map(|part| part.memory_peak(&group))
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    use io::Write;
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

fn make(path: &Path) -> io::Result<()> {
    match std::fs::create_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The text of a group's file; empty where the group is not there.
fn read_file(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}

/// The processes that a `cgroup.procs` file lists. 0 stands for one outside our pid namespace.
fn read_processes(path: &Path) -> io::Result<Vec<i32>> {
    Ok(read_file(path)?.lines().filter_map(|line| line.parse().ok()).collect())
}

/// The number after `key` in a file of `key number` lines.
fn read_counter(path: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

fn kill_each(pids: &[i32]) {
    for &pid in pids {
        if pid > 0 {
            // One that is gone already is what was wanted.
            let _ = crate::sys::kill(pid, libc::SIGKILL);
        }
    }
}
