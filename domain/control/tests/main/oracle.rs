//! A scheduler that remembers nothing: it reads the rows, lists and sorts everything anew for
//! each decision, and says in the plainest way what [`control::decide`] must say.

use std::collections::BTreeSet;

use control::{Amount, Attempt, Job, Node, Reservation, Resource, State};
use facts::event::{
    AttemptClosedV1, MembersEndedV1, Next, PlacementV1, ReceiptV1, Reclaim, RightV1, StartedV1,
    StopOrderedV2, StopReason,
};
use facts::reservation::HolderV1;
use facts::{Event, JobRequest, Outcome, TaskExit};
use units::{AttemptId, DeviceIndex, GpuModel, JobId, MemberId, NodeId, SubjectId, TeamId, Timestamp};

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
        Some(StopReason::Preempt) => Outcome::Preempted,
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
        Outcome::NodeRestart | Outcome::Preempted if request.retry.requeue => {
            Next::Retry { not_before: now, counted: false }
        }
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

/// What is free on each node: cores and memory, and its devices by model, in the order in which the
/// node names the models.
type Room = Vec<(NodeId, Free)>;

#[derive(Clone, Debug)]
struct Free {
    /// Without devices.
    amount: Amount,
    models: Vec<(Option<GpuModel>, u64)>,
    /// No more devices than so many, of whatever model.
    most: u64,
}

impl Free {
    fn caps(&mut self, most: Amount) {
        self.amount = self.amount.min(most);
        self.most = self.most.min(most.gpus);
    }

    fn gpus(&self) -> u64 {
        self.models.iter().map(|(_, count)| count).sum()
    }

    /// Takes one task in, if it fits: of each model in turn, as far as that goes.
    fn take(&mut self, request: &JobRequest) -> bool {
        let need = Amount::of(&request.per_task);
        let suits = |model: &Option<GpuModel>| request.gpu_model.is_none() || request.gpu_model == *model;
        let suiting = self.models.iter_mut().filter(|(model, _)| suits(model));
        let mut counts: Vec<&mut u64> = suiting.map(|(_, count)| count).collect();
        let without = Resource::Gpus.with(need, 0);
        let there = counts.iter().map(|count| **count).sum::<u64>().min(self.most);
        if !without.fits(self.amount) || there < need.gpus {
            return false;
        }
        self.amount = self.amount.less(without);
        self.most -= need.gpus;
        for _ in 0..need.gpus {
            **counts.iter_mut().find(|count| ***count > 0).expect("there are enough") -= 1;
        }
        true
    }
}

fn devices(node: &Node) -> impl Iterator<Item = DeviceIndex> {
    (0..).map(DeviceIndex).zip(node.devices.iter()).map(|(index, _)| index)
}

fn model(node: &Node, device: DeviceIndex) -> Option<GpuModel> {
    node.devices[usize::from(device.0)].model.parse().ok()
}

/// What nodes have beside the tasks that still hold something and are not in `gone`.
fn room(state: &State, gone: &BTreeSet<AttemptId>) -> Room {
    let free = |(id, node): (NodeId, &Node)| {
        let open = state.attempts().filter(|(id, _)| !gone.contains(id));
        let tasks = open.flat_map(|(id, _)| state.tasks_of(id));
        let tasks = tasks.map(|(_, task)| task).filter(|task| task.node == id && task.freed.is_none());
        let tasks: Vec<_> = tasks.collect();
        let held = tasks.iter().fold(Amount::default(), |sum, task| sum.plus(task.amount));
        let held_devices: BTreeSet<_> = tasks.iter().flat_map(|task| &task.devices).collect();
        let mut models = Vec::new();
        for device in devices(node) {
            let model = model(node, device);
            if models.iter().all(|(known, _)| *known != model) {
                models.push((model, 0));
            }
            if !held_devices.contains(&device) && !node.outside.contains(&device) {
                models.iter_mut().find(|(known, _)| *known == model).expect("it was put there").1 += 1;
            }
        }
        (id, Free { amount: Resource::Gpus.with(node.capacity.less(held), 0), models, most: u64::MAX })
    };
    state.nodes().filter(|(_, node)| node.schedulable).map(free).collect()
}

