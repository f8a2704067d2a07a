//! `fourplane.yaml`: what is wanted, and what is wrong with how it is written.
//!
//! [`check`] reads a file in three steps: YAML to a tree that knows where each part stands (`tree`),
//! the tree to types with a placeholder where something cannot be read (`decode`), and rules over the
//! types (`rules`). So it finds all mistakes at once, each with its place. The fields, their
//! documentation and their JSON Schema come from one declaration (`model`).

mod decode;
mod explain;
mod finding;
pub mod model;
mod nearest;
mod render;
mod rules;
mod scalar;
mod schema;
pub mod shape;
mod span;
mod tree;

pub use explain::{Explanation, NoSuchField, explain};
pub use finding::{Code, Finding, Severity};
pub use model::Cluster;
pub use nearest::nearest;
pub use render::Colour;
pub use scalar::{Count, Date, FailureBasis, FailureRate, Label, Name, Nodes, Ratio};
pub use schema::json_schema;
pub use span::{Position, Span};
pub use tree::MOST_BYTES;

use crate::decode::{Context, Decode};
use crate::finding::Findings;
use crate::rules::Rules;
use crate::shape::Record;
use crate::tree::{Node, Value};

/// A file that was read.
#[derive(Debug)]
pub struct Checked<'s> {
    source: &'s str,
    /// What it says, if it holds no error.
    pub cluster: Option<Cluster>,
    /// All that was found, in the order of the file.
    pub findings: Vec<Finding>,
    /// Findings beyond the limit, not listed.
    pub more: usize,
}

/// Reads a file and finds what is wrong with it.
pub fn check(bytes: &[u8]) -> Checked<'_> {
    let mut findings = Findings::default();
    let Some(source) = text(bytes, &mut findings) else { return done("", None, findings) };
    let Some(root) = tree::parse(source, &mut findings) else {
        if !findings.has_errors {
            empty(Span::START, &mut findings);
        }
        return done(source, None, findings);
    };
    if root.is_null() {
        empty(root.span, &mut findings);
        return done(source, None, findings);
    }
    let (cluster, findings) = decode(&root, findings);
    done(source, cluster, findings)
}

fn decode(root: &Node<'_>, findings: Findings) -> (Option<Cluster>, Findings) {
    let mut context = Context::new(findings);
    let cluster = Cluster::decode(root, &mut context);
    if let Value::Map(_) = root.value {
        rules::check(&cluster, &mut Rules { root, findings: &mut context.findings });
    }
    context.tell_later(root);
    let findings = context.findings;
    ((!findings.has_errors).then_some(cluster), findings)
}

/// The top of all fields.
pub(crate) fn top() -> &'static Record {
    match Cluster::SHAPE {
        shape::Shape::Record(record) => record,
        _ => unreachable!("the file is a record"),
    }
}

fn done(source: &str, cluster: Option<Cluster>, findings: Findings) -> Checked<'_> {
    let more = findings.more;
    Checked { source, cluster, findings: findings.into_sorted(), more }
}

fn empty(span: Span, findings: &mut Findings) {
    let hint = "a file begins with `fourplane: 1` and `cluster: NAME`; see examples/minimal.yaml".to_owned();
    findings.add(Code::Empty, span, String::new(), "the file says nothing".to_owned(), Some(hint));
}

fn text<'s>(bytes: &'s [u8], findings: &mut Findings) -> Option<&'s str> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Some(text),
        Err(error) => error,
    };
    let before = &bytes[..error.valid_up_to()];
    let wide = matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
    let hint = if wide { "the file looks like UTF-16; save it as UTF-8" } else { "save the file as UTF-8" };
    let message = format!("byte {} is no UTF-8 text", before.len());
    let span = position(before);
    findings.add(
        Code::NotText,
        Span { start: span, end: span },
        String::new(),
        message,
        Some(hint.to_owned()),
    );
    None
}

/// The place after some text.
fn position(before: &[u8]) -> Position {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let text = String::from_utf8_lossy(before).replace("\r\n", "\n");
    let line = text.matches(['\n', '\r']).count() + 1;
    let column = text.chars().rev().take_while(|letter| !matches!(letter, '\n' | '\r')).count() + 1;
    Position { offset: small(before.len()), line: small(line), column: small(column) }
}
