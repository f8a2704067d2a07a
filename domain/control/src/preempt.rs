//! Whom to stop so that a waiting job starts: borrowers where its team reclaims its quota, and less
//! urgent preemptible jobs of its own team. A set is stopped only if the job starts once it is
//! gone, and nobody of it could be spared.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use facts::event::{ReceiptV1, Reclaim, RightV1, StopOrderedV2, StopReason};
use facts::{Event, JobRequest};
use units::{AttemptId, JobId, NodeId, TeamId, Timestamp};

use crate::admit::Resource;
use crate::place::{self, Room};
use crate::queue::{Entry, Wanted};
use crate::rows::{Amount, Attempt, Job};
use crate::share::{Claim, Shares};
use crate::state::State;

/// The next stop that makes room: for the head of the queue, else for the first job of a team that
/// is urgent enough to stop others of the team. While one job waits for stops, no other gets any.
pub(crate) fn stop_for(state: &State, head: Option<&Entry>, now: Timestamp) -> Option<Event> {
    let policy = state.meta().preemption;
    if policy.reclaim == Reclaim::Never && policy.preempts_from.is_none() {
        return None;
    }
    let entries = head.copied().into_iter().chain(urgent(state, now));
    let mut entries = entries.filter(|entry| may_stop(state, entry)).peekable();
    entries.peek()?;
    let scene = Scene::new(state, now);
    entries.find_map(|entry| scene.stop_for(entry.key.job))
}

/// The first job of each team's queue, where it is urgent enough.
fn urgent(state: &State, now: Timestamp) -> Vec<Entry> {
    let Some(from) = state.meta().preemption.preempts_from else { return Vec::new() };
    let mut first: BTreeMap<TeamId, Entry> = BTreeMap::new();
    for ((team, _), queue) in &state.index().queues {
        let mut unlimited = u32::MAX;
        let found = queue.find(None, &Wanted::fitting(now, Amount::MAX), &mut unlimited);
        if let Some(entry) = found.filter(|entry| first.get(team).is_none_or(|known| entry.key < known.key)) {
            first.insert(*team, entry);
        }
    }
    let urgent = |entry: &Entry| state.job(entry.key.job).is_some_and(|job| job.priority >= from);
    let mut urgent: Vec<Entry> = first.into_values().filter(urgent).collect();
    urgent.sort_by_key(|entry| entry.key);
    urgent
}

/// Whether there can be anybody to stop for `entry`: the cheap part of the answer.
fn may_stop(state: &State, entry: &Entry) -> bool {
    let policy = state.meta().preemption;
    let Some(job) = state.job(entry.key.job) else { return false };
    let shares = Shares::new(state, Amount::default());
    let others = || state.teams().filter(|(id, _)| *id != job.request.team);
    let reclaims =
        policy.reclaim != Reclaim::Never && others().any(|(id, _)| shares.borrows(id).next().is_some());
    reclaims || policy.preempts_from.is_some_and(|from| job.priority >= from)
}

/// An attempt that could be stopped.
struct Candidate<'a> {
    id: AttemptId,
    attempt: &'a Attempt,
    job: &'a Job,
    /// What it holds, by node and in all.
    tasks: Vec<(NodeId, Amount)>,
    amount: Amount,
    /// Of what it holds more than its team's quota, with the quota and what the team holds.
    borrowed: Vec<(Resource, u64, u64)>,
}

impl Candidate<'_> {
    /// In which order a team's quota covers its attempts; who comes last is stopped first.
    fn rank(&self, reclaim: Reclaim) -> (Reverse<i32>, AttemptId) {
        let priority = if reclaim == Reclaim::LowestPriority { self.job.priority } else { 0 };
        (Reverse(priority), self.id)
    }
}

/// What is there once all ends that are under way have come.
struct Scene<'a> {
    state: &'a State,
    rooms: Vec<Room>,
    shares: Shares<'a>,
    /// The first to stop first.
    candidates: Vec<Candidate<'a>>,
    /// The job that stops are under way for.
    waiting: Option<JobId>,
}

