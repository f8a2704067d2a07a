//! Rows for lists and pages, folded from the log. Disposable: a view can be deleted and made
//! again, so nothing may stand only here (decision D2).

use std::collections::BTreeMap;

use cost::{Quarters, Sums, Tally};
use facts::event::{Next, PlacementV1, ReceiptV1, StopReason};
use facts::{Envelope, Event, JobRequest, Outcome, TaskExit};
use serde::{Deserialize, Serialize};
use units::{ArrayIndex, AttemptId, Bytes, Cores, JobId, Seq, SubjectId, TeamId, Timestamp};

use crate::ports::{Head, StoreError};

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits for its turn, a dependency or a back-off.
    Queued,
    /// Waits to be released.
    Held,
    /// At least one attempt is open.
    Running,
    /// Over, every member successful.
    Completed,
    /// Over, some member not.
    Failed,
    /// Over by request.
    Cancelled,
}

impl JobState {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The word users see.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Held => "held",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How many members stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCounts {
    /// Not started, or waiting for a retry.
    pub waiting: u64,
    /// With an open attempt.
    pub running: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended otherwise.
    pub failed: u64,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its id.
    pub id: JobId,
    /// As submitted.
    pub request: JobRequest,
    /// Where it stands.
    pub state: JobState,
    /// Whether it is held now.
    pub held: bool,
    /// Whether it may be stopped for more urgent jobs of its team.
    pub preemptible: bool,
    /// The priority it has now.
    pub priority: i32,
    /// When it was accepted.
    pub submitted: Timestamp,
    /// When its first process ran.
    pub started: Option<Timestamp>,
    /// When its last member was over.
    pub ended: Option<Timestamp>,
    /// Its members.
    pub members: MemberCounts,
    /// Attempts so far.
    pub attempts: u32,
    /// The worst end of a member so far.
    pub outcome: Option<Outcome>,
    /// Who asked for its cancellation.
    pub cancelled_by: Option<SubjectId>,
    /// The last event about it.
    pub seq: Seq,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRow {
    /// Its id.
    pub id: AttemptId,
    /// The job.
    pub job: JobId,
    /// The member.
    pub index: ArrayIndex,
    /// Which try, from 1.
    pub number: u32,
    /// Where its tasks are.
    pub tasks: Vec<PlacementV1>,
    /// When it was decided.
    pub decided: Timestamp,
    /// When its first process ran.
    pub started: Option<Timestamp>,
    /// When its last process ended.
    pub ended: Option<Timestamp>,
    /// When the last of what it held was proven free.
    pub freed: Option<Timestamp>,
    /// Why it was told to stop.
    pub stop: Option<StopReason>,
    /// For whom, where it was to make room.
    pub receipt: Option<ReceiptV1>,
    /// Ends by rank.
    pub exits: BTreeMap<u32, TaskExit>,
    /// Since when, and why, something of it cannot be freed.
    pub leaked: Option<(Timestamp, String)>,
    /// What its health check says, once it passed for the first time.
    pub health: Option<Health>,
    /// CPU time over its tasks in nanoseconds, where measured.
    pub cpu: Option<u64>,
    /// The largest memory high-water mark of a task, where measured.
    pub memory_peak: Option<Bytes>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// What a health check says of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether it passes.
    pub healthy: bool,
    /// Since when.
    pub since: Timestamp,
    /// What was seen then, in words.
    pub reason: String,
}

/// Which jobs a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only these people's.
    pub owners: Vec<SubjectId>,
    /// Only these teams'.
    pub teams: Vec<TeamId>,
    /// Only in these states; empty is all.
    pub states: Vec<JobState>,
    /// Only those submitted, running or ended at or after this time.
    pub since: Option<Timestamp>,
    /// Only those with these labels.
    pub labels: BTreeMap<String, String>,
    /// Only those below this id (paging, newest first).
    pub before: Option<JobId>,
    /// At most so many.
    pub limit: usize,
}

/// Where rows are kept.
pub trait ViewStore: Send {
    /// The log's head that the rows include; a view of another log does not fit its chain.
    fn applied(&self) -> Head;
    /// One job.
    fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;
    /// One attempt.
    fn attempt(&self, id: AttemptId) -> Result<Option<AttemptRow>, StoreError>;
    /// What devices and cores do.
    fn tally(&self) -> Result<Tally, StoreError>;
    /// Puts changed rows, all or none, and from then on includes everything up to `applied`.
    fn write(&mut self, changed: &Changed, applied: Head) -> Result<(), StoreError>;
    /// Throws all rows away.
    fn clear(&mut self) -> Result<(), StoreError>;
    /// Another handle on the same rows, for reading beside the writer.
    fn reader(&self) -> Result<Box<dyn ViewReader>, StoreError>;
}

/// Rows that changed since the last write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Jobs by id.
    pub jobs: BTreeMap<JobId, JobRow>,
    /// Attempts by id.
    pub attempts: BTreeMap<AttemptId, AttemptRow>,
    /// What devices and cores do.
    pub tally: Tally,
    /// What is to be added to what they did.
    pub quarters: Quarters,
}