/// Puts the tasks on the first nodes with room, one by one; says where, and takes the room.
fn fill(room: &mut Room, request: &JobRequest) -> Option<Vec<NodeId>> {
    let mut place = || room.iter_mut().find_map(|(node, free)| free.take(request).then_some(*node));
    (0..request.tasks).map(|_| place()).collect()
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

/// Attempts that are about to give back what they hold.
fn coming(state: &State) -> BTreeSet<AttemptId> {
    let is_coming = |(id, row): &(AttemptId, &Attempt)| {
        let tasks: Vec<_> = state.tasks_of(*id).map(|(_, task)| task).collect();
        let is_stuck = tasks.iter().any(|task| task.leaked.is_some() && task.freed.is_none());
        !is_stuck && (row.stop.is_some() || tasks.iter().all(|task| task.end.is_some()))
    };
    state.attempts().filter(is_coming).map(|(id, _)| id).collect()
}

/// What a team holds beside the attempts in `gone`.
fn held(state: &State, team: TeamId, gone: &BTreeSet<AttemptId>) -> Amount {
    let open = state.attempts().filter(|(id, _)| !gone.contains(id));
    let tasks = open.flat_map(|(id, _)| state.tasks_of(id));
    let held = tasks.filter(|(_, task)| task.team == team && task.freed.is_none());
    held.fold(Amount::default(), |sum, (_, task)| sum.plus(task.amount))
}

/// Whether a team may take so much more once `gone` is gone: of its own, or by borrowing.
fn may_take(state: &State, team: TeamId, need: Amount, borrowing: bool, gone: &BTreeSet<AttemptId>) -> bool {
    let Some(row) = state.team(team) else { return false };
    let used = held(state, team, gone);
    let free = room(state, gone)
        .into_iter()
        .fold(Amount::default(), |sum, (_, free)| sum.plus(Resource::Gpus.with(free.amount, free.gpus())));
    let others = state.teams().filter(|(other, _)| *other != team);
    let kept = others.fold(Amount::default(), |sum, (other, row)| {
        sum.plus(row.quota.less(row.lend).less(held(state, other, gone)))
    });
    Resource::ALL.into_iter().all(|part| {
        let [need, used, quota, borrow, free, kept] =
            [need, used, row.quota, row.borrow, free, kept].map(|amount| u128::from(part.of(amount)));
        let of_its_own = need == 0 || used + need <= quota;
        let borrowed = used + need <= quota + borrow && need + kept <= free;
        of_its_own || borrowing && borrowed
    })
}

fn expected_end(state: &State, id: AttemptId, row: &Attempt) -> Timestamp {
    let tasks: Vec<_> = state.tasks_of(id).map(|(_, task)| task).collect();
    if tasks.iter().any(|task| task.leaked.is_some() && task.freed.is_none()) {
        return Timestamp::MAX;
    }
    if tasks.iter().all(|task| task.end.is_some()) {
        return row.started;
    }
    let limit = limit(state, row).unwrap_or(Timestamp::MAX);
    let killed = row.stop.map_or(Timestamp::MAX, |stop| stop.at + row.grace);
    limit.min(killed)
}

/// When the head fits, what else fits beside it then, and who holds what from now on.
struct Plan {
    at: Timestamp,
    /// What is over by then may run in its place.
    before: Timestamp,
    beside: Room,
    held: Vec<Held>,
}

fn reserve(state: &State, job: &Job, now: Timestamp) -> Option<Plan> {
    let request = &job.request;
    // The head as one that holds, and what is free beside it.
    let plan = |at: Timestamp, before: Timestamp, held: &[Held], spare: &Room, nodes: Vec<NodeId>| {
        let (mut held, mut beside) = (held.to_vec(), spare.clone());
        for node in nodes {
            let amount = Amount::of(&request.per_task);
            let (_, free) = beside.iter_mut().find(|(id, _)| *id == node)?;
            free.take(request);
            let (owner, team, until) = (request.owner, request.team, end_of(request, at));
            held.push(Held { attempt: None, node, amount, owner, team, from: at, until });
        }
        Some(Plan { at, before, beside, held })
    };
    // Nobody runs in the place of a job that others were stopped for, however short.
    if job.promised {
        let gone = coming(state);
        let (rest, spare) = (without(&all_held(state, now, Timestamp(now.0 + 1)), &gone), room(state, &gone));
        let late = gone_at(state, &gone, now);
        let until = late.map_or(now, |late| end_of(request, late));
        let mut allowed = keep(state, &rest, spare.clone(), request, now, until, now);
        if let Some(nodes) = fill(&mut allowed, request) {
            return plan(late.unwrap_or(now).max(now), Timestamp(i64::MIN), &rest, &spare, nodes);
        }
    }
    let ends: Vec<_> = state.attempts().map(|(id, row)| (expected_end(state, id, row), id)).collect();
    let mut times: BTreeSet<Timestamp> = ends.iter().map(|(at, _)| *at).collect();
    times.extend(state.reservations().map(|(_, row)| row.until).filter(|until| *until > now));
    // All that is overdue is due at once; how far to look ahead is told from when the last of it was.
    let overdue = times.iter().copied().filter(|time| *time <= now).max();
    times.into_iter().filter(|due| *due > now || Some(*due) == overdue).find_map(|due| {
        let time = due.max(now);
        let gone = ends.iter().filter(|(at, _)| *at <= time).map(|(_, id)| *id).collect();
        let (held, spare) = (all_held(state, now, now), room(state, &gone));
        let mut allowed = keep(state, &held, spare.clone(), request, time, end_of(request, due), now);
        let nodes = fill(&mut allowed, request)?;
        plan(time, time, &held, &spare, nodes)
    })
}

/// When the last of these is gone, if each that runs is stopped now.
fn gone_at(state: &State, gone: &BTreeSet<AttemptId>, now: Timestamp) -> Option<Timestamp> {
    let rows = gone.iter().filter_map(|id| Some((*id, state.attempt(*id)?)));
    rows.map(|(id, row)| expected_end(state, id, row).min(now + row.grace)).max()
}

fn without(held: &[Held], gone: &BTreeSet<AttemptId>) -> Vec<Held> {
    let stays = |hold: &&Held| hold.attempt.is_none_or(|id| !gone.contains(&id));
    held.iter().filter(stays).cloned().collect()
}

/// Who may start, in the order in which they are asked: who was promised room, who keeps to the
/// quota, who borrows. Nobody takes what is promised to a job of the same team.
fn in_turn(state: &State, now: Timestamp) -> Vec<(JobId, &Job, MemberId)> {
    let nobody = BTreeSet::new();
    let all = eligible(state, now);
    let need = |job: &Job| Amount::of_attempt(&job.request);
    // A promise is kept for a job as long as it is in the queue, even through a back-off.
    let waits = |id: JobId, job: &Job| {
        job.promised
            && !job.held
            && job.open.is_empty()
            && !job.doomed
            && !job.is_at_array_limit()
            && (!job.pending.is_empty() || state.retries_of(id).next().is_some())
    };
    let promised_to = |team: TeamId| {
        let jobs = state.jobs().filter(|(id, job)| job.request.team == team && waits(*id, job));
        jobs.fold(Amount::default(), |sum, (_, job)| sum.plus(need(job)))
    };
    let fits = |job: &Job, borrowing| {
        let with_promised = need(job).plus(promised_to(job.request.team));
        let parts = Resource::ALL.into_iter().filter(|part| part.of(need(job)) > 0);
        let with_promised = parts.fold(Amount::default(), |sum, part| part.with(sum, part.of(with_promised)));
        if promised_to(job.request.team) == Amount::default() {
            may_take(state, job.request.team, need(job), borrowing, &nobody)
        } else {
            may_take(state, job.request.team, with_promised, borrowing, &nobody)
        }
    };
    // A quota may come free with the room that is promised.
    let coming = coming(state);
    let mut promised: Vec<_> = all.iter().filter(|(_, job, _)| job.promised).copied().collect();
    promised.retain(|(_, job, _)| {
        [&nobody, &coming].iter().any(|gone| may_take(state, job.request.team, need(job), true, gone))
    });
    promised.sort_by_key(|(id, ..)| *id);
    let own = all.iter().filter(|(_, job, _)| fits(job, false)).copied();
    let borrowed = all.iter().filter(|(_, job, _)| fits(job, true)).copied();
    promised.into_iter().chain(own).chain(borrowed).collect()
}

/// What one task holds, or will, and for how long.
#[derive(Clone)]
struct Held {
    attempt: Option<AttemptId>,
    node: NodeId,
    amount: Amount,
    owner: SubjectId,
    team: TeamId,
    from: Timestamp,
    until: Timestamp,
}

fn all_held(state: &State, now: Timestamp, least: Timestamp) -> Vec<Held> {
    let mut all = Vec::new();
    for (id, row) in state.attempts() {
        let job = &state.job(row.member.job).expect("an open attempt's job is known").request;
        let until = expected_end(state, id, row).max(least);
        let tasks = state.tasks_of(id).filter(|(_, task)| task.freed.is_none());
        all.extend(tasks.map(|(_, task)| Held {
            attempt: Some(id),
            node: task.node,
            amount: task.amount,
            owner: job.owner,
            team: job.team,
            from: now,
            until,
        }));
    }
    all
}

fn end_of(request: &JobRequest, start: Timestamp) -> Timestamp {
    request.time_limit.map_or(Timestamp::MAX, |limit| start + limit)
}

fn may_use(row: &Reservation, owner: SubjectId, team: TeamId) -> bool {
    match row.holder {
        HolderV1::User(user) => user == owner,
        HolderV1::Team(holder) => holder == team,
    }
}

/// Reservations of a node at one instant, and what of each is not used by whom it is for.
fn unused<'a>(
    state: &'a State,
    held: &[Held],
    node: NodeId,
    at: Timestamp,
    now: Timestamp,
) -> Vec<(&'a Reservation, Amount)> {
    let is_open =
        |row: &&Reservation| row.node == node && row.from <= at && at < row.until && row.until > now;
    let open = state.reservations().map(|(_, row)| row).filter(is_open);
    let mut unused: Vec<_> = open.map(|row| (row, row.amount)).collect();
    for hold in held.iter().filter(|hold| hold.node == node && hold.from <= at && at < hold.until) {
        let mut own = hold.amount;
        for (_, unused) in unused.iter_mut().filter(|(row, _)| may_use(row, hold.owner, hold.team)) {
            let used = own.min(*unused);
            *unused = unused.less(used);
            own = own.less(used);
        }
    }
    unused
}

