//! The order of waiting jobs: a treap in an arena that knows, for every subtree, the least
//! that any job in it needs, so that a search skips what cannot fit.
//!
//! A node's heap order is a hash of its job id, so equal contents have equal shape whatever
//! led to them: the walk, and with it every decision, is the same on every machine.

use units::{JobId, Nanos, Timestamp};

use crate::rows::Amount;

/// One step of priority is worth so much waiting: one hour.
const PRIORITY_STEP: i128 = 3_600_000_000_000;

/// A job's place in the order; it does not change as time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// A number of 128 bits, the upper half first: as one it would need to lie on a multiple of 16.
    rank: (i64, u64),
    /// The job.
    pub job: JobId,
}

impl Key {
    /// Earlier submission and higher priority come first, then the lower id.
    pub(crate) fn new(submitted: Timestamp, priority: i32, job: JobId) -> Self {
        let rank = i128::from(submitted.0) - i128::from(priority) * PRIORITY_STEP;
        let upper = i64::try_from(rank >> 64).expect("it has 98 bits");
        let lower = u64::try_from(rank & i128::from(u64::MAX)).expect("it is masked");
        Self { rank: (upper, lower), job }
    }
}

/// A waiting job as the search sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its place.
    pub key: Key,
    /// What one attempt needs over all its tasks.
    pub need: Amount,
    /// How long an attempt may run; the maximum is for ever.
    pub estimate: Nanos,
    /// When its next member may start.
    pub not_before: Timestamp,
}

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The time now.
    pub now: Timestamp,
    /// What an entry must fit in.
    pub room: Amount,
    /// What an entry must fit in besides, unless it is over within `window`.
    pub spare: Amount,
    /// See `spare`.
    pub window: Nanos,
}

impl Wanted {
    /// Whatever fits in `room`, however long it runs.
    pub(crate) fn fitting(now: Timestamp, room: Amount) -> Self {
        Self { now, room, spare: Amount::MAX, window: Nanos::ZERO }
    }

    /// Whether an entry, or by its minima any entry of a subtree, can be what is wanted.
    fn may_be(&self, need: Amount, estimate: Nanos, not_before: Timestamp) -> bool {
        not_before <= self.now && need.fits(self.room) && (estimate <= self.window || need.fits(self.spare))
    }

    /// Whether `entry` is what is wanted.
    pub(crate) fn is(&self, entry: &Entry) -> bool {
        self.may_be(entry.need, entry.estimate, entry.not_before)
    }
}

const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node {
    entry: Entry,
    left: u32,
    right: u32,
    count: u32,
    need: Amount,
    estimate: Nanos,
    not_before: Timestamp,
}

/// Waiting jobs in order.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    root: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { nodes: Vec::new(), vacant: Vec::new(), root: NIL }
    }
}

