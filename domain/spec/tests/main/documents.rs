//! The pages and the schema say what the program does.

use std::collections::BTreeSet;

use fourplane_spec::shape::{Field, Presence, Record, Shape};
use fourplane_spec::{Code, Severity, check, explain, json_schema};

#[test]
fn every_page_shows_what_it_is_about() {
    for code in Code::ALL {
        let page = code.page_text();
        assert!(page.starts_with(&format!("# {code}: ")), "{code}");
        assert!(page.contains(&format!("Severity: {}.", code.severity().word())), "{code}");
        let (_, example) = page.split_once("```yaml\n").expect("an example");
        let (example, _) = example.split_once("```").expect("an end");
        let mut bytes = example.as_bytes().to_vec();
        if let Some(at) = example.find("\\xff") {
            bytes.splice(at..at + 4, [0xff]);
        }
        let found = check(&bytes).findings;
        let told = found.iter().filter(|finding| finding.severity != Severity::Note || finding.code == *code);
        let told: BTreeSet<_> = told.map(|finding| finding.code).collect();
        assert_eq!(told, BTreeSet::from([*code]), "{code}: {found:#?}");
    }
}

#[test]
fn every_code_is_in_the_list_of_pages() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/findings");
    let list = std::fs::read_to_string(format!("{folder}/README.md")).expect("the list");
    let pages = std::fs::read_dir(folder).expect("the pages").count();
    assert_eq!(pages, Code::ALL.len() + 1, "a page without a code");
    for code in Code::ALL {
        assert!(list.contains(&format!("[{code}]({code}.md)")), "{code}");
        assert_eq!(Code::parse(&code.to_string().to_lowercase()), Some(*code));
    }
}

#[test]
fn the_schema_is_in_step() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fourplane.schema.json");
    let schema = json_schema();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &schema).expect("writing the schema");
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert!(schema == kept, "docs/fourplane.schema.json is not in step; rewrite it with UPDATE=1");
}

/// Calls `visit` for every field, once for each record.
fn fields(
    record: &'static Record,
    path: &str,
    seen: &mut BTreeSet<&'static str>,
    visit: &mut dyn FnMut(&str, &'static Field),
) {
    if !seen.insert(record.name) {
        return;
    }
    assert!(record.fields.len() <= 64, "{}: as many as a mask has bits", record.name);
    for field in record.fields {
        let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        visit(&path, field);
        let mut shape = field.shape;
        while let Shape::List(item) | Shape::Map(item) = shape {
            shape = item;
        }
        if let Shape::Record(record) = shape {
            fields(record, &path, seen, visit);
        }
    }
}

fn every_field(visit: &mut dyn FnMut(&str, &'static Field)) {
    let Shape::Record(top) = fourplane_spec::Explanation::top().field().shape else { panic!("a record") };
    fields(top, "", &mut BTreeSet::new(), visit);
}

/// A file that holds nothing but one field's value, at its path.
fn file_with(path: &str, value: &str) -> String {
    let last = path.matches('.').count();
    let line = |(depth, step): (usize, &str)| {
        let end = if depth == last { " " } else { "\n" };
        ["  ".repeat(depth), step.to_owned(), ":".to_owned(), end.to_owned()].concat()
    };
    let lines: String = path.split('.').enumerate().map(line).collect();
    format!("fourplane: 1\ncluster: c\n{lines}{value}\n")
}

#[test]
fn every_example_and_default_can_be_read() {
    // What a field's value alone can get wrong. Its surroundings are missing here.
    let of_the_value = |code| {
        matches!(
            code,
            Code::Syntax
                | Code::UnknownField
                | Code::WrongType
                | Code::NoUnit
                | Code::AmbiguousUnit
                | Code::BadQuantity
                | Code::OtherReading
                | Code::UnknownChoice
                | Code::BadName
                | Code::UnknownGpu
                | Code::AmbiguousGpu
                | Code::Empty
                | Code::OutOfRange
                | Code::BadForm
                | Code::DuplicateKey
        )
    };
    let mut count = 0;
    every_field(&mut |path, field| {
        let default = match field.presence {
            Presence::Default(text) => Some(text),
            Presence::Required | Presence::Optional => None,
        };
        if path == "fourplane" || path == "cluster" {
            return;
        }
        for value in default.into_iter().chain([field.example]) {
            // Under a mapping of names, the name `weights` and the like may be anything.
            let path = path.replace("storage.datasets.", "storage.datasets.a.");
            let path = path.replace("storage.weights.", "storage.weights.a.");
            let file = file_with(&path, value);
            for finding in check(file.as_bytes()).findings {
                assert!(!of_the_value(finding.code), "{path}: {value}: {finding:?}");
            }
            count += 1;
        }
    });
    assert!(count > 250, "{count}");
}

#[test]
fn every_field_can_be_explained() {
    every_field(&mut |path, field| {
        let explanation = explain(path).expect("the field is there");
        assert_eq!(explanation.path(), path);
        assert!(std::ptr::eq(explanation.field(), field) || explanation.field().doc == field.doc, "{path}");
        assert!(field.doc.trim().ends_with('.'), "{path}: {}", field.doc);
    });
    let check = |path: &str, expect: Result<&str, Option<&str>>| {
        let got = explain(path).map(|one| one.path().to_owned()).map_err(|error| error.meant);
        assert_eq!(got.as_deref().map_err(|meant| *meant), expect, "{path}");
    };
    check("compute.pools.shape.gpu", Ok("compute.pools.shape.gpu"));
    check("compute.pools[0].shape.gpu", Ok("compute.pools.shape.gpu"));
    check("storage.datasets.corpus.size", Ok("storage.datasets.size"));
    check("storage.datasets.size", Ok("storage.datasets.size"));
    check("compute.pool", Err(Some("pools")));
    check("cluster.name", Err(None));
    check("...", Err(None));
}

#[test]
fn an_explanation_in_full() {
    let text = explain("engines.kind").expect("the field is there").to_text();
    assert_eq!(
        text,
        "engines.kind
  What it is.

  type      one of the words below
  default   none: it must be given
  example   slurm
  since     0.1.0
  status    `fourplane apply` acts on it, or holds it against the server
  answers   K18, K19

  local       Fourplane's own, for one machine.
  slurm       Slurm.
  kubernetes  Kubernetes.
"
    );
}
