//! What to do next: one decision at a time, from the state and the time alone.

use facts::event::{AttemptClosedV1, MembersEndedV1, PassCutV1, StartedV1, StopOrderedV2, StopReason};
use facts::{Event, IndexSet, Outcome};
use units::{AttemptId, JobId, MemberId, Nanos, TeamId, Timestamp};

use crate::calendar::{self, Calendar};
use crate::outcome;
use crate::place::{self, Reservation, Room};
use crate::preempt::{self, Outlook};
use crate::queue::{Entry, Key, Wanted};
use crate::rows::{Amount, Job};
use crate::share::{Claim, Shares};
use crate::state::State;

/// What may differ between installations and versions without changing history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Jobs that a pass looks at one by one to start them ahead of the head of the queue.
    pub max_examined: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_examined: 1_000 }
    }
}

/// That passes are cut short is recorded at most so often.
const CUT_AGAIN: Nanos = Nanos::from_secs(3_600);

/// The single next decision, or none until an event or [`State::next_wake`]. Whoever calls
/// applies it and asks again.
pub fn decide(state: &State, now: Timestamp, policy: &Policy) -> Option<Event> {
    end_cancelled(state)
        .or_else(|| stop(state, now))
        .or_else(|| close(state, now))
        .or_else(|| end_doomed(state))
        .or_else(|| start(state, now, *policy))
}

fn end_cancelled(state: &State) -> Option<Event> {
    let id = *state.index().ending.first()?;
    let members = state.job(id)?.ending.clone();
    Some(Event::MembersEnded(MembersEndedV1 { job: id, members, outcome: Outcome::Cancelled }))
}

fn stop(state: &State, now: Timestamp) -> Option<Event> {
    let index = state.index();
    let cancelled = index.cancelled.first().map(|id| (*id, StopReason::Cancel));
    let late =
        || index.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, id)| (*id, StopReason::TimeLimit));
    let broken = || index.broken.first().map(|id| (*id, StopReason::GangMate));
    let unhealthy = || index.unhealthy.first().map(|id| (*id, StopReason::Unhealthy));
    let (attempt, reason) = cancelled.or_else(late).or_else(broken).or_else(unhealthy)?;
    Some(Event::StopOrdered(StopOrderedV2 { attempt, reason, receipt: None }))
}

fn close(state: &State, now: Timestamp) -> Option<Event> {
    let id: AttemptId = *state.index().closable.first()?;
    let attempt = state.attempt(id)?;
    let request = &state.job(attempt.member.job)?.request;
    let ends: Vec<_> = state.tasks_of(id).filter_map(|(_, task)| task.end.as_ref()).collect();
    let outcome = outcome::of_attempt(attempt, request, &ends);
    let next = outcome::next(attempt, request, &outcome, now);
    Some(Event::AttemptClosed(AttemptClosedV1 { attempt: id, outcome, next }))
}

fn end_doomed(state: &State) -> Option<Event> {
    let id: JobId = *state.index().doomed.first()?;
    let members: IndexSet = state.job(id)?.pending.clone();
    Some(Event::MembersEnded(MembersEndedV1 { job: id, members, outcome: Outcome::DependencyFailed }))
}

/// Starts the first job that fits, in queue order. The first that does not is the head: room is
/// made for it where others must give way, it gets the only reservation, and later jobs start if
/// they do not delay it.
fn start(state: &State, now: Timestamp, policy: Policy) -> Option<Event> {
    let free = place::free_rooms(state);
    let shares = Shares::new(state, place::total(&free));
    let calendar = Calendar::of(state, now);
    let head = match scan_for_head(state, now, &free, &shares, &calendar) {
        Some(Head::Starts(job, spread)) => return started(state, job, now, &spread),
        Some(Head::Waits(entry)) => Some(entry),
        None => None,
    };
    if let Some(stop) = preempt::stop_for(state, head.as_ref(), now) {
        return Some(stop);
    }
    let head = head?;
    let turns = turns(state, &head, &shares);
    let fit = place::total(&free);
    let mut budget = policy.max_examined;
    // The reservation costs a walk over all attempts: only make it for somebody.
    let mut looking = budget;
    let anybody = turns.iter().any(|(claim, after)| {
        let any = |team| Wanted::fitting(now, fit.min(left(state, &shares, team, *claim)));
        next_in_queue(state, *after, any, &mut looking).is_some()
    });
    if !anybody {
        return cut(state, now, policy, looking);
    }
    let reservation = reserve(state, head.key.job, now)?;
    let backfill = Backfill::new(now, free, calendar, reservation);
    for (claim, mut after) in turns {
        let wanted = |team| backfill.wanted(left(state, &shares, team, claim));
        while budget > 0 {
            let Some(entry) = next_in_queue(state, after, wanted, &mut budget) else { break };
            let job = entry.key.job;
            if let Some(spread) = backfill.spread(state, &entry) {
                return started(state, job, now, &spread);
            }
            budget -= 1;
            after = Some(entry.key);
        }
    }
    cut(state, now, policy, budget)
}

