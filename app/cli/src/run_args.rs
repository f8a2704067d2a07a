//! The arguments of `run` and `shell`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use server::wire::{Array, Notify, Restart, RetryClass, Warn};
use units::Nanos;

use crate::occasions::{self, MailType};
use crate::values::{self, Afters, Gpus, Limit, Memory, Priority, Probe};

/// What a job may use.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResourceArgs {
    /// Its name; that of the program if not given
    #[arg(long, short = 'J', alias = "job-name")]
    pub(crate) name: Option<String>,
    /// GPUs of each task: a number, or h100:8 for those of a model
    #[arg(long, short = 'G', alias = "gpus-per-task", value_parser = values::gpus, default_value = "0", value_name = "[MODEL:]N")]
    pub(crate) gpus: Gpus,
    /// Cores of each task
    #[arg(short, long, alias = "cpus-per-task", default_value_t = 1, value_name = "N")]
    pub(crate) cores: u32,
    /// Memory of each task, for example 16GiB; the cores' share if not given
    #[arg(long, value_parser = values::memory, value_name = "SIZE")]
    pub(crate) mem: Option<Memory>,
    /// The longest it may run: 90m, 2h, 1d, HH:MM:SS, UNLIMITED
    #[arg(long, value_parser = values::limit, overrides_with = "slurm_time", value_name = "TIME")]
    pub(crate) time: Option<Limit>,
    /// The same as Slurm reads it: 30 is minutes, 4:00 minutes and seconds
    #[arg(short = 't', value_parser = values::slurm_limit, overrides_with = "time", value_name = "TIME")]
    pub(crate) slurm_time: Option<Limit>,
    /// Higher starts earlier; above 0 is for administrators. Or a class of urgency, by its name
    #[arg(long, value_parser = values::priority, default_value = "0", allow_negative_numbers = true, value_name = "N|NAME")]
    pub(crate) priority: Priority,
    /// Whose quota it counts against
    #[arg(long, short = 'A', alias = "account")]
    pub(crate) team: Option<String>,
    /// A label for lists and reports; may be repeated
    #[arg(long = "label", short = 'l', value_parser = values::label, value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<(String, String)>,
    /// Working directory; where you are if not given
    #[arg(long, short = 'D', value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,
    /// Environment: ALL, NONE, or names and NAME=VALUE (with ALL, to add)
    #[arg(long, default_value = "ALL", value_name = "LIST")]
    pub(crate) export: String,
}

/// `run`
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// What it may use.
    #[command(flatten)]
    pub(crate) resources: ResourceArgs,
    /// Tasks that start together or not at all, with a rank each
    #[arg(short = 'n', long, alias = "ntasks", default_value_t = 1, value_name = "N")]
    pub(crate) tasks: u32,
    /// Run once for each index: 0-99, 1,3,5-9, 0-99%8 (at most 8 at once)
    #[arg(short, long, value_parser = values::array, value_name = "INDEXES")]
    pub(crate) array: Option<Array>,
    /// Wait for other jobs: afterok:ID[:ID], afternotok:ID, afterany:ID
    #[arg(long, value_parser = values::dependencies, value_name = "CONDITION")]
    pub(crate) dependency: Option<Afters>,
    /// Start held
    #[arg(short = 'H', long)]
    pub(crate) hold: bool,
    /// Try again so many times; as the specification says for everybody if not given, else not at all
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// After these ends: failure, out-of-memory, time-limit, start-failed, unknown
    #[arg(long, value_parser = values::retry_class, value_delimiter = ',', value_name = "CLASSES")]
    pub(crate) retry_on: Vec<RetryClass>,
    /// Do not put it back in the queue when the machine restarts
    #[arg(long)]
    pub(crate) no_requeue: bool,
    /// More urgent jobs of its team may stop it; it is then put back in the queue
    #[arg(long)]
    pub(crate) preemptible: bool,
    /// Tell somebody: start, end, fail, preempted or all, then a web address, an address of mail or a program; may be repeated
    #[arg(long, value_parser = occasions::notify, value_name = "EVENTS=TARGET")]
    pub(crate) notify: Vec<Notify>,
    /// Send mail as sbatch does: BEGIN, END, FAIL, REQUEUE, ALL
    #[arg(long, value_parser = occasions::mail_type, value_name = "TYPES")]
    pub(crate) mail_type: Option<MailType>,
    /// To whom that mail goes
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mail_user: Option<String>,
    /// Send a signal some time before the time limit: USR1@120
    #[arg(long, value_parser = values::warning, value_name = "SIGNAL[@TIME]")]
    pub(crate) signal: Option<Warn>,
    /// The signal that stops it
    #[arg(long, value_parser = values::stop_signal, default_value = "TERM", value_name = "SIGNAL")]
    pub(crate) stop_signal: u8,
    /// Time between that signal and the kill
    #[arg(long, value_parser = values::span, default_value = "10s", value_name = "TIME")]
    pub(crate) grace: Nanos,
    /// Output file; %x is the name, %j the job, %a the index, %t the rank
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// A file of its own for standard error
    #[arg(short, long, value_name = "FILE")]
    pub(crate) error: Option<PathBuf>,
    /// The most output kept
    #[arg(long, value_parser = values::memory, value_name = "SIZE")]
    pub(crate) output_max: Option<Memory>,
    /// Run until cancelled
    #[arg(long, conflicts_with_all = ["array", "retries"])]
    pub(crate) service: bool,
    /// Port the service listens on, told to it as PORT
    #[arg(long, requires = "service")]
    pub(crate) port: Option<u16>,
    /// How the service's health is told: tcp, or a path such as /healthz
    #[arg(long, requires = "port", value_parser = values::health, value_name = "CHECK")]
    pub(crate) health: Option<Probe>,
    /// Time between health checks
    #[arg(long, requires = "health", value_parser = values::span, default_value = "10s", value_name = "TIME")]
    pub(crate) health_every: Nanos,
    /// Failed checks in a row after which it is stopped, once one has passed
    #[arg(long, requires = "health", default_value_t = 3, value_name = "N")]
    pub(crate) health_failures: u32,
    /// When the service is started again: always, on-failure, never
    #[arg(long, requires = "service", value_parser = values::restart, default_value = "on-failure", value_name = "WHEN")]
    pub(crate) restart: Restart,
    /// Set the variables that Slurm sets, beside ours; a script with #SBATCH lines gets them anyway
    #[arg(long)]
    pub(crate) slurm_env: bool,
    /// Tasks that a script believes it has
    #[arg(long, hide = true, default_value_t = 1)]
    pub(crate) slurm_tasks: u64,
    /// Tell what would become of it, and submit nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the job's id and return
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) detach: bool,
    /// Wait until it is over, without its output
    #[arg(short = 'W', long)]
    pub(crate) wait: bool,
    /// Print only the id; returns at once unless --wait is given
    #[arg(long)]
    pub(crate) parsable: bool,
    /// The same key is answered with the same job
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// A script that begins with #!, and its arguments
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: Vec<OsString>,
    /// A command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// `shell`
#[derive(Args, Clone, Debug)]
pub(crate) struct ShellArgs {
    /// What it may use.
    #[command(flatten)]
    pub(crate) resources: ResourceArgs,
    /// End it after so long without input or output
    #[arg(long, value_parser = values::span, value_name = "TIME")]
    pub(crate) idle: Option<Nanos>,
    /// What to run instead of your login shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
