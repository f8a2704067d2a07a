//! What is proven and by which test: the table behind docs/support.md and the counts of `./dev test`.

mod table;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use table::{Row, SECTIONS, State};

const PAGE: &str = "docs/support.md";

const HEAD: &str = "# Support

What works where, and how that is known. Made by `cargo xtask support` from `xtask/src/support/table.rs`; `./dev test` checks that it is in step and that each test named here exists, and prints the same counts.

- **proven**: the test runs the real thing on such a machine. Where `./dev test` skips it, its summary says so.
- **stand-in**: the test runs, with something in place of what is meant.
- **not proven**: nobody has seen it work, whatever the code says.
";

/// `cargo xtask support`
#[derive(Args)]
pub(crate) struct Options {
    /// Change nothing; fail if the page is out of step or a named test is missing
    #[arg(long)]
    check: bool,
}

/// One line for each thing that is wrong with the table or its page.
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let mut problems = missing_tests(SECTIONS, &|path| std::fs::read_to_string(path).ok());
    let page = page(SECTIONS);
    if !options.check {
        std::fs::write(PAGE, page).with_context(|| format!("cannot write {PAGE}"))?;
    } else if std::fs::read_to_string(PAGE).ok().as_ref() != Some(&page) {
        problems.push(format!("{PAGE} is out of step; run cargo xtask support"));
    }
    say(&counts(SECTIONS));
    Ok(problems)
}

#[expect(clippy::print_stdout, reason = "this is the tool's output")]
fn say(line: &str) {
    println!("{line}");
}

fn counts(sections: &[(&str, &[Row])]) -> String {
    let rows = || sections.iter().flat_map(|(_, rows)| *rows);
    let count = |is: fn(&State) -> bool| rows().filter(|row| is(&row.state)).count();
    format!(
        "support: {} proven, {} stand-in, {} not proven",
        count(|state| matches!(state, State::Proven(_))),
        count(|state| matches!(state, State::StandIn(..))),
        count(|state| matches!(state, State::NotProven(_)))
    )
}

fn page(sections: &[(&str, &[Row])]) -> String {
    let mut page = format!("{HEAD}\n{}.\n", counts(sections).replacen("support: ", "Today: ", 1));
    for (engine, rows) in sections {
        write!(page, "\n## Engine `{engine}`\n\n| what | where | state | by |\n|---|---|---|---|\n")
            .expect("a string grows");
        for row in *rows {
            let (state, by) = match row.state {
                State::Proven(tests) => ("proven", links(tests)),
                State::StandIn(what, tests) => ("stand-in", format!("{what}: {}", links(tests))),
                State::NotProven(why) => ("not proven", why.to_owned()),
            };
            writeln!(page, "| {} | {} | {state} | {by} |", row.what, row.on).expect("a string grows");
        }
    }
    page
}

fn links(tests: &[&str]) -> String {
    let link = |test: &&str| {
        let (path, name) = test.split_once("::").unwrap_or((test, test));
        format!("[{}](../{path})", name.replace('_', " "))
    };
    tests.iter().map(link).collect::<Vec<_>>().join(", ")
}

/// Looks for each named test in its file, which `read` reads.
fn missing_tests(sections: &[(&str, &[Row])], read: &dyn Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for row in sections.iter().flat_map(|(_, rows)| *rows) {
        let (State::Proven(tests) | State::StandIn(_, tests)) = row.state else { continue };
        if tests.is_empty() {
            problems.push(format!("'{}' on {} names no test", row.what, row.on));
        }
        for test in tests {
            let found = test.split_once("::").is_some_and(|(path, name)| {
                read(Path::new(path)).is_some_and(|source| has_test(path, &source, name))
            });
            if !found {
                problems.push(format!("'{}' on {} names a test that is not there: {test}", row.what, row.on));
            }
        }
    }
    problems
}

/// Whether a source has this test: a function marked as one that is not ignored, or an
/// expectation of a step of the test machine.
fn has_test(path: &str, source: &str, name: &str) -> bool {
    if path.strip_suffix(".sh").is_some() {
        return source.lines().any(|line| line.starts_with(&format!("expect \"{name}\" ")));
    }
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let heads = [format!("fn {name}("), format!("async fn {name}(")];
    lines.iter().enumerate().any(|(at, line)| {
        let marks = || lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        heads.iter().any(|head| line.starts_with(head))
            && marks().any(|mark| mark.starts_with("#[test]") || mark.starts_with("#[tokio::test"))
            && !marks().any(|mark| mark.starts_with("#[ignore"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_tests_that_run() {
        let check =
            |path, source: &str, expect| assert_eq!(has_test(path, source, "it_works"), expect, "{source}");
        check("a.rs", "#[test]\nfn it_works() {}", true);
        check("a.rs", "    #[tokio::test(flavor = \"x\")]\n    async fn it_works() {}", true);
        check("a.rs", "fn it_works() {}", false);
        check("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn it_works() {}", false);
        check("a.rs", "#[test]\nfn other() {}\nfn it_works() {}", false);
        check("a.rs", "// #[test]\n// fn it_works() {}", false);
        check("a.sh", "expect \"it_works\" \"$x\" yes", true);
        check("a.sh", "# expect \"it_works\" \"$x\" yes", false);
    }

    #[test]
    fn names_what_is_missing_and_counts_the_rest() {
        let row = |state| Row { what: "run", on: "Linux", state };
        let rows = [
            row(State::Proven(&["a.rs::there"])),
            row(State::Proven(&["a.rs::gone"])),
            row(State::StandIn("a toy", &[])),
            row(State::NotProven("no machine")),
        ];
        let sections: &[(&str, &[Row])] = &[("local", &rows)];
        let problems = missing_tests(sections, &|_| Some("#[test]\nfn there() {}".to_owned()));
        assert_eq!(
            problems,
            ["'run' on Linux names a test that is not there: a.rs::gone", "'run' on Linux names no test"]
        );
        assert_eq!(counts(sections), "support: 2 proven, 1 stand-in, 1 not proven");
        assert!(page(sections).contains("| run | Linux | proven | [there](../a.rs) |\n"));
        assert!(page(sections).contains("| run | Linux | not proven | no machine |\n"));
    }
}
