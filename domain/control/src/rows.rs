//! The rows of the state's tables. A row is a plain value: everything that is looked up
//! fast is derived from rows by [`crate::state`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use facts::applied::{ClassV1, RetriesSetV1};
use facts::event::{DeviceV1, LimitsV1, PreemptionSetV1, ReceiptV1, StopReason, TeamSetV2};
use facts::notify::{DeliverySetV1, NotificationV1};
use facts::{Dependency, Hash32, IndexSet, JobRequest, Outcome, Resources, TaskExit};
use serde::{Deserialize, Serialize};
use units::{
    AttemptId, Bytes, DeviceIndex, Epoch, JobId, MemberId, Nanos, NodeId, Rank, ReservationId, Seq, TeamId,
    Timestamp,
};

use crate::govern::{Applied, Change, Key};
use crate::reservation::Reservation;

/// An amount of each thing that is scheduled: cores, bytes of memory, whole devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Cores.
    pub cores: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Whole devices.
    pub gpus: u64,
}

impl Amount {
    /// More than anything asks for.
    pub const MAX: Self = Self { cores: u64::MAX, memory: u64::MAX, gpus: u64::MAX };

    /// What one task needs.
    pub fn of(resources: &Resources) -> Self {
        Self {
            cores: u64::from(resources.cores.0),
            memory: resources.memory.0,
            gpus: u64::from(resources.gpus),
        }
    }

    /// What one attempt of `request` needs over all its tasks.
    pub fn of_attempt(request: &JobRequest) -> Self {
        Self::of(&request.per_task).times(u64::from(request.tasks))
    }

    /// A limit on each part, or none.
    pub fn of_limits(limits: &LimitsV1) -> Self {
        Self {
            cores: limits.cores.map_or(u64::MAX, u64::from),
            memory: limits.memory.map_or(u64::MAX, |memory| memory.0),
            gpus: limits.gpus.map_or(u64::MAX, u64::from),
        }
    }

    /// The same as a limit; what is more than a limit can be is none.
    pub fn as_limits(self) -> LimitsV1 {
        let count = |part: u64| u32::try_from(part).ok();
        let memory = (self.memory < u64::MAX).then_some(Bytes(self.memory));
        LimitsV1 { cores: count(self.cores), memory, gpus: count(self.gpus) }
    }

    /// So many times this.
    pub fn times(self, count: u64) -> Self {
        Self {
            cores: self.cores.saturating_mul(count),
            memory: self.memory.saturating_mul(count),
            gpus: self.gpus.saturating_mul(count),
        }
    }

    /// Whether every part is within `room`.
    pub fn fits(self, room: Self) -> bool {
        self.cores <= room.cores && self.memory <= room.memory && self.gpus <= room.gpus
    }

    /// The lesser of each part.
    pub fn min(self, other: Self) -> Self {
        Self {
            cores: self.cores.min(other.cores),
            memory: self.memory.min(other.memory),
            gpus: self.gpus.min(other.gpus),
        }
    }

    /// The greater of each part.
    pub fn max(self, other: Self) -> Self {
        Self {
            cores: self.cores.max(other.cores),
            memory: self.memory.max(other.memory),
            gpus: self.gpus.max(other.gpus),
        }
    }

