//! The fold: what each event makes of the state. It never chooses, so that a log means the
//! same under every later version.

use std::sync::Arc;

use facts::applied::AppliedV1;
use facts::event::{
    AttemptClosedV1, CancelRequestedV1, HealthChangedV1, HoldLeakedV1, MembersEndedV1, Next, NodeDeclaredV1,
    NodeSchedulableV1, OutsideHeldV1, ServerStartedV1, StartedV1, StopOrderedV2, SubmittedV2, TaskEndedV1,
    TaskFreedV1, TaskRunningV1, TeamSetV2,
};
use facts::{Condition, Dependency, Envelope, Event, IndexSet, Outcome, TaskExit};
use units::{
    ArrayIndex, AttemptId, DeviceIndex, JobId, MemberId, Nanos, NodeId, Rank, ReservationId, Seq, TeamId,
    Timestamp,
};

use crate::govern::{Applied, Change, Key};
use crate::outcome::worse;
use crate::rows::{Amount, Attempt, Job, Meta, Node, Retry, Row, Stop, Task, TaskEnd, Team};
use crate::state::State;

/// How long a job that is over stays in the state.
const KEPT: Nanos = Nanos::from_secs(86_400);

/// Jobs that leave the state with one event at most, so that no event is slow.
const LEAVE_AT_ONCE: usize = 16;

/// An event that cannot follow what was applied. The state is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} does not fit: {misfit}")]
pub struct ApplyError {
    /// The event.
    pub seq: Seq,
    /// Why not.
    pub misfit: Misfit,
}

/// Why an event cannot follow what was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Not the next event.
    #[error("event {0} comes next")]
    OutOfOrder(Seq),
    /// No such job, or it left the state.
    #[error("there is no job {0}")]
    UnknownJob(JobId),
    /// All its members are over.
    #[error("job {0} has ended")]
    JobEnded(JobId),
    /// A job's id was used before.
    #[error("there is or was a job {0}")]
    JobIdUsed(JobId),
    /// An attempt's id was used before.
    #[error("there is or was an attempt {0}")]
    AttemptIdUsed(AttemptId),
    /// No such attempt, or it is closed.
    #[error("there is no open attempt {0}")]
    UnknownAttempt(AttemptId),
    /// The attempt has no such task.
    #[error("attempt {0} has no task {1}")]
    UnknownTask(AttemptId, Rank),
    /// No such node.
    #[error("there is no node {0}")]
    UnknownNode(NodeId),
    /// No such team.
    #[error("there is no team {0}")]
    UnknownTeam(TeamId),
    /// The node has no such device.
    #[error("node {0} has no device {1}")]
    UnknownDevice(NodeId, DeviceIndex),
    /// Another task holds the device and is not proven to have let go of it.
    #[error("device {1} of node {0} is held")]
    DeviceHeld(NodeId, DeviceIndex),
    /// The member has an attempt already, or is over, or never was.
    #[error("member {} of job {} does not wait to be started", .0.index, .0.job)]
    NotWaiting(MemberId),
    /// The job asked for another number of tasks or devices.
    #[error("attempt {0} is not of the shape that its job asked for")]
    OtherShape(AttemptId),
    /// The attempt was told to stop, or ended, before.
    #[error("attempt {0} is stopping or over")]
    NothingToStop(AttemptId),
    /// The task ended before.
    #[error("task {1} of attempt {0} has ended")]
    TaskEnded(AttemptId, Rank),
    /// The task has not ended.
    #[error("task {1} of attempt {0} has not ended")]
    TaskNotEnded(AttemptId, Rank),
    /// The task let go of everything before.
    #[error("task {1} of attempt {0} holds nothing")]
    TaskFreed(AttemptId, Rank),
    /// Not all the attempt held is proven free.
    #[error("attempt {0} is not proven free")]
    NotFree(AttemptId),
    /// A reservation's id was used before.
    #[error("there is or was a reservation {0}")]
    ReservationIdUsed(ReservationId),
    /// No such reservation, or it is over.
    #[error("there is no reservation {0}")]
    UnknownReservation(ReservationId),
}

