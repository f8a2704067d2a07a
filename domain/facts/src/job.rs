//! What a user asks for, as it is recorded. How to launch it (environment, script, paths)
//! is personal and erasable, and therefore apart: see [`crate::launch`].

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use units::{Bytes, Cores, GpuModel, JobId, Nanos, SubjectId, TeamId};

use crate::envelope::Hash32;
use crate::index_set::IndexSet;
use crate::labels::Labels;
use crate::outcome::ExitClass;

/// What one task needs, all of it on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU cores.
    pub cores: Cores,
    /// Main memory.
    pub memory: Bytes,
    /// Whole devices.
    pub gpus: u16,
}

/// A job as submitted: one record, whether it is one task, a gang or an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The user's name for it.
    pub name: String,
    /// Batch, service or interactive.
    pub kind: JobKind,
    /// Who submitted it.
    pub owner: SubjectId,
    /// Whose quota it counts against.
    pub team: TeamId,
    /// Tasks started together or not at all.
    pub tasks: u32,
    /// What each task needs.
    pub per_task: Resources,
    /// The members, where this is an array.
    pub array: Option<ArraySpec>,
    /// Higher starts earlier; 0 is usual.
    pub priority: i32,
    /// The longest an attempt may run; none is unlimited.
    pub time_limit: Option<Nanos>,
    /// What must have happened before.
    pub after: Vec<Dependency>,
    /// Which ends are tried again.
    pub retry: RetryPolicy,
    /// Whether it starts held.
    pub hold: bool,
    /// How it is stopped.
    pub stop: StopPolicy,
    /// Free labels that reports group by.
    pub labels: Labels,
    /// The hash of the launch payload.
    pub payload: Hash32,
    /// The model that every device must be of; none takes any.
    pub gpu_model: Option<GpuModel>,
}

/// A job as submitted before a model could be chosen: only read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequestV1 {
    name: String,
    kind: JobKind,
    owner: SubjectId,
    team: TeamId,
    tasks: u32,
    per_task: Resources,
    array: Option<ArraySpec>,
    priority: i32,
    time_limit: Option<Nanos>,
    after: Vec<Dependency>,
    retry: RetryPolicy,
    hold: bool,
    stop: StopPolicy,
    labels: Labels,
    payload: Hash32,
}

impl From<JobRequestV1> for JobRequest {
    /// Any model would do.
    fn from(old: JobRequestV1) -> Self {
        Self {
            name: old.name,
            kind: old.kind,
            owner: old.owner,
            team: old.team,
            tasks: old.tasks,
            per_task: old.per_task,
            array: old.array,
            priority: old.priority,
            time_limit: old.time_limit,
            after: old.after,
            retry: old.retry,
            hold: old.hold,
            stop: old.stop,
            labels: old.labels,
            payload: old.payload,
            gpu_model: None,
        }
    }
}

/// What kind of work a job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobKind {
    /// Runs to its end.
    Batch,
    /// Runs until cancelled.
    Service {
        /// The port it listens on.
        port: Option<u16>,
        /// How its health is told.
        health: Option<HealthCheck>,
        /// When it is started again.
        restart: RestartPolicy,
    },
    /// A terminal.
    Interactive {
        /// Ends after so long without input or output.
        idle_limit: Option<Nanos>,
    },
}

/// How a service's health is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// A path that must answer 2xx; none means that the port accepts a connection.
    pub http_path: Option<String>,
    /// Time between checks.
    pub every: Nanos,
    /// Failures in a row after which it is unhealthy.
    pub failures: u32,
}

/// When a service is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whatever its end.
    Always,
    /// After any end but success.
    OnFailure,
    /// Never.
    Never,
}

/// The members of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Which indexes.
    pub indexes: IndexSet,
    /// At most so many at once (`%8`).
    pub max_running: Option<u32>,
}

/// One condition on another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job.
    pub job: JobId,
    /// What it must have done.
    pub condition: Condition,
}

/// What another job must have done, in Slurm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// `afterok`: every member succeeded.
    Ok,
    /// `afternotok`: ended, and a member did not succeed.
    NotOk,
    /// `afterany`: ended.
    Any,
}

/// Which ends are tried again, and how soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Further attempts after the first, for the classes in `on`.
    pub max: u32,
    /// Which classes of end.
    pub on: SmallVec<[ExitClass; 8]>,
    /// Wait before the first retry; doubles each time.
    pub backoff: Nanos,
    /// The longest wait.
    pub backoff_max: Nanos,
    /// Whether a node restart or a preemption puts it back in the queue, uncounted.
    pub requeue: bool,
}

impl Default for RetryPolicy {
    /// No retries, but a node restart requeues (decision D34).
    fn default() -> Self {
        Self {
            max: 0,
            on: smallvec![ExitClass::Failure, ExitClass::OutOfMemory, ExitClass::Unknown],
            backoff: Nanos::from_secs(1),
            backoff_max: Nanos::from_secs(300),
            requeue: true,
        }
    }
}

/// How a job is stopped: a signal, a grace time, then the whole group is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPolicy {
    /// The first signal, by number.
    pub signal: u8,
    /// The time between it and the kill.
    pub grace: Nanos,
    /// A warning signal so long before the time limit (`--signal USR1@120`).
    pub warn: Option<(u8, Nanos)>,
}

impl Default for StopPolicy {
    /// SIGTERM, then 10 seconds.
    fn default() -> Self {
        Self { signal: 15, grace: Nanos::from_secs(10), warn: None }
    }
}

impl JobRequest {
    /// The indexes of all members: one index, 0, where this is no array.
    pub fn members(&self) -> IndexSet {
        match &self.array {
            Some(array) => array.indexes.clone(),
            None => IndexSet::range(0, 0),
        }
    }
}