/// `SplitMix64` of a job id: what makes the tree balanced and its shape a function of its content.
fn weight(job: JobId) -> u64 {
    let mut z = job.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Queue {
    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.count(self.root) as usize
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// Adds an entry. Its key must not be in the queue.
    pub(crate) fn insert(&mut self, entry: Entry) {
        let new = self.allocate(entry);
        let (left, right) = self.split(self.root, entry.key);
        let left = self.merge(left, new);
        self.root = self.merge(left, right);
    }

    /// Takes an entry out; false if there was none.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        let before = self.len();
        self.root = self.without(self.root, key);
        self.len() < before
    }

    /// How many entries come before `key`.
    pub(crate) fn position(&self, key: Key) -> usize {
        let (mut at, mut before) = (self.root, 0);
        while at != NIL {
            let node = &self.nodes[at as usize];
            if node.entry.key < key {
                before += self.count(node.left) as usize + 1;
                at = node.right;
            } else {
                at = node.left;
            }
        }
        before
    }

    /// The first entry after `after` that is `wanted`. Each entry that was looked at and
    /// was not takes one from `budget`; at zero the search gives up.
    pub(crate) fn find(&self, after: Option<Key>, wanted: &Wanted, budget: &mut u32) -> Option<Entry> {
        self.find_in(self.root, after, wanted, budget)
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let mut path = Vec::new();
        self.descend(self.root, &mut path);
        std::iter::from_fn(move || {
            let at = path.pop()?;
            let node = &self.nodes[at as usize];
            self.descend(node.right, &mut path);
            Some(&node.entry)
        })
    }

    fn descend(&self, mut at: u32, path: &mut Vec<u32>) {
        while at != NIL {
            path.push(at);
            at = self.nodes[at as usize].left;
        }
    }

    fn find_in(&self, at: u32, after: Option<Key>, wanted: &Wanted, budget: &mut u32) -> Option<Entry> {
        let node = self.nodes.get(at as usize)?;
        if !wanted.may_be(node.need, node.estimate, node.not_before) {
            return None;
        }
        if after.is_some_and(|after| node.entry.key <= after) {
            return self.find_in(node.right, after, wanted, budget);
        }
        if let Some(found) = self.find_in(node.left, after, wanted, budget) {
            return Some(found);
        }
        if *budget == 0 {
            return None;
        }
        if wanted.is(&node.entry) {
            return Some(node.entry);
        }
        *budget -= 1;
        // All that is left to the right comes after `after`.
        self.find_in(node.right, None, wanted, budget)
    }

    fn count(&self, at: u32) -> u32 {
        self.nodes.get(at as usize).map_or(0, |node| node.count)
    }

    fn allocate(&mut self, entry: Entry) -> u32 {
        let node = Node {
            entry,
            left: NIL,
            right: NIL,
            count: 1,
            need: entry.need,
            estimate: entry.estimate,
            not_before: entry.not_before,
        };
        if let Some(at) = self.vacant.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("a queue holds fewer than 2^32 jobs")
    }

    /// Recomputes what a node knows of its subtree.
    fn refresh(&mut self, at: u32) -> u32 {
        let node = &self.nodes[at as usize];
        let entry = &node.entry;
        let (mut count, mut need) = (1, entry.need);
        let (mut estimate, mut not_before) = (entry.estimate, entry.not_before);
        for child in [node.left, node.right] {
            if let Some(child) = self.nodes.get(child as usize) {
                count += child.count;
                need = need.min(child.need);
                estimate = estimate.min(child.estimate);
                not_before = not_before.min(child.not_before);
            }
        }
        let node = &mut self.nodes[at as usize];
        (node.count, node.need, node.estimate, node.not_before) = (count, need, estimate, not_before);
        at
    }

    /// Splits a subtree into what comes before `key` and what does not.
    fn split(&mut self, at: u32, key: Key) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let Node { left, right, entry, .. } = self.nodes[at as usize];
        if entry.key < key {
            let (before, after) = self.split(right, key);
            self.nodes[at as usize].right = before;
            (self.refresh(at), after)
        } else {
            let (before, after) = self.split(left, key);
            self.nodes[at as usize].left = after;
            (before, self.refresh(at))
        }
    }

    /// Joins two subtrees; all of `left` comes before all of `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        if self.weight(left) > self.weight(right) {
            let joined = self.merge(self.nodes[left as usize].right, right);
            self.nodes[left as usize].right = joined;
            self.refresh(left)
        } else {
            let joined = self.merge(left, self.nodes[right as usize].left);
            self.nodes[right as usize].left = joined;
            self.refresh(right)
        }
    }

    fn weight(&self, at: u32) -> (u64, JobId) {
        let job = self.nodes[at as usize].entry.key.job;
        (weight(job), job)
    }

    /// The subtree without `key`.
    fn without(&mut self, at: u32, key: Key) -> u32 {
        if at == NIL {
            return NIL;
        }
        let Node { left, right, entry, .. } = self.nodes[at as usize];
        if entry.key == key {
            self.vacant.push(at);
            return self.merge(left, right);
        }
        if key < entry.key {
            self.nodes[at as usize].left = self.without(left, key);
        } else {
            self.nodes[at as usize].right = self.without(right, key);
        }
        self.refresh(at)
    }
}

