//! Cgroups: limits, counters, and proof that a task is gone. One trait, two hierarchies; a
//! hybrid machine is both at once, and one without rights is none.

mod device_program;
mod v1;
mod v2;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
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
    /// Every process in it.
    fn processes(&self, group: &Path) -> io::Result<Vec<i32>>;
    /// Sends SIGKILL to all of it.
    fn kill(&self, group: &Path) -> io::Result<()>;
    /// The files of which each lets a process in that writes 0 to it.
    fn entrances(&self, group: &Path) -> Vec<PathBuf>;
    /// The files that together tell whether nothing lives in it: see [`tells_empty`].
    fn proofs(&self, group: &Path) -> Vec<PathBuf>;
    /// A file that makes an empty group ready for its next user by a 0: nothing is frozen, or the
    /// memory high-water mark starts again where the kernel can.
    fn reset(&self, group: &Path) -> PathBuf;
    /// The file with a line `oom_kill`: how often the kernel killed in it for want of memory, ever.
    fn oom_counter(&self, group: &Path) -> Option<PathBuf>;
    /// The file with its memory high-water mark in bytes. It may not be there.
    fn peak(&self, group: &Path) -> PathBuf;
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

    /// A group's files, kept open.
    pub(crate) fn open(&self, name: &str) -> io::Result<Group> {
        let group = self.group(name);
        let open = |path: PathBuf| OpenOptions::new().read(true).write(true).open(path);
        let entrances = self.parts.iter().flat_map(|part| part.entrances(&group));
        let proofs = self.parts.iter().flat_map(|part| part.proofs(&group));
        Ok(Group {
            entrances: entrances.map(open).collect::<io::Result<_>>()?,
            proofs: proofs.map(File::open).collect::<io::Result<_>>()?,
            resets: self.parts.iter().filter_map(|part| open(part.reset(&group)).ok()).collect(),
            oom_counter: self.parts.iter().find_map(|part| File::open(part.oom_counter(&group)?).ok()),
            peak: self.parts.iter().find_map(|part| File::open(part.peak(&group)).ok()),
        })
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
        let mut proofs = self.parts.iter().flat_map(|part| part.proofs(&group));
        proofs.all(|path| read_file(&path).is_ok_and(|text| tells_empty(&text)))
    }

    pub(crate) fn kill(&self, name: &str) {
        let group = self.group(name);
        for part in &self.parts {
            // What cannot be killed now is tried again, and told when it lasts.
            let _ = part.kill(&group);
        }
    }
}

/// One task's group with its files open, for a process that serves one task after another. None
/// of them is good any more once somebody removes the group.
pub(crate) struct Group {
    entrances: Vec<File>,
    proofs: Vec<File>,
    resets: Vec<File>,
    oom_counter: Option<File>,
    peak: Option<File>,
}

impl Group {
    /// Moves the calling process in.
    pub(crate) fn join(&self) -> io::Result<()> {
        self.entrances.iter().try_for_each(|mut file| file.write_all(b"0"))
    }

    /// Makes it, which must be empty, ready for its next user.
    pub(crate) fn reset(&self) {
        // To thaw what is not frozen would wait for every other change of any group.
        for mut file in self.resets.iter().filter(|file| reread(file).is_none_or(|text| text.trim() != "0")) {
            // Not every kernel can: a mark that does not rise is told as unknown.
            let _ = file.write_all(b"0");
        }
    }

    /// Whether every hierarchy tells that nothing lives in it. An error is no proof, nor is the
    /// word of no hierarchy.
    pub(crate) fn is_empty(&self) -> bool {
        let mut texts = self.proofs.iter().map(reread);
        !self.proofs.is_empty() && texts.all(|text| text.is_some_and(|text| tells_empty(&text)))
    }

    /// How often the kernel killed in it for want of memory, ever; none where it cannot tell.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let text = reread(self.oom_counter.as_ref()?)?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
    }

    /// Memory high-water mark in bytes; none where it cannot tell.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        reread(self.peak.as_ref()?)?.trim().parse().ok()
    }
}

/// The beginning of a file, which holds all that is looked for.
fn reread(file: &File) -> Option<String> {
    let mut buffer = [0; 512];
    let count = file.read_at(&mut buffer, 0).ok()?;
    String::from_utf8(buffer[..count].to_vec()).ok()
}

/// What `cgroup.procs` or `cgroup.events` says of a group in which nothing lives, or that is gone.
fn tells_empty(text: &str) -> bool {
    text.is_empty() || text.lines().any(|line| line == "populated 0")
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
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

fn kill_each(pids: &[i32]) {
    for &pid in pids {
        if pid > 0 {
            // One that is gone already is what was wanted.
            let _ = crate::sys::kill(pid, libc::SIGKILL);
        }
    }
}