    /// The sum of each part.
    pub fn plus(self, other: Self) -> Self {
        Self {
            cores: self.cores.saturating_add(other.cores),
            memory: self.memory.saturating_add(other.memory),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    /// What is left of each part, never below zero.
    pub fn less(self, other: Self) -> Self {
        Self {
            cores: self.cores.saturating_sub(other.cores),
            memory: self.memory.saturating_sub(other.memory),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }
}

/// Facts about the log as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The last event applied.
    pub seq: Seq,
    /// Its ledger time.
    pub clock: Timestamp,
    /// The last id a job got.
    pub last_job: JobId,
    /// The last id an attempt got.
    pub last_attempt: AttemptId,
    /// The server's current epoch.
    pub epoch: Epoch,
    /// The kernel's boot id when that started.
    pub boot_id: [u8; 16],
    /// Ledger time minus `CLOCK_BOOTTIME` then, in nanoseconds.
    pub anchor: i64,
    /// From which the nonces of this epoch's attempts are derived.
    pub nonce_seed: Hash32,
    /// When it was last recorded that a pass went no further than the policy allows, and the limit.
    pub cut: Option<(Timestamp, u32)>,
    /// When running jobs are stopped for others.
    pub preemption: PreemptionSetV1,
    /// The last id a reservation got.
    pub last_reservation: ReservationId,
}

/// A job: one record, whether it is one task, a gang or an array.
///
/// Each member is in exactly one place: `pending`, `ending`, the retries, the attempts, or
/// counted as over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What was asked for.
    pub request: Arc<JobRequest>,
    /// When it was accepted, in ledger time.
    pub submitted: Timestamp,
    /// The event that accepted it.
    pub accepted: Seq,
    /// Its priority now.
    pub priority: i32,
    /// Whether it is kept from starting.
    pub held: bool,
    /// Whether it may be stopped for more urgent jobs of its team.
    pub preemptible: bool,
    /// Whether its class lets it stop preemptible jobs of its team.
    pub preempts: bool,
    /// Whether others were stopped for it and no member has started since: then it goes first.
    pub promised: bool,
    /// Dependencies not met yet.
    pub open: Vec<Dependency>,
    /// Whether a dependency can no longer be met.
    pub doomed: bool,
    /// Members never started.
    pub pending: IndexSet,
    /// Members cancelled while they waited; a decision is about to end them.
    pub ending: IndexSet,
    /// Members waiting for another try.
    pub retrying: u32,
    /// Members with an attempt.
    pub running: u32,
    /// Members that succeeded.
    pub succeeded: u32,
    /// Members that ended otherwise.
    pub failed: u32,
    /// The worst outcome of its members so far.
    pub worst: Option<Outcome>,
    /// When the last member was over, in ledger time.
    pub ended: Option<Timestamp>,
}

/// A member between two attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts so far.
    pub attempts: u32,
    /// Those that counted against the retry limit.
    pub counted: u32,
    /// Those that were put back to make room.
    pub preempted: u32,
    /// For whom the last of those was.
    pub receipt: Option<ReceiptV1>,
    /// Earliest start.
    pub not_before: Timestamp,
}

/// An ordered stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why.
    pub reason: StopReason,
    /// When it was ordered, in ledger time.
    pub at: Timestamp,
    /// For whom, where it makes room.
    pub receipt: Option<ReceiptV1>,
}

/// An attempt that is not closed: it may hold resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The member it tries.
    pub member: MemberId,
    /// Whose quota it counts against.
    pub team: TeamId,
    /// Which try this is, from 1.
    pub number: u32,
    /// Earlier tries that counted against the retry limit.
    pub counted: u32,
    /// Earlier tries that were put back to make room.
    pub preempted: u32,
    /// When it was decided, in ledger time.
    pub started: Timestamp,
    /// The deciding event.
    pub decision: Seq,
    /// From which its nonces are derived.
    pub nonce_seed: Hash32,
    /// When its time limit strikes.
    pub deadline: Option<Timestamp>,
    /// When to send which warning signal.
    pub warn: Option<(Timestamp, u8)>,
    /// Between the stop's signal and the kill.
    pub grace: Nanos,
    /// The stop, once ordered.
    pub stop: Option<Stop>,
    /// Whether somebody cancelled its member.
    pub cancelled: bool,
    /// Tasks in the gang.
    pub tasks: u32,
    /// Tasks that ended.
    pub ended: u32,
    /// Tasks whose resources are proven free.
    pub freed: u32,
    /// Tasks known to hold what they should not.
    pub leaked: u32,
    /// Whether a task ended in anything but success.
    pub broken: bool,
    /// What its health check says; none until it first passed, or without one.
    pub healthy: Option<bool>,
}

impl Job {
    /// Whether as many members run as may at once.
    pub fn is_at_array_limit(&self) -> bool {
        let limit = self.request.array.as_ref().and_then(|array| array.max_running);
        limit.is_some_and(|limit| self.running >= limit)
    }

    /// How many members it has in all.
    pub fn members(&self) -> u64 {
        let elsewhere = [self.retrying, self.running, self.succeeded, self.failed];
        self.pending.len() + self.ending.len() + elsewhere.into_iter().map(u64::from).sum::<u64>()
    }
}

impl Attempt {
    /// Whether a task may still be running.
    pub fn is_live(&self) -> bool {
        self.ended < self.tasks
    }

