//! A scheduler that remembers nothing: it reads the rows, lists and sorts everything anew for
//! each decision, and says in the plainest way what [`control::decide`] must say.

use std::collections::BTreeSet;

use control::{Amount, Attempt, Job, State};
use facts::event::{
    AttemptClosedV1, MembersEndedV1, Next, PlacementV1, StartedV1, StopOrderedV2, StopReason,
};
use facts::{Event, JobRequest, Outcome, TaskExit};
use units::{AttemptId, DeviceIndex, JobId, MemberId, NodeId, TeamId, Timestamp};

pub(crate) fn decide(state: &State, now: Timestamp) -> Option<Event> {
    for (job, row) in state.jobs() {
        if !row.ending.is_empty() {
            let members = row.ending.clone();
            return Some(Event::MembersEnded(MembersEndedV1 { job, members, outcome: Outcome::Cancelled }));
        }
    }
    if let Some((attempt, reason)) = stop(state, now) {
        return Some(Event::StopOrdered(StopOrderedV2 { attempt, reason, receipt: None }));
    }
    for (id, attempt) in state.attempts() {
        if state.tasks_of(id).all(|(_, task)| task.freed.is_some()) {
            return Some(close(state, id, attempt, now));
        }
    }
    for (job, row) in state.jobs() {
        if row.doomed && row.ended.is_none() {
            let (members, outcome) = (row.pending.clone(), Outcome::DependencyFailed);
            return Some(Event::MembersEnded(MembersEndedV1 { job, members, outcome }));
        }
    }
    start(state, now)
}

fn stop(state: &State, now: Timestamp) -> Option<(AttemptId, StopReason)> {
    let live = |id| state.tasks_of(id).any(|(_, task)| task.end.is_none());
    let open: Vec<_> = state.attempts().filter(|(id, row)| row.stop.is_none() && live(*id)).collect();
    let cancelled = open.iter().find(|(_, row)| row.cancelled).map(|(id, _)| (*id, StopReason::Cancel));
    let late = open.iter().filter_map(|(id, row)| Some((limit(state, row)?, *id)));
    let late = late.filter(|(at, _)| *at <= now).min().map(|(_, id)| (id, StopReason::TimeLimit));
    let bad = |id: AttemptId| {
        let mut ends = state.tasks_of(id).filter_map(|(_, task)| task.end.as_ref());
        ends.any(|end| end.exit != TaskExit::Exited(0))
    };
    let broken = open.iter().find(|(id, _)| bad(*id)).map(|(id, _)| (*id, StopReason::GangMate));
    let sick = open.iter().find(|(_, row)| row.healthy == Some(false));
    cancelled.or(late).or(broken).or(sick.map(|(id, _)| (*id, StopReason::Unhealthy)))
}

fn limit(state: &State, row: &Attempt) -> Option<Timestamp> {
    Some(row.started + state.job(row.member.job)?.request.time_limit?)
}

fn close(state: &State, id: AttemptId, attempt: &Attempt, now: Timestamp) -> Event {
    let request = &state.job(attempt.member.job).expect("an open attempt's job is known").request;
    let ends: Vec<_> = state.tasks_of(id).filter_map(|(_, task)| task.end.clone()).collect();
    let was_stopped = ends.iter().any(|end| end.stopped);
    let outcome = match attempt.stop.filter(|_| was_stopped).map(|stop| stop.reason) {
        Some(StopReason::Cancel) => Outcome::Cancelled,
        Some(StopReason::TimeLimit) => Outcome::TimeLimit,
        Some(StopReason::Unhealthy) => Outcome::Signal(request.stop.signal),
        _ => {
            let own = ends.iter().filter(|end| !end.stopped || end.exit == TaskExit::NodeRestart);
            let exits: Vec<_> = own.map(|end| &end.exit).collect();
            let code = |exit: &&TaskExit| match exit {
                TaskExit::Exited(code) => *code,
                other => panic!("the histories make no {other:?}"),
            };
            if exits.contains(&&TaskExit::NodeRestart) {
                Outcome::NodeRestart
            } else if exits.contains(&&TaskExit::Unknown) {
                Outcome::Unknown
            } else {
                match exits.iter().map(code).max() {
                    Some(0) => Outcome::Success,
                    Some(code) => Outcome::Code(code),
                    None => panic!("some task ended by itself"),
                }
            }
        }
    };
    let next = match outcome {
        _ if attempt.cancelled => Next::Finish,
        Outcome::NodeRestart if request.retry.requeue => Next::Retry { not_before: now, counted: false },
        Outcome::Code(_) | Outcome::Signal(_) | Outcome::Unknown if attempt.counted < request.retry.max => {
            let mut delay = request.retry.backoff;
            for _ in 0..attempt.counted {
                delay = (delay + delay).min(request.retry.backoff_max);
            }
            Next::Retry { not_before: now + delay, counted: true }
        }
        _ => Next::Finish,
    };
    Event::AttemptClosed(AttemptClosedV1 { attempt: id, outcome, next })
}

/// What is free: amounts by node.
type Room = Vec<(NodeId, Amount)>;

/// What nodes have beside the tasks that still hold something and are not in `gone`.
fn room(state: &State, gone: &BTreeSet<AttemptId>) -> Room {
    let held = |node: NodeId| {
        let open = state.attempts().filter(|(id, _)| !gone.contains(id));
        let tasks = open.flat_map(|(id, _)| state.tasks_of(id));
        let tasks = tasks.filter(|(_, task)| task.node == node && task.freed.is_none());
        tasks.fold(Amount::default(), |sum, (_, task)| sum.plus(task.amount))
    };
    let nodes = state.nodes().filter(|(_, node)| node.schedulable);
    nodes.map(|(id, node)| (id, node.capacity.less(held(id)))).collect()
}

