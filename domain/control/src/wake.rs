//! What the state owes the world: when to look again, what to tell the nodes.

use facts::event::StopReason;
use facts::{Event, Hash32};
use units::{ArrayIndex, AttemptId, JobId, MemberId, Rank, Timestamp};

use crate::state::State;

/// Something a node must be told. It follows from the state and is never stored; whoever
/// carries it out must bear to be told twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obligation {
    /// Start a task.
    Start {
        /// The attempt.
        attempt: AttemptId,
        /// The task.
        rank: Rank,
    },
    /// Stop a task. A node that never started it answers that it never was.
    Stop {
        /// The attempt.
        attempt: AttemptId,
        /// The task.
        rank: Rank,
        /// Why.
        reason: StopReason,
    },
    /// Warn a task that its time limit is near.
    Warn {
        /// The attempt.
        attempt: AttemptId,
        /// The task.
        rank: Rank,
        /// Signal number.
        signal: u8,
    },
}

impl State {
    /// The next time after `now` at which [`crate::decide`] could say something without an
    /// event, or a warning falls due.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let index = self.index();
        let later = Timestamp(now.0.checked_add(1)?);
        let first_member = MemberId { job: JobId(0), index: ArrayIndex(0) };
        // Releases are here because what is overdue counts as spare beside a reservation.
        let of_attempts = [&index.deadlines, &index.warnings, &index.releases];
        let attempts = of_attempts
            .into_iter()
            .filter_map(|times| times.range((later, AttemptId(0))..).next().map(|(at, _)| *at));
        let retries = index.retry_times.range((later, first_member)..).next().map(|(at, _)| *at);
        let reserved = self.reservations().flat_map(|(_, row)| [row.from, row.until]).filter(|at| *at > now);
        let times = attempts.chain(retries).chain(reserved).chain(self.next_unprotected(now));
        times.min().filter(|at| *at < Timestamp::MAX)
    }

    /// When the next attempt that is left alone no longer is. Attempts start in the order of their ids.
    fn next_unprotected(&self, now: Timestamp) -> Option<Timestamp> {
        let protect = self.meta().preemption.protect;
        let ends = self.attempts().rev().map(|(_, attempt)| attempt.started + protect);
        ends.take_while(|at| *at > now).last()
    }

    /// Everything owed now: each lease without its fact. For use after a restart.
    pub fn obligations(&self) -> Vec<Obligation> {
        self.attempts().flat_map(|(id, _)| self.owed_to(id)).collect()
    }

    /// What a decision that was just applied owes.
    pub fn obligations_of(&self, event: &Event) -> Vec<Obligation> {
        match event {
            Event::Started(e) => self.owed_to(e.attempt).collect(),
            Event::StopOrdered(e) => self.owed_to(e.attempt).collect(),
            _ => Vec::new(),
        }
    }

    /// Warnings that fell due after `after`, up to and including `until`. No fact says that
    /// one was given, so the caller keeps the time of its last call.
    pub fn warnings(&self, after: Timestamp, until: Timestamp) -> Vec<Obligation> {
        let due = self.index().warnings.range((after, AttemptId(u64::MAX))..);
        due.take_while(|(at, _)| *at <= until)
            .filter_map(|(_, id)| Some((*id, self.attempt(*id)?.warn?.1)))
            .flat_map(|(attempt, signal)| {
                let running = self.tasks_of(attempt).filter(|(_, task)| task.end.is_none());
                running.map(move |(rank, _)| Obligation::Warn { attempt, rank, signal })
            })
            .collect()
    }

    fn owed_to(&self, id: AttemptId) -> impl Iterator<Item = Obligation> {
        let stop = self.attempt(id).and_then(|attempt| attempt.stop);
        let live = self.tasks_of(id).filter(|(_, task)| task.end.is_none());
        live.filter_map(move |(rank, task)| match stop {
            Some(stop) => Some(Obligation::Stop { attempt: id, rank, reason: stop.reason }),
            None if task.running.is_none() => Some(Obligation::Start { attempt: id, rank }),
            None => None,
        })
    }
}

/// The secret that ties an exit record to its task; `seed` is [`crate::Attempt::nonce_seed`].
pub fn nonce(seed: &Hash32, attempt: AttemptId, rank: Rank) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(&seed.0);
    hasher.update(&attempt.0.to_le_bytes());
    hasher.update(&rank.0.to_le_bytes());
    let mut nonce = [0; 16];
    hasher.finalize_xof().fill(&mut nonce);
    nonce
}