    /// The estimate of when all it holds is free; [`Timestamp::MAX`] is never.
    ///
    /// This is the named estimate of backfill: the time limit, or the kill of an ordered
    /// stop. What has ended is due at once; a leaked hold never is.
    pub fn expected_end(&self) -> Timestamp {
        if self.leaked > 0 {
            Timestamp::MAX
        } else if !self.is_live() {
            self.started
        } else {
            let limit = self.deadline.unwrap_or(Timestamp::MAX);
            self.stop.map_or(limit, |stop| limit.min(stop.at + self.grace))
        }
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Its exit.
    pub exit: TaskExit,
    /// Whether an ordered stop came first.
    pub stopped: bool,
}

/// One task of an attempt that is not closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its node.
    pub node: NodeId,
    /// Its devices there.
    pub devices: Vec<DeviceIndex>,
    /// What it holds until it is freed.
    pub amount: Amount,
    /// Whose quota that counts against.
    pub team: TeamId,
    /// Since when its process runs.
    pub running: Option<Timestamp>,
    /// How it ended.
    pub end: Option<TaskEnd>,
    /// When all it held was proven free.
    pub freed: Option<Timestamp>,
    /// Since when something of it lives that should not.
    pub leaked: Option<Timestamp>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its host name.
    pub name: String,
    /// The kernel's boot id when last declared.
    pub boot_id: [u8; 16],
    /// What jobs may use; `gpus` is the number of `devices`.
    pub capacity: Amount,
    /// Its devices, by index.
    pub devices: Arc<Vec<DeviceV1>>,
    /// Devices that processes hold which were not started here.
    pub outside: BTreeSet<DeviceIndex>,
    /// Whether new work may start here.
    pub schedulable: bool,
    /// Why that was last changed.
    pub reason: String,
}

/// A team and its quota; a part without a limit is at its maximum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    /// Its name.
    pub name: String,
    /// What it is promised to hold at once.
    pub quota: Amount,
    /// What it may hold above that, of what others leave free.
    pub borrow: Amount,
    /// What of its quota others may hold while it does not.
    pub lend: Amount,
    /// It takes no more jobs and is promised nothing. The row keeps its name and its id.
    pub removed: bool,
}

impl Team {
    /// The most it may hold at once, borrowed or not.
    pub fn limit(&self) -> Amount {
        self.quota.plus(self.borrow)
    }

    /// The event that makes it so.
    pub fn as_event(&self, team: TeamId) -> TeamSetV2 {
        TeamSetV2 {
            team,
            name: self.name.clone(),
            quota: self.quota.as_limits(),
            borrow: self.borrow.as_limits(),
            lend: self.lend.as_limits(),
        }
    }
}

/// All rows: what a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tables {
    pub(crate) meta: Meta,
    /// Boxed, as nodes of the tree are half empty.
    pub(crate) jobs: BTreeMap<JobId, Box<Job>>,
    pub(crate) retries: BTreeMap<MemberId, Retry>,
    pub(crate) attempts: BTreeMap<AttemptId, Attempt>,
    pub(crate) tasks: BTreeMap<(AttemptId, Rank), Task>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) teams: BTreeMap<TeamId, Team>,
    pub(crate) changes: BTreeMap<Key, Change>,
    pub(crate) applied: Option<Arc<Applied>>,
    /// Classes of urgency, by name.
    pub(crate) classes: BTreeMap<String, ClassV1>,
    /// What happens to a failed job that does not say it itself; none where nobody set it.
    pub(crate) retry_defaults: Option<Arc<RetriesSetV1>>,
    /// Who is told of jobs, by name.
    pub(crate) notifications: BTreeMap<String, NotificationV1>,
    pub(crate) delivery: Arc<DeliverySetV1>,
    pub(crate) reservations: BTreeMap<ReservationId, Reservation>,
}

/// One row of one table, or its absence: the unit of change and of undo.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    Meta(Meta),
    Job(JobId, Option<Box<Job>>),
    Retry(MemberId, Option<Retry>),
    Attempt(AttemptId, Option<Attempt>),
    Task((AttemptId, Rank), Option<Task>),
    Node(NodeId, Option<Node>),
    Team(TeamId, Option<Team>),
    Change(Key, Option<Change>),
    Applied(Option<Arc<Applied>>),
    Class(String, Option<ClassV1>),
    RetryDefaults(Option<Arc<RetriesSetV1>>),
    Notification(String, Option<NotificationV1>),
    Delivery(Arc<DeliverySetV1>),
    Reservation(ReservationId, Option<Reservation>),
}