impl State {
    /// Applies the next event of the log: facts and decisions alike.
    pub fn apply(&mut self, envelope: &Envelope) -> Result<(), ApplyError> {
        let mark = self.mark();
        self.fold(envelope).map_err(|misfit| {
            self.rollback(mark);
            ApplyError { seq: envelope.seq, misfit }
        })
    }

    fn fold(&mut self, envelope: &Envelope) -> Result<(), Misfit> {
        let mut meta = self.meta();
        if envelope.seq != meta.seq.next() {
            return Err(Misfit::OutOfOrder(meta.seq.next()));
        }
        meta.seq = envelope.seq;
        meta.clock = meta.clock.max(envelope.ledger_time);
        let at = meta.clock;
        self.put(Row::Meta(meta));
        let change = Change { seq: envelope.seq, at, by: envelope.actor };
        if let Some(key) = Key::of_event(self, &envelope.event) {
            self.put(Row::Change(key, Some(change)));
        }
        match &envelope.event {
            Event::ServerStarted(e) => {
                let ServerStartedV1 { epoch, boot_id, anchor, nonce_seed, .. } = *e;
                self.put(Row::Meta(Meta { epoch, boot_id, anchor, nonce_seed, ..meta }));
            }
            Event::ClockStepped(_) | Event::SegmentSealed(_) => {}
            Event::NodeDeclared(e) => self.node_declared(e),
            Event::NodeSchedulable(e) => self.node_schedulable(e)?,
            Event::TeamSet(e) => self.team_set(e),
            Event::Submitted(e) => self.submitted(e, at)?,
            Event::Held(e) => self.change_job(e.job, |job| job.held = true)?,
            Event::Released(e) => self.change_job(e.job, |job| job.held = false)?,
            Event::PrioritySet(e) => self.change_job(e.job, |job| job.priority = e.priority)?,
            Event::CancelRequested(e) => self.cancel_requested(e)?,
            Event::Started(e) => self.started(e, at)?,
            Event::TaskRunning(e) => self.task_running(e)?,
            Event::StopOrdered(e) => self.stop_ordered(e, at)?,
            Event::TaskEnded(e) => self.task_ended(e)?,
            Event::TaskFreed(e) => self.task_freed(e)?,
            Event::HoldLeaked(e) => self.hold_leaked(e)?,
            Event::AttemptClosed(e) => self.attempt_closed(e, at)?,
            Event::MembersEnded(e) => self.members_ended(e, at)?,
            Event::HealthChanged(e) => self.health_changed(e)?,
            Event::PreemptionSet(e) => self.put(Row::Meta(Meta { preemption: *e, ..meta })),
            Event::PreemptibleSet(e) => self.change_job(e.job, |job| job.preemptible = e.preemptible)?,
            Event::PriorityClassSet(e) => self.put(Row::Class(e.name.clone(), e.class)),
            Event::PreemptsSet(e) => self.change_job(e.job, |job| job.preempts = e.preempts)?,
            Event::NotificationSet(e) => self.put(Row::Notification(e.name.clone(), e.notification.clone())),
            Event::DeliverySet(e) => self.put(Row::Delivery(Arc::new(e.clone()))),
            Event::RetriesSet(e) => self.put(Row::RetryDefaults(Some(Arc::new(e.clone())))),
            Event::OutsideHeld(e) => self.outside_held(e)?,
            Event::TeamRemoved(e) => self.team_removed(e.team)?,
            Event::Applied(e) => {
                let AppliedV1 { cluster, resources } = e.clone();
                self.put(Row::Applied(Some(Arc::new(Applied { cluster, resources, change }))));
            }
            Event::ReservationSet(e) => self.reservation_set(e)?,
            Event::ReservationCancelled(e) => self.reservation_cancelled(*e)?,
            Event::PassCut(e) => self.put(Row::Meta(Meta { cut: Some((at, e.limit)), ..meta })),
        }
        self.forget_old_jobs(at);
        self.forget_reservations(at);
        Ok(())
    }

