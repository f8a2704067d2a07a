//! Slots: a cgroup, a scratch directory, a lock and a shim, kept and reused, so that a trivial job
//! creates and deletes no inode (decision D14) and forks only itself. A slot has one user at a time
//! and is handed on only when it is provably empty.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ops::ports::StartTask;
use rustix::fs::{FlockOperation, flock};

use crate::cgroup::{Cgroups, Limits};
use crate::sys::{self, Fork};
use crate::wire;

/// Mode of a scratch directory.
const MODE: u32 = 0o700;
/// A shim deletes so many files that its task left, none of them larger: that takes no time.
const FEW: usize = 16;
/// Bytes.
const SMALL: u64 = 1 << 20;
/// So many shims wait for work; a slot beyond them gets a new one with its next task.
const IDLE_SHIMS: usize = 64;
/// A shim takes its task at once, however long that is. One that does not is not waited for.
const SEND_PATIENCE: Duration = Duration::from_secs(1);
/// Milliseconds that the shims of an earlier supervisor get to end, all together.
const LEAVE_PATIENCE: u32 = 200;

/// A shim that is our child. It ends when this is dropped, unless a task keeps it.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) pid: i32,
    tasks: UnixStream,
}

impl Shim {
    pub(crate) fn new(pid: i32, tasks: UnixStream) -> io::Result<Self> {
        tasks.set_write_timeout(Some(SEND_PATIENCE))?;
        Ok(Self { pid, tasks })
    }

    /// Has it run a task that writes to the file `part` of the journal.
    pub(crate) fn run(&mut self, part: u32, start: &StartTask) -> io::Result<()> {
        wire::send(&mut self.tasks, &(part, start))
    }
}

/// One slot, held by at most one task.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: u32,
    /// Who owns its scratch directory; none until its first task.
    uid: Option<u32>,
    /// What its cgroup is set to.
    limits: Option<Limits>,
    /// Runs its tasks, and has its lock.
    pub(crate) shim: Option<Shim>,
}

impl Slot {
    fn new(index: u32) -> Self {
        Self { index, uid: None, limits: None, shim: None }
    }

    /// A slot as an earlier supervisor left it.
    pub(crate) fn of_earlier(index: u32, uid: u32) -> Self {
        Self { index, uid: Some(uid), limits: None, shim: None }
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
        let mut patience = LEAVE_PATIENCE;
        for index in (0..self.next).filter(|index| !in_use.contains(index)) {
            while self.try_lock(index).is_err() && patience > 0 {
                std::thread::sleep(Duration::from_millis(1));
                patience -= 1;
            }
            let slot = Slot::new(index);
            // After a restart of the machine the groups are gone.
            let empty = || cgroups.create(&slot.group()).is_ok() && cgroups.is_empty(&slot.group());
            if self.try_lock(index).is_ok() && empty() {
                self.release(slot);
            }
        }
    }

    /// Scratch directory of a slot.
    pub(crate) fn scratch(&self, index: u32) -> PathBuf {
        self.dir.join(format!("scratch/slot-{index}"))
    }

    /// Takes the lock of a slot, which its shim inherits. Fails while any process has it: its
    /// shim, even one that waits for work, or a child of it that has not become the user's program.
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
        // The shim that a slot had may be about to end.
        let ready = |slot: &Slot| slot.shim.is_some() || self.try_lock(slot.index).is_ok();
        let same = self.free.iter().rposition(|slot| slot.uid == Some(uid) && ready(slot));
        let mut slot = match same.or_else(|| self.free.iter().rposition(ready)) {
            Some(position) => self.free.swap_remove(position),
            None => self.fresh(),
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
        Slot::new(self.next - 1)
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
        Ok(())
    }

    /// Takes a slot back whose cgroup is empty. What its shim left in scratch is erased by a process
    /// of its own, as that may take long; where that fails, the slot is retired.
    pub(crate) fn release(&mut self, mut slot: Slot) {
        if self.free.iter().filter(|slot| slot.shim.is_some()).count() >= IDLE_SHIMS {
            slot.shim = None;
        }
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

    /// One of our children ended with this wait status: perhaps a shim that waited for work, or one
    /// that erased a slot's scratch.
    pub(crate) fn child_ended(&mut self, pid: i32, status: i32) {
        for slot in self.free.iter_mut().chain(self.erased_by.values_mut()) {
            slot.shim.take_if(|shim| shim.pid == pid);
        }
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

/// Deletes the files of a trivial job, for which nobody needs to be forked. What it leaves is
/// erased later.
pub(crate) fn tidy(scratch: &Path) {
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten().take(FEW) {
        if entry.metadata().is_ok_and(|meta| !meta.is_dir() && meta.len() <= SMALL) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
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
