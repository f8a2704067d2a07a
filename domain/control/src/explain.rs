//! Why a job is where it is, by the very predicates that [`crate::decide`] uses.

use facts::event::{ReceiptV1, StopReason};
use facts::reservation::HolderV1;
use facts::{Event, JobRequest, Outcome};
use units::{
    ArrayIndex, AttemptId, GpuModel, JobId, MemberId, NodeId, ReservationId, SubjectId, TeamId, Timestamp,
};

use crate::admit::Resource;
use crate::calendar::Calendar;
use crate::decide::{Backfill, Head, Policy, decide, left, reserve, scan_for_head};
use crate::place;
use crate::reservation::Reservation;
use crate::rows::{Amount, Attempt, Job, Stop, Task};
use crate::share::{Claim, Shares};
use crate::state::State;

/// The most holders that an explanation names.
const MAX_HOLDERS: usize = 32;

/// Why a member of a job does not run, or that it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No such job or member, or it ended more than a day ago.
    Unknown,
    /// It is over.
    Ended {
        /// The worst outcome of the job's members so far.
        worst: Option<Outcome>,
    },
    /// It runs, or is about to.
    Running {
        /// Its attempt.
        attempt: AttemptId,
        /// Since when.
        since: Timestamp,
        /// When its time limit strikes.
        until: Option<Timestamp>,
    },
    /// It was told to stop.
    Stopping {
        /// Its attempt.
        attempt: AttemptId,
        /// Why.
        reason: StopReason,
        /// For whom, where it makes room.
        receipt: Option<ReceiptV1>,
        /// Since when.
        since: Timestamp,
        /// Whether its tasks ended and what they held is not proven free.
        held: bool,
    },
    /// It ended, and what it held is not proven free.
    Freeing {
        /// Its attempt.
        attempt: AttemptId,
        /// Whether something of it is known to live on.
        leaked: bool,
    },
    /// The next decision ends it: it was cancelled, or can never start.
    Ending,
    /// Somebody holds it.
    Held,
    /// These jobs must do something first.
    DependencyPending(Vec<JobId>),
    /// As many members of its array run as may.
    ArrayLimit {
        /// The limit.
        limit: u32,
    },
    /// It failed and waits for another try.
    RetryWait(Timestamp),
    /// Others were told to stop so that it starts.
    RoomIsMade {
        /// When the last of them is killed at the latest.
        by: Option<Timestamp>,
        /// Who.
        holders: Vec<Holder>,
    },
    /// Its team holds too much already.
    QuotaOfTeam {
        /// The team.
        team: TeamId,
        /// Of what.
        resource: Resource,
        /// The limit: its quota and what it may borrow.
        limit: u64,
        /// What the team holds.
        used: u64,
        /// What an attempt needs.
        need: u64,
    },
    /// Its team would borrow, and others do not lend so much.
    NotLent {
        /// The team.
        team: TeamId,
        /// Of what.
        resource: Resource,
        /// What is free.
        free: u64,
        /// What of that other teams keep for themselves.
        kept: u64,
        /// What an attempt needs.
        need: u64,
    },
    /// It would fit if processes that were not started here held no GPUs.
    HeldOutside {
        /// How many they hold on nodes that take new work.
        gpus: u64,
    },
    /// It would fit if these nodes took new work.
    NodesDrained(Vec<NodeId>),
    /// No node is large enough any more.
    NoNode,
    /// Others hold what it needs.
    Resources {
        /// What is lacking, and how much of it; nothing where only no one node has all of it.
        missing: Vec<(Resource, u64)>,
        /// The model that its GPUs must be of.
        model: Option<GpuModel>,
        /// When it is expected to fit, if nothing is started before; none is never.
        free_at: Option<Timestamp>,
        /// Who must end for that.
        holders: Vec<Holder>,
    },
    /// It would fit, but runs into what is kept for somebody else.
    Reserved {
        /// The reservation.
        reservation: ReservationId,
        /// Whose it is.
        holder: HolderV1,
        /// From when.
        from: Timestamp,
        /// Until when.
        until: Timestamp,
        /// When the job is expected to fit, if nothing is started before; none is never.
        free_at: Option<Timestamp>,
    },
    /// It fits, but would delay the job at the head of the queue.
    Behind {
        /// The head.
        head: JobId,
        /// When the head is expected to start; none where attempts without limit run.
        starts_at: Option<Timestamp>,
    },
    /// It fits; its turn comes within the decisions that are being taken.
    Next,
    /// It fits, but a pass looks at fewer jobs than are ahead of it.
    NotExamined {
        /// The limit.
        limit: u32,
    },
}

