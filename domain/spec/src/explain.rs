//! What a field is for, by its path: `compute.pools.shape.gpu`.

use std::fmt::Write;

use units::GpuModel;

use crate::decode::Decode;
use crate::model::Cluster;
use crate::nearest::nearest;
use crate::shape::{Choice, Field, Presence, Record, Shape, Status};
use crate::top;

/// A field, found by its path.
#[derive(Debug)]
pub struct Explanation {
    path: String,
    field: &'static Field,
}

/// There is no such field.
#[derive(Debug, PartialEq, Eq)]
pub struct NoSuchField {
    /// The part of the path that exists; empty for the file itself.
    pub known: String,
    /// What was asked for below it.
    pub asked: String,
    /// What may have been meant.
    pub meant: Option<&'static str>,
    /// What there is.
    pub fields: Vec<&'static str>,
}

/// Finds a field. Indexes of lists and names in mappings are left out, or may stand as `[0]` and `NAME`.
pub fn explain(path: &str) -> Result<Explanation, NoSuchField> {
    let (mut record, mut known) = (top(), String::new());
    let mut found: Option<&'static Field> = None;
    let mut steps =
        path.split('.').map(|step| step.split('[').next().unwrap_or(step)).filter(|step| !step.is_empty());
    while let Some(step) = steps.next() {
        let Some(field) = record.fields.iter().find(|field| field.name == step) else {
            let names = record.fields.iter().map(|field| field.name);
            let (meant, fields) = (nearest(step, names.clone()), names.collect());
            return Err(NoSuchField { known, asked: step.to_owned(), meant, fields });
        };
        if !known.is_empty() {
            known.push('.');
        }
        known.push_str(field.name);
        found = Some(field);
        match below(field.shape) {
            Some((next, is_map)) => {
                let starts_record = |step: &str| next.fields.iter().any(|field| field.name == step);
                let mut ahead = steps.clone();
                if is_map && ahead.next().is_some_and(|step| !starts_record(step)) {
                    steps.next();
                }
                record = next;
            }
            None => record = &NOTHING,
        }
    }
    let fields = record.fields.iter().map(|field| field.name);
    found.map(|field| Explanation { path: known.clone(), field }).ok_or_else(|| NoSuchField {
        known,
        asked: path.to_owned(),
        meant: None,
        fields: fields.collect(),
    })
}

const NOTHING: Record = Record { name: "", doc: "", fields: &[] };

/// The record that a value holds, or whose items hold, and whether names stand between.
fn below(shape: &'static Shape) -> Option<(&'static Record, bool)> {
    match shape {
        Shape::Record(record) => Some((record, false)),
        Shape::List(item) => below(item),
        Shape::Map(item) => below(item).map(|(record, _)| (record, true)),
        _ => None,
    }
}

/// The words a value is one of.
fn choices(shape: &'static Shape) -> &'static [Choice] {
    match shape {
        Shape::Choice(choices) => choices,
        Shape::List(item) | Shape::Map(item) => choices(item),
        _ => &[],
    }
}

fn units(shape: &'static Shape) -> &'static str {
    match shape {
        Shape::Text(form) => form.units,
        Shape::List(item) | Shape::Map(item) => units(item),
        _ => "",
    }
}

fn is_gpu(shape: &'static Shape) -> bool {
    match shape {
        Shape::Text(form) => form.what == "a GPU model",
        Shape::List(item) => is_gpu(item),
        _ => false,
    }
}

/// The file as a whole, as if it were a field.
const WHOLE: Field = Field {
    name: "fourplane.yaml",
    doc: "A specification: what a cluster is for, what it is made of, who may use it and what it costs.",
    shape: Cluster::SHAPE,
    presence: Presence::Required,
    ids: &[],
    status: Status::Checked,
    example: "",
    since: "0.1.0",
};

impl Explanation {
    /// The file as a whole.
    pub fn top() -> Self {
        Self { path: WHOLE.name.to_owned(), field: &WHOLE }
    }

    /// The path without indexes.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The field.
    pub fn field(&self) -> &'static Field {
        self.field
    }

    /// For people, some lines.
    pub fn to_text(&self) -> String {
        let field = self.field;
        let mut text = format!("{}\n  {}\n\n", self.path, field.doc.trim().replace('\n', "\n  "));
        let mut row = |name: &str, value: &str| {
            if !value.is_empty() {
                writeln!(text, "  {name:<9} {value}").expect("a string takes all text");
            }
        };
        row("type", &type_words(field.shape));
        row("unit", units(field.shape));
        row("default", &presence_words(field.presence));
        row("example", field.example);
        row("since", field.since);
        row("status", status_words(field.status));
        row("answers", &field.ids.join(", "));
        let list = |text: &mut String, rows: Vec<(&str, &str)>| {
            let wide = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            text.push('\n');
            for (name, doc) in rows {
                let doc = doc.trim().lines().next().unwrap_or("");
                writeln!(text, "  {name:<wide$}  {doc}").expect("a string takes all text");
            }
        };
        let words = choices(field.shape);
        if !words.is_empty() {
            list(&mut text, words.iter().map(|choice| (choice.word, choice.doc)).collect());
        }
        if let Some((record, _)) = below(field.shape) {
            list(&mut text, record.fields.iter().map(|field| (field.name, field.doc)).collect());
        }
        if is_gpu(field.shape) {
            list(&mut text, GpuModel::all().map(|model| (model.name(), "")).collect());
            text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Value {
        let field = self.field;
        let default = match field.presence {
            Presence::Default(text) => Some(text),
            Presence::Required | Presence::Optional => None,
        };
        serde_json::json!({
            "path": self.path,
            "doc": field.doc.trim(),
            "type": type_words(field.shape),
            "unit": units(field.shape),
            "required": field.presence == Presence::Required,
            "default": default,
            "example": field.example,
            "since": field.since,
            "status": status_words(field.status),
            "requirements": field.ids,
            "fields": below(field.shape).map(|(record, _)| record.fields.iter().map(|field| field.name).collect::<Vec<_>>()),
            "choices": choices(field.shape).iter().map(|choice| choice.word).collect::<Vec<_>>(),
        })
    }
}

fn type_words(shape: &'static Shape) -> String {
    match shape {
        Shape::Choice(_) => "one of the words below".to_owned(),
        Shape::Record(_) => "a mapping with the fields below".to_owned(),
        Shape::List(item) => format!("a list, each {}", type_words(item)),
        Shape::Map(item) => format!("a mapping of names, each {}", type_words(item)),
        other => other.words(),
    }
}

fn presence_words(presence: Presence) -> String {
    match presence {
        Presence::Required => "none: it must be given".to_owned(),
        Presence::Optional => "none: without it nothing is assumed".to_owned(),
        Presence::Default(text) => text.to_owned(),
    }
}

fn status_words(status: Status) -> &'static str {
    match status {
        Status::Applied => "`fourplane apply` acts on it, or holds it against the server",
        Status::Checked => "checked against the rest of the file; not enforced yet",
        Status::Later => "only its form is checked; not enforced yet",
    }
}
