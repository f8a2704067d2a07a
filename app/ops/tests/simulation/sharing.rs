//! Whether teams got their shares of the devices, and nobody was stopped without a right: read from
//! the log alone.

use std::collections::BTreeMap;

use facts::event::{LimitsV1, Next, PreemptionSetV1, ReceiptV1, Reclaim, RightV1, TeamSetV2};
use facts::{Envelope, Event, Outcome};
use ops::ports::TaskId;
use units::{AttemptId, JobId, MemberId, Rank, TeamId, Timestamp};

/// Devices of the machine.
const DEVICES: u64 = 4;

struct Job {
    team: TeamId,
    priority: i32,
    preemptible: bool,
    preempts: bool,
    cancelled: bool,
    requeue: bool,
}

struct Attempt {
    member: MemberId,
    started: Timestamp,
    receipt: Option<ReceiptV1>,
}

#[derive(Default)]
struct Ledger {
    teams: BTreeMap<TeamId, TeamSetV2>,
    policy: PreemptionSetV1,
    jobs: BTreeMap<JobId, Job>,
    attempts: BTreeMap<AttemptId, Attempt>,
    /// Devices that tasks hold, and whose.
    held: BTreeMap<TaskId, (TeamId, u64)>,
    /// How often a member was put back.
    put_back: BTreeMap<MemberId, u32>,
}

pub(crate) fn is_fair(log: &[Envelope]) {
    let mut ledger = Ledger::default();
    for envelope in log {
        ledger.take(envelope);
    }
}

/// By which right an event stops a job for another.
pub(crate) fn right(event: &Event) -> Option<RightV1> {
    match event {
        Event::StopOrdered(body) => body.receipt.map(|receipt| receipt.right),
        _ => None,
    }
}

impl Ledger {
    fn take(&mut self, envelope: &Envelope) {
        let at = envelope.seq;
        match &envelope.event {
            Event::TeamSet(body) => drop(self.teams.insert(body.team, body.clone())),
            Event::PreemptionSet(body) => self.policy = *body,
            Event::Submitted(body) => {
                let request = &body.request;
                let (team, priority, requeue) = (request.team, request.priority, request.retry.requeue);
                let job =
                    Job { team, priority, preemptible: false, preempts: false, cancelled: false, requeue };
                self.jobs.insert(body.job, job);
            }
            Event::PreemptibleSet(body) => self.job(body.job).preemptible = body.preemptible,
            Event::CancelRequested(body) => self.job(body.job).cancelled = true,
            Event::PreemptsSet(body) => self.job(body.job).preempts = body.preempts,
            Event::PrioritySet(body) => self.job(body.job).priority = body.priority,
            Event::Started(body) => {
                let team = self.job(body.job).team;
                let member = MemberId { job: body.job, index: body.index };
                let attempt = Attempt { member, started: envelope.ledger_time, receipt: None };
                self.attempts.insert(body.attempt, attempt);
                for (rank, task) in (0..).map(Rank).zip(&body.tasks) {
                    let id = TaskId { attempt: body.attempt, rank };
                    self.held.insert(id, (team, task.devices.len() as u64));
                }
                let takes = body.tasks.iter().any(|task| !task.devices.is_empty());
                assert!(!takes || self.may_hold(team), "{at}: team {team} took more than its share");
            }
            Event::StopOrdered(body) => {
                if let Some(receipt) = body.receipt {
                    self.stopped(body.attempt, receipt, envelope.ledger_time);
                }
            }
            Event::TaskFreed(body) => {
                self.held.remove(&TaskId { attempt: body.attempt, rank: body.rank });
            }
            Event::TaskEnded(body) if body.freed.is_some() => {
                self.held.remove(&TaskId { attempt: body.attempt, rank: body.rank });
            }
            Event::AttemptClosed(body) if body.outcome == Outcome::Preempted => {
                let attempt = &self.attempts[&body.attempt];
                assert!(attempt.receipt.is_some(), "{at}: put back for nobody");
                let job = &self.jobs[&attempt.member.job];
                let is_back = matches!(body.next, Next::Retry { counted: false, .. });
                assert!(is_back == job.requeue || job.cancelled, "{at}: put back, and that does not count");
                *self.put_back.entry(attempt.member).or_default() += 1;
            }
            _ => {}
        }
    }

    fn job(&mut self, job: JobId) -> &mut Job {
        self.jobs.get_mut(&job).expect("a known job")
    }

    fn held_by(&self, team: TeamId) -> u64 {
        self.held.values().filter(|(of, _)| *of == team).map(|(_, devices)| devices).sum()
    }

    /// Whether a team may hold what it does: within its quota, or within what it may borrow, of what
    /// others do not keep for themselves.
    fn may_hold(&self, team: TeamId) -> bool {
        let Some(row) = self.teams.get(&team) else { return true };
        let (held, quota) = (self.held_by(team), devices(row.quota));
        let others = self.teams.values().filter(|other| other.team != team);
        let kept = others.map(|other| {
            let own = devices(other.quota).saturating_sub(devices(other.lend));
            own.saturating_sub(self.held_by(other.team))
        });
        let free = DEVICES - self.held.values().map(|(_, devices)| devices).sum::<u64>();
        let borrows = held <= quota.saturating_add(devices(row.borrow)) && kept.sum::<u64>() <= free;
        held <= quota || borrows
    }

    fn stopped(&mut self, id: AttemptId, receipt: ReceiptV1, now: Timestamp) {
        let Attempt { member, started, .. } = self.attempts[&id];
        let (job, gains) = (&self.jobs[&member.job], &self.jobs[&receipt.job]);
        assert_eq!(receipt.team, gains.team);
        match receipt.right {
            RightV1::Reclaim { quota, held, .. } => {
                assert_ne!(self.policy.reclaim, Reclaim::Never);
                assert_ne!(job.team, gains.team, "a team takes nothing back from itself");
                assert!(held > quota, "only what is borrowed is taken back");
                assert_eq!(quota, devices(self.teams[&job.team].quota), "of its team");
                assert!(held <= self.held_by(job.team), "it holds as much");
            }
            RightV1::Priority { above, below } => {
                assert_eq!((job.team, above, below), (gains.team, gains.priority, job.priority));
                assert!(above > below && job.preemptible, "whoever gives way said so");
                let from = self.policy.preempts_from;
                assert!(gains.preempts || from.is_some_and(|from| above >= from), "it is urgent enough");
            }
        }
        assert!(now.since(started) >= self.policy.protect, "it is left alone for a while");
        let put_back = self.put_back.get(&member).copied().unwrap_or(0);
        assert!(put_back < self.policy.most, "it was put back {put_back} times");
        self.attempts.get_mut(&id).expect("a known attempt").receipt = Some(receipt);
    }
}

fn devices(limit: LimitsV1) -> u64 {
    limit.gpus.map_or(u64::MAX, u64::from)
}
