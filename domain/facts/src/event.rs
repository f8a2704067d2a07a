//! What happened: facts from outside and decisions of our own, in one append-only list.
//!
//! To change a body, add a `…V2` struct, a new version in [`crate::codec`] and a pure
//! conversion from the old one; never edit a struct whose bytes are in somebody's log.

use serde::{Deserialize, Serialize};
use units::{
    ArrayIndex, AttemptId, Bytes, Cores, DeviceIndex, Epoch, JobId, NodeId, Rank, SubjectId, TeamId,
    Timestamp,
};

use crate::envelope::Hash32;
use crate::index_set::IndexSet;
use crate::job::JobRequest;
use crate::outcome::{Outcome, TaskExit};

/// Anything that can stand in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server opened the log.
    ServerStarted(ServerStartedV1),
    /// The wall clock moved against the machine's own.
    ClockStepped(ClockSteppedV1),
    /// A node and its capacity, new or changed.
    NodeDeclared(NodeDeclaredV1),
    /// A node may or may not get new work.
    NodeSchedulable(NodeSchedulableV1),
    /// A team and its quota, new or changed.
    TeamSet(TeamSetV1),
    /// A job was accepted.
    Submitted(SubmittedV1),
    /// A job will not start until released.
    Held(HeldV1),
    /// A held job may start.
    Released(ReleasedV1),
    /// A job's priority changed.
    PrioritySet(PrioritySetV1),
    /// Somebody wants a job, or members of it, to end.
    CancelRequested(CancelRequestedV1),
    /// Decision: an attempt starts on these nodes and devices.
    Started(StartedV1),
    /// A task's process runs.
    TaskRunning(TaskRunningV1),
    /// Decision: an attempt is to be stopped.
    StopOrdered(StopOrderedV1),
    /// A task's process ended.
    TaskEnded(TaskEndedV1),
    /// Everything a task held is proven free.
    TaskFreed(TaskFreedV1),
    /// A task ended or was killed, and what it holds cannot be freed.
    HoldLeaked(HoldLeakedV1),
    /// Decision: an attempt is over, and what follows.
    AttemptClosed(AttemptClosedV1),
    /// Decision: members that never started, or will not again, are over.
    MembersEnded(MembersEndedV1),
    /// A sealed segment became part of history (decision D3).
    SegmentSealed(SegmentSealedV1),
    /// A service's health, first known or changed.
    HealthChanged(HealthChangedV1),
    /// Decision: a pass over the queue went no further than the policy allows; recorded at most
    /// once an hour.
    PassCut(PassCutV1),
}

/// See [`Event::ServerStarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStartedV1 {
    /// Which start this is.
    pub epoch: Epoch,
    /// The kernel's boot id.
    pub boot_id: [u8; 16],
    /// Ledger time minus `CLOCK_BOOTTIME` at this start, in nanoseconds.
    pub anchor: i64,
    /// The program's version.
    pub version: String,
    /// From which the nonces of this epoch's attempts are derived.
    pub nonce_seed: Hash32,
}

/// See [`Event::ClockStepped`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSteppedV1 {
    /// Wall time minus ledger time before, in nanoseconds.
    pub offset_before: i64,
    /// Wall time minus ledger time after, in nanoseconds.
    pub offset_after: i64,
}

/// See [`Event::NodeDeclared`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDeclaredV1 {
    /// The node.
    pub node: NodeId,
    /// Its host name.
    pub name: String,
    /// The kernel's boot id when this was seen.
    pub boot_id: [u8; 16],
    /// Cores that jobs may use.
    pub cores: Cores,
    /// Memory that jobs may use.
    pub memory: Bytes,
    /// Its devices; a device's index is its place here.
    pub devices: Vec<DeviceV1>,
}

/// One device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceV1 {
    /// Identity: GPU UUID, else serial, else machine id and PCI address (decision D11).
    pub key: String,
    /// Canonical model name.
    pub model: String,
    /// Device memory.
    pub memory: Bytes,
    /// Made up for a rehearsal: whatever it shows is tainted.
    pub simulated: bool,
}

/// See [`Event::NodeSchedulable`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSchedulableV1 {
    /// The node.
    pub node: NodeId,
    /// Whether new work may start on it.
    pub schedulable: bool,
    /// Why, in the words of who did it.
    pub reason: String,
}

/// See [`Event::TeamSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamSetV1 {
    /// The team.
    pub team: TeamId,
    /// Its name.
    pub name: String,
    /// The most cores it may hold at once.
    pub max_cores: Option<u32>,
    /// The most memory it may hold at once.
    pub max_memory: Option<Bytes>,
    /// The most devices it may hold at once.
    pub max_gpus: Option<u32>,
}