/// Who holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which member.
    pub member: MemberId,
    /// Whose job.
    pub owner: SubjectId,
    /// What it holds.
    pub amount: Amount,
    /// Since when.
    pub since: Timestamp,
    /// When it is expected to be free; none is never.
    pub expected_end: Option<Timestamp>,
}

/// Why `job`, or the member `index` of it, is where it is. Without an index: the next member
/// to start, or if none is left one that runs.
pub fn why(state: &State, id: JobId, index: Option<ArrayIndex>, now: Timestamp, policy: &Policy) -> Why {
    let Some(job) = state.job(id) else { return Why::Unknown };
    let member = index.map(|index| MemberId { job: id, index });
    let running = match member {
        Some(member) => state.attempt_of(member),
        None if job.pending.is_empty() && job.retrying == 0 => state.attempts_of(id).next(),
        None => None,
    };
    if let Some((attempt, _)) = running {
        return of_attempt(state, attempt);
    }
    let waits = |member: MemberId| job.pending.contains(member.index) || state.retry(member).is_some();
    let ends = |member: MemberId| job.ending.contains(member.index);
    if member.map_or(!job.ending.is_empty() && job.pending.is_empty(), ends)
        || job.doomed && job.ended.is_none()
    {
        return Why::Ending;
    }
    if member.is_some_and(|member| !job.request.members().contains(member.index)) {
        return Why::Unknown;
    }
    if job.ended.is_some() || member.is_some_and(|member| !waits(member)) {
        return Why::Ended { worst: job.worst.clone() };
    }
    let not_before = member.map_or_else(
        || state.first_retry(id).filter(|_| job.pending.is_empty()).map(|(_, at)| at),
        |member| state.retry(member).map(|retry| retry.not_before),
    );
    of_waiting(state, id, job, not_before, now, *policy)
}

fn of_attempt(state: &State, id: AttemptId) -> Why {
    let Some(attempt) = state.attempt(id) else { return Why::Unknown };
    match attempt.stop {
        Some(stop) => {
            let Stop { reason, at: since, receipt } = stop;
            Why::Stopping { attempt: id, reason, receipt, since, held: !attempt.is_live() }
        }
        None if attempt.is_live() => {
            Why::Running { attempt: id, since: attempt.started, until: attempt.deadline }
        }
        None => Why::Freeing { attempt: id, leaked: attempt.leaked > 0 },
    }
}

/// The order is that in which `decide` rules a job out.
fn of_waiting(
    state: &State,
    id: JobId,
    job: &Job,
    not_before: Option<Timestamp>,
    now: Timestamp,
    policy: Policy,
) -> Why {
    if job.held {
        return Why::Held;
    }
    if !job.open.is_empty() {
        return Why::DependencyPending(job.open.iter().map(|dependency| dependency.job).collect());
    }
    if job.is_at_array_limit() {
        return Why::ArrayLimit { limit: job.running };
    }
    if let Some(at) = not_before.filter(|at| *at > now) {
        return Why::RetryWait(at);
    }
    let request = &job.request;
    room_is_made(state, id)
        .or_else(|| over_quota(state, request))
        .or_else(|| no_node(state, request))
        .or_else(|| no_room(state, request, now))
        .or_else(|| not_lent(state, request))
        .or_else(|| reserved(state, request, now))
        .unwrap_or_else(|| of_fitting(state, id, now, policy))
}

fn room_is_made(state: &State, id: JobId) -> Option<Why> {
    let makes_room = |attempt: &Attempt| {
        attempt.leaked == 0 && attempt.stop.and_then(|stop| stop.receipt).is_some_and(|to| to.job == id)
    };
    let stopping = state.attempts().filter(|(_, attempt)| makes_room(attempt));
    let holders: Vec<Holder> = stopping.filter_map(|(id, _)| holder(state, id)).collect();
    let by = holders.iter().map(|holder| holder.expected_end.unwrap_or(Timestamp::MAX)).max()?;
    Some(Why::RoomIsMade { by: finite(by), holders })
}

fn over_quota(state: &State, request: &JobRequest) -> Option<Why> {
    let (team, need) = (request.team, Amount::of_attempt(request));
    let (row, used) = (state.team(team)?, state.used_by(team));
    let resource = Resource::lacking(need, row.limit().less(used))?;
    Some(Why::QuotaOfTeam {
        team,
        resource,
        limit: resource.of(row.limit()),
        used: resource.of(used),
        need: resource.of(need),
    })
}

/// Its team would borrow more than others leave free and lend.
fn not_lent(state: &State, request: &JobRequest) -> Option<Why> {
    let (team, need) = (request.team, Amount::of_attempt(request));
    let free = place::total(&place::free_rooms(state));
    let shares = Shares::new(state, free);
    let resource = Resource::lacking(need, shares.left(team, Claim::Borrowed))?;
    Some(Why::NotLent {
        team,
        resource,
        free: resource.of(free),
        kept: resource.of(shares.kept_from(team)),
        need: resource.of(need),
    })
}

