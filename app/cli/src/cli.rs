//! The arguments.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use units::Nanos;

use crate::run_args::{RunArgs, ShellArgs};
use crate::values::{self, JobRef};
use crate::when;

/// Turns GPU capacity into accounted, useful work.
#[derive(Debug, Parser)]
#[command(name = "fourplane", version, disable_help_subcommand = true, args_override_self = true)]
pub(crate) struct Cli {
    /// What everything takes.
    #[command(flatten)]
    pub(crate) common: Common,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Server to talk to, as http://HOST:PORT (with a token in `FOURPLANE_TOKEN`)
    #[arg(long, global = true, env = "FOURPLANE_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// State directory of the server on this machine
    #[arg(long, global = true, env = "FOURPLANE_STATE", value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Write answers as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the server on this machine
    Up(UpArgs),
    /// Run a command or a script as a job
    Run(Box<RunArgs>),
    /// Open a terminal on an allocation
    Shell(Box<ShellArgs>),
    /// Come back to a terminal that was left
    Attach {
        /// The job
        #[arg(value_parser = values::job_ref)]
        job: JobRef,
    },
    /// List jobs, or show some of them in full
    Jobs(Box<JobsArgs>),
    /// Tell why a job stands where it does
    Why {
        /// The job
        #[arg(value_parser = values::job_ref)]
        job: JobRef,
    },
    /// Print a job's output
    Logs(LogsArgs),
    /// End jobs, or members of an array
    Cancel(JobIds),
    /// Keep jobs from starting
    Hold(JobIds),
    /// Let held jobs start
    Release(JobIds),
    /// Change a job's place in the queue
    Priority {
        /// The job
        #[arg(value_parser = values::job_ref)]
        job: JobRef,
        /// Higher starts earlier; above 0 is for administrators
        #[arg(allow_negative_numbers = true)]
        priority: i32,
    },
    /// Wait until jobs are over; returns their highest exit code
    Wait(WaitArgs),
    /// Show nodes and devices
    Nodes,
    /// Show teams: what each is promised, holds, borrows and lends
    Teams,
    /// Give a node no new work; what runs there goes on
    Drain(DrainArgs),
    /// Give a drained node work again
    Resume {
        /// Its name or number; may be left out where there is one
        node: Option<String>,
    },
    /// Keep capacity for somebody's jobs, for some time
    Reserve(Box<ReserveArgs>),
    /// List reservations, and who still holds what of them
    Reservations,
    /// Cancel reservations
    Unreserve {
        /// Their ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<u64>,
    },
    /// Show what this machine has, and where each figure was read (--json)
    Inventory {
        /// Look at a copy of another machine's /proc, /sys and /etc
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
    /// Make a link that signs a browser in, once
    Login,
    /// Make, list and take back tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Report what capacity was used for
    #[command(subcommand)]
    Report(ReportCommand),
    /// Check the server's log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Write a first specification, from what this machine has
    Init(InitArgs),
    /// Make the server as a specification says; shows what that changes, and asks
    Apply(ApplyArgs),
    /// Tell what differs from what was last applied, and who changed it
    Drift,
    /// Show what was told to whom of jobs, and what became of it
    Notifications,
    /// Check a specification, and tell all that is wrong with it
    Check {
        /// The file; - reads standard input
        #[arg(default_value = "fourplane.yaml")]
        file: PathBuf,
    },
    /// Tell what a field of a specification is for, or what a finding means
    Explain {
        /// The field, such as compute.pools.shape.gpu, or the finding, such as FP1003; without it, the sections
        path: Option<String>,
    },
    /// Print the JSON Schema of specifications
    Schema,
    /// Print what completes commands in a shell, for its start-up file or its folder of completions
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a directory; packages are made by this
    #[command(hide = true)]
    Man {
        /// The directory
        dir: PathBuf,
    },
    /// Ask NVIDIA's library, which may hang or crash; started by `up` and `inventory`
    #[command(hide = true)]
    NvmlProbe,
    /// Become a user and run the user's program; started by `up`
    #[command(hide = true)]
    RunAs {
        /// Whom to become
        #[command(flatten)]
        user: UserArgs,
        /// The program
        #[arg(last = true, required = true)]
        program: PathBuf,
    },
    /// Watch over running jobs; started by `up`
    #[command(hide = true)]
    Supervisor {
        /// Its directory
        #[arg(long)]
        dir: PathBuf,
    },
}

/// Somebody whose rights a process takes on.
#[derive(Args, Clone, Debug)]
pub(crate) struct UserArgs {
    /// The user
    #[arg(long)]
    pub(crate) uid: u32,
    /// Its primary group
    #[arg(long)]
    pub(crate) gid: u32,
    /// Its supplementary groups
    #[arg(long, value_delimiter = ',')]
    pub(crate) groups: Vec<u32>,
    /// The directory to run in
    #[arg(long)]
    pub(crate) cwd: PathBuf,
}

impl From<UserArgs> for notify::As {
    fn from(UserArgs { uid, gid, groups, cwd }: UserArgs) -> Self {
        Self { uid, gid, groups, cwd }
    }
}

/// `up`
#[derive(Args, Clone, Debug)]
pub(crate) struct UpArgs {
    /// Address for browsers and tokens
    #[arg(long, default_value = "127.0.0.1:7444", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// Return when the server answers, and leave it running
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Let root submit jobs that run as root
    #[arg(long)]
    pub(crate) allow_root: bool,
    /// Offer so many cores to jobs, instead of all that are online
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cores: Option<u32>,
    /// Apply this specification as soon as the server answers
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// Rehearse with so many GPUs that do not exist, in place of those that do: 8, 8:h100
    #[arg(long, value_name = "N[:MODEL],...", value_parser = values::simulated_gpus)]
    pub(crate) simulate_gpus: Option<values::SimulatedGpus>,
    /// This is the server that `--detach` left running
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
}

/// `jobs`
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsArgs {
    /// Show these in full
    #[arg(value_parser = values::job_ref, value_name = "ID")]
    pub(crate) ids: Vec<JobRef>,
    /// Everybody's, in every state
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only this team's
    #[arg(short = 'A', long, alias = "account", value_name = "TEAM")]
    pub(crate) team: Option<String>,
    /// Only this user's
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Only in these states: queued, held, running, completed, failed, cancelled
    #[arg(short = 't', long = "states", value_delimiter = ',', value_name = "STATE")]
    pub(crate) states: Vec<String>,
    /// Only those alive since then: now-7d, 2026-11-30, RFC 3339
    #[arg(long, value_parser = values::moment, value_name = "TIME")]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Only those with this label
    #[arg(short = 'l', long = "label", value_parser = values::label, value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<(String, String)>,
    /// Show again whenever something changes
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Order by this field; a leading - turns it around
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    pub(crate) sort: Option<String>,
    /// No header line
    #[arg(long, short = 'n', aliases = ["noheader", "noheaders"])]
    pub(crate) no_headers: bool,
    /// wide, json, yaml, csv, name, or fields such as id,name,state
    #[arg(short, long, value_name = "FORM")]
    pub(crate) output: Option<String>,
    /// As sacct -P writes it: fields of sacct, with | between them
    #[arg(short = 'P', long = "parsable2", conflicts_with_all = ["output", "json"])]
    pub(crate) parsable: bool,
    /// Fields of sacct, such as JobID,State,Elapsed,AllocTRES,ExitCode
    #[arg(long, value_name = "FIELDS", conflicts_with_all = ["output", "json"])]
    pub(crate) format: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) limit: usize,
}