/// Folds events into rows, reading what is kept and holding what changed until it is written:
/// a job that comes and goes within a batch is written once.
pub struct Projection<'a> {
    store: &'a dyn ViewStore,
    changed: Changed,
}

/// Reads rows.
pub trait ViewReader: Send {
    /// The last event that the rows include.
    fn applied(&self) -> Result<Seq, StoreError>;
    /// One job.
    fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;
    /// A job's attempts, oldest first.
    fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError>;
    /// What devices and cores did since the quarter of an hour in which `since` lies, and do.
    fn usage(&self, since: Timestamp) -> Result<(Sums, Tally), StoreError>;
    /// Jobs, newest first.
    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError>;
}

impl<'a> Projection<'a> {
    /// A projection on top of what is kept.
    pub fn new(store: &'a dyn ViewStore) -> Result<Self, StoreError> {
        Ok(Self { store, changed: Changed { tally: store.tally()?, ..Changed::default() } })
    }

    /// What is to be written.
    pub fn finish(self) -> Changed {
        self.changed
    }

    /// Folds one event in.
    pub fn apply(&mut self, envelope: &Envelope) -> Result<(), StoreError> {
        let mut cores = Cores(0);
        if let Event::Started(body) = &envelope.event {
            self.on_job(envelope, body.job, |row| cores = row.request.per_task.cores)?;
        }
        self.changed.tally.apply(envelope, cores, &mut self.changed.quarters);
        self.rows(envelope)
    }

    fn rows(&mut self, envelope: &Envelope) -> Result<(), StoreError> {
        let now = envelope.ledger_time;
        match &envelope.event {
            Event::Submitted(body) => {
                let members =
                    MemberCounts { waiting: body.request.members().len(), ..MemberCounts::default() };
                let mut row = JobRow {
                    id: body.job,
                    held: body.request.hold,
                    preemptible: false,
                    priority: body.request.priority,
                    request: body.request.clone(),
                    state: JobState::Queued,
                    submitted: now,
                    started: None,
                    ended: None,
                    members,
                    attempts: 0,
                    outcome: None,
                    cancelled_by: None,
                    seq: envelope.seq,
                };
                settle(&mut row, now);
                self.changed.jobs.insert(body.job, row);
                Ok(())
            }
            Event::Held(body) => self.on_job(envelope, body.job, |row| row.held = true),
            Event::Released(body) => self.on_job(envelope, body.job, |row| row.held = false),
            Event::PrioritySet(body) => self.on_job(envelope, body.job, |row| row.priority = body.priority),
            Event::PreemptibleSet(body) => {
                self.on_job(envelope, body.job, |row| row.preemptible = body.preemptible)
            }
            Event::CancelRequested(body) => {
                self.on_job(envelope, body.job, |row| row.cancelled_by = Some(body.by))
            }
            Event::Started(body) => {
                let row = AttemptRow {
                    id: body.attempt,
                    job: body.job,
                    index: body.index,
                    number: body.number,
                    tasks: body.tasks.clone(),
                    decided: now,
                    started: None,
                    ended: None,
                    freed: None,
                    stop: None,
                    receipt: None,
                    exits: BTreeMap::new(),
                    leaked: None,
                    health: None,
                    cpu: None,
                    memory_peak: None,
                    outcome: None,
                };
                self.changed.attempts.insert(body.attempt, row);
                self.on_job(envelope, body.job, |row| {
                    row.attempts += 1;
                    row.members.waiting = row.members.waiting.saturating_sub(1);
                    row.members.running += 1;
                })
            }
            Event::TaskRunning(body) => {
                let Some(job) = self.on_attempt(body.attempt, |row| {
                    row.started.get_or_insert(body.at);
                })?
                else {
                    return Ok(());
                };
                self.on_job(envelope, job, |row| {
                    row.started.get_or_insert(body.at);
                })
            }
            Event::StopOrdered(body) => self
                .on_attempt(body.attempt, |row| {
                    row.stop = Some(body.reason);
                    row.receipt = body.receipt;
                })
                .map(drop),
            Event::TaskEnded(body) => {
                let Some(job) = self.on_attempt(body.attempt, |row| {
                    row.exits.insert(body.rank.0, body.exit.clone());
                    row.started = row.started.or(body.started);
                    row.ended = row.ended.max(Some(body.ended));
                    row.freed = row.freed.max(body.freed);
                    row.cpu = body.cpu.map(|cpu| cpu + row.cpu.unwrap_or(0)).or(row.cpu);
                    row.memory_peak = row.memory_peak.max(body.memory_peak);
                })?
                else {
                    return Ok(());
                };
                self.on_job(envelope, job, |row| row.started = row.started.or(body.started))
            }
            Event::TaskFreed(body) => self
                .on_attempt(body.attempt, |row| {
                    row.freed = row.freed.max(Some(body.at));
                    row.leaked = None;
                })
                .map(drop),
            Event::HoldLeaked(body) => self
                .on_attempt(body.attempt, |row| row.leaked = Some((body.since, body.reason.clone())))
                .map(drop),
            Event::HealthChanged(body) => {
                let health = Health { healthy: body.healthy, since: body.at, reason: body.reason.clone() };
                let Some(job) = self.on_attempt(body.attempt, |row| row.health = Some(health))? else {
                    return Ok(());
                };
                self.on_job(envelope, job, |_| {})
            }
            Event::AttemptClosed(body) => {
                let Some(job) =
                    self.on_attempt(body.attempt, |row| row.outcome = Some(body.outcome.clone()))?
                else {
                    return Ok(());
                };
                self.on_job(envelope, job, |row| {
                    row.members.running = row.members.running.saturating_sub(1);
                    match body.next {
                        Next::Retry { .. } | Next::Afresh { .. } => row.members.waiting += 1,
                        Next::Finish => finish(row, 1, &body.outcome),
                    }
                })
            }
            Event::MembersEnded(body) => self.on_job(envelope, body.job, |row| {
                let count = body.members.len();
                row.members.waiting = row.members.waiting.saturating_sub(count);
                finish(row, count, &body.outcome);
            }),
            Event::ServerStarted(_)
            | Event::ClockStepped(_)
            | Event::NodeDeclared(_)
            | Event::NodeSchedulable(_)
            | Event::TeamSet(_)
            | Event::SegmentSealed(_)
            | Event::PassCut(_)
            | Event::TeamRemoved(_)
            | Event::Applied(_)
            | Event::PriorityClassSet(_)
            | Event::PreemptsSet(_)
            | Event::RetriesSet(_)
            | Event::NotificationSet(_)
            | Event::DeliverySet(_)
            | Event::OutsideHeld(_)
            | Event::PreemptionSet(_)
            | Event::ReservationSet(_)
            | Event::ReservationCancelled(_) => Ok(()),
        }
    }

