//! The JSON of the API, used by the server for its answers and by clients for their requests.
//!
//! Times are RFC 3339 in UTC, spans integer nanoseconds (`_ns`), memory integer bytes
//! (`_bytes`). Fields are only ever added; a request with an unknown field is refused.

mod answer;
mod apply;
mod convert;
mod notify;
mod reservation;
mod text;
mod time;

use std::collections::BTreeMap;

use facts::RetryPolicy;
use facts::applied::RetriesSetV1;
use serde::{Deserialize, Serialize};
use units::Nanos;
use utoipa::ToSchema;

pub use answer::{
    Attempt, Device, Explanation, Holder, Job, JobDetail, JobList, Leak, Members, Minted, Node, Outcome,
    Readiness, Receipt, Remedy, Spent, Start, Task, Team, Token, Usage, Why,
};
pub use apply::{
    Action, Apply, Changed, Drift, Drifted, FieldChange, Plan, PlanStep, PriorityClass, Specification, Thing,
};
pub(crate) use convert::stop_word;
pub use notify::{Channel, Delivery, Notify, Occasion, Progress};
pub use reservation::{Reservation, Reserve, Reserved};
pub use text::Text;
pub use time::Time;

/// A job to be run. Whose rights it gets is told by who asks, never by this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// The program and its arguments, or the arguments of `script`.
    pub argv: Vec<Text>,
    /// A script's text, run by its `#!` line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Text>,
    /// Working directory, absolute.
    pub cwd: Text,
    /// Environment, `NAME=value` each. Kept until the job is over, never recorded in the log.
    #[serde(default)]
    pub env: Vec<Text>,
    /// File creation mask.
    #[serde(default = "default_umask")]
    pub umask: u32,
    /// Output file, from `cwd`; `%x`, `%j`, `%A`, `%a`, `%t` are expanded. `%x-%j.out` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Text>,
    /// A file of its own for standard error; it goes with the output if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Text>,
    /// The most output kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_max_bytes: Option<u64>,
    /// Its name; that of the program if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What kind of work it is.
    #[serde(default)]
    pub kind: Kind,
    /// Whose quota it counts against; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Tasks that start together or not at all.
    #[serde(default = "one")]
    pub tasks: u32,
    /// Cores of each task.
    #[serde(default = "one")]
    pub cores: u32,
    /// Memory of each task; the node's share for its cores if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Whole devices of each task.
    #[serde(default)]
    pub gpus: u16,
    /// The model that they must be of, by any of its names (`h100`); any model if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// The members, where this is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Array>,
    /// Higher starts earlier. Above 0 is for administrators.
    #[serde(default)]
    pub priority: i32,
    /// A class of urgency, which everybody may ask for, in place of `priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// The longest an attempt may run; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ns: Option<u64>,
    /// What other jobs must have done before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// Which ends are tried again. What is absent is as the specification that was applied says for
    /// everybody, else as in `Retry`.
    #[serde(default)]
    pub retry: RetryAsked,
    /// How it is stopped.
    #[serde(default)]
    pub stop: Stop,
    /// Whether it starts held.
    #[serde(default)]
    pub hold: bool,
    /// Whether it may be stopped for more urgent jobs of its team.
    #[serde(default)]
    pub preemptible: bool,
    /// Who is told what of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notify>,
    /// Free labels that lists and reports select by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn default_umask() -> u32 {
    0o022
}

/// What kind of work a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Kind {
    /// Runs to its end.
    #[default]
    Batch,
    /// Runs until cancelled.
    Service {
        /// The port it listens on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// How its health is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        health: Option<Health>,
        /// When it is started again.
        #[serde(default)]
        restart: Restart,
    },
    /// A terminal.
    Interactive {
        /// It ends after so long without input or output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_limit_ns: Option<u64>,
    },
}

/// How a service's health is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// A path that must answer 2xx; if absent, the port must accept a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_path: Option<String>,
    /// Time between checks.
    pub every_ns: u64,
    /// Failures in a row after which it is unhealthy.
    pub failures: u32,
}

/// When a service is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Whatever its end.
    Always,
    /// After any end but success.
    #[default]
    OnFailure,
    /// Never.
    Never,
}

/// The members of an array job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Indexes, as in `0-99,200`.
    pub indexes: String,
    /// At most so many at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
}

/// One condition on another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// The other job.
    pub job: u64,
    /// What it must have done.
    pub condition: Condition,
}

/// What another job must have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Every member succeeded.
    Ok,
    /// It ended, and a member did not succeed.
    NotOk,
    /// It ended.
    Any,
}

/// Which ends are tried again, and how soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Further attempts after the first.
    pub max: u32,
    /// For these classes of end.
    pub on: Vec<RetryClass>,
    /// Wait before the first; doubles each time.
    pub backoff_ns: u64,
    /// The longest wait.
    pub backoff_max_ns: u64,
    /// Whether a restart of the node puts it back in the queue, uncounted.
    pub requeue: bool,
}

/// Which ends are tried again, as far as somebody says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryAsked {
    /// Further attempts after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// For these classes of end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<RetryClass>>,
    /// Wait before the first; doubles each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ns: Option<u64>,
    /// The longest wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_max_ns: Option<u64>,
    /// Whether a restart of the node puts it back in the queue, uncounted; true if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue: Option<bool>,
}

