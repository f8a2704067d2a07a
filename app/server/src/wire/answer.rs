//! What the server tells.

use std::collections::BTreeMap;

use ops::view::JobState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{After, Array, Kind, Retry, Role, Stop, Time};

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Whose it is: a login name, or `uid:N`, or `subject:N` once erased.
    pub owner: String,
    /// Whose quota it counts against.
    pub team: String,
    /// Where it stands.
    #[schema(value_type = String, example = "queued")]
    pub state: JobState,
    /// Whether it is held.
    pub held: bool,
    /// Whether it may be stopped for more urgent jobs of its team.
    pub preemptible: bool,
    /// What kind of work it is.
    pub kind: Kind,
    /// Its priority now.
    pub priority: i32,
    /// Tasks that start together.
    pub tasks: u32,
    /// Cores of each task.
    pub cores: u32,
    /// Memory of each task.
    pub memory_bytes: u64,
    /// Whole devices of each task.
    pub gpus: u16,
    /// The model that they must be of, by its canonical name; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Whether those devices are made up for a rehearsal: nothing about them is measured.
    pub simulated: bool,
    /// The members, where it is an array.
    pub array: Option<Array>,
    /// The longest an attempt may run; unlimited if absent.
    pub time_limit_ns: Option<u64>,
    /// What other jobs must have done before.
    pub after: Vec<After>,
    /// Which ends are tried again.
    pub retry: Retry,
    /// How it is stopped.
    pub stop: Stop,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// When it was accepted.
    pub submitted: Time,
    /// When its first process ran.
    pub started: Option<Time>,
    /// When its last member was over.
    pub ended: Option<Time>,
    /// How long it ran, or has run as of this answer, by the server's ledger; absent before it started.
    pub elapsed_ns: Option<u64>,
    /// How many members stand where; one in all where it is no array.
    pub members: Members,
    /// Attempts so far.
    pub attempts: u32,
    /// The worst end of a member so far.
    pub outcome: Option<Outcome>,
    /// Who asked for its cancellation.
    pub cancelled_by: Option<String>,
    /// The last event about it.
    pub seq: u64,
}

/// How many members stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// Not started, or waiting for another try.
    pub waiting: u64,
    /// With an open attempt.
    pub running: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended otherwise.
    pub failed: u64,
}

/// A job with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// Its attempts, oldest first.
    pub tries: Vec<Attempt>,
    /// Why it stands where it does, while it is not over.
    pub why: Option<Why>,
}

/// A page of jobs, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Give this as `before` to get the next page, where there may be one.
    pub next: Option<u64>,
}

/// One try of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its id.
    pub id: u64,
    /// The member; 0 where the job is no array.
    pub index: u32,
    /// Which try of the member, from 1.
    pub number: u32,
    /// Its tasks, by rank.
    pub tasks: Vec<Task>,
    /// When it was decided.
    pub decided: Time,
    /// When its first process ran.
    pub started: Option<Time>,
    /// When its last process ended.
    pub ended: Option<Time>,
    /// How long it ran, or has run as of this answer, by the server's ledger; absent before it started.
    pub elapsed_ns: Option<u64>,
    /// When the last of what it held was proven free.
    pub freed: Option<Time>,
    /// Why it was told to stop.
    pub stop: Option<String>,
    /// For whom, where it was to make room.
    pub receipt: Option<Receipt>,
    /// What its health check says; absent until the check first passed.
    pub readiness: Option<Readiness>,
    /// What of it cannot be freed.
    pub leaked: Option<Leak>,
    /// CPU time over its tasks, where measured.
    pub cpu_ns: Option<u64>,
    /// The most memory a task used, where measured.
    pub memory_peak_bytes: Option<u64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// One member of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Its place in the gang.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Its devices there, by index.
    pub devices: Vec<u16>,
    /// How it ended.
    pub exit: Option<Outcome>,
}

/// For whom an attempt was stopped, and by which right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The job that got the room.
    pub job: u64,
    /// Its team.
    pub team: String,
    /// `reclaim`: what the attempt's team had borrowed was given back. `priority`: the job is more
    /// urgent.
    pub right: String,
    /// The same for people.
    pub text: String,
}

/// What a service's health check says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it passes.
    pub ready: bool,
    /// Since when.
    pub since: Time,
    /// What was seen then, in words.
    pub reason: String,
}

/// Something that cannot be freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leak {
    /// Since when.
    pub since: Time,
    /// What lives, in words.
    pub reason: String,
}

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// `success`, `code`, `signal`, `out-of-memory`, `time-limit`, `idle-limit`, `cancelled`,
    /// `start-failed`, `node-restart`, `dependency-failed`, `preempted` or `unknown`.
    pub kind: String,
    /// The code, signal or error number, where the kind has one.
    pub number: Option<i32>,
    /// The same for people.
    pub text: String,
    /// The code that an attached `run` or `wait` returns.
    pub exit_code: u8,
}

/// Why a job stands where it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// A stable word for programs.
    pub code: String,
    /// The reason, for people.
    pub text: String,
    /// The smallest change that would help, where there is one.
    pub hint: Option<String>,
    /// Until when, as far as time limits tell.
    pub until: Option<Time>,
    /// Who holds what it waits for.
    pub holders: Vec<Holder>,
}

