//! Idempotency keys are kept for the life of their job and a while longer (decision D21).

use facts::decode;
use units::{JobId, Nanos, Timestamp};

use super::{Core, Draft};
use crate::ports::{Batch, Lapse, LogStore, StoreError};

/// How long a key is remembered after its job is over: 30 days.
pub(super) const KEPT: Nanos = Nanos::from_secs(30 * 86_400);

/// Keys forgotten in one turn: each is a row somewhere else in its table.
const PIECE: usize = 64;

/// What could not be done now is tried again after this time.
const RETRY: Nanos = Nanos::from_secs(60);

impl<S: LogStore> Core<S> {
    /// When the first key is to be forgotten; the end of time if none is.
    pub(super) fn first_lapse(store: &S) -> Result<Timestamp, StoreError> {
        Ok(store.lapses(1)?.first().map_or(Timestamp::MAX, |lapse| lapse.at))
    }

    /// If `job` is over: what launched it is personal and goes, and its key's days are numbered.
    pub(super) fn note_end(&self, job: JobId, draft: &mut Draft) {
        let row = self.state.job(job);
        if row.is_some_and(|row| row.ended.is_none()) {
            return;
        }
        draft.batch.erase.push(job);
        let at = self.clock.now() + KEPT;
        draft.batch.lapses.extend(row.map(|row| Lapse { at, seq: row.accepted }));
    }

    /// Forgets some of the keys whose time has come. A disk that is nearly full comes first.
    pub(super) fn forget_keys(&mut self, low_space: bool, draft: &mut Draft) {
        let now = self.clock.now();
        if self.next_lapse > now {
            return;
        }
        // Unless a commit says better.
        self.next_lapse = now + RETRY;
        if low_space {
            return;
        }
        let due = self.store.lapses(PIECE).unwrap_or_default();
        for lapse in due.into_iter().take_while(|lapse| lapse.at <= now) {
            // What cannot be read now is kept.
            let Ok(event) = self.store.event(lapse.seq) else { continue };
            let key = event.and_then(|bytes| decode(&bytes).ok()?.idem_key);
            draft.batch.lapsed.push((lapse, key));
        }
    }

    /// After a commit: when the next key is to be forgotten.
    pub(super) fn look_ahead(&mut self, batch: &Batch) {
        if !batch.lapsed.is_empty() {
            self.next_lapse = Self::first_lapse(&self.store).unwrap_or(self.next_lapse);
        }
        let new = batch.lapses.iter().map(|lapse| lapse.at).min();
        self.next_lapse = new.map_or(self.next_lapse, |new| self.next_lapse.min(new));
    }
}
