//! From the tree to types. A mistake is reported and decoding goes on with a placeholder: the result is
//! handed out only when there was no error.

use std::collections::BTreeMap;

use crate::finding::{Code, Findings};
use crate::nearest::nearest;
use crate::scalar::Name;
use crate::shape::{Choice, Field, Presence, Record, Shape, Status};
use crate::span::Span;
use crate::tree::{Entry, Node, Value};

/// A type that stands in the file.
pub(crate) trait Decode: Sized {
    /// What it looks like.
    const SHAPE: &'static Shape;

    /// Reads it, reporting what is wrong.
    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self;

    /// What stands where nothing could be read, and where an optional field is absent.
    fn placeholder() -> Self;
}

/// A step from a value to a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'n> {
    Key(&'n str),
    /// A key that the user chose.
    Name(&'n str),
    Index(usize),
}

impl<'n> From<&'n str> for Step<'n> {
    fn from(key: &'n str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Where decoding stands, and what it found.
pub(crate) struct Context<'n> {
    path: Vec<Step<'n>>,
    pub(crate) findings: Findings,
    /// Of the field that is being decoded.
    example: &'static str,
    /// Per record and section, which of its fields occur that `apply` does not act on, and the record's path.
    later: BTreeMap<(usize, &'n str), Later>,
}

struct Later {
    record: &'static Record,
    path: String,
    fields: u64,
}

/// Words people bring from other systems, and ours.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("account", "teams"),
    ("accounts", "teams"),
    ("cores", "cpus"),
    ("count", "nodes"),
    ("cpu", "cpus"),
    ("gpu_type", "gpu"),
    ("image_registry", "registries"),
    ("max", "most"),
    ("memory", "ram"),
    ("min", "least"),
    ("partition", "queues"),
    ("partitions", "queues"),
    ("ram", "memory"),
    ("replicas", "nodes"),
    ("size", "nodes"),
    ("type", "kind"),
    ("url", "source"),
];

pub(crate) fn join(path: &[Step<'_>]) -> String {
    let parts = path.iter().enumerate().flat_map(|(at, step)| match step {
        Step::Key(key) if at == 0 => [(*key).to_owned(), String::new()],
        Step::Key(key) | Step::Name(key) => [".".to_owned(), (*key).to_owned()],
        Step::Index(index) => [format!("[{index}]"), String::new()],
    });
    parts.collect()
}

impl<'n> Context<'n> {
    pub(crate) fn new(findings: Findings) -> Self {
        Self { path: Vec::new(), findings, example: "", later: BTreeMap::new() }
    }

    /// Reports at the place where decoding stands.
    pub(crate) fn report(&mut self, code: Code, span: Span, message: String, hint: Option<String>) {
        let path = join(&self.path);
        self.findings.add(code, span, path, message, hint);
    }

    /// How the field is written, where its example is a scalar.
    pub(crate) fn example(&self) -> Option<String> {
        let is_scalar = !self.example.is_empty() && !self.example.starts_with(['[', '{']);
        is_scalar.then(|| format!("write for example {}", self.example))
    }

    /// Decodes the value of a field.
    pub(crate) fn field<T>(
        &mut self,
        name: &'n str,
        example: &'static str,
        decode: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.example = example;
        self.below(name, decode)
    }

    /// Decodes the value under a step.
    pub(crate) fn below<T>(&mut self, step: impl Into<Step<'n>>, decode: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step.into());
        let value = decode(self);
        self.path.pop();
        value
    }

    /// Reports that something else stands here than `expected`.
    fn wrong_type(&mut self, node: &Node<'_>, expected: &str, hint: Option<String>) {
        let (code, message) = match &node.value {
            Value::Broken => return,
            _ if node.is_null() => (Code::Empty, format!("nothing stands here; expected {expected}")),
            Value::Text { text, .. } => {
                (Code::WrongType, format!("expected {expected}, found '{}'", shorten(text)))
            }
            Value::List(_) => (Code::WrongType, format!("expected {expected}, found a list")),
            Value::Map(_) => (Code::WrongType, format!("expected {expected}, found a mapping")),
        };
        let hint =
            hint.or_else(|| (code == Code::Empty).then(|| "write a value, or remove the key".to_owned()));
        self.report(code, node.head(), message, hint);
    }

    /// The text of a scalar, and whether it is plain.
    pub(crate) fn text<'a>(&mut self, node: &'a Node<'_>, expected: &str) -> Option<(&'a str, bool)> {
        match &node.value {
            Value::Text { text, plain } if !node.is_null() => Some((text, *plain)),
            _ => {
                self.wrong_type(node, expected, None);
                None
            }
        }
    }

    /// Hands each entry of a mapping to `decode`, which says whether it knows the key. False when there
    /// is no mapping.
    pub(crate) fn entries<'s: 'n>(
        &mut self,
        node: &'n Node<'s>,
        record: &'static Record,
        mut decode: impl FnMut(&mut Self, &str, &'n Node<'s>) -> bool,
    ) -> bool {
        let Value::Map(entries) = &node.value else {
            self.wrong_type(node, &record_words(record), None);
            return false;
        };
        let mut later = 0;
        for entry in entries {
            if !decode(self, &entry.key, &entry.value) {
                self.unknown_field(entry, record);
                continue;
            }
            let field = record.fields.iter().position(|field| field.name == entry.key);
            if let Some(at) = field.filter(|&at| record.fields[at].status != Status::Applied) {
                later |= 1 << at;
            }
        }
        if later != 0 {
            self.note_later(record, later);
        }
        true
    }

    fn note_later(&mut self, record: &'static Record, fields: u64) {
        let section = match self.path.first() {
            Some(Step::Key(section)) => section,
            _ => "",
        };
        let path = &self.path;
        let later = self.later.entry((std::ptr::from_ref(record).addr(), section)).or_insert_with(|| {
            let keys: Vec<_> =
                path.iter().skip(1).filter(|step| matches!(step, Step::Key(_))).copied().collect();
            Later { record, path: join(&keys), fields: 0 }
        });
        later.fields |= fields;
    }

    fn unknown_field(&mut self, entry: &Entry<'_>, record: &Record) {
        if self.findings.count_only(Code::UnknownField) {
            return;
        }
        let names = || record.fields.iter().map(|field| field.name);
        let brought = OTHER_WORDS.iter().filter(|(word, _)| *word == entry.key).map(|(_, ours)| *ours);
        let meant = nearest(&entry.key, names())
            .or_else(|| brought.into_iter().find(|ours| names().any(|name| name == *ours)));
        let hint = match meant {
            Some(meant) => format!("did you mean '{meant}'?"),
            None => format!("the fields here are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("there is no field '{}' here", shorten(&entry.key));
        self.report(Code::UnknownField, entry.key_span, message, Some(hint));
    }

    /// The value of a field that is not there.
    pub(crate) fn absent<T: Decode>(&mut self, node: &Node<'_>, field: Option<&'static Field>) -> T {
        let Some(field) = field else { return T::placeholder() };
        match field.presence {
            Presence::Optional => T::placeholder(),
            Presence::Default(text) => default(text),
            Presence::Required => {
                let message = format!("the field '{}' is missing: {}", field.name, summary(field.doc));
                let hint = format!("add for example `{}: {}`", field.name, field.example);
                self.report(Code::MissingField, node.head(), message, Some(hint));
                T::placeholder()
            }
        }
    }

    /// Which of the choices stands here.
    pub(crate) fn choice(&mut self, node: &Node<'_>, choices: &'static [Choice]) -> Option<usize> {
        let (text, _) = self.text(node, &Shape::Choice(choices).words())?;
        let found = choices.iter().position(|choice| choice.word == text);
        if found.is_none() && !self.findings.count_only(Code::UnknownChoice) {
            let words = || choices.iter().map(|choice| choice.word);
            let list = words().collect::<Vec<_>>().join(", ");
            let message = format!("'{}' is none of {list}", shorten(text));
            let hint = nearest(text, words()).map(|meant| format!("did you mean '{meant}'?"));
            self.report(Code::UnknownChoice, node.span, message, hint);
        }
        found
    }

    /// Notes, once a section, the fields that nothing acts on (D26: never silently ignored).
    pub(crate) fn tell_later(&mut self, root: &Node<'_>) {
        let mut sections: BTreeMap<&str, BTreeMap<String, Status>> = BTreeMap::new();
        for ((_, section), later) in std::mem::take(&mut self.later) {
            let fields = later.record.fields.iter().enumerate();
            for (_, field) in fields.filter(|(at, _)| later.fields & (1 << at) != 0) {
                let point = if later.path.is_empty() { "" } else { "." };
                let path = format!("{}{point}{}", later.path, field.name);
                sections.entry(section).or_default().insert(path, field.status);
            }
        }
        let whole = sections.remove("").unwrap_or_default();
        if let Some(message) = idle(&whole, None) {
            self.findings.add(Code::NotEnforced, root.head(), String::new(), message, None);
        }
        for (section, fields) in sections {
            let Some(message) = idle(&fields, whole.get(section).copied()) else { continue };
            let span = root.get(section).map_or(root.head(), |entry| entry.key_span);
            self.findings.add(Code::NotEnforced, span, section.to_owned(), message, None);
        }
    }
}

/// On which fields nothing acts, in words; none if all was told of what holds them.
fn idle(fields: &BTreeMap<String, Status>, holder: Option<Status>) -> Option<String> {
    let list = |status: Status| {
        // What a field holds is told with it; that a part is not even checked is told all the same.
        let told = |above: &Status| *above == Status::Later || *above == status;
        let above = |field: &str| {
            let holders = field.match_indices('.').filter_map(|(at, _)| fields.get(&field[..at]));
            holders.chain(&holder).any(told)
        };
        let listed = fields.iter().filter(|(field, its)| **its == status && !above(field));
        let names: Vec<_> = listed.map(|(field, _)| field.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let checked = list(Status::Checked).map(|names| format!("nothing acts yet on {names}"));
    let later = list(Status::Later).map(|names| format!("only the form is checked of {names}"));
    let parts: Vec<_> = checked.into_iter().chain(later).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A default is written as YAML is, and read by the same code.
fn default<T: Decode>(text: &'static str) -> T {
    let node = Node::scalar(text);
    T::decode(&node, &mut Context::new(Findings::default()))
}

fn record_words(record: &'static Record) -> String {
    let required = record.fields.iter().filter(|field| field.presence == Presence::Required);
    let required: Vec<_> = required.map(|field| field.name).collect();
    if required.is_empty() {
        "a mapping".to_owned()
    } else {
        format!("a mapping with {}", required.join(", "))
    }
}

/// The first sentence, to stand within another.
fn summary(doc: &str) -> String {
    let first = doc.trim().split(['\n', '.']).next().unwrap_or_default();
    let mut letters = first.chars();
    let (one, two) = (letters.next(), first.chars().nth(1));
    match one {
        Some(one) if two.is_some_and(char::is_lowercase) || two == Some(' ') => {
            one.to_lowercase().chain(letters).collect()
        }
        _ => first.to_owned(),
    }
}

/// Enough of a text to know it by, on one line.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String =
        text.chars().take(40).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().nth(40).is_some() {
        short.push_str("...");
    }
    short
}

impl<T: Decode> Decode for Option<T> {
    const SHAPE: &'static Shape = T::SHAPE;

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        Some(T::decode(node, context))
    }

    fn placeholder() -> Self {
        None
    }
}

impl<T: Decode> Decode for Vec<T> {
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE);

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        match &node.value {
            Value::List(items) => {
                let items = items.iter().enumerate();
                items.map(|(at, item)| context.below(at, |context| T::decode(item, context))).collect()
            }
            _ => vec![T::decode(node, context)],
        }
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

impl<T: Decode> Decode for BTreeMap<Name, T> {
    const SHAPE: &'static Shape = &Shape::Map(T::SHAPE);

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        let Value::Map(entries) = &node.value else {
            context.wrong_type(node, "a mapping of names", None);
            return Self::new();
        };
        let pairs = entries.iter().map(|entry| {
            context.below(Step::Name(&entry.key), |context| {
                (Name::read(&entry.key, entry.key_span, context), T::decode(&entry.value, context))
            })
        });
        pairs.collect()
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

impl Decode for bool {
    const SHAPE: &'static Shape = &Shape::Bool;

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        match context.text(node, "true or false") {
            Some(("true", true)) => true,
            Some(("false", true)) | None => false,
            Some((text, _)) => {
                let lower = text.to_ascii_lowercase();
                let meant = match &*lower {
                    "yes" | "on" | "y" | "true" => Some("write true, without quotes".to_owned()),
                    "no" | "off" | "n" | "false" => Some("write false, without quotes".to_owned()),
                    _ => None,
                };
                context.wrong_type(node, "true or false", meant);
                false
            }
        }
    }

    fn placeholder() -> Self {
        false
    }
}

/// A whole number in decimal digits, without separators.
pub(crate) fn integer(node: &Node<'_>, context: &mut Context<'_>, least: i64, most: i64) -> i64 {
    let expected = Shape::Integer { least, most }.words();
    let Some((text, plain)) = context.text(node, &expected) else { return least };
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !plain || (digits.len() > 1 && digits.starts_with('0')) {
        let hint = if is_number && !plain { "remove the quotes" } else { "write decimal digits only" };
        context.wrong_type(node, &expected, Some(hint.to_owned()));
        return least;
    }
    match text.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => number,
        _ => {
            let message = format!("{} is out of range; expected {expected}", shorten(text));
            context.report(Code::OutOfRange, node.span, message, None);
            least
        }
    }
}
