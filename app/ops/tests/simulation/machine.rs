//! A double of the supervisor and the machine it runs on. It behaves as the real one must:
//! tasks outlive servers and supervisors, starts are done once, reports are repeated until
//! acknowledged, and only a restart of the machine takes everything with it.

use std::collections::{BTreeMap, BTreeSet};

use facts::TaskExit;
use ops::ports::{NodeCommand, NodeHello, NodeReport, ReportBody, StartTask, TaskId};

use super::rng::Rng;

/// What really happened to one task.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) start: StartTask,
    pub(crate) started: u64,
    pub(crate) ends: u64,
    pub(crate) exit: TaskExit,
    pub(crate) ended: Option<u64>,
    /// When all it held was really free.
    pub(crate) freed: Option<u64>,
    /// Ignores every signal, and keeps what it holds, until thawed.
    pub(crate) frozen: bool,
    thawed: u64,
    /// Since when it should have been gone, once that was told.
    pub(crate) leaked: Option<u64>,
    kill_at: Option<u64>,
    /// A restart took it, and what was known of it.
    pub(crate) vanished: bool,
}

#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) boot: u8,
    /// When this boot began: `CLOCK_BOOTTIME` counts from here.
    pub(crate) booted: u64,
    /// Every task ever started, on any boot: the outside witness.
    pub(crate) lives: BTreeMap<TaskId, Life>,
    /// Stopped before they were started.
    refused: BTreeSet<TaskId>,
    nonces: BTreeSet<[u8; 16]>,
    unacknowledged: Vec<NodeReport>,
    told: u64,
    forgotten: BTreeSet<TaskId>,
    epoch: u64,
}

impl Machine {
    pub(crate) fn hello(&mut self, epoch: u64) -> NodeHello {
        assert!(epoch >= self.epoch, "an older server talks to the node");
        self.epoch = epoch;
        let known = self.lives.iter().filter(|(id, life)| !life.vanished && !self.forgotten.contains(id));
        NodeHello { boot_id: [self.boot; 16], tasks: known.map(|(id, _)| *id).collect() }
    }

    /// What a fresh connection delivers again.
    pub(crate) fn repeat(&self) -> Vec<NodeReport> {
        self.unacknowledged.clone()
    }

    pub(crate) fn command(&mut self, command: &NodeCommand, now: u64, rng: &mut Rng) -> Vec<NodeReport> {
        match command {
            NodeCommand::Start(start) => self.start(start, now, rng),
            NodeCommand::Signal { .. } => Vec::new(),
            NodeCommand::Stop { task, grace, .. } => self.stop(*task, now, *grace, rng),
            NodeCommand::Acknowledge(number) => {
                for report in self.unacknowledged.extract_if(.., |report| report.number <= *number) {
                    if let ReportBody::Ended { task, freed: Some(_), .. } | ReportBody::Freed { task, .. } =
                        report.body
                    {
                        self.forgotten.insert(task);
                    }
                }
                Vec::new()
            }
        }
    }

    fn start(&mut self, start: &StartTask, now: u64, rng: &mut Rng) -> Vec<NodeReport> {
        if self.lives.contains_key(&start.task) || self.refused.contains(&start.task) {
            return Vec::new();
        }
        assert!(self.nonces.insert(start.nonce), "nonce used twice: {:?}", start.task);
        self.check_exclusive(start);
        let exit = match rng.below(8) {
            0 => TaskExit::Exited(3),
            1 => TaskExit::Signalled(9),
            2 => TaskExit::OutOfMemory(9),
            _ => TaskExit::Exited(0),
        };
        let life = Life {
            start: start.clone(),
            started: now,
            ends: now + 1_000_000 * (1 + rng.below(5_000)),
            exit,
            ended: None,
            freed: None,
            frozen: false,
            thawed: 0,
            leaked: None,
            kill_at: None,
            vanished: false,
        };
        self.lives.insert(start.task, life);
        let at = self.boottime(now);
        vec![self.report(ReportBody::Running { task: start.task, at })]
    }

    /// The fence: nothing live may share a device, or be an earlier try of the same member.
    fn check_exclusive(&self, start: &StartTask) {
        for (id, life) in &self.lives {
            if life.vanished || life.freed.is_some() || id.attempt == start.task.attempt && *id != start.task
            {
                continue;
            }
            let shares = life.start.devices.iter().any(|device| start.devices.contains(device));
            assert!(!shares, "{id:?} still holds a device that {:?} gets", start.task);
            assert!(
                life.start.member != start.member,
                "{id:?} still lives, and {:?} is the same member",
                start.task
            );
        }
    }

