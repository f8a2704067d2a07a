//! Whatever the bytes: an answer, in bounded time, with spans inside the file.

use std::fmt::Write;

use fourplane_spec::{Checked, Code, Colour, check};
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("../../../../examples/slurm-pretraining.yaml");

/// What holds for every answer.
fn sound(bytes: &[u8]) -> Checked<'_> {
    let checked = check(bytes);
    for finding in &checked.findings {
        let (start, end) = (finding.span.start, finding.span.end);
        assert!(start.offset <= end.offset && end.offset as usize <= bytes.len(), "{finding:?}");
        let before = &bytes[..start.offset as usize];
        if let Ok(before) = std::str::from_utf8(before) {
            let lines = before.replace("\r\n", "\n").matches(['\n', '\r']).count();
            assert_eq!(start.line as usize, lines + 1, "{finding:?}");
            let line = before.chars().rev().take_while(|letter| !matches!(letter, '\n' | '\r'));
            // A mark of the byte order has no column where a document begins.
            let marks = line.clone().filter(|letter| *letter == '\u{feff}').count();
            let column = line.count() + 1;
            assert!((column - marks..=column).contains(&(start.column as usize)), "{finding:?}");
        } else {
            panic!("a span inside a letter: {finding:?}");
        }
    }
    let text = checked.to_text("f", Colour::Plain);
    assert!(!text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text:?}");
    serde_json::from_str::<serde_json::Value>(&checked.to_json("f")).expect("JSON");
    checked
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        sound(&bytes);
    }

    #[test]
    fn any_text_of_yaml_signs(text in "[-a-c01:{}\\[\\]&*!?|>#'\"%@`,. \n\r\t\u{feff}\u{e9}\u{7814}<~]{0,200}") {
        sound(text.as_bytes());
        sound(format!("fourplane: 1\ncluster: c\nteams:\n{text}").as_bytes());
    }

    /// A good file with a piece cut out, doubled or replaced: nearest to what people write.
    #[test]
    fn a_damaged_example(
        at in 0..EXAMPLE.len(),
        length in 0..60_usize,
        with in "[-a-z0-9:{}\\[\\],&*\n \"]{0,12}",
    ) {
        let end = (at + length).min(EXAMPLE.len());
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        bytes.splice(at..end, with.bytes());
        sound(&bytes);
    }
}

fn codes(bytes: &[u8]) -> Vec<Code> {
    let mut codes: Vec<_> = sound(bytes).findings.iter().map(|finding| finding.code).collect();
    codes.dedup();
    codes
}

#[test]
fn bombs_and_giants_are_told() {
    let mut bomb = String::from("fourplane: 1\ncluster: c\nteams:\n  - &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        let row = vec![format!("*a{before}"); 9].join(", ");
        writeln!(bomb, "  - &a{level} [{row}]").expect("a string takes all text");
    }
    assert!(codes(bomb.as_bytes()).contains(&Code::Limit));

    let deep = format!("a: {}", "[".repeat(100_000));
    assert_eq!(codes(deep.as_bytes()), [Code::Limit]);
    let deep: String = (0..2_000).map(|level| " ".repeat(level) + "a:\n").collect();
    assert_eq!(codes(deep.as_bytes()), [Code::Limit]);

    let large = format!("fourplane: 1\ncluster: c\n# {}\n", "x".repeat(10 << 20));
    assert_eq!(codes(large.as_bytes()), [Code::Limit]);
    let many = format!("fourplane: 1\ncluster: c\nteams: [{}]\n", "a,".repeat(600_000));
    assert_eq!(codes(many.as_bytes()), [Code::Limit]);

    let inside = "fourplane: 1\ncluster: c\nteams: &a [*a]\n";
    assert!(codes(inside.as_bytes()).contains(&Code::Reference));

    let wrong: Vec<_> = (0..100_000).map(|at| format!("field{at}: 1")).collect();
    let wrong = wrong.join("\n");
    let checked = sound(wrong.as_bytes());
    assert_eq!(checked.findings.len(), 500);
    assert!(checked.more > 99_000);
    let again = format!("fourplane: 1\ncluster: c\n{}", "teams: []\n".repeat(100_000));
    assert!(codes(again.as_bytes()).contains(&Code::DuplicateKey));
}

#[test]
fn merged_mappings_are_filled_up() {
    let file = "fourplane: 1
cluster: c
compute:
  pools:
    - &base { name: a, engine: e, nodes: 1, shape: { cpus: 8, ram: 1 GiB } }
    - { <<: *base, name: b, nodes: 2 }
engines: [{ name: e, kind: slurm }]
";
    let cluster = sound(file.as_bytes()).cluster.expect("a good file");
    let pools = cluster.compute.expect("pools").pools;
    let pools: Vec<_> = pools.iter().map(|pool| (pool.name.as_str(), pool.nodes.0)).collect();
    assert_eq!(pools, [("a", 1), ("b", 2)]);
}
