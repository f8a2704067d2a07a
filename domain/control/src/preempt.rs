//! Whom to stop so that a waiting job starts: borrowers where its team reclaims its quota, and less
//! urgent preemptible jobs of its own team. A set is stopped only if the job starts once it is
//! gone, and nobody of it could be spared.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use facts::event::{ReceiptV1, Reclaim, RightV1, StopOrderedV2, StopReason};
use facts::{Event, JobRequest};
use units::{AttemptId, JobId, Nanos, TeamId, Timestamp};

use crate::admit::Resource;
use crate::calendar::Calendar;
use crate::place::{self, Reservation, Room, Spread};
use crate::queue::{Entry, Wanted};
use crate::rows::{Amount, Attempt, Job, Task};
use crate::share::{Claim, Shares};
use crate::state::State;

/// The next stop that makes room: for the head of the queue, else for the first job of a team that
/// is urgent enough to stop others of the team. While one job waits for stops, no other gets any.
pub(crate) fn stop_for(state: &State, head: Option<&Entry>, now: Timestamp) -> Option<Event> {
    let policy = state.meta().preemption;
    let urgent = urgent(state, now);
    if policy.reclaim == Reclaim::Never && urgent.is_empty() {
        return None;
    }
    let entries = head.copied().into_iter().chain(urgent);
    let mut entries = entries.filter(|entry| may_stop(state, entry)).peekable();
    entries.peek()?;
    let scene = Scene::new(state, now);
    entries.find_map(|entry| scene.stop_for(entry.key.job))
}

/// Whether a job may stop preemptible ones of its team: its class says so, or its priority.
fn preempts(state: &State, job: &Job) -> bool {
    job.preempts || state.meta().preemption.preempts_from.is_some_and(|from| job.priority >= from)
}

/// The first job of each team's queue, where it is urgent enough.
fn urgent(state: &State, now: Timestamp) -> Vec<Entry> {
    if state.meta().preemption.preempts_from.is_none() && state.index().preempting.is_empty() {
        return Vec::new();
    }
    let mut first: BTreeMap<TeamId, Entry> = BTreeMap::new();
    for ((team, _), queue) in &state.index().queues {
        let mut unlimited = u32::MAX;
        let found = queue.find(None, &Wanted::fitting(now, Amount::MAX), &mut unlimited);
        if let Some(entry) = found.filter(|entry| first.get(team).is_none_or(|known| entry.key < known.key)) {
            first.insert(*team, entry);
        }
    }
    let urgent = |entry: &Entry| state.job(entry.key.job).is_some_and(|job| preempts(state, job));
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
    reclaims || preempts(state, job)
}

/// What an attempt holds, by task and in all.
struct Held<'a> {
    attempt: AttemptId,
    team: TeamId,
    tasks: Vec<&'a Task>,
    amount: Amount,
    /// When it is gone at the latest, by its limit or its stop.
    gone: Timestamp,
}

impl<'a> Held<'a> {
    fn by(state: &'a State, id: AttemptId, attempt: &Attempt, now: Timestamp) -> Self {
        let held = state.tasks_of(id).filter(|(_, task)| task.freed.is_none());
        let tasks: Vec<&Task> = held.map(|(_, task)| task).collect();
        let amount = tasks.iter().fold(Amount::default(), |sum, task| sum.plus(task.amount));
        let gone = attempt.expected_end().min(now + attempt.grace);
        Self { attempt: id, team: attempt.team, tasks, amount, gone }
    }
}

/// What is free, and what teams may take of it, once certain attempts are gone.
#[derive(Clone)]
pub(crate) struct Outlook<'a> {
    state: &'a State,
    rooms: Vec<Room>,
    shares: Shares<'a>,
    calendar: Calendar,
}

impl<'a> Outlook<'a> {
    /// Once all ends that are under way have come.
    pub(crate) fn settled(state: &'a State, now: Timestamp) -> Self {
        let rooms = place::free_rooms(state);
        let shares = Shares::new(state, place::total(&rooms));
        let mut outlook = Self { state, rooms, shares, calendar: Calendar::of(state, now) };
        for (id, attempt) in state.attempts().filter(|(_, attempt)| is_going(attempt)) {
            outlook.frees(&Held::by(state, id, attempt, now));
        }
        outlook
    }

    /// Whether quotas and loans allow that a team takes so much more then.
    pub(crate) fn allows(&self, team: TeamId, need: Amount) -> bool {
        need.fits(self.shares.left(team, Claim::Borrowed))
    }

    /// Keeps the room that others were stopped for: whatever is started meanwhile would take it, or
    /// cost another stop. None if it is not enough any more.
    pub(crate) fn reserve(&self, request: &JobRequest, now: Timestamp) -> Option<Reservation> {
        let spread = self.spread(request, now)?;
        let spare = place::less(self.rooms.clone(), &spread, request);
        let going = self.state.attempts().filter(|(_, attempt)| is_going(attempt));
        let ends: Vec<(AttemptId, Timestamp)> =
            going.map(|(id, attempt)| (id, attempt.expected_end())).collect();
        let at = ends.iter().map(|(_, end)| *end).max().unwrap_or(now).max(now);
        let after = ends.into_iter().map(|(id, _)| id).collect();
        let calendar = self.calendar.clone().holds_too(&spread, request, at);
        Some(Reservation { at, window: Nanos(0), spare, after, calendar })
    }

