//! The examples are clean.

use fourplane_spec::{self as spec, Code, Colour, Severity};

#[test]
fn examples_are_clean() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the examples' folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        files += 1;
        let bytes = std::fs::read(&path).expect("a file");
        let checked = spec::check(&bytes);
        let name = path.display().to_string();
        assert!(checked.cluster.is_some(), "{}", checked.to_text(&name, Colour::Plain));
        for finding in &checked.findings {
            assert_eq!(
                (finding.severity, finding.code),
                (Severity::Note, Code::NotEnforced),
                "{name}: {finding:?}"
            );
        }
    }
    assert!(files >= 4, "{files} examples");
}
