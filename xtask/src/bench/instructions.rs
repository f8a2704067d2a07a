//! Instructions that an event costs with a short and a long queue, counted by callgrind: the same on
//! every run, so the ratio is a gate.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::progress;

/// A long queue may cost so many times what a short one does.
const MOST: f64 = 3.0;
const SHORT: u32 = 1_000;
const LONG: u32 = 100_000;
const LONG_SMOKE: u32 = 10_000;

#[derive(Args)]
pub(crate) struct Options {
    /// A debug build and a shorter long queue.
    #[arg(long)]
    smoke: bool,
}

/// Prints the table and returns what is over the limit.
#[expect(clippy::print_stdout, reason = "this is the tool's output")]
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let long = if options.smoke { LONG_SMOKE } else { LONG };
    let list = bench(options, &[]).output()?;
    ensure!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    println!("| event | {SHORT} jobs wait | {long} jobs wait | ratio |\n|---|---|---|---|");
    let mut problems = Vec::new();
    for event in String::from_utf8(list.stdout)?.lines() {
        progress(event);
        let few = count(options, event, SHORT)?;
        let many = count(options, event, long)?;
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 instructions")]
        let ratio = many as f64 / few as f64;
        println!("| {event} | {few} | {many} | {ratio:.2} |");
        if ratio > MOST {
            problems.push(format!("{event}: {ratio:.2} times the instructions, at most {MOST} wanted"));
        }
    }
    Ok(problems)
}

/// The instructions of one event, decisions included.
fn count(options: &Options, event: &str, queued: u32) -> Result<u64> {
    let run = |runner: &[&str]| {
        let mut bench = bench(options, runner);
        bench.args([event, &queued.to_string()]);
        bench
    };
    callgrind("*measured_event*", run)
}

/// Instructions spent in functions of a name, by a benchmark that `bench` makes with a runner.
pub(super) fn callgrind(name: &str, bench: impl FnOnce(&[&str]) -> Command) -> Result<u64> {
    let dir = std::path::absolute("target/bench")?;
    std::fs::create_dir_all(&dir)?;
    let profile = dir.join("callgrind.out");
    let valgrind = [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--collect-atstart=no",
        &format!("--toggle-collect={name}"),
        &format!("--callgrind-out-file={}", profile.display()),
    ];
    let run = bench(&valgrind).stderr(Stdio::piped()).output().context("cargo bench")?;
    ensure!(run.status.success(), "is valgrind installed? {}", String::from_utf8_lossy(&run.stderr));
    total(&profile)
}

fn total(profile: &Path) -> Result<u64> {
    let profile = std::fs::read_to_string(profile)?;
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: ")).context("no totals")?;
    let total = total.trim().parse()?;
    ensure!(total > 0, "callgrind did not see the measured function");
    Ok(total)
}

fn bench(options: &Options, runner: &[&str]) -> Command {
    cargo_bench("instructions", options.smoke, runner)
}

/// A benchmark, run under `runner`; a smoke run is built without optimisation. With the features of the
/// whole workspace nothing else is built anew.
pub(super) fn cargo_bench(bench: &str, smoke: bool, runner: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["bench", "--quiet", "--workspace", "--bench", bench]);
    cargo.args(["--profile", if smoke { "dev" } else { "release" }]);
    if !runner.is_empty() {
        cargo.arg("--config").arg(format!("target.'cfg(unix)'.runner={runner:?}"));
    }
    cargo.arg("--");
    cargo
}