    /// Where an attempt of `request` fits then, beside what is reserved for others.
    fn spread(&self, request: &JobRequest, now: Timestamp) -> Option<Spread> {
        self.calendar.spread_after(&self.rooms, request, now)
    }

    fn frees(&mut self, held: &Held<'_>) {
        self.change(held, Room::gives_back);
        self.shares.gives_back(held.team, held.amount, place::total(&self.rooms));
        self.calendar.leaves(held.attempt, held.gone);
    }

    fn keeps(&mut self, held: &Held<'_>) {
        self.change(held, Room::takes_back);
        self.shares.takes_back(held.team, held.amount, place::total(&self.rooms));
        self.calendar.stays(held.attempt);
    }

    /// Nodes without a room take no new work.
    fn change(&mut self, held: &Held<'_>, by: impl Fn(&mut Room, &State, &Task)) {
        for task in &held.tasks {
            if let Some(room) = self.rooms.iter_mut().find(|room| room.node == task.node) {
                by(room, self.state, task);
            }
        }
    }
}

/// Whether an attempt is about to give back what it holds.
fn is_going(attempt: &Attempt) -> bool {
    attempt.leaked == 0 && (attempt.stop.is_some() || !attempt.is_live())
}

/// An attempt that could be stopped.
struct Candidate<'a> {
    id: AttemptId,
    attempt: &'a Attempt,
    job: &'a Job,
    held: Held<'a>,
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

/// What is there once all ends that are under way have come, and who could be stopped beside.
struct Scene<'a> {
    state: &'a State,
    now: Timestamp,
    outlook: Outlook<'a>,
    /// The first to stop first.
    candidates: Vec<Candidate<'a>>,
    /// The job that stops are under way for.
    waiting: Option<JobId>,
}

impl<'a> Scene<'a> {
    fn new(state: &'a State, now: Timestamp) -> Self {
        let policy = state.meta().preemption;
        let sound = || state.attempts().filter(|(_, attempt)| attempt.leaked == 0);
        let receipts = sound().filter_map(|(_, attempt)| attempt.stop?.receipt);
        let waiting = receipts.map(|receipt| receipt.job).find(|job| state.index().promised.contains(job));
        let stays = sound().filter(|(_, attempt)| !is_going(attempt));
        let candidate = |(id, attempt): (AttemptId, &'a Attempt)| {
            let job = state.job(attempt.member.job)?;
            let held = Held::by(state, id, attempt, now);
            Some(Candidate { id, attempt, job, held, borrowed: Vec::new() })
        };
        let candidates = stays.filter_map(candidate).collect();
        let mut scene = Self { state, now, outlook: Outlook::settled(state, now), candidates, waiting };
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
            *held = held.plus(candidate.held.amount);
            let over = |resource: Resource| {
                let (quota, held) = (resource.of(row.quota), resource.of(*held));
                (held > quota && resource.of(candidate.held.amount) > 0).then_some((resource, quota, held))
            };
            candidate.borrowed = Resource::ALL.into_iter().filter_map(over).collect();
        }
    }

    /// Who starts before `job`, if it may start at all: jobs that others were stopped for, and that
    /// still wait.
    fn before(&self, job: JobId) -> Vec<(TeamId, Entry)> {
        let promised = &self.state.index().promised;
        let is_promised = promised.contains(&job);
        let before = promised.iter().filter(|other| **other != job && (!is_promised || **other < job));
        let entries = before.filter_map(|other| self.state.entry(*other));
        let due = entries.filter(|(_, entry)| entry.not_before <= self.now);
        let empty = place::empty_rooms(self.state);
        let possible = due.filter(|(_, entry)| {
            let job = self.state.job(entry.key.job);
            job.is_some_and(|job| place::spread(&empty, &job.request).is_some())
        });
        possible.collect()
    }

    fn stop_for(&self, id: JobId) -> Option<Event> {
        let job = self.state.job(id)?;
        if self.waiting.is_some_and(|waiting| waiting != id) {
            return None;
        }
        let before = self.before(id);
        let outlook = self.outlook.clone();
        let mut trial = Trial { request: &job.request, outlook, before, now: self.now };
        if trial.starts() {
            return None;
        }
        let mut stopped = Vec::new();
        for candidate in &self.candidates {
            let Some(right) = self.right(id, job, candidate) else { continue };
            trial.outlook.frees(&candidate.held);
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
            trial.outlook.keeps(&candidate.held);
            if trial.starts() {
                stopped.remove(at);
            } else {
                trial.outlook.frees(&candidate.held);
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
            let urgent = preempts(self.state, job);
            let below = candidate.job.priority;
            let gives_way =
                candidate.job.preemptible && candidate.attempt.member.job != id && below < job.priority;
            return (urgent && gives_way).then_some(RightV1::Priority { above: job.priority, below });
        }
        if policy.reclaim == Reclaim::Never || !need.fits(self.outlook.shares.left(team, Claim::Own)) {
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
    outlook: Outlook<'a>,
    /// Who starts before it, by team.
    before: Vec<(TeamId, Entry)>,
    now: Timestamp,
}

impl Trial<'_> {
    fn starts(&self) -> bool {
        self.outlook.allows(self.request.team, Amount::of_attempt(self.request))
            && !self.before.iter().any(|(team, entry)| self.outlook.allows(*team, entry.need))
            && self.outlook.spread(self.request, self.now).is_some()
    }
}