fn no_node(state: &State, request: &JobRequest) -> Option<Why> {
    if place::spread(&place::empty_rooms(state), request).is_some() {
        return None;
    }
    if place::spread(&place::whole_rooms(state, false), request).is_some() {
        let nodes = state.nodes().filter(|(_, node)| node.schedulable);
        let held = nodes.map(|(_, node)| node.outside.len() as u64).sum();
        return Some(Why::HeldOutside { gpus: held });
    }
    if place::spread(&place::whole_rooms(state, true), request).is_none() {
        return Some(Why::NoNode);
    }
    let drained = state.nodes().filter(|(_, node)| !node.schedulable).map(|(id, _)| id);
    Some(Why::NodesDrained(drained.collect()))
}

fn no_room(state: &State, request: &JobRequest, now: Timestamp) -> Option<Why> {
    let free = place::free_rooms(state);
    if place::spread(&free, request).is_some() {
        return None;
    }
    let (need, room) = (Amount::of_attempt(request), place::usable(&free, request));
    let lack = |resource: Resource| (resource, resource.of(need).saturating_sub(resource.of(room)));
    let missing: Vec<_> = Resource::ALL.into_iter().map(lack).filter(|(_, lack)| *lack > 0).collect();
    let (model, reservation) = (request.gpu_model, place::reserve(state, request, now));
    let after = reservation.iter().flat_map(|reservation| &reservation.after);
    let lacking = |task: &Task| {
        let of_model = || state.sorted_devices(task.node).is_some_and(|all| all.any(&task.devices, model));
        missing.iter().any(|(what, _)| match what {
            Resource::Gpus => of_model(),
            other => other.of(task.amount) > 0,
        })
    };
    let holds = |id: &&AttemptId| {
        missing.is_empty() || state.tasks_of(**id).any(|(_, task)| task.freed.is_none() && lacking(task))
    };
    let holders = after.filter(holds).filter_map(|id| holder(state, *id)).take(MAX_HOLDERS).collect();
    Some(Why::Resources { missing, model, free_at: reservation.and_then(|r| finite(r.at)), holders })
}

fn reserved(state: &State, request: &JobRequest, now: Timestamp) -> Option<Why> {
    let calendar = Calendar::of(state, now);
    let (reservation, row) = calendar.in_the_way(&place::free_rooms(state), request, now)?;
    let Reservation { holder, from, until, .. } = *row;
    let free_at = place::reserve(state, request, now).and_then(|reservation| finite(reservation.at));
    Some(Why::Reserved { reservation, holder, from, until, free_at })
}

pub(crate) fn holder(state: &State, id: AttemptId) -> Option<Holder> {
    let attempt = state.attempt(id)?;
    let held = state.tasks_of(id).filter(|(_, task)| task.freed.is_none());
    Some(Holder {
        member: attempt.member,
        owner: state.job(attempt.member.job)?.request.owner,
        amount: held.fold(Amount::default(), |sum, (_, task)| sum.plus(task.amount)),
        since: attempt.started,
        expected_end: finite(attempt.expected_end()),
    })
}

fn finite(at: Timestamp) -> Option<Timestamp> {
    (at < Timestamp::MAX).then_some(at)
}

/// It fits by itself: it is the head, behind it, or out of the pass's sight.
fn of_fitting(state: &State, id: JobId, now: Timestamp, policy: Policy) -> Why {
    let free = place::free_rooms(state);
    let shares = Shares::new(state, place::total(&free));
    let Some((team, entry)) = state.entry(id) else { return Why::Next };
    let promised = &state.index().promised;
    if !promised.contains(&id) && !entry.need.fits(left(state, &shares, team, Claim::Borrowed)) {
        let of_team = |job: &JobId| state.job(*job).is_some_and(|job| job.request.team == team);
        if let Some(head) = promised.iter().copied().find(of_team) {
            let starts_at = reserve(state, head, now).and_then(|reservation| finite(reservation.at));
            return Why::Behind { head, starts_at };
        }
    }
    let calendar = Calendar::of(state, now);
    let Some(Head::Waits(head)) = scan_for_head(state, now, &free, &shares, &calendar) else {
        return Why::Next;
    };
    let Some(reservation) = reserve(state, head.key.job, now) else { return Why::Next };
    let starts_at = finite(reservation.at);
    if Backfill::new(now, free, calendar, reservation).spread(state, &entry).is_none() {
        return Why::Behind { head: head.key.job, starts_at };
    }
    if matches!(decide(state, now, &policy), None | Some(Event::PassCut(_))) {
        Why::NotExamined { limit: policy.max_examined }
    } else {
        Why::Next
    }
}