/// `logs`
#[derive(Args, Clone, Debug)]
pub(crate) struct LogsArgs {
    /// The job, or a member of an array
    #[arg(value_parser = values::job_ref)]
    pub(crate) job: JobRef,
    /// Go on until the job is over
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Standard error, where it has a file of its own
    #[arg(long)]
    pub(crate) stderr: bool,
    /// The member of an array
    #[arg(long)]
    pub(crate) index: Option<u32>,
    /// The task of a gang
    #[arg(long, default_value_t = 0)]
    pub(crate) rank: u32,
    /// Only the last so many bytes
    #[arg(long, value_parser = values::memory, value_name = "SIZE")]
    pub(crate) tail: Option<values::Memory>,
}

/// `init`
#[derive(Args, Clone, Debug)]
pub(crate) struct InitArgs {
    /// Where it is written; - is standard output
    #[arg(default_value = "fourplane.yaml")]
    pub(crate) file: PathBuf,
    /// Ask for what no inventory tells
    #[arg(long)]
    pub(crate) ask: bool,
}

/// `apply`
#[derive(Args, Clone, Debug)]
pub(crate) struct ApplyArgs {
    /// The specification; - reads standard input
    #[arg(short, long, default_value = "fourplane.yaml", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only show what would change; returns 1 if anything would
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// The cluster that this one takes the place of, where another was applied before
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) replace: Option<String>,
}

