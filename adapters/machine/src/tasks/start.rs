//! From a start to a shim that runs it.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use ops::ports::StartTask;

use super::{NO_SLOT, Task, Tasks};
use crate::cgroup::Limits;
use crate::journal::{self, Entry};
use crate::shim::{self, Line, Plan};
use crate::slot::Shim;
use crate::sys::{self, Fork};

impl Tasks {
    pub(super) fn start(&mut self, start: &StartTask) -> io::Result<()> {
        let id = start.task;
        if self.known.contains_key(&id) || self.journal.has_start(id, start.decision) {
            return Ok(());
        }
        let limits = Limits {
            memory: (start.resources.memory.0 > 0).then_some(start.resources.memory),
            cores: start.resources.cores.0,
            pids: self.config.pids_max,
            devices: self.devices.confine(start),
        };
        let uid = start.launch.uid;
        let (slot, error) = match self.slots.acquire(uid, &limits, &self.cgroups) {
            Ok(slot) => (Some(slot), None),
            Err(error) => (None, Some(error)),
        };
        let index = slot.as_ref().map_or(NO_SLOT, |slot| slot.index);
        let part = self.journal.current();
        let intent =
            Entry::Intent { task: id, decision: start.decision, nonce: start.nonce, slot: index, uid };
        self.journal.append(&[intent])?;
        self.insert(id, Task::new(start.nonce, slot, part));
        let given = error.map_or_else(|| self.give_to_shim(start), |error| Err(("prepare slot", error)));
        if let Err((step, error)) = given {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            let failed = Entry::failed(start.nonce, step, &error.to_string(), errno, sys::boottime());
            self.journal.append(&[failed])?;
            if let Some(task) = self.known.get_mut(&id) {
                task.gone = true;
                // What became of its shim is not known: the lock tells when it is gone.
                task.slot.as_mut().map(|slot| slot.shim.take());
            }
        }
        Ok(())
    }

    /// Gives a task to the shim of its slot, forked if there is none.
    fn give_to_shim(&mut self, start: &StartTask) -> Result<(), (&'static str, io::Error)> {
        let Some(task) = self.known.get_mut(&start.task) else { return Ok(()) };
        let (part, Some(mut slot)) = (task.part, task.slot.take()) else { return Ok(()) };
        let mut given = Ok(());
        if slot.shim.is_none() {
            given = self.fork_shim(slot.index, part).map(|shim| slot.shim = Some(shim));
        }
        if let (Ok(()), Some(shim)) = (&given, &mut slot.shim) {
            given = shim.run(part, start).map_err(|error| ("reach shim", error));
        }
        if let Some(task) = self.known.get_mut(&start.task) {
            task.slot = Some(slot);
        }
        given
    }

    fn fork_shim(&self, index: u32, part: u32) -> Result<Shim, (&'static str, io::Error)> {
        let lock = self.slots.try_lock(index).map_err(|error| ("lock slot", error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| ("connect shim", error))?;
        match sys::fork().map_err(|error| ("fork shim", error))? {
            Fork::Parent(pid) => Shim::new(pid, ours).map_err(|error| ("connect shim", error)),
            Fork::Child => {
                // A panic must not unwind into a second supervisor.
                let serve = std::panic::AssertUnwindSafe(|| self.serve(index, part, &lock, theirs));
                let _ = std::panic::catch_unwind(serve);
                sys::exit_now(70)
            }
        }
    }

    /// The life of a shim.
    fn serve(&self, index: u32, part: u32, lock: &File, tasks: UnixStream) -> io::Result<()> {
        let plan = Plan {
            dir: &self.config.dir,
            journal: journal::open(&self.config.dir, part)?,
            lock,
            cgroups: &self.cgroups,
            group: &format!("slot-{index}"),
            scratch: self.slots.scratch(index),
            witness: self.witness.as_deref(),
        };
        shim::serve(plan, Line { tasks, done: self.done.1.try_clone()? }, part)
    }
}
