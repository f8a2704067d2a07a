//! `check`, `explain` and `schema`: what a specification says, and what its fields are for.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use spec::{Code, Colour, NoSuchField, Severity};

use crate::failure::Failure;
use crate::output::Printer;

/// Tells all that is wrong with a file: 1 when it cannot be used, 0 when it can.
pub(crate) fn check(printer: Printer, file: &Path) -> Result<u8, Failure> {
    let bytes = read(file, "fourplane check FILE")?;
    let checked = spec::check(&bytes);
    let name = file.to_string_lossy();
    if printer.is_json() {
        printer.line(&checked.to_json(&name));
    } else {
        printer.data(checked.to_text(&name, printer.data_colour()).as_bytes());
    }
    Ok(u8::from(checked.count(Severity::Error) > 0))
}

/// The text of a specification that can be used; what is wrong with it is told.
pub(crate) fn usable(printer: Printer, file: &Path, command: &str) -> Result<String, Failure> {
    let bytes = read(file, command)?;
    let checked = spec::check(&bytes);
    if checked.cluster.is_none() {
        printer.say(checked.to_text(&file.to_string_lossy(), Colour::Plain).trim_end());
        return Err(Failure::usage("the specification cannot be used; nothing was changed"));
    }
    // What was checked is text.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read(file: &Path, command: &str) -> Result<Vec<u8>, Failure> {
    read_bytes(file).map_err(|error| {
        let failure = Failure::usage(format!("cannot read {}: {error}", file.display()));
        match error.kind() {
            std::io::ErrorKind::NotFound => failure.hint(format!("name the file: {command}")),
            _ => failure,
        }
    })
}

/// One byte more than is taken, so that the check says so.
fn read_bytes(file: &Path) -> std::io::Result<Vec<u8>> {
    let most = spec::MOST_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if file.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Tells what a field is for, or what a finding means.
pub(crate) fn explain(printer: Printer, path: Option<&str>) -> Result<u8, Failure> {
    let path = path.unwrap_or_default();
    if let Some(code) = Code::parse(path) {
        if printer.is_json() {
            printer.json(&serde_json::json!({ "code": code, "page": code.page(), "text": code.page_text() }));
        } else {
            printer.data(code.page_text().as_bytes());
        }
        return Ok(0);
    }
    let explanation = match path {
        "" => spec::Explanation::top(),
        path => spec::explain(path).map_err(|error| refuse(&error))?,
    };
    if printer.is_json() {
        printer.json(&explanation.to_json());
    } else {
        printer.data(explanation.to_text().as_bytes());
    }
    Ok(0)
}

fn refuse(error: &NoSuchField) -> Failure {
    let place = if error.known.is_empty() { "a specification" } else { &error.known };
    let failure = Failure::usage(format!("there is no field '{}' in {place}", error.asked));
    match error.meant {
        Some(meant) => failure.hint(format!("did you mean '{meant}'?")),
        None if error.fields.is_empty() => failure,
        None => failure.hint(format!("its fields are {}", error.fields.join(", "))),
    }
}

/// Prints the JSON Schema.
pub(crate) fn schema(printer: Printer) -> u8 {
    printer.data(spec::json_schema().as_bytes());
    0
}