    /// Changes one job's row and settles its state.
    fn on_job(
        &mut self,
        envelope: &Envelope,
        id: JobId,
        change: impl FnOnce(&mut JobRow),
    ) -> Result<(), StoreError> {
        let known = self.changed.jobs.remove(&id);
        let Some(mut row) = known.map_or_else(|| self.store.job(id), |row| Ok(Some(row)))? else {
            return Ok(());
        };
        change(&mut row);
        row.seq = envelope.seq;
        settle(&mut row, envelope.ledger_time);
        self.changed.jobs.insert(id, row);
        Ok(())
    }

    /// Changes one attempt's row and tells its job.
    fn on_attempt(
        &mut self,
        id: AttemptId,
        change: impl FnOnce(&mut AttemptRow),
    ) -> Result<Option<JobId>, StoreError> {
        let known = self.changed.attempts.remove(&id);
        let Some(mut row) = known.map_or_else(|| self.store.attempt(id), |row| Ok(Some(row)))? else {
            return Ok(None);
        };
        change(&mut row);
        let job = row.job;
        self.changed.attempts.insert(id, row);
        Ok(Some(job))
    }
}

/// Counts `count` members as over.
fn finish(row: &mut JobRow, count: u64, outcome: &Outcome) {
    if *outcome == Outcome::Success {
        row.members.succeeded += count;
    } else {
        row.members.failed += count;
    }
    let worse = row.outcome.as_ref().is_none_or(|known| rank(outcome) > rank(known));
    if worse {
        row.outcome = Some(outcome.clone());
    }
}

/// Orders ends so that the one a job is known by is the worst: success, then any end by code
/// (the higher code), then the others by the code they return.
fn rank(outcome: &Outcome) -> u8 {
    outcome.exit_code()
}

/// Works out the state from the rest of the row.
fn settle(row: &mut JobRow, now: Timestamp) {
    let members = row.members;
    row.state = if members.running > 0 {
        JobState::Running
    } else if members.waiting > 0 {
        if row.held { JobState::Held } else { JobState::Queued }
    } else if row.outcome == Some(Outcome::Cancelled) {
        JobState::Cancelled
    } else if members.failed > 0 {
        JobState::Failed
    } else {
        JobState::Completed
    };
    if row.state.is_over() {
        row.ended.get_or_insert(now);
    }
}
