//! `check`, `explain` and `schema`, which need no server.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::Ran;

/// Runs the program in a directory, with this on its standard input.
fn run(dir: &Path, args: &[&str], input: &[u8]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fourplane"));
    command.args(args).current_dir(dir).env("FOURPLANE_STATE", dir.join("none"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may refuse before it reads.
    drop(child.stdin.take().unwrap().write_all(input));
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_specification_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let check = |args: &[&str], input: &str, code: i32, out: &str, err: &str| {
        let ran = run(dir.path(), args, input.as_bytes());
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.out.contains(out) && ran.err.contains(err), "{args:?}: {ran:?}");
    };
    check(&["check"], "", 3, "", "hint: name the file: fourplane check FILE\n");
    check(&["check", "."], "", 3, "", "Is a directory");
    std::fs::write(dir.path().join("fourplane.yaml"), "fourplane: 1\ncluster: c\n").unwrap();
    check(&["check"], "", 0, "fourplane.yaml: nothing found\n", "");
    check(&["check", "-"], "fourplane: 1\ncluster: C\n", 1, "error[FP1013]: 'C' is no name", "");
    check(
        &["check", "-"],
        "fourplane: 1\ncluster: c\nteams: [{ name: t, weight: 2 }]\n",
        0,
        "note[FP1900]",
        "",
    );
    let ran = run(dir.path(), &["check", "-", "--json"], b"fourplane: 1\ncluster: C\n");
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &told["errors"]), (1, &1.into()));
    let finding = told["findings"].as_array().unwrap().iter().find(|one| one["severity"] == "error").unwrap();
    assert_eq!((&finding["code"], &finding["path"]), (&"FP1013".into(), &"cluster".into()));
    assert_eq!(
        (&finding["span"]["start"]["line"], &finding["span"]["start"]["column"]),
        (&2.into(), &10.into())
    );
    assert_eq!(finding["span"]["start"]["offset"], 22);
}

#[test]
fn fields_and_findings_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let check = |args: &[&str], code: i32, out: &str, err: &str| {
        let ran = run(dir.path(), args, b"");
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.out.contains(out) && ran.err.contains(err), "{args:?}: {ran:?}");
    };
    check(&["explain"], 0, "compute        The machines.\n", "");
    check(&["explain", "compute.pools.shape.gpu"], 0, "example   H100-SXM-80GB\n", "");
    check(&["explain", "compute.pool"], 3, "", "hint: did you mean 'pools'?\n");
    check(&["explain", "fp1009"], 0, "# FP1009: ", "");
    check(&["explain", "teams.quota", "--json"], 0, "\"path\":\"teams.quota\"", "");
    check(&["schema"], 0, "\"title\": \"fourplane.yaml\"", "");
}