    fn open_job(&self, id: JobId) -> Result<&Job, Misfit> {
        let job = self.job(id).ok_or(Misfit::UnknownJob(id))?;
        if job.ended.is_some() { Err(Misfit::JobEnded(id)) } else { Ok(job) }
    }

    fn open_attempt(&self, id: AttemptId) -> Result<&Attempt, Misfit> {
        self.attempt(id).ok_or(Misfit::UnknownAttempt(id))
    }

    /// An attempt and one of its tasks, as copies to change and put back.
    fn open_task(&self, id: AttemptId, rank: Rank) -> Result<(Attempt, Task), Misfit> {
        let attempt = self.open_attempt(id)?;
        let task = self.task(id, rank).ok_or(Misfit::UnknownTask(id, rank))?;
        Ok((attempt.clone(), task.clone()))
    }

    fn put_task(&mut self, id: AttemptId, rank: Rank, attempt: Attempt, task: Task) {
        self.put(Row::Task((id, rank), Some(task)));
        self.put(Row::Attempt(id, Some(attempt)));
    }

    fn change_job(&mut self, id: JobId, change: impl FnOnce(&mut Job)) -> Result<(), Misfit> {
        let mut job = self.open_job(id)?.clone();
        change(&mut job);
        self.put(Row::Job(id, Some(Box::new(job))));
        Ok(())
    }

    fn node_declared(&mut self, e: &NodeDeclaredV1) {
        let known = self.node(e.node);
        let node = Node {
            name: e.name.clone(),
            boot_id: e.boot_id,
            capacity: Amount {
                cores: u64::from(e.cores.0),
                memory: e.memory.0,
                gpus: e.devices.len() as u64,
            },
            devices: Arc::new(e.devices.clone()),
            outside: known.map(|node| node.outside.clone()).unwrap_or_default(),
            schedulable: known.is_none_or(|node| node.schedulable),
            reason: known.map(|node| node.reason.clone()).unwrap_or_default(),
        };
        self.put(Row::Node(e.node, Some(node)));
    }

    fn node_schedulable(&mut self, e: &NodeSchedulableV1) -> Result<(), Misfit> {
        let node = self.node(e.node).ok_or(Misfit::UnknownNode(e.node))?;
        let node = Node { schedulable: e.schedulable, reason: e.reason.clone(), ..node.clone() };
        self.put(Row::Node(e.node, Some(node)));
        Ok(())
    }

    fn outside_held(&mut self, e: &OutsideHeldV1) -> Result<(), Misfit> {
        let node = self.node(e.node).ok_or(Misfit::UnknownNode(e.node))?;
        let node = Node { outside: e.devices.iter().copied().collect(), ..node.clone() };
        self.put(Row::Node(e.node, Some(node)));
        Ok(())
    }

    fn team_set(&mut self, e: &TeamSetV2) {
        let [quota, borrow, lend] = [&e.quota, &e.borrow, &e.lend].map(Amount::of_limits);
        let team = Team { name: e.name.clone(), quota, borrow, lend, removed: false };
        self.put(Row::Team(e.team, Some(team)));
    }

    /// The row stays: what the team's jobs were is still told by its name.
    fn team_removed(&mut self, id: TeamId) -> Result<(), Misfit> {
        let team = self.team(id).ok_or(Misfit::UnknownTeam(id))?;
        let none = Amount::default();
        let removed = Team { name: team.name.clone(), quota: none, borrow: none, lend: none, removed: true };
        self.put(Row::Team(id, Some(removed)));
        Ok(())
    }

    fn submitted(&mut self, e: &SubmittedV2, at: Timestamp) -> Result<(), Misfit> {
        let meta = self.meta();
        if e.job <= meta.last_job {
            return Err(Misfit::JobIdUsed(e.job));
        }
        self.team(e.request.team).ok_or(Misfit::UnknownTeam(e.request.team))?;
        let mut job = Job {
            submitted: at,
            accepted: meta.seq,
            priority: e.request.priority,
            held: e.request.hold,
            preemptible: false,
            preempts: false,
            promised: false,
            open: e.request.after.clone(),
            doomed: false,
            pending: e.request.members(),
            ending: IndexSet::default(),
            retrying: 0,
            running: 0,
            succeeded: 0,
            failed: 0,
            worst: None,
            ended: None,
            request: Arc::new(e.request.clone()),
        };
        for dependency in &e.request.after {
            let other = self.job(dependency.job).ok_or(Misfit::UnknownJob(dependency.job))?;
            settle(&mut job, dependency.job, other);
        }
        self.put(Row::Meta(Meta { last_job: e.job, ..meta }));
        self.put(Row::Job(e.job, Some(Box::new(job))));
        Ok(())
    }