/// Puts the tasks on the first nodes with room, one by one; says where, and takes the room.
fn fill(room: &mut Room, request: &JobRequest) -> Option<Vec<NodeId>> {
    let need = Amount::of(&request.per_task);
    let mut nodes = Vec::new();
    for _ in 0..request.tasks {
        let (node, free) = room.iter_mut().find(|(_, free)| need.fits(*free))?;
        *free = free.less(need);
        nodes.push(*node);
    }
    Some(nodes)
}

/// Jobs that could start a member now were there room, first come first.
fn eligible(state: &State, now: Timestamp) -> Vec<(JobId, &Job, MemberId)> {
    let member = |(id, job): (JobId, &Job)| {
        let due = state.retries_of(id).filter(|(_, retry)| retry.not_before <= now);
        let due =
            due.min_by_key(|(member, retry)| (retry.not_before, member.index)).map(|(member, _)| member);
        due.or_else(|| Some(MemberId { job: id, index: job.pending.first()? }))
    };
    let limit =
        |job: &Job| job.request.array.as_ref().and_then(|array| array.max_running).unwrap_or(u32::MAX);
    let ready = |job: &Job| !job.held && job.open.is_empty() && !job.doomed && job.running < limit(job);
    let jobs = state.jobs().filter(|(_, job)| ready(job));
    let mut list: Vec<_> = jobs.filter_map(|(id, job)| Some((id, job, member((id, job))?))).collect();
    let hour = 3_600_000_000_000_i128;
    list.sort_by_key(|(id, job, _)| (i128::from(job.submitted.0) - i128::from(job.priority) * hour, *id));
    list
}

fn quota_left(state: &State, team: TeamId) -> Amount {
    let tasks = state.attempts().flat_map(|(id, _)| state.tasks_of(id));
    let held = tasks.filter(|(_, task)| task.team == team && task.freed.is_none());
    let used = held.fold(Amount::default(), |sum, (_, task)| sum.plus(task.amount));
    state.team(team).map_or(Amount::default(), |row| row.quota.less(used))
}

fn expected_end(state: &State, id: AttemptId, row: &Attempt, now: Timestamp) -> Timestamp {
    let tasks: Vec<_> = state.tasks_of(id).map(|(_, task)| task).collect();
    if tasks.iter().any(|task| task.leaked.is_some() && task.freed.is_none()) {
        return Timestamp::MAX;
    }
    if tasks.iter().all(|task| task.end.is_some()) {
        return now;
    }
    let limit = limit(state, row).unwrap_or(Timestamp::MAX);
    let killed = row.stop.map_or(Timestamp::MAX, |stop| stop.at + row.grace);
    limit.min(killed).max(now)
}

/// When the head fits, and what else fits beside it then.
fn reserve(state: &State, request: &JobRequest, now: Timestamp) -> Option<(Timestamp, Room)> {
    let ends: Vec<_> = state.attempts().map(|(id, row)| (expected_end(state, id, row, now), id)).collect();
    let times: BTreeSet<Timestamp> = ends.iter().map(|(at, _)| *at).collect();
    times.into_iter().find_map(|time| {
        let gone = ends.iter().filter(|(at, _)| *at <= time).map(|(_, id)| *id).collect();
        let mut room = room(state, &gone);
        fill(&mut room, request).map(|_| (time, room))
    })
}

fn start(state: &State, now: Timestamp) -> Option<Event> {
    let free = room(state, &BTreeSet::new());
    let everybody = state.attempts().map(|(id, _)| id).collect();
    let mut reservation: Option<(Timestamp, Room)> = None;
    for (id, job, member) in eligible(state, now) {
        let request = &job.request;
        if !Amount::of_attempt(request).fits(quota_left(state, request.team)) {
            continue;
        }
        let mut allowed = free.clone();
        if let Some((at, beside)) = &reservation {
            let in_time = request.time_limit.is_some_and(|limit| *at == Timestamp::MAX || now + limit <= *at);
            if !in_time {
                for ((_, free), (_, beside)) in allowed.iter_mut().zip(beside) {
                    *free = free.min(*beside);
                }
            }
        }
        if let Some(nodes) = fill(&mut allowed, request) {
            return Some(started(state, id, member, request, &nodes));
        }
        if reservation.is_none() && fill(&mut room(state, &everybody), request).is_some() {
            reservation = Some(reserve(state, request, now)?);
        }
    }
    None
}

fn started(state: &State, id: JobId, member: MemberId, request: &JobRequest, nodes: &[NodeId]) -> Event {
    let open = state.attempts().flat_map(|(id, _)| state.tasks_of(id));
    let held = open.filter(|(_, task)| task.freed.is_none());
    let mut taken: BTreeSet<(NodeId, DeviceIndex)> =
        held.flat_map(|(_, task)| task.devices.iter().map(|device| (task.node, *device))).collect();
    let mut place = |node: NodeId| {
        let free = (0..).map(DeviceIndex).filter(|device| !taken.contains(&(node, *device)));
        let devices: Vec<_> = free.take(usize::from(request.per_task.gpus)).collect();
        taken.extend(devices.iter().map(|device| (node, *device)));
        PlacementV1 { node, devices }
    };
    Event::Started(StartedV1 {
        attempt: state.next_attempt_id(),
        job: id,
        index: member.index,
        number: state.retry(member).map_or(1, |retry| retry.attempts + 1),
        tasks: nodes.iter().map(|node| place(*node)).collect(),
    })
}
