//! What happened: facts from outside and decisions of our own, in one append-only list.
//!
//! To change a body, add a `…V2` struct, a new version in [`crate::codec`] and a pure
//! conversion from the old one; never edit a struct whose bytes are in somebody's log.

use serde::{Deserialize, Serialize};
use units::{
    ArrayIndex, AttemptId, Bytes, Cores, DeviceIndex, Epoch, JobId, Nanos, NodeId, Rank, SubjectId, TeamId,
    Timestamp,
};

use crate::applied::{AppliedV1, PreemptsSetV1, PriorityClassSetV2, RetriesSetV1, TeamRemovedV1};
use crate::envelope::Hash32;
use crate::index_set::IndexSet;
use crate::job::{JobRequest, JobRequestV1};
use crate::notify::{DeliverySetV1, NotificationSetV1};
use crate::outcome::{Outcome, TaskExit};
use crate::reservation::{ReservationCancelledV1, ReservationSetV1};

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
    TeamSet(TeamSetV2),
    /// A job was accepted.
    Submitted(SubmittedV2),
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
    StopOrdered(StopOrderedV2),
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
    /// When running jobs are stopped for others, new or changed.
    PreemptionSet(PreemptionSetV1),
    /// Whether a job may be stopped for more urgent ones of its team.
    PreemptibleSet(PreemptibleSetV1),
    /// A team takes no more jobs and is promised nothing; it keeps its id.
    TeamRemoved(TeamRemovedV1),
    /// A specification was applied.
    Applied(AppliedV1),
    /// A class of urgency, new, changed or gone.
    PriorityClassSet(PriorityClassSetV2),
    /// Whether a job may stop preemptible ones of its team, whatever its priority.
    PreemptsSet(PreemptsSetV1),
    /// What happens to a failed job that does not say it itself.
    RetriesSet(RetriesSetV1),
    /// Somebody who is told of jobs, new, changed or gone.
    NotificationSet(NotificationSetV1),
    /// How what is told goes out.
    DeliverySet(DeliverySetV1),
    /// Other devices than before are held by processes that were not started here.
    OutsideHeld(OutsideHeldV1),
    /// Capacity is kept for somebody, for some time.
    ReservationSet(ReservationSetV1),
    /// A reservation is no more, before its end.
    ReservationCancelled(ReservationCancelledV1),
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

/// An amount of each thing that teams share; a part without a number is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsV1 {
    /// Cores.
    pub cores: Option<u32>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// Whole devices.
    pub gpus: Option<u32>,
}

impl LimitsV1 {
    /// No limit on anything.
    pub const UNLIMITED: Self = Self { cores: None, memory: None, gpus: None };
    /// Nothing of anything.
    pub const NOTHING: Self = Self { cores: Some(0), memory: Some(Bytes(0)), gpus: Some(0) };
}

/// See [`Event::TeamSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamSetV2 {
    /// The team.
    pub team: TeamId,
    /// Its name.
    pub name: String,
    /// What it is promised to hold at once.
    pub quota: LimitsV1,
    /// What it may hold above that, of what others leave free.
    pub borrow: LimitsV1,
    /// What of its quota others may hold while it does not.
    pub lend: LimitsV1,
}

impl From<TeamSetV1> for TeamSetV2 {
    /// The only quota there was could not be exceeded, and kept nothing from others.
    fn from(old: TeamSetV1) -> Self {
        let quota = LimitsV1 { cores: old.max_cores, memory: old.max_memory, gpus: old.max_gpus };
        let (borrow, lend) = (LimitsV1::NOTHING, LimitsV1::UNLIMITED);
        Self { team: old.team, name: old.name, quota, borrow, lend }
    }
}

/// See [`Event::TeamSet`]: only read any more.
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
pub struct SubmittedV2 {
    /// The id it got.
    pub job: JobId,
    /// What was asked for.
    pub request: JobRequest,
}

impl From<SubmittedV1> for SubmittedV2 {
    fn from(old: SubmittedV1) -> Self {
        Self { job: old.job, request: old.request.into() }
    }
}

/// See [`Event::Submitted`]: only read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedV1 {
    /// The id it got.
    pub job: JobId,
    /// What was asked for.
    pub request: JobRequestV1,
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
pub struct StopOrderedV2 {
    /// The attempt.
    pub attempt: AttemptId,
    /// Why.
    pub reason: StopReason,
    /// For whom, where it makes room.
    pub receipt: Option<ReceiptV1>,
}

impl From<StopOrderedV1> for StopOrderedV2 {
    fn from(old: StopOrderedV1) -> Self {
        Self { attempt: old.attempt, reason: old.reason, receipt: None }
    }
}

/// See [`Event::StopOrdered`]: only read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrderedV1 {
    /// The attempt.
    pub attempt: AttemptId,
    /// Why.
    pub reason: StopReason,
}

/// For whom an attempt is stopped, and by which right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptV1 {
    /// The job that gets the room.
    pub job: JobId,
    /// Whose quota that is within.
    pub team: TeamId,
    /// By which right.
    pub right: RightV1,
}

/// The right by which one job's attempt is stopped for another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightV1 {
    /// The attempt's team held more than its quota of something.
    Reclaim {
        /// Of what.
        part: PartV1,
        /// Its quota: cores, bytes or devices.
        quota: u64,
        /// What it held, but for what was stopping already.
        held: u64,
    },
    /// The job is more urgent than that of the attempt, of the same team.
    Priority {
        /// The priority of the job.
        above: i32,
        /// That of the attempt's job.
        below: i32,
    },
}

/// A thing that teams share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartV1 {
    /// Cores.
    Cores,
    /// Memory.
    Memory,
    /// Whole devices.
    Gpus,
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

/// See [`Event::OutsideHeld`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideHeldV1 {
    /// The node.
    pub node: NodeId,
    /// All devices that are so held now, in their order.
    pub devices: Vec<DeviceIndex>,
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

/// See [`Event::PreemptionSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptionSetV1 {
    /// Whether a team gets back what others borrowed, and from whom first.
    pub reclaim: Reclaim,
    /// Time in which a started attempt is left alone.
    pub protect: Nanos,
    /// Jobs of at least this priority stop preemptible ones of their team; none if no job does.
    pub preempts_from: Option<i32>,
    /// A member that was put back so often is left alone.
    pub most: u32,
}

impl Default for PreemptionSetV1 {
    /// What is lent is given back at once; nothing is stopped for its priority.
    fn default() -> Self {
        Self { reclaim: Reclaim::BorrowedFirst, protect: Nanos::ZERO, preempts_from: None, most: 10 }
    }
}

/// Whose attempts are stopped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reclaim {
    /// Nobody's: what was lent stays until its job ends.
    Never,
    /// Those of teams that hold more than their quota.
    BorrowedFirst,
    /// Those of the least urgent jobs.
    LowestPriority,
}

/// See [`Event::PreemptibleSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptibleSetV1 {
    /// The job.
    pub job: JobId,
    /// Whether it may be stopped for more urgent jobs of its team.
    pub preemptible: bool,
}