    fn cancel_requested(&mut self, e: &CancelRequestedV1) -> Result<(), Misfit> {
        let mut job = self.open_job(e.job)?.clone();
        let asked = e.members.as_ref();
        let concerns = |index: ArrayIndex| asked.is_none_or(|asked| asked.contains(index));
        let taken = asked.map_or_else(|| job.pending.clone(), |asked| job.pending.intersection(asked));
        job.pending = job.pending.difference(&taken);
        job.ending = job.ending.union(&taken);
        let retries: Vec<_> = self
            .retries_of(e.job)
            .map(|(member, _)| member)
            .filter(|member| concerns(member.index))
            .collect();
        let attempts: Vec<_> = self
            .attempts_of(e.job)
            .filter(|(_, attempt)| concerns(attempt.member.index))
            .map(|(id, attempt)| (id, Attempt { cancelled: true, ..attempt.clone() }))
            .collect();
        for member in retries {
            job.retrying -= 1;
            job.ending.insert(member.index);
            self.put(Row::Retry(member, None));
        }
        for (id, attempt) in attempts {
            self.put(Row::Attempt(id, Some(attempt)));
        }
        self.put(Row::Job(e.job, Some(Box::new(job))));
        Ok(())
    }

    fn started(&mut self, e: &StartedV1, at: Timestamp) -> Result<(), Misfit> {
        let meta = self.meta();
        if e.attempt <= meta.last_attempt {
            return Err(Misfit::AttemptIdUsed(e.attempt));
        }
        let mut job = self.open_job(e.job)?.clone();
        let request = Arc::clone(&job.request);
        let member = MemberId { job: e.job, index: e.index };
        let retry = self.retry(member).copied();
        if retry.is_some() {
            job.retrying -= 1;
            self.put(Row::Retry(member, None));
        } else if !job.pending.remove(e.index) {
            return Err(Misfit::NotWaiting(member));
        }
        let tasks = u32::try_from(e.tasks.len()).map_err(|_| Misfit::OtherShape(e.attempt))?;
        if tasks != request.tasks {
            return Err(Misfit::OtherShape(e.attempt));
        }
        job.running += 1;
        job.promised = false;
        let deadline = request.time_limit.map(|limit| at + limit);
        let attempt = Attempt {
            member,
            team: request.team,
            number: e.number,
            counted: retry.map_or(0, |retry| retry.counted),
            preempted: retry.map_or(0, |retry| retry.preempted),
            started: at,
            decision: meta.seq,
            nonce_seed: meta.nonce_seed,
            deadline,
            warn: deadline.zip(request.stop.warn).map(|(at, (signal, before))| (at - before, signal)),
            grace: request.stop.grace,
            stop: None,
            cancelled: false,
            tasks,
            ended: 0,
            freed: 0,
            leaked: 0,
            broken: false,
            healthy: None,
        };
        self.put(Row::Meta(Meta { last_attempt: e.attempt, ..meta }));
        self.put(Row::Job(e.job, Some(Box::new(job))));
        self.put(Row::Attempt(e.attempt, Some(attempt)));
        for (rank, placement) in (0..).map(Rank).zip(&e.tasks) {
            if placement.devices.len() != usize::from(request.per_task.gpus) {
                return Err(Misfit::OtherShape(e.attempt));
            }
            let node = self.node(placement.node).ok_or(Misfit::UnknownNode(placement.node))?;
            for &device in &placement.devices {
                if usize::from(device.0) >= node.devices.len() {
                    return Err(Misfit::UnknownDevice(placement.node, device));
                }
                if self.is_device_held(placement.node, device) {
                    return Err(Misfit::DeviceHeld(placement.node, device));
                }
            }
            let task = Task {
                node: placement.node,
                devices: placement.devices.clone(),
                amount: Amount::of(&request.per_task),
                team: request.team,
                running: None,
                end: None,
                freed: None,
                leaked: None,
            };
            self.put(Row::Task((e.attempt, rank), Some(task)));
        }
        Ok(())
    }

