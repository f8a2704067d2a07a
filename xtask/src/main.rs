//! Repository checks and benchmarks: `cargo xtask help`.

mod api;
mod bench;
mod deps;
mod dist;
mod edges;
mod fuzz;
mod processes;
mod support;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use cargo_metadata::{Metadata, MetadataCommand};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Repository checks and benchmarks")]
enum Task {
    /// Check which crate uses which against the table in edges.rs.
    Edges,
    /// Check licences, sources, banned and duplicate crates against the tables in deps.rs.
    Deps,
    /// Write docs/support.md: what is proven where, and by which test.
    Support(support::Options),
    /// Measure against peers, interleaved in one run.
    #[command(subcommand)]
    Bench(Bench),
    /// Build what is handed out: an archive and a Debian package around a static program.
    Dist(dist::Options),
    /// Hold the API of a real server against its description.
    Api(api::Options),
    /// Give parsers bytes that nobody would write.
    Fuzz(fuzz::Options),
    /// Test on a virtual machine with a kernel of its own: cgroups v2, power cuts, restarts, clock steps.
    Vm(vm::Options),
}

#[derive(Subcommand)]
enum Bench {
    /// Start, supervise, log and record: jobs a second.
    Spawn(bench::spawn::Options),
    /// Durable submissions a second over HTTP.
    Submit(bench::submit::Options),
    /// Instructions an event, with a short and a long queue.
    Instructions(bench::instructions::Options),
    /// Why one of 100,000 waiting jobs waits, and the first page of a list, against 1,000 waiting jobs.
    Why(bench::why::Options),
    /// A list of 10,000 waiting jobs as JSON, against squeue.
    Jobs(bench::jobs::Options),
    /// How long the shortest commands take, against true.
    Start(bench::start::Options),
    /// Checking a specification of 300 and of 3,000 pools, against reading its YAML alone.
    Check(bench::check::Options),
    /// Reading the log back, starts, and memory.
    Replay(bench::replay::Options),
}

fn main() -> Result<ExitCode> {
    let problems = match Task::parse() {
        Task::Edges => edges::check(&edges::Graph::of(&metadata()?)),
        Task::Deps => deps::check(&metadata()?),
        Task::Support(options) => support::run(&options)?,
        Task::Bench(Bench::Spawn(options)) => return bench::spawn::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Bench(Bench::Submit(options)) => {
            return bench::submit::run(&options).map(|()| ExitCode::SUCCESS);
        }
        Task::Bench(Bench::Instructions(options)) => bench::instructions::run(&options)?,
        Task::Bench(Bench::Why(options)) => bench::why::run(&options)?,
        Task::Bench(Bench::Jobs(options)) => return bench::jobs::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Bench(Bench::Start(options)) => return bench::start::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Bench(Bench::Check(options)) => bench::check::run(&options)?,
        Task::Bench(Bench::Replay(options)) => {
            return bench::replay::run(&options).map(|()| ExitCode::SUCCESS);
        }
        Task::Api(options) => return api::run(&options),
        Task::Dist(options) => return dist::run(&options),
        Task::Fuzz(options) => return fuzz::run(&options),
        Task::Vm(options) => return vm::run(&options),
    };
    Ok(report(&problems))
}

fn metadata() -> Result<Metadata> {
    Ok(MetadataCommand::new().exec()?)
}

#[expect(clippy::print_stderr, reason = "this is the tool's output")]
fn report(problems: &[String]) -> ExitCode {
    for problem in problems {
        eprintln!("error: {problem}");
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