/// What of a node is kept now for a job's owner or team.
fn kept_for(state: &State, held: &[Held], node: NodeId, request: &JobRequest, now: Timestamp) -> Amount {
    let all = unused(state, held, node, now, now).into_iter();
    let own = all.filter(|(row, _)| may_use(row, request.owner, request.team));
    own.fold(Amount::default(), |sum, (_, unused)| sum.plus(unused))
}

/// Takes away what is reserved for others at any instant of a run.
fn keep(
    state: &State,
    held: &[Held],
    mut room: Room,
    request: &JobRequest,
    start: Timestamp,
    end: Timestamp,
    now: Timestamp,
) -> Room {
    let mut instants = vec![start];
    let froms = state.reservations().map(|(_, row)| row.from);
    instants.extend(froms.filter(|from| *from > start && *from < end));
    for at in instants {
        for (node, free) in &mut room {
            let all = unused(state, held, *node, at, now);
            if all.is_empty() {
                continue;
            }
            let mut left = state.node(*node).expect("a room's node is known").capacity;
            for hold in held.iter().filter(|hold| hold.node == *node && hold.from <= at && at < hold.until) {
                left = left.less(hold.amount);
            }
            for (row, unused) in all {
                if !may_use(row, request.owner, request.team) {
                    left = left.less(unused);
                }
            }
            free.caps(left);
        }
    }
    room
}

