//! What the server asks of the writer, and what it gets back.

use control::identity::Principal;
use control::{Denial, Policy, State, Wish};
use facts::applied::ResourceV1;
use facts::event::{LimitsV1, PreemptionSetV1};
use facts::{Hash32, IndexSet, JobRequest, LaunchSpec};
use units::{JobId, NodeId, ReservationId, SubjectId, TeamId, Timestamp};

use crate::notify::Watch;
use crate::ports::{Head, SideWrite, StoreError};

/// A change somebody asks for. Authorisation has happened; admission has not.
#[derive(Debug)]
pub enum Command {
    /// Accept a job.
    Submit {
        /// What is recorded. Owner and payload hash are filled in by the writer.
        request: Box<JobRequest>,
        /// How to launch it.
        launch: Box<LaunchSpec>,
        /// What is said about it beside.
        options: SubmitOptions,
    },
    /// Do not start it.
    Hold(JobId),
    /// Start it when its turn comes.
    Release(JobId),
    /// Change its place in the queue.
    SetPriority(JobId, i32),
    /// End it.
    Cancel {
        /// The job.
        job: JobId,
        /// Which members; none is all.
        members: Option<IndexSet>,
    },
    /// Let a node have new work, or not.
    SetSchedulable {
        /// The node.
        node: NodeId,
        /// Whether it gets new work.
        schedulable: bool,
        /// Why.
        reason: String,
    },
    /// Make or change a team.
    SetTeam {
        /// The team's id; none makes a new one.
        team: Option<TeamId>,
        /// Its name.
        name: String,
        /// What it is promised to hold at once.
        quota: LimitsV1,
        /// What it may hold above that, of what others leave free.
        borrow: LimitsV1,
        /// What of its quota others may hold while it does not.
        lend: LimitsV1,
    },
    /// Say when running jobs are stopped for others.
    SetPreemption(PreemptionSetV1),
    /// Let a job be stopped for more urgent ones of its team, or not.
    SetPreemptible(JobId, bool),
    /// Make the server as a specification says, all of it or nothing.
    Apply {
        /// The cluster that the specification is of.
        cluster: String,
        /// What it asks for.
        resources: Vec<ResourceV1>,
        /// The digest of the plan that was agreed to.
        plan: Hash32,
    },
    /// Keep capacity for somebody.
    Reserve(Box<Wish>),
    /// Keep it no longer.
    Unreserve(ReservationId),
    /// Change side tables (people and tokens), which are no part of history.
    Side(Vec<SideWrite>),
}

/// What is said about a job beside what is asked for.
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// Whether it may be stopped for more urgent jobs of its team.
    pub preemptible: bool,
    /// Whether its class lets it stop preemptible jobs of its team.
    pub preempts: bool,
    /// What its owner wants to be told of it.
    pub watches: Vec<Watch>,
}

/// A client's idempotency key, hashed together with its principal (decision D21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdemKey {
    /// `blake3(principal, key)`.
    pub key: Hash32,
    /// `blake3(request body)`.
    pub request: Hash32,
}

/// The acknowledgement of a durable change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The log's head with the change in it: whoever keeps it can prove a lost tail.
    pub head: Head,
    /// The job, where the change was about one.
    pub job: Option<JobId>,
    /// The reservation, where one was made.
    pub reservation: Option<ReservationId>,
    /// Whether the same request had been answered before.
    pub repeated: bool,
}

/// Why a change was not made. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The scheduler's rules.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// The same key was used for another request.
    #[error("this idempotency key was used for a different request")]
    KeyReused,
    /// The plan that was agreed to is no longer what would be done.
    #[error("something was changed after the plan was made")]
    PlanChanged,
    /// The disk is nearly full: new work is refused so that ends of running jobs still fit.
    #[error("the server's disk is nearly full; new work is refused until space is freed")]
    LowSpace,
    /// The log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log could not be written.
    #[error("the event log could not be written: {0}")]
    NotWritten(String),
    /// The server is on its way down.
    #[error("the server is stopping")]
    Stopping,
}

/// Called once with the answer, after it is durable.
pub type Reply = Box<dyn FnOnce(Result<Ack, Refusal>) + Send>;

/// Looks at the state between two commits.
pub type Look = Box<dyn FnOnce(&State, Timestamp) + Send>;

/// Supposes things on the state between two commits; whatever it leaves behind is undone.
pub type Trial = Box<dyn FnOnce(&mut State, Timestamp, &Policy) + Send>;

/// One request to the writer.
pub struct Call {
    /// Who asks.
    pub who: Principal,
    /// For what.
    pub command: Command,
    /// Under which key.
    pub idem: Option<IdemKey>,
    /// Where the answer goes.
    pub reply: Reply,
}

/// A person as kept in the side table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SubjectRow {
    /// Opaque id, the only name for them in the log.
    pub subject: SubjectId,
    /// Their uid on this machine.
    pub uid: u32,
    /// Their login name.
    pub name: String,
}

/// Where a job's output goes, as kept in the side table until the job is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OutputRow {
    /// The user who owns the files.
    pub uid: u32,
    /// What relative paths start from.
    pub cwd: Vec<u8>,
    /// Pattern of standard output.
    pub stdout: Vec<u8>,
    /// Pattern of standard error; none is merged.
    pub stderr: Option<Vec<u8>>,
}
