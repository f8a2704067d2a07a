//! What a node says becomes facts. It may say things twice; the log keeps them once.

use std::collections::BTreeSet;

use facts::event::{HoldLeakedV1, OutsideHeldV1, TaskEndedV1, TaskFreedV1, TaskRunningV1};
use facts::{Event, TaskExit};
use units::{DeviceIndex, Timestamp};

use super::{Core, Draft, Input, LOCAL, Origin};
use crate::ports::{LogStore, NodeCommand, NodeHello, NodeReport, ReportBody, TaskId};

/// How far a task of an open attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Starting,
    Running,
    Ended,
    Freed,
}

/// Tasks whose end is among these inputs.
pub(super) fn tasks_over(inputs: &[Input]) -> BTreeSet<TaskId> {
    let over = |input: &Input| match input {
        Input::Report(NodeReport { body: ReportBody::Ended { task, .. }, .. }) => Some(*task),
        _ => None,
    };
    inputs.iter().filter_map(over).collect()
}

/// Whether a report says less than another one that came with it: the end of a task that came
/// and went between two commits tells its start too.
pub(super) fn is_outdated(report: &NodeReport, over: &BTreeSet<TaskId>) -> bool {
    matches!(&report.body, ReportBody::Running { task, .. } if over.contains(task))
}

impl<S: LogStore> Core<S> {
    pub(super) fn take_report(&mut self, report: NodeReport, draft: &mut Draft) {
        match report.body {
            ReportBody::Running { task, at } => self.running(task, at, draft),
            ReportBody::Ended { task, exit, started, ended, freed, cpu, memory_peak } => {
                let (Some(now), true) = (self.bounded(task, ended), self.phase(task) < Some(Phase::Ended))
                else {
                    return Self::acknowledge(report.number, draft);
                };
                let body = TaskEndedV1 {
                    attempt: task.attempt,
                    rank: task.rank,
                    exit,
                    started: started.and_then(|at| self.bounded(task, at)),
                    ended: now,
                    freed: freed.and_then(|at| self.bounded(task, at)),
                    cpu,
                    memory_peak,
                };
                self.record(Event::TaskEnded(body), Origin::node(now), draft);
            }
            ReportBody::Freed { task, at } => self.freed(task, at, draft),
            ReportBody::Leaked { task, since, reason } => self.leaked(task, since, reason, draft),
        }
        Self::acknowledge(report.number, draft);
    }

    pub(super) fn acknowledge(number: u64, draft: &mut Draft) {
        // One acknowledgement covers all before it.
        if let Some(NodeCommand::Acknowledge(last)) = draft.commands.last_mut() {
            *last = number.max(*last);
        } else {
            draft.commands.push(NodeCommand::Acknowledge(number));
        }
    }

    fn running(&mut self, task: TaskId, at: u64, draft: &mut Draft) {
        if self.phase(task) != Some(Phase::Starting) {
            return;
        }
        if let Some(at) = self.bounded(task, at) {
            let body = TaskRunningV1 { attempt: task.attempt, rank: task.rank, at };
            self.record(Event::TaskRunning(body), Origin::node(at), draft);
        }
    }

    fn freed(&mut self, task: TaskId, at: u64, draft: &mut Draft) {
        if self.phase(task) != Some(Phase::Ended) {
            return;
        }
        if let Some(at) = self.bounded(task, at) {
            let body = TaskFreedV1 { attempt: task.attempt, rank: task.rank, at };
            self.record(Event::TaskFreed(body), Origin::node(at), draft);
        }
    }

    fn leaked(&mut self, task: TaskId, since: u64, reason: String, draft: &mut Draft) {
        let news = |row: &control::Task| row.leaked.is_none() && row.freed.is_none();
        if !self.state.task(task.attempt, task.rank).is_some_and(news) {
            return;
        }
        if let Some(since) = self.bounded(task, since) {
            let body = HoldLeakedV1 { attempt: task.attempt, rank: task.rank, since, reason };
            self.record(Event::HoldLeaked(body), Origin::node(since), draft);
        }
    }