impl RetryAsked {
    /// All of it, with `usual` where nothing was said. Services and terminals have no usual number
    /// of retries.
    pub(crate) fn settle(self, usual: RetriesSetV1, kind: &Kind) -> RetryPolicy {
        let max = if *kind == Kind::Batch { usual.max } else { 0 };
        RetryPolicy {
            max: self.max.unwrap_or(max),
            on: self.on.map_or(usual.on, |on| on.into_iter().map(Into::into).collect()),
            backoff: self.backoff_ns.map_or(usual.backoff, Nanos),
            backoff_max: self.backoff_max_ns.map_or(usual.backoff_max, Nanos),
            requeue: self.requeue.unwrap_or(true),
        }
    }
}

/// The classes of end that a retry policy tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetryClass {
    /// A code other than 0, or a signal.
    Failure,
    /// Memory limit.
    OutOfMemory,
    /// Time limit.
    TimeLimit,
    /// It never ran.
    StartFailed,
    /// Nobody can say how it ended.
    Unknown,
}

/// How a job is stopped: a signal, a grace time, then everything of it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// The first signal's number.
    pub signal: u8,
    /// Time between it and the kill.
    pub grace_ns: u64,
    /// A signal some time before the time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn: Option<Warn>,
}

impl Default for Stop {
    fn default() -> Self {
        facts::StopPolicy::default().into()
    }
}

/// A signal some time before the time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Warn {
    /// The signal's number.
    pub signal: u8,
    /// How long before.
    pub before_ns: u64,
}

/// A job was accepted and is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// Its id.
    pub job: u64,
    /// The log's head with it inside.
    pub seq: u64,
    /// The chain's hash there, in hex: whoever keeps it can prove a lost tail.
    pub hash: String,
    /// Whether this key had been used for this very request before.
    pub repeated: bool,
}

/// A change is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// The log's head with it inside.
    pub seq: u64,
    /// The chain's hash there, in hex.
    pub hash: String,
}

/// Which members of an array to cancel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Indexes, as in `0-9,12`; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexes: Option<String>,
}

/// A job's new place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Priority {
    /// Higher starts earlier. Above 0 is for administrators.
    pub priority: i32,
}

/// The answer of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// Whether the job is over; if not, the time given was.
    pub over: bool,
    /// The job as it stands.
    pub job: Job,
}

/// Whether a node gets new work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedulable {
    /// Whether it does.
    pub schedulable: bool,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// A team to make or change: its quota, what it may borrow, and what it lends. `null` is unlimited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetTeam {
    /// Its name; a known one changes that team.
    pub name: String,
    /// Cores that it is promised to hold at once; unlimited if absent.
    #[serde(default)]
    pub max_cores: Option<u32>,
    /// Memory that it is promised to hold at once; unlimited if absent.
    #[serde(default)]
    pub max_memory_bytes: Option<u64>,
    /// Devices that it is promised to hold at once; unlimited if absent.
    #[serde(default)]
    pub max_gpus: Option<u32>,
    /// Cores that it may hold above that, of what others leave free; none if absent.
    #[serde(default = "nothing")]
    pub borrow_cores: Option<u32>,
    /// Memory that it may hold above that, of what others leave free; none if absent.
    #[serde(default = "nothing")]
    pub borrow_memory_bytes: Option<u64>,
    /// Devices that it may hold above that, of what others leave free; none if absent.
    #[serde(default = "nothing")]
    pub borrow_gpus: Option<u32>,
    /// Cores of its quota that others may hold while it does not; all if absent.
    #[serde(default)]
    pub lend_cores: Option<u32>,
    /// Memory of its quota that others may hold while it does not; all if absent.
    #[serde(default)]
    pub lend_memory_bytes: Option<u64>,
    /// Devices of its quota that others may hold while it does not; all if absent.
    #[serde(default)]
    pub lend_gpus: Option<u32>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn nothing<T: Default>() -> Option<T> {
    Some(T::default())
}

/// When running jobs are stopped for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Preemption {
    /// Whether a team gets back what others borrowed, and whose jobs are stopped first.
    pub reclaim: Reclaim,
    /// Time in which a started job is left alone.
    pub protect_ns: u64,
    /// Jobs of at least this priority stop preemptible ones of their team; `null` if no job does.
    pub preempts_from: Option<i32>,
    /// A member that was put back so often is left alone.
    pub most: u32,
}

impl Default for Preemption {
    fn default() -> Self {
        facts::event::PreemptionSetV1::default().into()
    }
}

/// Whose jobs are stopped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reclaim {
    /// Nobody's: what was lent stays until its job ends.
    Never,
    /// Those of teams that hold more than their quota.
    BorrowedFirst,
    /// The least urgent.
    LowestPriority,
}

/// Whether a job may be stopped for more urgent ones of its team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preemptible {
    /// Whether it may.
    pub preemptible: bool,
}

/// A token to mint for oneself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it is for.
    pub label: String,
    /// How long it works; 90 days if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ns: Option<u64>,
    /// The rights it gets, never more than its minter's; `user` if absent.
    #[serde(default)]
    pub role: Role,
}

/// What somebody may do beyond their own jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Own jobs only.
    #[default]
    User,
    /// Everything.
    Admin,
}

/// A link that signs a browser in, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    /// The path and query to open on the server's address.
    pub path: String,
    /// The whole link, where the server listens on an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it stops working.
    pub expires: Time,
}

/// The server's version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The program's version.
    pub version: String,
    /// The API's version.
    pub api: String,
}

/// Why a request was not carried out. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Error {
    /// A stable word for programs.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of the request that is meant.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}
