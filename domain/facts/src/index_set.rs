//! Sets of array indexes kept as ranges, so that an array of a million members stays small.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use units::ArrayIndex;

/// A set of array indexes: sorted, disjoint, non-adjacent inclusive ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexSet(Ranges);

/// Nearly every set is one range, which needs no memory of its own.
type Ranges = SmallVec<[(u32, u32); 1]>;

impl IndexSet {
    /// Exactly one index.
    pub fn one(index: ArrayIndex) -> Self {
        Self(smallvec![(index.0, index.0)])
    }

    /// All indexes from `first` to `last`, both included; empty if `first > last`.
    pub fn range(first: u32, last: u32) -> Self {
        if first > last { Self::default() } else { Self(smallvec![(first, last)]) }
    }

    /// The least index.
    pub fn first(&self) -> Option<ArrayIndex> {
        self.0.first().map(|range| ArrayIndex(range.0))
    }

    /// The greatest index.
    pub fn last(&self) -> Option<ArrayIndex> {
        self.0.last().map(|range| ArrayIndex(range.1))
    }

    /// How many indexes are in the set.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether the set has no index.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The inclusive ranges, in order.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// Whether `index` is in the set.
    pub fn contains(&self, index: ArrayIndex) -> bool {
        let after = self.0.partition_point(|range| range.0 <= index.0);
        after > 0 && self.0[after - 1].1 >= index.0
    }

    /// Every index, in order.
    pub fn iter(&self) -> impl Iterator<Item = ArrayIndex> + '_ {
        self.0.iter().flat_map(|&(first, last)| (first..=last).map(ArrayIndex))
    }

    /// Adds `index`; false if it was there.
    pub fn insert(&mut self, index: ArrayIndex) -> bool {
        let at = self.0.partition_point(|range| range.0 <= index.0);
        if at > 0 && self.0[at - 1].1 >= index.0 {
            return false;
        }
        let joins_left = at > 0 && self.0[at - 1].1.checked_add(1) == Some(index.0);
        let joins_right = self.0.get(at).is_some_and(|range| index.0.checked_add(1) == Some(range.0));
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = index.0,
            (false, true) => self.0[at].0 = index.0,
            (false, false) => self.0.insert(at, (index.0, index.0)),
        }
        true
    }

    /// Takes `index` out; false if it was not there.
    pub fn remove(&mut self, index: ArrayIndex) -> bool {
        let after = self.0.partition_point(|range| range.0 <= index.0);
        let Some(at) = after.checked_sub(1).filter(|&at| self.0[at].1 >= index.0) else { return false };
        let (first, last) = self.0[at];
        match (first == index.0, last == index.0) {
            (true, true) => drop(self.0.remove(at)),
            (true, false) => self.0[at].0 += 1,
            (false, true) => self.0[at].1 -= 1,
            (false, false) => {
                self.0[at].1 = index.0 - 1;
                self.0.insert(at + 1, (index.0 + 1, last));
            }
        }
        true
    }

    /// The indexes in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut shared = Ranges::new();
        let (mut left, mut right) = (self.0.as_slice(), other.0.as_slice());
        while let (Some(&a), Some(&b)) = (left.first(), right.first()) {
            if a.0.max(b.0) <= a.1.min(b.1) {
                shared.push((a.0.max(b.0), a.1.min(b.1)));
            }
            // Whichever range ends first meets nothing further.
            if a.1 < b.1 { left = &left[1..] } else { right = &right[1..] }
        }
        Self(shared)
    }

    /// The indexes of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// The indexes in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.complement().intersection(&other.complement()).complement()
    }

    /// Every index that is not in the set.
    fn complement(&self) -> Self {
        let mut gaps = Ranges::new();
        let mut from = Some(0);
        for &(first, last) in &self.0 {
            if let Some(from) = from.filter(|from| *from < first) {
                gaps.push((from, first - 1));
            }
            from = last.checked_add(1);
        }
        gaps.extend(from.map(|from| (from, u32::MAX)));
        Self(gaps)
    }
}

