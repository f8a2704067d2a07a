//! Takes up where an earlier supervisor stopped.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use facts::TaskExit;
use ops::ports::TaskId;
use units::Seq;

use super::{End, NO_SLOT, Task, Tasks};
use crate::journal::Entry;
use crate::slot::Slot;

/// Looks, a millisecond apart, at a task that an earlier supervisor was about to start.
const RECOVER_LOOKS: u32 = 1_000;

impl Tasks {
    pub(super) fn recover(&mut self) -> io::Result<()> {
        let mut entries = Vec::new();
        self.journal.read(|part, entry| entries.push((part, entry)))?;
        let mut boot = self.boot_id;
        let mut holders: BTreeMap<u32, TaskId> = BTreeMap::new();
        let mut decisions: BTreeMap<TaskId, (Seq, [u8; 16])> = BTreeMap::new();
        for (part, entry) in entries {
            match entry {
                Entry::Life { boot_id, epoch, numbers } => {
                    boot = boot_id;
                    self.epoch = self.epoch.max(epoch);
                    self.numbers = self.numbers.max(numbers);
                }
                Entry::Intent { task, decision, nonce, slot, uid } => {
                    decisions.insert(task, (decision, boot));
                    // A slot is handed on only when the task before was proven free.
                    let before = holders.insert(slot, task).and_then(|id| self.known.get_mut(&id));
                    if let Some(before) = before {
                        (before.slot, before.gone) = (None, true);
                    }
                    let slot = (slot != NO_SLOT).then(|| Slot::of_earlier(slot, uid));
                    self.insert(task, Task { adopted: true, ..Task::new(nonce, slot, part) });
                }
                Entry::Done { task } => self.forget(task),
                fact => self.take_fact(fact),
            }
        }
        self.next_number = self.numbers + 1;
        self.reserve_numbers()?;
        for (task, (decision, boot)) in decisions {
            self.recover_task(task, decision, boot)?;
        }
        let in_use: Vec<u32> =
            self.known.values().filter_map(|task| task.slot.as_ref().map(|slot| slot.index)).collect();
        self.slots.reclaim(&in_use, &self.cgroups);
        Ok(())
    }

    fn recover_task(&mut self, id: TaskId, decision: Seq, boot: [u8; 16]) -> io::Result<()> {
        let Some(task) = self.known.get_mut(&id) else { return Ok(()) };
        if boot != self.boot_id {
            // Nothing survives a restart of the machine, nor do times of before mean anything.
            let own = task.end.take().filter(|_| !std::mem::take(&mut task.going_down));
            let exit = own.map_or(TaskExit::NodeRestart, |end| end.exit);
            task.end = Some(End::now(exit));
            task.began = None;
            task.gone = true;
            task.slot = None;
            return Ok(());
        }
        let index = task.slot.as_ref().map_or(0, |slot| slot.index);
        // The supervisor may have been killed between the record and the order to the shim. A shim
        // that got it says so, and one that did not ends, both at once.
        for _ in 0..RECOVER_LOOKS {
            let unlocked = self.slots.try_lock(index).is_ok();
            self.read_facts()?;
            let Some(task) = self.known.get(&id) else { return Ok(()) };
            if task.may_have_run || task.end.is_some() {
                break;
            }
            if unlocked {
                // It may be repeated.
                self.journal.forget_start(id, decision);
                self.forget(id);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