fn start(state: &State, now: Timestamp) -> Option<Event> {
    let free = room(state, &BTreeSet::new());
    let everybody = state.attempts().map(|(id, _)| id).collect();
    let mut head: Option<JobId> = None;
    let held = all_held(state, now, Timestamp(now.0 + 1));
    let mut plan: Option<Plan> = None;
    for (id, job, member) in in_turn(state, now) {
        let request = &job.request;
        let mut allowed = keep(state, &held, free.clone(), request, now, end_of(request, now), now);
        if let Some(Plan { at, before, beside, held }) = &plan {
            let never = *before == Timestamp::MAX;
            let in_time = request.time_limit.is_some_and(|limit| never || now + limit <= *before);
            if !in_time {
                for ((_, free), (_, beside)) in allowed.iter_mut().zip(beside) {
                    free.amount = free.amount.min(beside.amount);
                    for ((_, free), (_, beside)) in free.models.iter_mut().zip(&beside.models) {
                        *free = (*free).min(*beside);
                    }
                }
                allowed = keep(state, held, allowed, request, *at, end_of(request, now), now);
            }
        }
        let may = may_take(state, request.team, Amount::of_attempt(request), true, &BTreeSet::new());
        let mut own = keep(state, &held, free.clone(), request, now, end_of(request, now), now);
        for (node, free) in &mut own {
            free.caps(kept_for(state, &held, *node, request, now));
        }
        let own = fill(&mut own, request).filter(|_| plan.is_some());
        if let Some(nodes) = fill(&mut allowed, request).or(own).filter(|_| may) {
            return Some(started(state, id, member, request, &nodes));
        }
        if head.is_none() && fill(&mut room(state, &everybody), request).is_some() {
            if let Some(stop) = preempt(state, Some(id), now) {
                return Some(stop);
            }
            head = Some(id);
            plan = Some(reserve(state, job, now)?);
        }
    }
    if head.is_none() { preempt(state, None, now) } else { None }
}

