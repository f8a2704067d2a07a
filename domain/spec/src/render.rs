//! Findings as a compiler shows them, and as JSON.

use std::fmt::{self, Write};

use serde::Serialize;

use crate::Checked;
use crate::decode::shorten;
use crate::finding::{Finding, Severity};

/// Columns of a line that are shown; of a longer one, what is around the finding.
const SHOWN: usize = 120;

/// How findings are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Not at all.
    Plain,
    /// By ANSI escapes.
    Ansi,
}

impl Colour {
    /// `text`, bold and in the colour of an ANSI code.
    pub fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => format!("\x1b[1;{code}m{text}\x1b[0m"),
        }
    }
}

/// One JSON document for all that was found.
#[derive(Serialize)]
struct Document<'a> {
    file: &'a str,
    errors: usize,
    warnings: usize,
    notes: usize,
    /// Findings beyond the limit, which are counted and not listed.
    more: usize,
    findings: &'a [Finding],
}

impl Checked<'_> {
    /// Findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// As JSON, on one line. `file` is how the file is called.
    pub fn to_json(&self, file: &str) -> String {
        let document = Document {
            file,
            errors: self.count(Severity::Error),
            warnings: self.count(Severity::Warning),
            notes: self.count(Severity::Note),
            more: self.more,
            findings: &self.findings,
        };
        serde_json::to_string(&document).expect("text and numbers are always JSON")
    }

    /// As a compiler shows them, each with the lines it is about, and a last line with their number.
    pub fn to_text(&self, file: &str, colour: Colour) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            self.show(finding, file, colour, &mut text).expect("a string takes all text");
        }
        let of = |severity: Severity, count| match count {
            0 => None,
            1 => Some(format!("1 {}", severity.word())),
            _ => Some(format!("{count} {}s", severity.word())),
        };
        let severities = [Severity::Error, Severity::Warning, Severity::Note];
        let counts: Vec<_> = severities.into_iter().filter_map(|one| of(one, self.count(one))).collect();
        let counts = if counts.is_empty() { "nothing found".to_owned() } else { counts.join(", ") };
        let more = if self.more == 0 { String::new() } else { format!(", and {} more not shown", self.more) };
        text + &format!("{}: {counts}{more}\n", shorten_path(file))
    }

    fn show(&self, finding: &Finding, file: &str, colour: Colour, out: &mut String) -> fmt::Result {
        let ink = match finding.severity {
            Severity::Error => "31",
            Severity::Warning => "33",
            Severity::Note => "36",
        };
        let head = format!("{}[{}]", finding.severity.word(), finding.code);
        let start = finding.span.start;
        writeln!(out, "{}: {}", colour.paint(ink, &head), finding.message)?;
        let number = start.line.to_string();
        let margin = " ".repeat(number.len());
        let arrow = colour.paint("34", "-->");
        writeln!(out, "{margin}{arrow} {}:{}:{}", shorten_path(file), start.line, start.column)?;
        let snippet = self.snippet(finding).filter(|_| finding.severity != Severity::Note);
        if let Some((line, before, under)) = snippet {
            let bar = colour.paint("34", "|");
            let carets = colour.paint(ink, &"^".repeat(under));
            writeln!(out, "{margin} {bar}\n{} {bar} {line}", colour.paint("34", &number))?;
            writeln!(out, "{margin} {bar} {}{carets}", " ".repeat(before))?;
        }
        if let Some(hint) = &finding.hint {
            writeln!(out, "{}: {hint}", colour.paint("36", "hint"))?;
        }
        writeln!(out)
    }

    /// The line of a finding, the columns before its caret, and the carets. A long line is cut to what
    /// is near; what a terminal would not print as it is stands as a blank or a replacement character.
    fn snippet(&self, finding: &Finding) -> Option<(String, usize, usize)> {
        let (start, end) = (finding.span.start.offset as usize, finding.span.end.offset as usize);
        let from = self.source.get(..start)?.rfind(['\n', '\r']).map_or(0, |at| at + 1);
        let line = self.source[from..].split(['\n', '\r']).next()?;
        let end = end.clamp(start, from + line.len());
        let lead = self.source.get(from..start)?.trim_start_matches('\u{feff}');
        let marked = self.source.get(start..end)?;
        let rest = self.source.get(end..from + line.len())?;
        let lead_count = lead.chars().count();
        let is_long = line.chars().count() > SHOWN;
        let cut = if is_long { lead_count.saturating_sub(SHOWN / 2) } else { 0 };
        let lead: String = lead.chars().skip(cut).map(printable).collect();
        let dots = if cut > 0 { "..." } else { "" };
        let room = (SHOWN + 1).saturating_sub(lead_count - cut);
        let tail: String = marked.chars().chain(rest.chars()).take(room).map(printable).collect();
        let more = if marked.chars().count() + rest.chars().count() > room { "..." } else { "" };
        let under: usize = marked.chars().take(room).map(|letter| width(printable(letter))).sum();
        let before = dots.len() + lead.chars().map(width).sum::<usize>();
        Some((format!("{dots}{lead}{tail}{more}"), before, under.max(1)))
    }
}

fn printable(letter: char) -> char {
    match letter {
        '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        // Marks that turn the direction of writing could show a line as what it is not.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        letter => letter,
    }
}

/// Columns of a terminal: two for the wide letters of East Asia and for emoji, none for combining marks.
fn width(letter: char) -> usize {
    match letter {
        '\u{300}'..='\u{36f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{20d0}'..='\u{20ff}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// A file's name may hold anything; only what can be printed is.
fn shorten_path(file: &str) -> String {
    if file.chars().any(char::is_control) { shorten(file) } else { file.to_owned() }
}
