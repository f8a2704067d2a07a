//! From committed decisions to commands for the node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use control::{Obligation, nonce};
use facts::{JobKind, JobRequest, LaunchSpec};
use units::{AttemptId, DeviceIndex, JobId, Rank};

use super::{Core, Draft};
use crate::ports::{IdleLimit, LogStore, NodeCommand, StartTask, TaskId};

/// Launches of so many recent submissions are kept at hand; older ones are read back.
const LAUNCHES_KEPT: usize = 1_024;

/// Gangs meet on one of these loopback ports.
const RENDEZVOUS_PORTS: std::ops::Range<u16> = 20_000..28_000;

/// Recent launch payloads, so that a job that starts at once is not read back.
#[derive(Default)]
pub(super) struct LaunchCache {
    launches: BTreeMap<JobId, Arc<LaunchSpec>>,
    order: VecDeque<JobId>,
}

impl LaunchCache {
    pub(super) fn put(&mut self, job: JobId, launch: LaunchSpec) {
        self.launches.insert(job, Arc::new(launch));
        self.order.push_back(job);
        if self.order.len() > LAUNCHES_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.launches.remove(&oldest);
        }
    }
}

impl<S: LogStore> Core<S> {
    /// Everything the node still owes, after a connection was made anew.
    pub(super) fn repeat_obligations(&mut self, draft: &mut Draft) {
        for obligation in self.state.obligations() {
            self.owe(obligation, draft);
        }
    }

    /// Commands for what this turn decided, now that it is durable.
    pub(super) fn dispatch(&mut self, draft: &mut Draft) {
        let events = std::mem::take(&mut draft.events);
        for envelope in &events {
            for obligation in self.state.obligations_of(&envelope.event) {
                self.owe(obligation, draft);
            }
        }
        draft.events = events;
    }

    /// Signals for tasks whose time limit is near. No fact says that one was given, so a start
    /// of the server gives none for what fell due before.
    pub(super) fn warn(&mut self, draft: &mut Draft) {
        let now = self.clock.now();
        for obligation in self.state.warnings(self.warned, now) {
            self.owe(obligation, draft);
        }
        self.warned = now;
    }

    fn owe(&mut self, obligation: Obligation, draft: &mut Draft) {
        let command = match obligation {
            Obligation::Start { attempt, rank } => self.start(attempt, rank),
            Obligation::Stop { attempt, rank, .. } => self.stop(attempt, rank),
            Obligation::Warn { attempt, rank, signal } => {
                Some(NodeCommand::Signal { task: TaskId { attempt, rank }, signal })
            }
        };
        draft.commands.extend(command);
    }

    fn stop(&self, attempt: AttemptId, rank: Rank) -> Option<NodeCommand> {
        let job = self.state.job(self.state.attempt(attempt)?.member.job)?;
        let policy = job.request.stop;
        Some(NodeCommand::Stop {
            task: TaskId { attempt, rank },
            signal: policy.signal,
            grace: policy.grace.0,
        })
    }

    /// The full start of one task. None if the payload is gone, which only happens to a job
    /// that is over.
    fn start(&mut self, attempt: AttemptId, rank: Rank) -> Option<NodeCommand> {
        let lease = self.state.attempt(attempt)?;
        let job = self.state.job(lease.member.job)?;
        let task = self.state.task(attempt, rank)?;
        let node = self.state.node(task.node)?;
        let key =
            |index: DeviceIndex| node.devices.get(usize::from(index.0)).map(|device| device.key.clone());
        let devices = task.devices.iter().filter_map(|index| Some((index.0, key(*index)?))).collect();
        let request = Arc::clone(&job.request);
        let (idle, port) = of_kind(&request);
        let (member, number, decision, seed) = (lease.member, lease.number, lease.decision, lease.nonce_seed);
        let span = u64::from(RENDEZVOUS_PORTS.end - RENDEZVOUS_PORTS.start);
        let rendezvous_port = RENDEZVOUS_PORTS.start + u16::try_from(attempt.0 % span).unwrap_or(0);
        let start = StartTask {
            task: TaskId { attempt, rank },
            decision,
            nonce: nonce(&seed, attempt, rank),
            member,
            is_array: request.array.is_some(),
            name: request.name.clone(),
            number,
            world_size: request.tasks,
            rendezvous_port,
            resources: request.per_task,
            devices,
            terminal: matches!(request.kind, JobKind::Interactive { .. }),
            launch: self.launch(member.job)?,
            idle,
            port,
        };
        Some(NodeCommand::Start(Box::new(start)))
    }

    pub(super) fn launch(&mut self, job: JobId) -> Option<Arc<LaunchSpec>> {
        if let Some(launch) = self.launches.launches.get(&job) {
            return Some(Arc::clone(launch));
        }
        let bytes = self.store.payload(job).ok()??;
        postcard::from_bytes(&bytes).ok().map(Arc::new)
    }
}

/// What only some kinds of job have: a terminal's idle limit, and a service's port.
fn of_kind(request: &JobRequest) -> (Option<IdleLimit>, Option<u16>) {
    match request.kind {
        JobKind::Batch => (None, None),
        JobKind::Service { port, .. } => (None, port),
        JobKind::Interactive { idle_limit } => {
            (idle_limit.map(|after| IdleLimit { after: after.0, grace: request.stop.grace.0 }), None)
        }
    }
}