/// Stops somebody for the head, or for the first job of a team, if that is urgent.
fn preempt(state: &State, head: Option<JobId>, now: Timestamp) -> Option<Event> {
    let policy = state.meta().preemption;
    let mut asking: Vec<JobId> = head.into_iter().collect();
    let mut teams = BTreeSet::new();
    for (id, job, _) in eligible(state, now) {
        let is_first = teams.insert(job.request.team);
        if is_first && (job.preempts || policy.preempts_from.is_some_and(|from| job.priority >= from)) {
            asking.push(id);
        }
    }
    asking.into_iter().find_map(|id| victim(state, id, now))
}

/// Whom to stop first for a job: of all that may be stopped for it, in order, as many as it takes,
/// less all that could be spared.
fn victim(state: &State, id: JobId, now: Timestamp) -> Option<Event> {
    let policy = state.meta().preemption;
    let job = state.job(id)?;
    let (team, need) = (job.request.team, Amount::of_attempt(&job.request));
    let tasks = |id: AttemptId| state.tasks_of(id).map(|(_, task)| task);
    let is_stuck = |id: AttemptId| tasks(id).any(|task| task.leaked.is_some() && task.freed.is_none());
    let sound = || state.attempts().filter(|(id, _)| !is_stuck(*id));
    let coming = coming(state);
    let promised = |id: JobId| state.job(id).is_some_and(|job| job.promised && job.ended.is_none());
    let mut receipts = sound().filter_map(|(_, row)| row.stop?.receipt).map(|receipt| receipt.job);
    if receipts.find(|other| promised(*other)).is_some_and(|other| other != id) {
        return None;
    }
    let everybody = state.attempts().map(|(id, _)| id).collect();
    let mut before = eligible(state, now);
    before.retain(|(other, row, _)| {
        let is_before = row.promised && *other != id && (!job.promised || *other < id);
        is_before && fill(&mut room(state, &everybody), &row.request).is_some()
    });
    // What runs on once they are gone must not meet what is reserved for others, whenever that is.
    let holds = all_held(state, now, Timestamp(now.0 + 1));
    let allowed = |gone: &BTreeSet<_>| {
        let until = gone_at(state, gone, now).map_or(now, |late| end_of(&job.request, late));
        keep(state, &without(&holds, gone), room(state, gone), &job.request, now, until, now)
    };
    let starts = |gone: &BTreeSet<_>| {
        let may =
            |request: &JobRequest| may_take(state, request.team, Amount::of_attempt(request), true, gone);
        may(&job.request)
            && !before.iter().any(|(_, job, _)| may(&job.request))
            && fill(&mut allowed(gone), &job.request).is_some()
    };
    let priority = |row: &Attempt| state.job(row.member.job).map_or(0, |job| job.priority);
    let mut running: Vec<_> = sound().filter(|(id, _)| !coming.contains(id)).collect();
    running.sort_by_key(|(id, row)| {
        let priority = if policy.reclaim == Reclaim::LowestPriority { priority(row) } else { 0 };
        (priority, std::cmp::Reverse(*id))
    });
    let amount = |id: AttemptId| {
        let held = tasks(id).filter(|task| task.freed.is_none());
        held.fold(Amount::default(), |sum, task| sum.plus(task.amount))
    };
    let right = |at: usize| {
        let (other, row) = running[at];
        if now < row.started + policy.protect || row.preempted >= policy.most {
            return None;
        }
        let its_job = state.job(row.member.job)?;
        if row.team == team {
            let may = job.preempts || policy.preempts_from.is_some_and(|from| job.priority >= from);
            let urgent = may && its_job.priority < job.priority;
            let right = RightV1::Priority { above: job.priority, below: its_job.priority };
            return (urgent && its_job.preemptible && row.member.job != id).then_some(right);
        }
        if policy.reclaim == Reclaim::Never || !may_take(state, team, need, false, &coming) {
            return None;
        }
        // All that the team holds and that is stopped after this one, and this one.
        let rest = running[at..].iter().filter(|(_, other)| other.team == row.team);
        let held = rest.fold(Amount::default(), |sum, (id, _)| sum.plus(amount(*id)));
        let quota = state.team(row.team)?.quota;
        let part = Resource::ALL
            .into_iter()
            .find(|part| part.of(held) > part.of(quota) && part.of(amount(other)) > 0 && part.of(need) > 0)?;
        Some(RightV1::Reclaim { part: part.part(), quota: part.of(quota), held: part.of(held) })
    };
    let stoppable: Vec<_> = (0..running.len()).filter_map(|at| Some((running[at].0, right(at)?))).collect();
    let gone = |stopped: &[(AttemptId, RightV1)]| {
        coming.iter().copied().chain(stopped.iter().map(|(id, _)| *id)).collect::<BTreeSet<_>>()
    };
    let enough = (0..=stoppable.len()).find(|count| starts(&gone(&stoppable[..*count])))?;
    let mut stopped = stoppable[..enough].to_vec();
    for at in (0..enough).rev() {
        let mut fewer = stopped.clone();
        fewer.remove(at);
        if starts(&gone(&fewer)) {
            stopped = fewer;
        }
    }
    let (attempt, right) = *stopped.first()?;
    let receipt = Some(ReceiptV1 { job: id, team, right });
    Some(Event::StopOrdered(StopOrderedV2 { attempt, reason: StopReason::Preempt, receipt }))
}

fn started(state: &State, id: JobId, member: MemberId, request: &JobRequest, nodes: &[NodeId]) -> Event {
    let open = state.attempts().flat_map(|(id, _)| state.tasks_of(id));
    let held = open.filter(|(_, task)| task.freed.is_none());
    let mut taken: BTreeSet<(NodeId, DeviceIndex)> =
        held.flat_map(|(_, task)| task.devices.iter().map(|device| (task.node, *device))).collect();
    let mut place = |node: NodeId| {
        let row = state.node(node).expect("the node is known");
        let suits =
            |device: &DeviceIndex| request.gpu_model.is_none_or(|asked| model(row, *device) == Some(asked));
        let first_of = |device: &DeviceIndex| {
            row.devices.iter().position(|other| other.model == row.devices[usize::from(device.0)].model)
        };
        let mut free: Vec<_> = devices(row)
            .filter(|device| {
                suits(device) && !taken.contains(&(node, *device)) && !row.outside.contains(device)
            })
            .collect();
        free.sort_by_key(|device| (first_of(device), *device));
        let devices: Vec<_> = free.into_iter().take(usize::from(request.per_task.gpus)).collect();
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