impl FromIterator<ArrayIndex> for IndexSet {
    fn from_iter<I: IntoIterator<Item = ArrayIndex>>(indexes: I) -> Self {
        let mut set = Self::default();
        for index in indexes {
            set.insert(index);
        }
        set
    }
}

/// Why a written set was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexSetError {
    /// Neither an index nor a range.
    #[error("'{0}' is no index and no range; write for example 0-99,200")]
    Malformed(String),
    /// Written in two places.
    #[error("index {0} is named twice")]
    Twice(u32),
}

impl FromStr for IndexSet {
    type Err = IndexSetError;

    /// Reads `0-99,200`; a range of a million costs no more than one of two.
    fn from_str(text: &str) -> Result<Self, IndexSetError> {
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => ranges.push((first, last)),
                _ => return Err(IndexSetError::Malformed(part.to_owned())),
            }
        }
        ranges.sort_unstable();
        let mut joined = Ranges::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1 => return Err(IndexSetError::Twice(first)),
                Some(before) if first == before.1 + 1 => before.1 = last,
                _ => joined.push((first, last)),
            }
        }
        Ok(Self(joined))
    }
}

/// As users write it: `0-99,200`.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(steps in prop::collection::vec((any::<bool>(), 0_u32..24), 0..80)) {
            let mut ranges = IndexSet::default();
            let mut plain = BTreeSet::new();
            for (add, index) in steps {
                if add {
                    prop_assert_eq!(ranges.insert(ArrayIndex(index)), plain.insert(index));
                } else {
                    prop_assert_eq!(ranges.remove(ArrayIndex(index)), plain.remove(&index));
                }
                let listed: Vec<u32> = ranges.iter().map(|i| i.0).collect();
                prop_assert_eq!(&listed, &plain.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.len(), plain.len() as u64);
                prop_assert!(ranges.ranges().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
                prop_assert_eq!(ranges.contains(ArrayIndex(index)), plain.contains(&index));
                if !ranges.is_empty() {
                    prop_assert_eq!(ranges.to_string().parse(), Ok(ranges.clone()));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn set_algebra_agrees_with_plain_sets(
            left in prop::collection::btree_set(prop_oneof![0_u32..12, Just(u32::MAX)], 0..10),
            right in prop::collection::btree_set(prop_oneof![0_u32..12, Just(u32::MAX)], 0..10),
        ) {
            let set = |plain: &BTreeSet<u32>| plain.iter().copied().map(ArrayIndex).collect::<IndexSet>();
            let (a, b) = (set(&left), set(&right));
            prop_assert_eq!(a.intersection(&b), set(&(&left & &right)));
            prop_assert_eq!(a.difference(&b), set(&(&left - &right)));
            prop_assert_eq!(a.union(&b), set(&(&left | &right)));
        }
    }

    #[test]
    fn written_sets_are_read_or_refused() {
        let read = |text: &str| text.parse::<IndexSet>().map(|set| set.to_string());
        let malformed = |part: &str| Err(IndexSetError::Malformed(part.to_owned()));
        assert_eq!(read("5, 1-3,4"), Ok("1-5".to_owned()));
        assert_eq!(read("0-4294967295"), Ok("0-4294967295".to_owned()));
        assert_eq!(read("1-3,3"), Err(IndexSetError::Twice(3)));
        assert_eq!(read("3-1"), malformed("3-1"));
        assert_eq!(read(""), malformed(""));
        assert_eq!(read("1,-2"), malformed("-2"));
        assert_eq!(read("4294967296"), malformed("4294967296"));
    }

    #[test]
    fn the_largest_index_does_not_overflow() {
        let mut set = IndexSet::range(0, u32::MAX);
        assert!(!set.insert(ArrayIndex(u32::MAX)));
        assert!(set.remove(ArrayIndex(u32::MAX)));
        assert_eq!(set.len(), u64::from(u32::MAX));
        assert_eq!(set.to_string(), "0-4294967294");
    }
}