/// Some jobs.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobIds {
    /// The jobs; `123_4` and `123_[0-9]` are members of an array
    #[arg(value_parser = values::job_ref, value_name = "ID", required = true)]
    pub(crate) ids: Vec<JobRef>,
}

/// `drain`
#[derive(Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    /// Its name or number; may be left out where there is one
    pub(crate) node: Option<String>,
    /// Why, for whoever asks
    #[arg(short, long, default_value = "", value_name = "TEXT")]
    pub(crate) reason: String,
}

/// `reserve`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReserveArgs {
    /// Whole GPUs
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) gpus: u16,
    /// Cores; the GPUs' share of the machine's if not given
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<u32>,
    /// Memory; the cores' share of the machine's if not given
    #[arg(long, alias = "mem", value_parser = values::memory, value_name = "SIZE")]
    pub(crate) memory: Option<values::Memory>,
    /// From when: 17:00, now+2h, 2026-11-30T12:00, RFC 3339; now if not given
    #[arg(long, value_parser = when::ahead, value_name = "TIME")]
    pub(crate) from: Option<when::Ahead>,
    /// Until when: the same, counted from the start
    #[arg(long, value_parser = when::ahead, value_name = "TIME")]
    pub(crate) until: when::Ahead,
    /// Whose jobs may use it: user:NAME, team:NAME, or just the name; yours if not given
    #[arg(long = "for", value_name = "WHO")]
    pub(crate) holder: Option<String>,
    /// Why, for whoever asks
    #[arg(short, long, default_value = "", value_name = "TEXT")]
    pub(crate) reason: String,
}

/// `wait`
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitArgs {
    /// The jobs
    #[arg(value_parser = values::job_ref, value_name = "ID", required = true)]
    pub(crate) ids: Vec<JobRef>,
    /// Give up after this time, with exit code 125
    #[arg(long, value_parser = values::span, value_name = "TIME")]
    pub(crate) timeout: Option<Nanos>,
}

/// `token`
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for yourself; its secret is shown this once
    Create {
        /// What it is for
        label: String,
        /// How long it works; 90 days if not given
        #[arg(long, value_parser = values::span, value_name = "TIME")]
        expires: Option<Nanos>,
        /// With an administrator's rights, where you have them
        #[arg(long)]
        admin: bool,
    },
    /// List your tokens
    List,
    /// Take tokens back
    Revoke {
        /// Their ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// `report`
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ReportCommand {
    /// The time of GPUs and cores by state; all states sum to what there was
    Usage {
        /// From the quarter of an hour with this time on; a day ago if not given: now-7d, 2026-11-30, RFC 3339
        #[arg(long, value_parser = values::moment, value_name = "TIME")]
        since: Option<jiff::Timestamp>,
    },
}

/// `audit`
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check every event of the log and the chain of hashes over them
    Verify,
}

/// Puts `flags` right behind the word `run`, so that flags that were typed override them.
pub(crate) fn with_flags_of_run(args: Vec<OsString>, flags: Vec<String>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(word) = args.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) {
        at += if word == "--server" || word == "--state" { 2 } else { 1 };
    }
    let mut all = args;
    let behind = all.split_off((at + 1).min(all.len()));
    all.extend(flags.into_iter().map(OsString::from));
    all.extend(behind);
    all
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_is_typed_overrides_what_a_script_says() {
        let check = |typed: &str, expect: &str| {
            let args = typed.split(' ').map(OsString::from).collect();
            let all = with_flags_of_run(args, vec!["-t".to_owned(), "30".to_owned(), "--hold".to_owned()]);
            assert_eq!(all.join(std::ffi::OsStr::new(" ")).to_string_lossy(), expect);
            let Ok(Cli { command: Command::Run(run), .. }) = Cli::try_parse_from(all) else {
                panic!("{typed}");
            };
            (run.resources.time, run.resources.slurm_time, run.resources.labels.len())
        };
        let half_an_hour = Some(values::Limit(Some(Nanos::from_secs(1_800))));
        let hour = Some(values::Limit(Some(Nanos::from_secs(3_600))));
        let typed = check("fourplane --state run run s.sh", "fourplane --state run run -t 30 --hold s.sh");
        assert_eq!(typed, (None, half_an_hour, 0));
        let typed = check(
            "fourplane --json run --time 1h -l a=b -l c=d s.sh",
            "fourplane --json run -t 30 --hold --time 1h -l a=b -l c=d s.sh",
        );
        assert_eq!(typed, (hour, None, 2));
        let typed = check("fourplane run -t 60 s.sh", "fourplane run -t 30 --hold -t 60 s.sh");
        assert_eq!(typed, (None, hour, 0));
    }

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