    fn task_running(&mut self, e: &TaskRunningV1) -> Result<(), Misfit> {
        let (_, mut task) = self.open_task(e.attempt, e.rank)?;
        if task.end.is_some() {
            return Err(Misfit::TaskEnded(e.attempt, e.rank));
        }
        task.running = Some(e.at);
        self.put(Row::Task((e.attempt, e.rank), Some(task)));
        Ok(())
    }

    fn stop_ordered(&mut self, e: &StopOrderedV2, at: Timestamp) -> Result<(), Misfit> {
        let mut attempt = self.open_attempt(e.attempt)?.clone();
        if attempt.stop.is_some() || !attempt.is_live() {
            return Err(Misfit::NothingToStop(e.attempt));
        }
        attempt.stop = Some(Stop { reason: e.reason, at, receipt: e.receipt });
        self.put(Row::Attempt(e.attempt, Some(attempt)));
        if let Some(receipt) = e.receipt {
            self.change_job(receipt.job, |job| job.promised = true)?;
        }
        Ok(())
    }

    fn health_changed(&mut self, e: &HealthChangedV1) -> Result<(), Misfit> {
        let attempt = Attempt { healthy: Some(e.healthy), ..self.open_attempt(e.attempt)?.clone() };
        self.put(Row::Attempt(e.attempt, Some(attempt)));
        Ok(())
    }

    fn task_ended(&mut self, e: &TaskEndedV1) -> Result<(), Misfit> {
        let (mut attempt, mut task) = self.open_task(e.attempt, e.rank)?;
        if task.end.is_some() {
            return Err(Misfit::TaskEnded(e.attempt, e.rank));
        }
        let stopped = attempt.stop.is_some_and(|stop| e.ended >= stop.at);
        task.running = task.running.or(e.started);
        task.end = Some(TaskEnd { exit: e.exit.clone(), stopped });
        attempt.ended += 1;
        attempt.broken |= e.exit != TaskExit::Exited(0);
        if let Some(at) = e.freed {
            free(&mut attempt, &mut task, at);
        }
        self.put_task(e.attempt, e.rank, attempt, task);
        Ok(())
    }

    fn task_freed(&mut self, e: &TaskFreedV1) -> Result<(), Misfit> {
        let (mut attempt, mut task) = self.open_task(e.attempt, e.rank)?;
        if task.end.is_none() {
            return Err(Misfit::TaskNotEnded(e.attempt, e.rank));
        }
        if task.freed.is_some() {
            return Err(Misfit::TaskFreed(e.attempt, e.rank));
        }
        free(&mut attempt, &mut task, e.at);
        self.put_task(e.attempt, e.rank, attempt, task);
        Ok(())
    }

    fn hold_leaked(&mut self, e: &HoldLeakedV1) -> Result<(), Misfit> {
        let (mut attempt, mut task) = self.open_task(e.attempt, e.rank)?;
        if task.freed.is_some() {
            return Err(Misfit::TaskFreed(e.attempt, e.rank));
        }
        if task.leaked.replace(e.since).is_none() {
            attempt.leaked += 1;
        }
        self.put_task(e.attempt, e.rank, attempt, task);
        Ok(())
    }