    /// Only news is recorded.
    pub(super) fn take_outside(&mut self, devices: BTreeSet<DeviceIndex>, draft: &mut Draft) {
        if self.state.node(LOCAL).is_some_and(|node| node.outside != devices) {
            let body = OutsideHeldV1 { node: LOCAL, devices: devices.into_iter().collect() };
            self.record(Event::OutsideHeld(body), Origin::SERVER, draft);
        }
    }

    /// Where a task stands, if its attempt is open.
    fn phase(&self, task: TaskId) -> Option<Phase> {
        let row = self.state.task(task.attempt, task.rank)?;
        Some(match (row.freed, &row.end, row.running) {
            (Some(_), ..) => Phase::Freed,
            (None, Some(_), _) => Phase::Ended,
            (None, None, Some(_)) => Phase::Running,
            (None, None, None) => Phase::Starting,
        })
    }

    /// A node's time as ledger time, never before the decision that led to it nor after now.
    fn bounded(&self, task: TaskId, boottime: u64) -> Option<Timestamp> {
        let decided = self.state.attempt(task.attempt)?.started;
        let now = self.clock.now();
        Some(self.clock.at(boottime).clamp(decided.min(now), now))
    }

    /// A node is there again: compare what it knows with what should be there, and repeat what
    /// is owed. What nobody can vouch for is `Unknown` and stays held; only a restart of the
    /// machine proves by itself that everything is free. Of what the node knows it tells the end.
    pub(super) fn take_hello(&mut self, hello: &NodeHello, draft: &mut Draft) {
        let rebooted = self.state.node(LOCAL).is_some_and(|node| node.boot_id != hello.boot_id);
        let attempts = self.state.attempts().map(|(attempt, _)| attempt);
        let tasks = attempts
            .flat_map(|attempt| self.state.tasks_of(attempt).map(move |(rank, _)| TaskId { attempt, rank }));
        let open: Vec<TaskId> = tasks.collect();
        for task in open {
            if hello.tasks.contains(&task) {
                continue;
            }
            if rebooted {
                self.lost_to_restart(task, draft);
            } else if self.phase(task) == Some(Phase::Running) {
                self.lost_sight(task, draft);
            }
        }
        if rebooted {
            self.declare_boot(hello.boot_id, draft);
        }
        self.repeat_obligations(draft);
    }

    fn lost_to_restart(&mut self, task: TaskId, draft: &mut Draft) {
        let now = self.clock.now();
        match self.phase(task) {
            Some(Phase::Starting | Phase::Running) => {
                let body = self.ended_unseen(task, TaskExit::NodeRestart, Some(now));
                self.record(Event::TaskEnded(body), Origin::SERVER, draft);
            }
            Some(Phase::Ended) => {
                let body = TaskFreedV1 { attempt: task.attempt, rank: task.rank, at: now };
                self.record(Event::TaskFreed(body), Origin::SERVER, draft);
            }
            Some(Phase::Freed) | None => {}
        }
    }

    fn lost_sight(&mut self, task: TaskId, draft: &mut Draft) {
        let body = self.ended_unseen(task, TaskExit::Unknown, None);
        self.record(Event::TaskEnded(body), Origin::SERVER, draft);
        let reason = "its supervisor has no record of it".to_owned();
        let body = HoldLeakedV1 { attempt: task.attempt, rank: task.rank, since: self.clock.now(), reason };
        self.record(Event::HoldLeaked(body), Origin::SERVER, draft);
    }

    fn ended_unseen(&self, task: TaskId, exit: TaskExit, freed: Option<Timestamp>) -> TaskEndedV1 {
        let started = self.state.task(task.attempt, task.rank).and_then(|row| row.running);
        TaskEndedV1 {
            attempt: task.attempt,
            rank: task.rank,
            exit,
            started,
            ended: self.clock.now(),
            freed,
            cpu: None,
            memory_peak: None,
        }
    }
}