/// Why a job stands where it does, and what would change that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The reason.
    pub why: Why,
    /// Jobs ahead of it in the queue; absent where it is not in it.
    pub ahead: Option<u64>,
    /// When it is expected to start; absent where it does not wait.
    pub start: Option<Start>,
    /// For whom its last attempt was put back, where that was to make room and it waits since.
    pub preempted: Option<Receipt>,
    /// Single changes after any of which it starts at once, the gentlest first.
    pub remedies: Vec<Remedy>,
}

/// When a job is expected to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Start {
    /// At this time, if every job runs to its time limit and nothing else is submitted; absent
    /// where nothing tells.
    pub at: Option<Time>,
    /// Not before this time, where the queue is too long to be followed further.
    pub after: Option<Time>,
}

/// A change that starts a job. It was tried: one step less does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remedy {
    /// A stable word for programs: `release`, `resume`, `unreserve`, `quota`, `priority`, `tasks`, `gpus`,
    /// `cores`, `memory`, `time-limit` or `end`.
    pub code: String,
    /// The change, for people.
    pub text: String,
    /// What to type for it, where it is a command; or the flag to submit the job with.
    pub command: Option<String>,
}

/// A job that holds something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The job.
    pub job: u64,
    /// Whose it is.
    pub owner: String,
    /// Since when it holds it.
    pub since: Time,
    /// When its time limit ends it; absent if it has none.
    pub until: Option<Time>,
}

/// A node and what of it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its id.
    pub id: u32,
    /// Its host name.
    pub name: String,
    /// Whether it gets new work.
    pub schedulable: bool,
    /// Why that was last changed.
    pub reason: String,
    /// Cores that jobs may use.
    pub cores: u64,
    /// Cores held now.
    pub cores_held: u64,
    /// Memory that jobs may use.
    pub memory_bytes: u64,
    /// Memory held now.
    pub memory_held_bytes: u64,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// Its place on the node.
    pub index: u16,
    /// Its identity.
    pub key: String,
    /// Its model.
    pub model: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Made up for a rehearsal: nothing it shows was measured.
    pub simulated: bool,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// Whether its holder is gone and it cannot be freed.
    pub leaked: bool,
    /// Whether processes hold it that were not started here: no job gets it meanwhile.
    #[serde(default)]
    pub outside: bool,
}

/// What devices and cores did in a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Its start: that of a quarter of an hour.
    pub since: Time,
    /// Its end.
    pub until: Time,
    /// Whether the devices are made up for a rehearsal.
    pub simulated: bool,
    /// Nanoseconds of devices.
    pub devices: Spent,
    /// Nanoseconds of cores.
    pub cores: Spent,
}

/// Where time went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spent {
    /// What there was.
    pub capacity_ns: i64,
    /// In each state: `free`, `drained`, `starting`, `running` (what it was good for is not
    /// measured), `unproven` (ended, and not proven free) or `leaked`.
    pub states: BTreeMap<String, i64>,
    /// What there was less all states; anything but 0 is a mistake of the server's.
    pub residue_ns: i64,
}

impl Spent {
    /// The states in the order in which they are shown, each with its words for people.
    pub const STATES: [(&str, &str); 6] = [
        ("running", "held by jobs; what it was good for: not measured"),
        ("starting", "about to start"),
        ("unproven", "ended, not proven free"),
        ("leaked", "lost to jobs that left something behind"),
        ("drained", "drained"),
        ("free", "free"),
    ];
}

/// A team, its quota and what it holds. `null` is unlimited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Team {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Cores that it is promised to hold at once.
    pub max_cores: Option<u64>,
    /// Memory that it is promised to hold at once.
    pub max_memory_bytes: Option<u64>,
    /// Devices that it is promised to hold at once.
    pub max_gpus: Option<u64>,
    /// Cores that it may hold above that, of what others leave free.
    pub borrow_cores: Option<u64>,
    /// Memory that it may hold above that, of what others leave free.
    pub borrow_memory_bytes: Option<u64>,
    /// Devices that it may hold above that, of what others leave free.
    pub borrow_gpus: Option<u64>,
    /// Cores of its quota that others may hold while it does not.
    pub lend_cores: Option<u64>,
    /// Memory of its quota that others may hold while it does not.
    pub lend_memory_bytes: Option<u64>,
    /// Devices of its quota that others may hold while it does not.
    pub lend_gpus: Option<u64>,
    /// Cores held now.
    pub cores_held: u64,
    /// Memory held now.
    pub memory_held_bytes: u64,
    /// Devices held now.
    pub gpus_held: u64,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its id, for taking it back.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// What it is for.
    pub label: String,
    /// Its rights.
    pub role: Role,
    /// When it was made.
    pub created: Time,
    /// When it stops working.
    pub expires: Time,
}

/// A new token. Its secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Minted {
    /// For the `Authorization: Bearer` header.
    pub secret: String,
    /// The token.
    pub token: Token,
}

/// Shows the token without its secret.
impl std::fmt::Debug for Minted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Minted").field("token", &self.token).finish_non_exhaustive()
    }
}
