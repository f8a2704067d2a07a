//! Slots: a cgroup, a scratch directory and a lock, kept and reused, so that a trivial job
//! creates and deletes no inode (decision D14). A slot has one user at a time and is handed on
//! only when it is provably empty.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cgroup::{Cgroups, Limits};
use crate::sys::{self, Fork};

/// Mode of a scratch directory.
const MODE: u32 = 0o700;

/// One slot, held by at most one task.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: u32,
    /// Who owns its scratch directory; none until its first task.
    uid: Option<u32>,
    /// What its cgroup is set to.
    limits: Option<Limits>,
}

impl Slot {
    /// A slot as an earlier supervisor left it.
    pub(crate) fn of_earlier(index: u32, uid: u32) -> Self {
        Self { index, uid: Some(uid), limits: None }
    }

    /// Forgets what it is set to, so that all is made and set again.
    pub(crate) fn forget(&mut self) {
        (self.uid, self.limits) = (None, None);
    }

    /// The name of its cgroup.
    pub(crate) fn group(&self) -> String {
        format!("slot-{}", self.index)
    }
}

/// All slots that no task holds.
pub(crate) struct Slots {
    dir: PathBuf,
    free: Vec<Slot>,
    /// Those whose scratch is being erased, by the process that does it.
    erased_by: BTreeMap<i32, Slot>,
    next: u32,
}

impl Slots {
    /// Makes the directories below `dir`.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.join("slots"))?;
        let scratch = dir.join("scratch");
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&scratch)?;
        std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(0o711))?;
        let next = std::fs::read_dir(&scratch)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("slot-")?.parse::<u32>().ok())
            .max()
            .map_or(0, |highest| highest + 1);
        Ok(Self { dir: dir.to_owned(), free: Vec::new(), erased_by: BTreeMap::new(), next })
    }

    /// Takes back the slots of an earlier supervisor: those not `in_use` and provably empty.
    pub(crate) fn reclaim(&mut self, in_use: &[u32], cgroups: &Cgroups) {
        for index in 0..self.next {
            let slot = Slot { index, uid: None, limits: None };
            // After a restart of the machine the groups are gone.
            let empty = || cgroups.create(&slot.group()).is_ok() && cgroups.is_empty(&slot.group());
            if !in_use.contains(&index) && self.try_lock(index).is_ok() && empty() {
                self.release(slot);
            }
        }
    }

    /// Scratch directory of a slot.
    pub(crate) fn scratch(&self, index: u32) -> PathBuf {
        self.dir.join(format!("scratch/slot-{index}"))
    }

    /// Takes the lock of a slot, which its shim inherits. Fails while any process has it: its
    /// shim, or a child of it that has not become the user's program.
    pub(crate) fn try_lock(&self, index: u32) -> io::Result<File> {
        let file = self.open_lock(&format!("{index}.lock"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    fn open_lock(&self, name: &str) -> io::Result<File> {
        let path = self.dir.join("slots").join(name);
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    /// An empty slot for a task of `uid`, its limits set.
    pub(crate) fn acquire(&mut self, uid: u32, limits: &Limits, cgroups: &Cgroups) -> io::Result<Slot> {
        let same = self.free.iter().rposition(|slot| slot.uid == Some(uid));
        let mut slot = match same {
            Some(position) => self.free.swap_remove(position),
            None => self.free.pop().unwrap_or_else(|| self.fresh()),
        };
        match self.prepare(&mut slot, uid, limits, cgroups) {
            Ok(()) => Ok(slot),
            Err(error) => {
                slot.forget();
                self.free.push(slot);
                Err(error)
            }
        }
    }

    fn fresh(&mut self) -> Slot {
        self.next += 1;
        Slot { index: self.next - 1, uid: None, limits: None }
    }

    fn prepare(&self, slot: &mut Slot, uid: u32, limits: &Limits, cgroups: &Cgroups) -> io::Result<()> {
        let group = slot.group();
        if slot.limits.is_none() {
            cgroups.create(&group)?;
        }
        if slot.limits.as_ref() != Some(limits) {
            slot.limits = None;
            cgroups.limit(&group, limits)?;
            slot.limits = Some(limits.clone());
        }
        if slot.uid != Some(uid) {
            let scratch = self.scratch(slot.index);
            std::fs::DirBuilder::new().recursive(true).mode(MODE).create(&scratch)?;
            if std::fs::metadata(&scratch)?.uid() != uid {
                std::os::unix::fs::chown(&scratch, Some(uid), None)?;
            }
            slot.uid = Some(uid);
        }
        cgroups.reset(&group);
        Ok(())
    }

    /// Takes a slot back whose cgroup is empty. What was left in scratch is erased by a process
    /// of its own, as that may take long; where that fails, the slot is retired.
    pub(crate) fn release(&mut self, slot: Slot) {
        if is_clean(&self.scratch(slot.index)) {
            self.free.push(slot);
        } else if let Ok(pid) = self.fork_eraser(slot.index) {
            self.erased_by.insert(pid, slot);
        }
    }

    fn fork_eraser(&self, index: u32) -> io::Result<i32> {
        match sys::fork()? {
            Fork::Parent(pid) => Ok(pid),
            Fork::Child => {
                sys::close_all_but(&mut []);
                sys::reset_signals();
                let erased = std::panic::catch_unwind(|| {
                    // One that an earlier supervisor forked may still be at it, and must not meet
                    // the files of a later task.
                    let lock = self.open_lock(&format!("{index}.erasing"))?;
                    flock(&lock, FlockOperation::LockExclusive)?;
                    erase(&self.scratch(index))
                });
                sys::exit_now(i32::from(!matches!(erased, Ok(Ok(())))))
            }
        }
    }

    /// One of our children ended with this wait status, perhaps one that erased a slot's scratch.
    pub(crate) fn child_ended(&mut self, pid: i32, status: i32) {
        if let Some(slot) = self.erased_by.remove(&pid)
            && status == 0
        {
            self.free.push(slot);
        }
    }
}

/// Whether a scratch directory, if there is one, is as a new one.
fn is_clean(dir: &Path) -> bool {
    let look = || -> io::Result<bool> {
        Ok(std::fs::metadata(dir)?.mode() & 0o7777 == MODE && std::fs::read_dir(dir)?.next().is_none())
    };
    look().unwrap_or_else(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Deletes what is in a directory, following no link out of it.
fn erase(dir: &Path) -> io::Result<()> {
    // The user may have changed the mode of the directory itself.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(MODE))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
