//! Ends a terminal that nobody uses: SIGHUP to the whole job, then a kill.

use ops::ports::{IdleLimit, StartTask};

use crate::journal::{self, Entry, Nonce};
use crate::shim::Plan;
use crate::sys;

/// Between kills of what does not die.
const AGAIN: u64 = 1_000_000_000;

/// Watches one terminal. Times in nanoseconds of `CLOCK_BOOTTIME`.
pub(crate) struct Idle<'a> {
    plan: &'a Plan<'a>,
    nonce: Nonce,
    limit: IdleLimit,
    used: u64,
    /// When the kill is due, once the job was told.
    kill_at: Option<u64>,
}

impl<'a> Idle<'a> {
    /// None where the task has no limit.
    pub(crate) fn new(start: &StartTask, plan: &'a Plan<'a>) -> Option<Self> {
        let limit = start.idle?;
        Some(Self { plan, nonce: start.nonce, limit, used: sys::boottime(), kill_at: None })
    }

    /// Something was typed or shown.
    pub(crate) fn used(&mut self) {
        self.used = sys::boottime();
    }

    /// Does what is due to the job whose first process is `pid`. Gives the time until the next look.
    pub(crate) fn press(&mut self, pid: i32) -> u64 {
        let now = sys::boottime();
        let due = self.kill_at.unwrap_or_else(|| self.used.saturating_add(self.limit.after));
        if now < due {
            return due - now;
        }
        if self.kill_at.is_some() {
            self.plan.kill(pid);
            self.kill_at = Some(now + AGAIN);
            return AGAIN;
        }
        // Without the record it would look as if it had ended by itself; that is still an end.
        let _ = journal::append(&self.plan.journal, &[Entry::Idle { nonce: self.nonce }]);
        self.plan.signal(pid, libc::SIGHUP);
        self.kill_at = Some(now.saturating_add(self.limit.grace));
        self.limit.grace
    }
}
