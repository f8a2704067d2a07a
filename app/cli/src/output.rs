//! The only place that writes to standard output and standard error: data on the one, talk on
//! the other, colours only on a terminal.

use std::io::{IsTerminal, Write};

use clap::builder::StyledStr;
use serde::Serialize;
use serde_json::Value;

use spec::Colour;

use crate::failure::Failure;

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Writes answers and messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    /// How answers are written.
    pub(crate) format: Format,
    /// Whether messages are coloured.
    colour: bool,
}

#[expect(clippy::unused_self, reason = "whoever writes has been given a printer")]
impl Printer {
    /// A printer for this process.
    pub(crate) fn new(json: bool) -> Self {
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { format: if json { Format::Json } else { Format::Text }, colour }
    }

    /// Whether answers are for programs.
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Writes data as it is. False when nobody reads it any more.
    pub(crate) fn data(self, bytes: &[u8]) -> bool {
        write_all(&mut std::io::stdout().lock(), bytes)
    }

    /// Writes bytes of a job's standard error as they are.
    pub(crate) fn error_data(self, bytes: &[u8]) -> bool {
        write_all(&mut std::io::stderr().lock(), bytes)
    }

    /// Writes one line of data.
    pub(crate) fn line(self, line: &str) -> bool {
        self.data(format!("{line}\n").as_bytes())
    }

    /// Writes one JSON document, on one line.
    pub(crate) fn json(self, value: &impl Serialize) -> bool {
        // The wire types have string keys and finite numbers only.
        let text = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
        self.line(&text)
    }

    /// Says something beside the data.
    pub(crate) fn say(self, text: &str) {
        write_all(&mut std::io::stderr().lock(), format!("{text}\n").as_bytes());
    }

    /// Says what is strange but goes on.
    pub(crate) fn warn(self, text: &str) {
        self.say(&format!("{}: {text}", self.paint("33", "warning")));
    }

    /// Says why the command failed, and the way out.
    pub(crate) fn failure(self, failure: &Failure) {
        let mut text = format!("{}: {}", self.paint("31", "error"), failure.message);
        text.extend(failure.hints.iter().map(|hint| format!("\n{}: {hint}", self.paint("36", "hint"))));
        self.say(&text);
    }

    /// How what goes to standard output is coloured.
    pub(crate) fn data_colour(self) -> Colour {
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        if coloured { Colour::Ansi } else { Colour::Plain }
    }

    /// Writes help at once, coloured for a terminal.
    pub(crate) fn help(self, text: &StyledStr) {
        let text = match self.data_colour() {
            Colour::Ansi => text.ansi().to_string(),
            Colour::Plain => text.to_string(),
        };
        self.data(text.as_bytes());
    }

    /// The same for what was typed wrongly.
    pub(crate) fn usage(self, text: &StyledStr) {
        let text = if self.colour { text.ansi().to_string() } else { text.to_string() };
        write_all(&mut std::io::stderr().lock(), text.as_bytes());
    }

    fn paint(self, code: &str, word: &str) -> String {
        if self.colour { format!("\x1b[1;{code}m{word}\x1b[0m") } else { word.to_owned() }
    }
}

/// A reader that went away is no error of ours.
fn write_all(out: &mut impl Write, bytes: &[u8]) -> bool {
    out.write_all(bytes).and_then(|()| out.flush()).is_ok()
}

/// Lines up rows under a header; the last column is not padded.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], with_header: bool) -> String {
    let head: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let lines = || with_header.then_some(&head).into_iter().chain(rows);
    let width =
        |column: usize| lines().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in lines() {
        let padded = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One CSV record; quoted where needed.
pub(crate) fn csv(cells: &[String]) -> String {
    let quoted = cells.iter().map(|cell| {
        if cell.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// A YAML document; texts are quoted as in JSON, which YAML reads alike.
pub(crate) fn yaml(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    yaml_lines(&value).into_iter().map(|line| line + "\n").collect()
}

fn yaml_lines(value: &Value) -> Vec<String> {
    let holds = |value: &Value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) if holds(value) => {
            let field = |(name, value): (&String, &Value)| {
                let name = yaml_key(name);
                if !holds(value) {
                    return vec![format!("{name}: {value}")];
                }
                let below = yaml_lines(value).into_iter().map(|line| format!("  {line}"));
                std::iter::once(format!("{name}:")).chain(below).collect()
            };
            fields.iter().flat_map(field).collect()
        }
        Value::Array(items) if holds(value) => {
            let item = |item: &Value| {
                let lines = yaml_lines(item).into_iter().enumerate();
                lines
                    .map(|(at, line)| format!("{} {line}", if at == 0 { "-" } else { " " }))
                    .collect::<Vec<_>>()
            };
            items.iter().flat_map(item).collect()
        }
        _ => vec![value.to_string()],
    }
}

/// Words that older YAML takes for true, false or nothing are quoted too.
fn yaml_key(name: &str) -> String {
    let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_value = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", ""].contains(&name);
    if is_word && !is_value { name.to_owned() } else { Value::from(name).to_string() }
}

/// Other users' words made safe for a terminal: control characters are shown, not obeyed.
pub(crate) fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["1".to_owned(), "train".to_owned()], vec!["12".to_owned(), String::new()]];
        assert_eq!(table(&["JOB", "NAME"], &rows, true), "JOB  NAME\n1    train\n12\n");
        assert_eq!(table(&["JOB", "NAME"], &rows, false), "1   train\n12\n");
    }

    #[test]
    fn a_hostile_name_cannot_drive_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb"), "a\\u{1b}[2Jb");
    }

    #[test]
    fn yaml_is_read_back_as_the_same() {
        let value = serde_json::json!([
            {"id": 1, "name": "a: b # c", "on": ["failure"], "labels": {}, "why": null, "tasks": [[1, 2], []]},
            {"id": 2, "labels": {"Team X": "y\n"}}
        ]);
        assert_eq!(
            yaml(&value),
            r#"- id: 1
  labels: {}
  name: "a: b # c"
  "on":
    - "failure"
  tasks:
    - - 1
      - 2
    - []
  why: null
- id: 2
  labels:
    "Team X": "y\n"
"#
        );
        assert_eq!(yaml(&serde_json::json!([])), "[]\n");
    }

    #[test]
    fn csv_quotes_what_it_must() {
        assert_eq!(
            csv(&["a,b".to_owned(), "say \"x\"".to_owned(), "1".to_owned()]),
            "\"a,b\",\"say \"\"x\"\"\",1"
        );
    }
}
