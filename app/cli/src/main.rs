//! The command `fourplane`: arguments in, one command done, an exit code out.

mod attach;
mod cli;
mod client;
mod commands;
mod detail;
mod failure;
mod fields;
mod gpus;
mod habits;
mod locate;
mod occasions;
mod offer;
mod output;
mod outside;
mod run_args;
mod sacct;
mod sbatch;
mod submission;
mod values;
mod when;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::{AuditCommand, Cli, Command, ReportCommand};
use crate::failure::{Doing, Failure, USAGE};
use crate::locate::Surroundings;
use crate::output::Printer;

/// A request's memory is taken by one thread and given back by another, the writer or the
/// projector: the C library's allocators take locks for that (docs/benchmarks.md has the figures).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let code = match Cli::try_parse_from(&args) {
        Ok(Cli { command: Command::Supervisor { dir }, .. }) => {
            return machine::supervisor_main(machine::SupervisorConfig::new(dir));
        }
        Ok(Cli { command: Command::NvmlProbe, .. }) => return machine::nvml_main(),
        Ok(Cli { command: Command::RunAs { user, program }, .. }) => {
            return ExitCode::from(notify::become_and_run(&user.into(), &program));
        }
        Ok(cli) => answer(cli, args),
        Err(error) => refuse(&error, &args),
    };
    ExitCode::from(code)
}

/// Help and the version are no mistakes; clap's own code for those is 2.
fn refuse(error: &clap::Error, args: &[OsString]) -> u8 {
    let printer = Printer::new(false);
    let words: Vec<String> = args.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let known = if error.kind() == ErrorKind::InvalidSubcommand { habits::instead_of(&words) } else { None };
    if let Some(ours) = known {
        let failure = Failure::usage(format!("'{}' is not a command of fourplane", words.join(" ")));
        printer.failure(&failure.hint(format!("type: {ours}")));
        return USAGE;
    }
    let text = error.render();
    if error.use_stderr() {
        printer.usage(&text);
        USAGE
    } else {
        printer.help(&text);
        0
    }
}

fn answer(mut cli: Cli, args: Vec<OsString>) -> u8 {
    let printer = Printer::new(cli.common.json);
    let done = submission::batch_flags(&cli, printer).and_then(|flags| {
        if !flags.is_empty() {
            let args = cli::with_flags_of_run(args, flags);
            cli = match Cli::try_parse_from(&args) {
                Ok(cli) => cli,
                Err(error) => return Ok(refuse(&error, &args)),
            };
        }
        run(&cli, printer)
    });
    done.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.code
    })
}

fn run(cli: &Cli, printer: Printer) -> Result<u8, Failure> {
    let common = &cli.common;
    let state = || common.state.clone().unwrap_or_else(|| Surroundings::of_process().default_state());
    match &cli.command {
        Command::Up(args) if args.detach => return commands::up::detach(&state(), printer),
        Command::Up(args) => return commands::up::serve(common, &state(), printer, args),
        Command::Audit(AuditCommand::Verify) => return commands::audit::verify(printer, &state()),
        Command::Check { file } => return commands::spec::check(printer, file),
        Command::Explain { path } => return commands::spec::explain(printer, path.as_deref()),
        Command::Init(args) => return commands::init::run(printer, &state(), args),
        Command::Completions { shell } => return Ok(commands::manual::completions(printer, *shell)),
        Command::Man { dir } => return commands::manual::pages(dir),
        Command::Schema => return Ok(commands::spec::schema(printer)),
        Command::Inventory { root } => return commands::inventory::run(printer, &state(), root.as_ref()),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .doing(|| "cannot start".to_owned())?;
    let code = runtime.block_on(ask(cli, printer));
    // A read of the terminal may still block; nobody waits for it.
    runtime.shutdown_background();
    code
}

/// The commands that ask a server.
async fn ask(cli: &Cli, printer: Printer) -> Result<u8, Failure> {
    use commands::{
        actions, apply, jobs, logs, nodes, notifications, report, reservations, run, shell, teams, tokens,
        wait,
    };
    let common = &cli.common;
    match &cli.command {
        Command::Run(args) => run::run(common, printer, args).await,
        Command::Shell(args) => shell::run(common, printer, args).await,
        Command::Attach { job } => shell::attach(common, printer, job).await,
        Command::Jobs(args) => jobs::run(common, printer, args).await,
        Command::Why { job } => actions::why(common, printer, job).await,
        Command::Logs(args) => logs::run(common, printer, args).await,
        Command::Cancel(args) => actions::cancel(common, printer, &args.ids).await,
        Command::Hold(args) => actions::set_held(common, printer, &args.ids, true).await,
        Command::Release(args) => actions::set_held(common, printer, &args.ids, false).await,
        Command::Priority { job, priority } => actions::priority(common, printer, job, *priority).await,
        Command::Wait(args) => wait::run(common, printer, args).await,
        Command::Nodes => nodes::run(common, printer).await,
        Command::Teams => teams::run(common, printer).await,
        Command::Drain(args) => {
            nodes::set_schedulable(common, printer, args.node.as_deref(), false, &args.reason).await
        }
        Command::Resume { node } => nodes::set_schedulable(common, printer, node.as_deref(), true, "").await,
        Command::Apply(args) => apply::apply(common, printer, args).await,
        Command::Notifications => notifications::run(common, printer).await,
        Command::Drift => apply::drift(common, printer).await,
        Command::Report(ReportCommand::Usage { since }) => report::usage(common, printer, *since).await,
        Command::Reserve(args) => reservations::reserve(common, printer, args).await,
        Command::Reservations => reservations::list(common, printer).await,
        Command::Unreserve { ids } => reservations::cancel(common, printer, ids).await,
        Command::Login => tokens::login(common, printer).await,
        Command::Token(command) => tokens::token(common, printer, command).await,
        Command::Up(_)
        | Command::Audit(_)
        | Command::Check { .. }
        | Command::Explain { .. }
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Schema
        | Command::Init(_)
        | Command::Inventory { .. }
        | Command::NvmlProbe
        | Command::RunAs { .. }
        | Command::Supervisor { .. } => {
            unreachable!("handled before a client is needed")
        }
    }
}