    fn stop(&mut self, task: TaskId, now: u64, grace: u64, rng: &mut Rng) -> Vec<NodeReport> {
        let Some(life) = self.lives.get_mut(&task) else {
            if !self.refused.insert(task) {
                return Vec::new();
            }
            let exit = ops::ports::never_started("start", "stopped before it was started", 0);
            let now = self.boottime(now);
            let body = ReportBody::Ended {
                task,
                exit,
                started: None,
                ended: now,
                freed: Some(now),
                cpu: None,
                memory_peak: None,
            };
            return vec![self.report(body)];
        };
        if life.ended.is_none() && life.kill_at.is_none() {
            life.kill_at = Some(now + if rng.one_in(3) { grace } else { 1_000_000 });
        }
        Vec::new()
    }

    /// Lets the machine live until `now`.
    pub(crate) fn live(&mut self, now: u64) -> Vec<NodeReport> {
        let due: Vec<TaskId> = self
            .lives
            .iter()
            .filter(|(_, life)| !life.vanished && life.freed.is_none())
            .map(|(id, _)| *id)
            .collect();
        due.into_iter().flat_map(|id| self.live_task(id, now)).collect()
    }

    fn live_task(&mut self, task: TaskId, now: u64) -> Vec<NodeReport> {
        let Some(life) = self.lives.get_mut(&task) else { return Vec::new() };
        let killed = life.kill_at.is_some_and(|at| at <= now);
        if life.frozen {
            // A frozen task neither ends nor dies. Once it should be dead, that is a leak.
            if killed && life.leaked.is_none() {
                life.leaked = life.kill_at;
                let since = life.kill_at.unwrap_or(now) - self.booted;
                return vec![self.report(ReportBody::Leaked { task, since, reason: "frozen".to_owned() })];
            }
            return Vec::new();
        }
        let (at, exit) = match life.kill_at.filter(|at| *at < life.ends) {
            Some(at) => (at, TaskExit::Signalled(15)),
            None => (life.ends, life.exit.clone()),
        };
        if at > now {
            return Vec::new();
        }
        let ended = at.max(life.started).max(life.thawed);
        life.exit = exit.clone();
        (life.ended, life.freed) = (Some(ended), Some(ended));
        let body = ReportBody::Ended {
            task,
            exit,
            started: Some(life.started - self.booted),
            ended: ended - self.booted,
            freed: Some(ended - self.booted),
            cpu: Some(ended - life.started),
            memory_peak: None,
        };
        vec![self.report(body)]
    }

    pub(crate) fn freeze_one(&mut self, rng: &mut Rng) {
        let live: Vec<TaskId> = self
            .lives
            .iter()
            .filter(|(_, life)| life.freed.is_none() && !life.vanished)
            .map(|(id, _)| *id)
            .collect();
        if live.is_empty() {
            return;
        }
        let which = usize::try_from(rng.below(live.len() as u64)).unwrap_or(0);
        if let Some(life) = self.lives.get_mut(&live[which]) {
            life.frozen = true;
        }
    }

    pub(crate) fn thaw_all(&mut self, now: u64) {
        for life in self.lives.values_mut().filter(|life| life.frozen) {
            (life.frozen, life.thawed) = (false, now);
        }
    }

    /// The machine restarts: everything is gone, and of what the supervisor had not been told to
    /// forget, some of its memory too.
    pub(crate) fn reboot(&mut self, now: u64, rng: &mut Rng) {
        self.boot += 1;
        self.booted = now;
        self.unacknowledged.clear();
        let mut known = Vec::new();
        for (id, life) in &mut self.lives {
            if life.vanished || self.forgotten.contains(id) {
                continue;
            }
            if life.ended.is_none() {
                life.exit = TaskExit::NodeRestart;
            }
            life.ended.get_or_insert(now);
            life.freed.get_or_insert(now);
            life.vanished = rng.one_in(2);
            if !life.vanished {
                known.push((*id, life.exit.clone()));
            }
        }
        for (task, exit) in known {
            let body = ReportBody::Ended {
                task,
                exit,
                started: None,
                ended: 0,
                freed: Some(0),
                cpu: None,
                memory_peak: None,
            };
            self.report(body);
        }
    }

    fn boottime(&self, at: u64) -> u64 {
        at - self.booted
    }

    fn report(&mut self, body: ReportBody) -> NodeReport {
        self.told += 1;
        let report = NodeReport { number: self.told, body };
        self.unacknowledged.push(report.clone());
        report
    }
}
