//! YAML as a tree that knows where each part stands.
//!
//! Its own step, so that decoding can go on after a mistake and find the next one. Aliases are
//! copied in and merge keys resolved here, both within a budget.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, StructureStyle, Tag};

use crate::finding::{Code, Findings};
use crate::span::{Position, Span};

/// Bytes of a file that are read: a specification of 3,000 pools has about 1 MiB.
pub const MOST_BYTES: usize = 8 << 20;
/// Nodes of a file.
const MOST_NODES: u32 = 500_000;
/// Nodes that aliases may copy, over all aliases.
const MOST_COPIED: u32 = 100_000;
/// Collections within collections; the deepest field has 8.
const DEEPEST: usize = 32;
const TOO_DEEP: &str = "more lists and mappings stand within each other here than are read";

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node<'s> {
    pub(crate) span: Span,
    pub(crate) value: Value<'s>,
    /// Itself and all below.
    size: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Value<'s> {
    /// A scalar; plain when neither quoted nor a block nor tagged as text.
    Text {
        text: Cow<'s, str>,
        plain: bool,
    },
    List(Vec<Node<'s>>),
    Map(Vec<Entry<'s>>),
    /// Already reported.
    Broken,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<'s> {
    pub(crate) key: Cow<'s, str>,
    pub(crate) key_span: Span,
    pub(crate) value: Node<'s>,
}

impl<'s> Node<'s> {
    /// A plain scalar that stands in no file.
    pub(crate) fn scalar(text: &'s str) -> Self {
        let value = Value::Text { text: Cow::Borrowed(text), plain: true };
        Self { span: Span::START, value, size: 1 }
    }

    /// The value of a key of a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry<'s>> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// What stands for the whole of it in a message: a scalar, or the first key of a mapping.
    pub(crate) fn head(&self) -> Span {
        match &self.value {
            Value::Map(entries) => entries.first().map_or(self.span, |entry| entry.key_span),
            Value::List(items) => items.first().map_or(self.span, Self::head),
            Value::Text { .. } | Value::Broken => self.span,
        }
    }

    /// Whether it is a scalar that says "nothing".
    pub(crate) fn is_null(&self) -> bool {
        let Value::Text { text, plain: true } = &self.value else { return false };
        matches!(&**text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// A collection that is not yet closed.
struct Open<'s> {
    start: Span,
    anchor: usize,
    is_flow: bool,
    size: u32,
    content: Content<'s>,
}

enum Content<'s> {
    List(Vec<Node<'s>>),
    Map { entries: Vec<Entry<'s>>, key: Option<Key<'s>> },
}

/// What a tag says about a scalar.
enum Tagged {
    /// Nothing, or what it looks like anyway.
    Not,
    /// That it is text.
    Text,
    /// Something that only another program knows.
    Strange,
}

/// A key that waits for its value.
enum Key<'s> {
    Text(Cow<'s, str>, Span),
    Unreadable,
}

struct Builder<'s, 'f> {
    base: u32,
    end: u32,
    open: Vec<Open<'s>>,
    anchors: BTreeMap<usize, Node<'s>>,
    nodes: u32,
    copied: u32,
    root: Option<Node<'s>>,
    findings: &'f mut Findings,
}

/// Reads one document. `None` when there is nothing to go on with; the findings tell why.
pub(crate) fn parse<'s>(source: &'s str, findings: &mut Findings) -> Option<Node<'s>> {
    let bom = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let end = u32::try_from(source.len()).ok().filter(|_| source.len() <= MOST_BYTES);
    let Some(end) = end else {
        let message = format!("the file is larger than the {MOST_BYTES} bytes that are read");
        findings.add(Code::Limit, Span::START, String::new(), message, None);
        return None;
    };
    let options = granit_parser::options! { emit_unresolved_aliases: true, emit_comments: false };
    let base = u32::try_from(bom).unwrap_or(0);
    let (open, anchors, root) = (Vec::new(), BTreeMap::new(), None);
    let mut builder = Builder { base, end, open, anchors, nodes: 0, copied: 0, root, findings };
    let mut documents = 0;
    for next in Parser::new_from_str_with_options(&source[bom..], options) {
        let (event, span) = match next {
            Ok((event, span)) => (event, builder.span(span)),
            Err(error) => return builder.syntax(&error),
        };
        if let Event::DocumentStart(..) = event {
            documents += 1;
        }
        if documents > 1 {
            let message = "a second document starts here; a specification is one document".to_owned();
            let hint = "write it into a file of its own, or remove the line '---'".to_owned();
            builder.findings.add(Code::SeveralDocuments, span, String::new(), message, Some(hint));
            break;
        }
        builder.event(event, span)?;
    }
    builder.root
}

impl<'s> Builder<'s, '_> {
    fn position(&self, mark: Marker) -> Position {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let offset = mark.byte_offset().map_or(self.end, |offset| small(offset) + self.base);
        Position { offset: offset.min(self.end), line: small(mark.line()), column: small(mark.col()) + 1 }
    }

    fn span(&self, span: granit_parser::Span) -> Span {
        Span { start: self.position(span.start), end: self.position(span.end) }
    }

    fn report(&mut self, code: Code, span: Span, message: String, hint: Option<&str>) {
        self.findings.add(code, span, String::new(), message, hint.map(str::to_owned));
    }

    fn syntax(&mut self, error: &ScanError) -> Option<Node<'s>> {
        let at = self.position(*error.marker());
        let (message, hint) = match error.kind() {
            ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation => {
                (Some("this line is indented by a tab"), Some("write spaces"))
            }
            ErrorKind::MappingValueNotAllowed
            | ErrorKind::SimpleKeyExpected
            | ErrorKind::InvalidSimpleKey => (
                Some("there cannot be a key here"),
                Some("look at the line before: a colon needs a space after it"),
            ),
            ErrorKind::InvalidColonPlacement
            | ErrorKind::UnclosedFlowCollection { .. }
            | ErrorKind::ExpectedFlowMappingSeparator
            | ErrorKind::ExpectedFlowSequenceSeparator => (
                Some("a bracket is open, or a comma is missing"),
                Some("close what begins with [ or { before"),
            ),
            ErrorKind::UnclosedQuotedScalar => (Some("the quote that begins here does not end"), None),
            ErrorKind::ExpectedBlockMappingKey
            | ErrorKind::ExpectedBlockSequenceEntry
            | ErrorKind::InvalidIndentation => (
                Some("this line is indented differently from those it belongs to"),
                Some("let the keys of one mapping begin in one column"),
            ),
            ErrorKind::UnexpectedCharacter { .. } => {
                (Some("text cannot begin with this character"), Some("put it in quotes"))
            }
            ErrorKind::RecursionLimitExceeded => {
                self.report(Code::Limit, Span { start: at, end: at }, TOO_DEEP.to_owned(), None);
                return None;
            }
            _ => (None, None),
        };
        let message = message.map_or_else(|| error.info(), str::to_owned);
        self.report(Code::Syntax, Span { start: at, end: at }, message, hint);
        None
    }

    /// `None` when there is no sense in going on.
    fn event(&mut self, event: Event<'s>, span: Span) -> Option<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = match self.tag(tag.as_deref(), span) {
                    Tagged::Not => Value::Text { text, plain: style == ScalarStyle::Plain },
                    Tagged::Text => Value::Text { text, plain: false },
                    Tagged::Strange => Value::Broken,
                };
                self.close(value, span, 1, anchor)
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.tag(tag.as_deref(), span);
                self.start(span, style, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(style, anchor, tag) => {
                self.tag(tag.as_deref(), span);
                self.start(span, style, anchor, Content::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(id) => self.alias(id, span),
            Event::UnresolvedAlias(name) => {
                self.report(Code::Reference, span, format!("there is no anchor '&{name}' before this"), None);
                self.close(Value::Broken, span, 1, 0)
            }
            _ => Some(()),
        }
    }

    /// What a tag says. Tags of other programs are refused.
    fn tag(&mut self, tag: Option<&Tag>, span: Span) -> Tagged {
        let Some(tag) = tag else { return Tagged::Not };
        match tag.core_suffix() {
            Some("str") => Tagged::Text,
            Some("int" | "float" | "bool" | "null" | "map" | "seq") => Tagged::Not,
            _ => {
                let message = format!("the tag {tag} means nothing here");
                self.report(Code::Reference, span, message, Some("write the value itself"));
                Tagged::Strange
            }
        }
    }

    fn start(
        &mut self,
        start: Span,
        style: StructureStyle,
        anchor: usize,
        content: Content<'s>,
    ) -> Option<()> {
        if self.open.len() >= DEEPEST {
            self.report(Code::Limit, start, TOO_DEEP.to_owned(), None);
            return None;
        }
        let is_flow = style == StructureStyle::Flow;
        self.open.push(Open { start, anchor, is_flow, size: 1, content });
        Some(())
    }

    fn end(&mut self, end: Span) -> Option<()> {
        let open = self.open.pop()?;
        let (value, last) = match open.content {
            Content::List(items) => {
                let last = items.last().map(|item| item.span.end);
                (Value::List(items), last)
            }
            Content::Map { entries, .. } => {
                let last = entries.last().map(|entry| entry.value.span.end);
                (Value::Map(self.merge(entries)), last)
            }
        };
        // A block ends where the next one begins; what people mean ends with its last part.
        let end = if open.is_flow { end.end } else { last.unwrap_or(end.end) };
        self.close(value, Span { start: open.start.start, end }, open.size, open.anchor)
    }

    fn alias(&mut self, id: usize, span: Span) -> Option<()> {
        let Some(node) = self.anchors.get(&id) else {
            self.report(Code::Reference, span, "an alias cannot stand inside what it names".to_owned(), None);
            return self.close(Value::Broken, span, 1, 0);
        };
        self.copied = self.copied.saturating_add(node.size);
        if self.copied > MOST_COPIED {
            let message = format!("aliases copy more than {MOST_COPIED} values");
            self.report(Code::Limit, span, message, Some("write the values out, or use fewer aliases"));
            return None;
        }
        let node = node.clone();
        self.place(node, span);
        Some(())
    }

    /// A complete node.
    fn close(&mut self, value: Value<'s>, span: Span, size: u32, anchor: usize) -> Option<()> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            let message = format!("the file has more than {MOST_NODES} values");
            self.report(Code::Limit, span, message, None);
            return None;
        }
        let node = Node { span, value, size };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.place(node, span);
        Some(())
    }

    /// Puts a node where the next one belongs; `at` is where it, or its alias, stands.
    fn place(&mut self, node: Node<'s>, at: Span) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        open.size = open.size.saturating_add(node.size);
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key } => match (key.take(), node.value) {
                (Some(Key::Text(key, key_span)), value) => {
                    entries.push(Entry { key, key_span, value: Node { value, ..node } });
                }
                (Some(Key::Unreadable), _) => {}
                (None, Value::Text { text, .. }) => *key = Some(Key::Text(text, at)),
                (None, _) => {
                    *key = Some(Key::Unreadable);
                    self.report(Code::WrongType, at, "a key must be text".to_owned(), None);
                }
            },
        }
    }

    /// Reports keys that stand twice, and adds what `<<` brings in where it is not set already.
    fn merge(&mut self, mut entries: Vec<Entry<'s>>) -> Vec<Entry<'s>> {
        let twice = repeated(&entries);
        for &(first, again) in &twice {
            let line = entries[first].key_span.start.line;
            let message = format!("'{}' stands twice; the first is on line {line}", entries[again].key);
            self.report(Code::DuplicateKey, entries[again].key_span, message, Some("remove one of them"));
        }
        if !twice.is_empty() {
            let again: BTreeSet<usize> = twice.into_iter().map(|(_, again)| again).collect();
            let mut at = 0..;
            entries.retain(|_| at.next().is_some_and(|at| !again.contains(&at)));
        }
        if !entries.iter().any(|entry| entry.key == "<<") {
            return entries;
        }
        let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.key == "<<");
        let mut set: BTreeSet<String> = own.iter().map(|entry| entry.key.to_string()).collect();
        for merge in merges {
            let sources = match merge.value.value {
                Value::List(items) => items,
                _ => vec![merge.value],
            };
            for source in sources {
                match source.value {
                    Value::Map(entries) => {
                        own.extend(entries.into_iter().filter(|entry| set.insert(entry.key.to_string())));
                    }
                    Value::Broken => {}
                    _ => {
                        let message = "'<<' takes a mapping, or a list of mappings".to_owned();
                        self.report(Code::Reference, source.span, message, None);
                    }
                }
            }
        }
        own
    }
}

/// Pairs of a key's first place and a later one. Most mappings have a few keys, where comparing each
/// with each is fastest.
fn repeated(entries: &[Entry<'_>]) -> Vec<(usize, usize)> {
    let mut twice = Vec::new();
    if entries.len() <= 16 {
        for (at, entry) in entries.iter().enumerate() {
            let earlier = entries[..at].iter().position(|earlier| earlier.key == entry.key);
            twice.extend(earlier.map(|earlier| (earlier, at)));
        }
    } else {
        let mut first = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let earlier = *first.entry(&*entry.key).or_insert(at);
            if earlier != at {
                twice.push((earlier, at));
            }
        }
    }
    twice
}
