//! Who holds how much of what there is only so much of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what each `K` holds.
#[derive(Clone)]
pub(crate) struct Shares<K: Ord>(Arc<Mutex<BTreeMap<K, u32>>>);

impl<K: Ord> Default for Shares<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Copy> Shares<K> {
    /// One more for `holder`, until it is dropped; none if that would be more than `most`.
    pub(crate) fn take(&self, holder: K, most: u32) -> Option<Share<K>> {
        let mut held = self.held();
        let count = held.entry(holder).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(held);
        Some(Share { holder, of: self.clone() })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<K, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of what its holder has.
pub(crate) struct Share<K: Ord + Copy> {
    holder: K,
    of: Shares<K>,
}

impl<K: Ord + Copy> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = self.of.held();
        if let Some(count) = held.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_may_be_taken_again_and_leaves_nothing_behind() {
        let shares = Shares::default();
        let first = shares.take(1, 2);
        let second = shares.take(1, 2);
        assert!(first.is_some() && second.is_some() && shares.take(1, 2).is_none());
        assert!(shares.take(2, 2).is_some(), "each holder has its own");
        drop(first);
        assert!(shares.take(1, 2).is_some());
        drop(second);
        assert!(shares.held().is_empty());
    }
}