/// Who is looked at behind the head, and from where in the queue: first those that keep to their
/// quota, then those that borrow.
fn turns(state: &State, head: &Entry, shares: &Shares<'_>) -> Vec<(Claim, Option<Key>)> {
    // Whoever was promised room may come from anywhere in the queue, and whoever borrows was passed.
    let promised = state.index().promised.contains(&head.key.job);
    let keeps =
        state.job(head.key.job).is_some_and(|job| head.need.fits(shares.left(job.request.team, Claim::Own)));
    let first = Some(head.key).filter(|_| !promised && keeps);
    let own = (keeps || promised).then_some((Claim::Own, first));
    let behind = Some(head.key).filter(|_| !promised && !keeps);
    let borrowed = shares.any_borrows().then_some((Claim::Borrowed, behind));
    own.into_iter().chain(borrowed).collect()
}

/// What a team may take beside what is kept for jobs that others were stopped for.
pub(crate) fn left(state: &State, shares: &Shares<'_>, team: TeamId, claim: Claim) -> Amount {
    let promised = state.index().promised.iter().filter_map(|id| state.entry(*id));
    let kept = promised.filter(|(of, _)| *of == team).map(|(_, entry)| entry.need);
    shares.left(team, claim).less(kept.fold(Amount::default(), Amount::plus))
}

/// Records that a pass used up its budget, unless that was recorded within the last hour: while the
/// queue is long, every pass does.
fn cut(state: &State, now: Timestamp, policy: Policy, left: u32) -> Option<Event> {
    let known = state.meta().cut.is_some_and(|(at, _)| now.since(at) < CUT_AGAIN);
    let is_cut = left == 0 && !known;
    is_cut.then_some(Event::PassCut(PassCutV1 { limit: policy.max_examined }))
}

/// The first job of the queue that quota and nodes allow at all.
pub(crate) enum Head {
    /// It fits now.
    Starts(JobId, place::Spread),
    /// It must wait for others to end.
    Waits(Entry),
}

/// Finds the head: a job that others were stopped for, else the first that keeps to its team's
/// quota, else the first that borrows. Jobs of a team that may take no more, and jobs that no node
/// taking new work could hold, block nobody.
pub(crate) fn scan_for_head(
    state: &State,
    now: Timestamp,
    free: &[Room],
    shares: &Shares<'_>,
    calendar: &Calendar,
) -> Option<Head> {
    let empty = place::empty_rooms(state);
    let head = |entry: Entry, may_start: bool| {
        let request = &state.job(entry.key.job)?.request;
        match calendar.spread(free, request, now).filter(|_| may_start) {
            Some(spread) => Some(Head::Starts(entry.key.job, spread)),
            None => place::spread(&empty, request).map(|_| Head::Waits(entry)),
        }
    };
    // What is promised may be of its own team: then its quota comes free with the room.
    let mut settled = None;
    let promised = state.index().promised.iter().filter_map(|id| state.entry(*id));
    let mut promised = promised.filter(|(_, entry)| entry.not_before <= now);
    let promised = promised.find_map(|(team, entry)| {
        let may_start = entry.need.fits(shares.left(team, Claim::Borrowed));
        let may =
            may_start || settled.get_or_insert_with(|| Outlook::settled(state, now)).allows(team, entry.need);
        may.then(|| head(entry, may_start)).flatten()
    });
    if promised.is_some() {
        return promised;
    }
    let capacity = place::total(&empty);
    let claims = [Some(Claim::Own), shares.any_borrows().then_some(Claim::Borrowed)];
    claims.into_iter().flatten().find_map(|claim| {
        let (mut after, mut unlimited) = (None, u32::MAX);
        loop {
            let wanted = |team| Wanted::fitting(now, capacity.min(left(state, shares, team, claim)));
            let entry = next_in_queue(state, after, wanted, &mut unlimited)?;
            if let Some(head) = head(entry, true) {
                return Some(head);
            }
            after = Some(entry.key);
        }
    })
}

