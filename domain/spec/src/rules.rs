//! What no field can tell by itself: names that must name something, sums, and what cannot be.
//!
//! A rule reports at a path. Where something in that place could not be read, the rule keeps quiet: its
//! input would be a placeholder.

mod money;
mod names;
mod sums;
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
    /// The node at a path, or the nearest above it.
    fn node(&self, path: &[Step<'_>]) -> &Node<'_> {
        let mut node = self.root;
        for step in path {
            let next = match (step, &node.value) {
                (Step::Key(key), _) => node.get(key).map(|entry| &entry.value),
                (Step::Index(index), Value::List(items)) => items.get(*index),
                // A lone value stands for a list of one.
                (Step::Index(_), _) => Some(node),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    /// Whether everything there could be read.
    fn is_whole(&self, path: &[Step<'_>]) -> bool {
        !self.findings.has_errors || !self.findings.error_within(self.node(path).span)
    }

    fn report(&mut self, code: Code, path: &[Step<'_>], message: String, hint: Option<String>) {
        let span = self.node(path).head();
        self.report_at(code, path, span, message, hint);
    }

    fn report_at(
        &mut self,
        code: Code,
        path: &[Step<'_>],
        span: Span,
        message: String,
        hint: Option<String>,
    ) {
        if self.is_whole(path) {
            self.findings.add(code, span, join(path), message, hint);
        }
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
}
