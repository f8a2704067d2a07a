//! Free labels of a job, kept small: there is a set of them for each waiting job.

use std::collections::BTreeMap;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Labels by name, each name once and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Names and values, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self(labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }
}

/// The bytes are those of a map.
impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("labels by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
                    // As in any map, the last of a name counts.
                    pairs.reverse();
                    pairs.sort_by(|a, b| a.0.cmp(&b.0));
                    pairs.dedup_by(|later, kept| later.0 == kept.0);
                }
                Ok(Labels(pairs.into()))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_are_a_map(map in prop::collection::btree_map("[a-c]{0,3}", "[a-z]{0,4}", 0..6)) {
            let labels = Labels::from(map.clone());
            prop_assert_eq!(postcard::to_stdvec(&labels).unwrap(), postcard::to_stdvec(&map).unwrap());
            let back: Labels = postcard::from_bytes(&postcard::to_stdvec(&map).unwrap()).unwrap();
            prop_assert_eq!(&back, &labels);
            for (name, value) in &map {
                prop_assert_eq!(labels.get(name), Some(value.as_str()));
            }
            prop_assert_eq!(labels.get("z"), None);
            prop_assert_eq!(BTreeMap::from(labels), map);
        }

        #[test]
        fn pairs_in_any_order_become_a_map(pairs in prop::collection::vec(("[a-c]", "[a-z]"), 0..8)) {
            // As a sequence of pairs has a map's bytes.
            let labels: Labels = postcard::from_bytes(&postcard::to_stdvec(&pairs).unwrap()).unwrap();
            let map: BTreeMap<String, String> = pairs.into_iter().collect();
            prop_assert_eq!(BTreeMap::from(labels), map);
        }
    }
}