/// By content: where nodes lie in the arena says nothing.
impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Queue {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry> {
        (0_i64..6, -2_i32..3, 0_u64..40, [0_u64..4, 0..4, 0..4], 0_u64..4, 0_i64..3).prop_map(
            |(at, priority, job, [cores, memory, gpus], estimate, not_before)| Entry {
                key: Key::new(Timestamp(at), priority, JobId(job)),
                need: Amount { cores, memory, gpus },
                estimate: Nanos(estimate),
                not_before: Timestamp(not_before),
            },
        )
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(
            steps in prop::collection::vec((entry(), prop::bool::weighted(0.3)), 1..120),
            room in [0_u64..4, 0..4, 0..4],
            spare in [0_u64..4, 0..4, 0..4],
            window in 0_u64..4,
            now in 0_i64..3,
        ) {
            let amount = |[cores, memory, gpus]: [u64; 3]| Amount { cores, memory, gpus };
            let wanted = Wanted {
                now: Timestamp(now),
                room: amount(room),
                spare: amount(spare),
                window: Nanos(window),
            };
            let mut queue = Queue::default();
            let mut list: Vec<Entry> = Vec::new();
            for (entry, remove) in steps {
                let known = list.iter().position(|other| other.key == entry.key);
                if remove {
                    prop_assert_eq!(queue.remove(entry.key), known.is_some());
                    known.map(|at| list.remove(at));
                } else if known.is_none() {
                    queue.insert(entry);
                    list.push(entry);
                    list.sort_by_key(|entry| entry.key);
                }
                prop_assert!(queue.iter().eq(list.iter()));
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.is_empty(), list.is_empty());
                let before = list.iter().filter(|other| other.key < entry.key).count();
                prop_assert_eq!(queue.position(entry.key), before);
                for after in [None, Some(entry.key)] {
                    let plain = list.iter().find(|e| after.is_none_or(|after| e.key > after) && wanted.is(e));
                    let mut budget = u32::MAX;
                    let found = queue.find(after, &wanted, &mut budget);
                    prop_assert_eq!(found.as_ref(), plain);
                }
            }
        }

        #[test]
        fn its_shape_does_not_tell_its_history(entries in prop::collection::vec(entry(), 1..60)) {
            let mut keys = std::collections::BTreeMap::new();
            for entry in entries {
                keys.insert(entry.key, entry);
            }
            let build = |entries: Vec<&Entry>| {
                let mut queue = Queue::default();
                for entry in entries {
                    queue.insert(*entry);
                }
                let mut budget = 1_000_000;
                let wanted = Wanted::fitting(Timestamp(1), Amount { cores: 1, memory: 2, gpus: 1 });
                queue.find(None, &wanted, &mut budget);
                (queue, budget)
            };
            let (forward, cost) = build(keys.values().collect());
            let (backward, cost_back) = build(keys.values().rev().collect());
            prop_assert_eq!(forward, backward);
            prop_assert_eq!(cost, cost_back);
        }
    }

    #[test]
    fn a_search_skips_what_cannot_fit_and_keeps_to_its_budget() {
        let mut queue = Queue::default();
        let big = Amount { cores: 64, memory: 1, gpus: 0 };
        let entry = |job: u64, need| Entry {
            key: Key::new(Timestamp(0), 0, JobId(job)),
            need,
            estimate: Nanos(u64::MAX),
            not_before: Timestamp(0),
        };
        (0..10_000).for_each(|job| queue.insert(entry(job, big)));
        queue.insert(entry(10_000, Amount { cores: 1, ..big }));
        let mut budget = 1_000;
        let wanted = Wanted::fitting(Timestamp(0), Amount { cores: 8, memory: 8, gpus: 0 });
        let found = queue.find(None, &wanted, &mut budget);
        assert_eq!(found.map(|entry| entry.key.job), Some(JobId(10_000)));
        assert!(budget > 900, "looked at {} jobs", 1_000 - budget);

        // Each alone is ruled out only by both parts together: the budget must stop this.
        queue.insert(entry(20_000, Amount { cores: 99, memory: 0, gpus: 0 }));
        (0..10_000_u64).for_each(|job| {
            let need = if job % 2 == 0 { (1, 9, 0) } else { (9, 1, 0) };
            queue.insert(entry(30_000 + job, Amount { cores: need.0, memory: need.1, gpus: need.2 }));
        });
        let mut budget = 100;
        assert_eq!(queue.find(Some(Key::new(Timestamp(0), 0, JobId(10_000))), &wanted, &mut budget), None);
        assert_eq!(budget, 0);
    }
}
