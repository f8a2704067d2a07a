//! Mistakes that users make, and what they are told: `tests/data/mistakes.txt`, rewritten by `UPDATE=1`.
//!
//! A case is `=== NAME`, the file, `---`, what is told. A file starts with a version and a name unless
//! its case says `raw`. Notes are left out.

use std::fmt::Write;

use fourplane_spec::{Colour, Severity, check};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mistakes.txt");
const START: &str = "fourplane: 1\ncluster: c\n";

#[test]
fn mistakes_are_told() {
    let cases = std::fs::read_to_string(CASES).expect("the cases");
    let mut told = String::new();
    let mut count = 0;
    for case in cases.split("=== ").skip(1) {
        let (name, rest) = case.split_once('\n').expect("a name");
        let (file, _) = rest.split_once("---\n").expect("a file and what is told");
        let start = if name.starts_with("raw") { "" } else { START };
        // Written as names, for editors like to repair such bytes.
        let names = [("<TAB>", "\t"), ("<CR>", "\r"), ("<BOM>", "\u{feff}"), ("<END>", "---")];
        let bytes =
            names.iter().fold(format!("{start}{file}"), |text, (name, byte)| text.replace(name, byte));
        let mut checked = check(bytes.as_bytes());
        checked.findings.retain(|finding| finding.severity != Severity::Note);
        let text = checked.to_text("fourplane.yaml", Colour::Plain);
        writeln!(told, "=== {name}\n{file}---\n{}\n", text.trim_end()).expect("a string takes all text");
        count += 1;
    }
    let told = format!("{}\n", told.trim_end());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(CASES, &told).expect("writing the cases");
        return;
    }
    assert!(count >= 40, "{count} cases");
    assert!(told == cases, "what is told has changed; look at it with UPDATE=1 and git diff");
}
