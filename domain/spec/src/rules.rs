//! What no field can tell by itself: names that must name something, sums, and what cannot be.
//!
//! A rule reports at a path. Where something in that place could not be read, the rule keeps quiet: its
//! input would be a placeholder.

mod money;
mod names;
mod sums;
mod told;
mod work;

use crate::decode::{Step, join};
use crate::finding::{Code, Findings};
use crate::model::Cluster;
use crate::span::Span;
use crate::tree::{Node, Value};

/// The version of the format that is read.
const VERSION: u32 = 1;

/// A path, from keys and indexes.
macro_rules! at {
    ($($step:expr),* $(,)?) => {
        &[$($crate::decode::Step::from($step)),*]
    };
}
use at;

pub(crate) struct Rules<'a, 's> {
    pub(crate) root: &'a Node<'s>,
    pub(crate) findings: &'a mut Findings,
}

impl Rules<'_, '_> {
    /// The node at a path, or the nearest above it, and the key it stands under.
    fn find(&self, path: &[Step<'_>]) -> (&Node<'_>, Option<Span>) {
        let (mut node, mut under) = (self.root, None);
        for step in path {
            let next = match (step, &node.value) {
                (Step::Key(key) | Step::Name(key), _) => {
                    node.get(key).map(|entry| (&entry.value, Some(entry.key_span)))
                }
                (Step::Index(index), Value::List(items)) => items.get(*index).map(|item| (item, None)),
                // A lone value stands for a list of one.
                (Step::Index(_), _) => Some((node, under)),
            };
            match next {
                Some(next) => (node, under) = next,
                None => break,
            }
        }
        (node, under)
    }

    /// Whether everything there could be read.
    fn is_whole(&self, path: &[Step<'_>]) -> bool {
        !self.findings.has_errors || !self.findings.error_within(self.find(path).0.span)
    }

    /// Reports at the value, or at the key of a list, which is long.
    fn report(&mut self, code: Code, path: &[Step<'_>], message: String, hint: Option<String>) {
        if !self.is_whole(path) {
            return;
        }
        let (node, under) = self.find(path);
        let span = match node.value {
            Value::List(_) => under.unwrap_or(node.head()),
            _ => node.head(),
        };
        self.findings.add(code, span, join(path), message, hint);
    }
}

/// All of them.
pub(crate) fn check(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    if cluster.fourplane != VERSION {
        let message = format!("version {} of the format is not known here", cluster.fourplane);
        rules.report(Code::Version, at!["fourplane"], message, Some(format!("write `fourplane: {VERSION}`")));
    }
    names::check(cluster, rules);
    sums::check(cluster, rules);
    work::check(cluster, rules);
    money::check(cluster, rules);
    told::check(cluster, rules);
}