/// See [`Event::Submitted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedV1 {
    /// The id it got.
    pub job: JobId,
    /// What was asked for.
    pub request: JobRequest,
}

/// See [`Event::Held`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldV1 {
    /// The job.
    pub job: JobId,
}

/// See [`Event::Released`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedV1 {
    /// The job.
    pub job: JobId,
}

/// See [`Event::PrioritySet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrioritySetV1 {
    /// The job.
    pub job: JobId,
    /// The new priority.
    pub priority: i32,
}

/// See [`Event::CancelRequested`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequestedV1 {
    /// The job.
    pub job: JobId,
    /// Which members; none is all.
    pub members: Option<IndexSet>,
    /// Who asked.
    pub by: SubjectId,
}

/// See [`Event::Started`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedV1 {
    /// The attempt, new.
    pub attempt: AttemptId,
    /// The job.
    pub job: JobId,
    /// The member of it.
    pub index: ArrayIndex,
    /// Which try of this member, from 1.
    pub number: u32,
    /// Where each task goes; a task's rank is its place here.
    pub tasks: Vec<PlacementV1>,
}

/// Where one task goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementV1 {
    /// The node.
    pub node: NodeId,
    /// The devices, whole.
    pub devices: Vec<DeviceIndex>,
}

/// See [`Event::TaskRunning`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRunningV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// The task.
    pub rank: Rank,
    /// When its process started.
    pub at: Timestamp,
}

/// Why an attempt is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// Somebody asked.
    Cancel,
    /// It ran as long as it may.
    TimeLimit,
    /// Nobody used it for as long as that is allowed.
    IdleLimit,
    /// Another task of its gang ended badly.
    GangMate,
    /// To make room.
    Preempt,
    /// Its health check failed.
    Unhealthy,
}

/// See [`Event::StopOrdered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrderedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// Why.
    pub reason: StopReason,
}

/// See [`Event::TaskEnded`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEndedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// The task.
    pub rank: Rank,
    /// How.
    pub exit: TaskExit,
    /// When its process started; none if it never did or nobody knows.
    pub started: Option<Timestamp>,
    /// When it ended; the last sign of life where the end was not seen.
    pub ended: Timestamp,
    /// When everything it held was proven free, where that came with the end.
    pub freed: Option<Timestamp>,
    /// CPU time used, in nanoseconds, where it was measured.
    pub cpu: Option<u64>,
    /// The most memory used, where it was measured.
    pub memory_peak: Option<Bytes>,
}

/// See [`Event::TaskFreed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFreedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// The task.
    pub rank: Rank,
    /// When it was proven.
    pub at: Timestamp,
}

/// See [`Event::HoldLeaked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLeakedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// The task.
    pub rank: Rank,
    /// Since when it should have been free.
    pub since: Timestamp,
    /// What still lives, in words.
    pub reason: String,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// The member is over.
    Finish,
    /// The member is tried again, not before this time.
    Retry {
        /// Earliest start.
        not_before: Timestamp,
        /// Whether it counts against the retry limit.
        counted: bool,
    },
    /// The member is tried again, not before this time. It ran for so long that its earlier
    /// tries no longer lengthen the wait.
    Afresh {
        /// Earliest start.
        not_before: Timestamp,
    },
}

/// See [`Event::AttemptClosed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptClosedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// How it ended.
    pub outcome: Outcome,
    /// What follows.
    pub next: Next,
}

/// See [`Event::MembersEnded`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersEndedV1 {
    /// The job.
    pub job: JobId,
    /// Which members.
    pub members: IndexSet,
    /// How.
    pub outcome: Outcome,
}

/// See [`Event::SegmentSealed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentSealedV1 {
    /// What it holds, for example `step-log`.
    pub kind: String,
    /// The hash of its content.
    pub hash: Hash32,
    /// Rows in it.
    pub rows: u64,
    /// The first instant it speaks of.
    pub from: Timestamp,
    /// The instant after the last it speaks of.
    pub until: Timestamp,
    /// Who produced it.
    pub source: String,
    /// The version of what parsed it.
    pub parser_version: u32,
}

/// See [`Event::HealthChanged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthChangedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whether it answers as its health check wants.
    pub healthy: bool,
    /// When this was seen.
    pub at: Timestamp,
    /// What the last check saw, in words.
    pub reason: String,
}

/// See [`Event::PassCut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassCutV1 {
    /// The jobs that a pass may look at one by one.
    pub limit: u32,
}