    fn attempt_closed(&mut self, e: &AttemptClosedV1, at: Timestamp) -> Result<(), Misfit> {
        let attempt = self.open_attempt(e.attempt)?.clone();
        if attempt.freed < attempt.tasks {
            return Err(Misfit::NotFree(e.attempt));
        }
        let member = attempt.member;
        let mut job = self.open_job(member.job)?.clone();
        for rank in (0..attempt.tasks).map(Rank) {
            self.put(Row::Task((e.attempt, rank), None));
        }
        self.put(Row::Attempt(e.attempt, None));
        job.running -= 1;
        let (counted, not_before) = match e.next {
            Next::Finish => {
                self.members_over(member.job, job, 1, &e.outcome, at);
                return Ok(());
            }
            Next::Retry { not_before, counted } => (attempt.counted + u32::from(counted), not_before),
            Next::Afresh { not_before } => (1, not_before),
        };
        let was_preempted = e.outcome == Outcome::Preempted;
        let preempted = attempt.preempted + u32::from(was_preempted);
        let receipt = attempt.stop.and_then(|stop| stop.receipt).filter(|_| was_preempted);
        let retry = Retry { attempts: attempt.number, counted, preempted, receipt, not_before };
        self.wait_again(member, job, retry);
        Ok(())
    }

    fn wait_again(&mut self, member: MemberId, mut job: Job, retry: Retry) {
        job.retrying += 1;
        self.put(Row::Retry(member, Some(retry)));
        self.put(Row::Job(member.job, Some(Box::new(job))));
    }

    fn members_ended(&mut self, e: &MembersEndedV1, at: Timestamp) -> Result<(), Misfit> {
        let mut job = self.open_job(e.job)?.clone();
        let waiting = job.pending.union(&job.ending);
        for index in e.members.difference(&waiting).iter() {
            let member = MemberId { job: e.job, index };
            self.retry(member).ok_or(Misfit::NotWaiting(member))?;
            job.retrying -= 1;
            self.put(Row::Retry(member, None));
        }
        job.pending = job.pending.difference(&e.members);
        job.ending = job.ending.difference(&e.members);
        let count = u32::try_from(e.members.len()).unwrap_or(u32::MAX);
        self.members_over(e.job, job, count, &e.outcome, at);
        Ok(())
    }

    /// Counts members as over, ends the job with its last, and tells who waits for it.
    fn members_over(&mut self, id: JobId, mut job: Job, count: u32, outcome: &Outcome, at: Timestamp) {
        if *outcome == Outcome::Success {
            job.succeeded += count;
        } else {
            job.failed += count;
        }
        job.worst = Some(worse(job.worst.take(), outcome.clone()));
        let over = u64::from(job.succeeded) + u64::from(job.failed);
        if over == job.members() {
            job.ended = Some(at);
        }
        let waiting: Vec<JobId> = self
            .index()
            .dependents
            .range((id, JobId(0))..=(id, JobId(u64::MAX)))
            .map(|pair| pair.1)
            .collect();
        for waiter in waiting {
            if let Some(mut row) = self.job(waiter).cloned() {
                settle(&mut row, id, &job);
                self.put(Row::Job(waiter, Some(Box::new(row))));
            }
        }
        self.put(Row::Job(id, Some(Box::new(job))));
    }

    fn forget_old_jobs(&mut self, at: Timestamp) {
        let old: Vec<JobId> = self
            .index()
            .over
            .range(..=(at - KEPT, JobId(u64::MAX)))
            .take(LEAVE_AT_ONCE)
            .map(|(_, id)| *id)
            .collect();
        for id in old {
            self.put(Row::Job(id, None));
        }
    }
}

fn free(attempt: &mut Attempt, task: &mut Task, at: Timestamp) {
    attempt.freed += 1;
    attempt.leaked -= u32::from(task.leaked.is_some());
    task.leaked = None;
    task.freed = Some(at);
}

/// Takes what `other` has done into account in the dependencies of `job`.
fn settle(job: &mut Job, other_id: JobId, other: &Job) {
    let verdict = |dependency: &Dependency| match dependency.condition {
        Condition::Ok if other.failed > 0 => Some(false),
        Condition::Ok | Condition::Any => other.ended.map(|_| true),
        Condition::NotOk => other.ended.map(|_| other.failed > 0),
    };
    let mut doomed = false;
    job.open.retain(|dependency| {
        let verdict = if dependency.job == other_id { verdict(dependency) } else { None };
        doomed |= verdict == Some(false);
        verdict != Some(true)
    });
    job.doomed |= doomed;
}