/// Reserves the earliest place for the head. None if it would not fit even on empty nodes.
pub(crate) fn reserve(state: &State, head: JobId, now: Timestamp) -> Option<Reservation> {
    let request = &state.job(head)?.request;
    let promised = state.index().promised.contains(&head);
    let promised = promised.then(|| Outlook::settled(state, now).reserve(request, now)).flatten();
    promised.or_else(|| place::reserve(state, request, now))
}

/// What may start ahead of the head.
pub(crate) struct Backfill {
    now: Timestamp,
    window: Nanos,
    free: Vec<Room>,
    spare: Vec<Room>,
    calendar: Calendar,
    /// When the head is expected to start, and what is kept for others from then on.
    head: (Timestamp, Calendar),
}

impl Backfill {
    pub(crate) fn new(now: Timestamp, free: Vec<Room>, calendar: Calendar, reservation: Reservation) -> Self {
        let Reservation { at, window, spare, calendar: then, .. } = reservation;
        let spare = place::both(&free, &spare);
        Self { now, window, free, spare, calendar, head: (at, then) }
    }

    fn wanted(&self, left: Amount) -> Wanted {
        Wanted {
            now: self.now,
            room: place::total(&self.free).min(left),
            // Whoever has reserved need not stand back for the head.
            spare: place::total(if self.calendar.is_open(self.now) { &self.free } else { &self.spare }),
            window: self.window,
        }
    }

    /// Where `entry` fits: anywhere if it is over before the head starts, else beside the head, or in
    /// what is kept for its owner or team.
    pub(crate) fn spread(&self, state: &State, entry: &Entry) -> Option<place::Spread> {
        let request = &state.job(entry.key.job)?.request;
        let end = calendar::end(request, self.now);
        if entry.estimate <= self.window {
            return place::spread(&self.calendar.allowed(&self.free, request, self.now, end), request);
        }
        let rooms = self.calendar.allowed(&self.spare, request, self.now, end);
        let beside = place::spread(&self.head.1.allowed(&rooms, request, self.head.0, end), request);
        beside.or_else(|| self.calendar.spread_within(&self.free, request, self.now))
    }
}

/// The first wanted entry after `after`, over all teams.
fn next_in_queue(
    state: &State,
    after: Option<Key>,
    wanted: impl Fn(TeamId) -> Wanted,
    budget: &mut u32,
) -> Option<Entry> {
    let queues = state.index().queues.iter();
    let first =
        |((team, _), queue): (&(TeamId, _), &crate::queue::Queue)| queue.find(after, &wanted(*team), budget);
    queues.filter_map(first).min_by_key(|entry| entry.key)
}

fn started(state: &State, id: JobId, now: Timestamp, spread: &place::Spread) -> Option<Event> {
    let job: &Job = state.job(id)?;
    let member = next_member(state, id, job, now)?;
    let number = state.retry(member).map_or(0, |retry| retry.attempts) + 1;
    Some(Event::Started(StartedV1 {
        attempt: state.next_attempt_id(),
        job: id,
        index: member.index,
        number,
        tasks: place::place(state, &job.request, spread),
    }))
}

/// Who of a job's members starts next: the retry that fell due first, then the lowest index.
fn next_member(state: &State, id: JobId, job: &Job, now: Timestamp) -> Option<MemberId> {
    let due = state.first_retry(id).filter(|(_, at)| *at <= now).map(|(member, _)| member);
    due.or_else(|| Some(MemberId { job: id, index: job.pending.first()? }))
}