impl<'a> Scene<'a> {
    fn new(state: &'a State, now: Timestamp) -> Self {
        let policy = state.meta().preemption;
        let rooms = place::free_rooms(state);
        let shares = Shares::new(state, place::total(&rooms));
        let mut scene = Self { state, rooms, shares, candidates: Vec::new(), waiting: None };
        for (id, attempt) in state.attempts().filter(|(_, attempt)| attempt.leaked == 0) {
            let Some(job) = state.job(attempt.member.job) else { continue };
            let held = state.tasks_of(id).filter(|(_, task)| task.freed.is_none());
            let tasks: Vec<(NodeId, Amount)> = held.map(|(_, task)| (task.node, task.amount)).collect();
            let amount = tasks.iter().fold(Amount::default(), |sum, (_, amount)| sum.plus(*amount));
            let candidate = Candidate { id, attempt, job, tasks, amount, borrowed: Vec::new() };
            if attempt.stop.is_none() && attempt.is_live() {
                scene.candidates.push(candidate);
                continue;
            }
            scene.frees(&candidate);
            let receipt = attempt.stop.and_then(|stop| stop.receipt);
            let promised = receipt.filter(|receipt| state.index().promised.contains(&receipt.job));
            scene.waiting = scene.waiting.or(promised.map(|receipt| receipt.job));
        }
        scene.candidates.sort_by_key(|candidate| candidate.rank(policy.reclaim));
        scene.find_borrowed();
        scene.candidates.reverse();
        let alone = |candidate: &Candidate<'_>| {
            now.since(candidate.attempt.started) < policy.protect
                || candidate.attempt.preempted >= policy.most
        };
        scene.candidates.retain(|candidate| !alone(candidate));
        scene
    }

    /// A quota covers a team's attempts in the order of their rank; the others are borrowed.
    fn find_borrowed(&mut self) {
        let mut held: BTreeMap<TeamId, Amount> = BTreeMap::new();
        for candidate in &mut self.candidates {
            let team = candidate.attempt.team;
            let Some(row) = self.state.team(team) else { continue };
            let held = held.entry(team).or_default();
            *held = held.plus(candidate.amount);
            let over = |resource: Resource| {
                let (quota, held) = (resource.of(row.quota), resource.of(*held));
                (held > quota && resource.of(candidate.amount) > 0).then_some((resource, quota, held))
            };
            candidate.borrowed = Resource::ALL.into_iter().filter_map(over).collect();
        }
    }

    fn frees(&mut self, candidate: &Candidate<'_>) {
        change(&mut self.rooms, candidate, Amount::plus);
        self.shares.gives_back(candidate.attempt.team, candidate.amount, place::total(&self.rooms));
    }

    fn stop_for(&self, id: JobId) -> Option<Event> {
        let job = self.state.job(id)?;
        if self.waiting.is_some_and(|waiting| waiting != id) {
            return None;
        }
        let (rooms, shares) = (self.rooms.clone(), self.shares.clone());
        let mut trial = Trial { request: &job.request, rooms, shares };
        if trial.starts() {
            return None;
        }
        let mut stopped = Vec::new();
        for candidate in &self.candidates {
            let Some(right) = self.right(id, job, candidate) else { continue };
            trial.frees(candidate);
            stopped.push((candidate, right));
            if trial.starts() {
                break;
            }
        }
        if !trial.starts() {
            return None;
        }
        // The last was needed. Who would be stopped last is spared first.
        for at in (0..stopped.len() - 1).rev() {
            let (candidate, _) = stopped[at];
            trial.keeps(candidate);
            if trial.starts() {
                stopped.remove(at);
            } else {
                trial.frees(candidate);
            }
        }
        let (candidate, right) = stopped.into_iter().next()?;
        let receipt = Some(ReceiptV1 { job: id, team: job.request.team, right });
        let attempt = candidate.id;
        Some(Event::StopOrdered(StopOrderedV2 { attempt, reason: StopReason::Preempt, receipt }))
    }

    /// By which right `job` stops an attempt: what it borrowed is taken back for what the job's own
    /// team is promised, and an urgent job stops preemptible ones of its team.
    fn right(&self, id: JobId, job: &Job, candidate: &Candidate<'_>) -> Option<RightV1> {
        let policy = self.state.meta().preemption;
        let (team, need) = (job.request.team, Amount::of_attempt(&job.request));
        if candidate.attempt.team == team {
            let urgent = policy.preempts_from.is_some_and(|from| job.priority >= from);
            let below = candidate.job.priority;
            let gives_way =
                candidate.job.preemptible && candidate.attempt.member.job != id && below < job.priority;
            return (urgent && gives_way).then_some(RightV1::Priority { above: job.priority, below });
        }
        if policy.reclaim == Reclaim::Never || !need.fits(self.shares.left(team, Claim::Own)) {
            return None;
        }
        let needed = candidate.borrowed.iter().find(|(resource, ..)| resource.of(need) > 0);
        let (resource, quota, held) = *needed?;
        Some(RightV1::Reclaim { part: resource.part(), quota, held })
    }
}

/// Whether a job starts once certain attempts are gone.
struct Trial<'a> {
    request: &'a JobRequest,
    rooms: Vec<Room>,
    shares: Shares<'a>,
}

impl Trial<'_> {
    fn starts(&self) -> bool {
        let need = Amount::of_attempt(self.request);
        need.fits(self.shares.left(self.request.team, Claim::Borrowed))
            && place::spread(&self.rooms, self.request).is_some()
    }

    fn frees(&mut self, candidate: &Candidate<'_>) {
        change(&mut self.rooms, candidate, Amount::plus);
        self.shares.gives_back(candidate.attempt.team, candidate.amount, place::total(&self.rooms));
    }

    fn keeps(&mut self, candidate: &Candidate<'_>) {
        change(&mut self.rooms, candidate, Amount::less);
        self.shares.takes_back(candidate.attempt.team, candidate.amount, place::total(&self.rooms));
    }
}

/// Adds what an attempt holds to the nodes' rooms, or takes it away. Nodes without a room take no
/// new work.
fn change(rooms: &mut [Room], candidate: &Candidate<'_>, by: impl Fn(Amount, Amount) -> Amount) {
    for (node, amount) in &candidate.tasks {
        if let Some(room) = rooms.iter_mut().find(|room| room.node == *node) {
            room.free = by(room.free, *amount);
        }
    }
}
