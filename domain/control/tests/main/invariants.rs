//! What must be true of every state, told from its rows by other means than the scheduler's.

use std::collections::{BTreeMap, BTreeSet};

use control::{Amount, Reservation, Resource, State};
use facts::Event;
use facts::event::StartedV1;
use facts::reservation::HolderV1;
use units::{ArrayIndex, MemberId, Timestamp};

/// After every event.
pub(crate) fn check(state: &State) {
    assert!(state.is_consistent(), "an index is not what its rows say");
    let mut devices = BTreeSet::new();
    let mut on_node: BTreeMap<_, Amount> = BTreeMap::new();
    for (id, attempt) in state.attempts() {
        let tasks: Vec<_> = state.tasks_of(id).collect();
        assert_eq!(tasks.len(), attempt.tasks as usize, "a gang is there as a whole");
        assert_eq!(tasks.iter().filter(|(_, task)| task.end.is_some()).count(), attempt.ended as usize);
        assert_eq!(tasks.iter().filter(|(_, task)| task.freed.is_some()).count(), attempt.freed as usize);
        for (_, task) in tasks.into_iter().filter(|(_, task)| task.freed.is_none()) {
            for device in &task.devices {
                assert!(devices.insert((task.node, *device)), "a device is held twice");
                assert!(state.is_device_held(task.node, *device), "a held device looks free");
            }
            let used = on_node.entry(task.node).or_default();
            *used = used.plus(task.amount);
        }
    }
    for (id, node) in state.nodes() {
        let used = on_node.get(&id).copied().unwrap_or_default();
        assert!(used.fits(node.capacity), "more is held on {id} than it has");
        assert_eq!(used, state.used_on(id));
    }
    members_are_conserved(state);
}

/// Each member is in one place, and none is lost.
fn members_are_conserved(state: &State) {
    for (id, job) in state.jobs() {
        let retries: Vec<_> = state.retries_of(id).map(|(member, _)| member.index).collect();
        let active: Vec<_> = state.attempts_of(id).map(|(_, attempt)| attempt.member.index).collect();
        assert_eq!((retries.len(), active.len()), (job.retrying as usize, job.running as usize));
        let places = job.pending.iter().chain(job.ending.iter()).chain(retries).chain(active);
        let seen: Vec<ArrayIndex> = places.collect();
        let distinct: BTreeSet<_> = seen.iter().copied().collect();
        assert_eq!(seen.len(), distinct.len(), "a member of {id} is in two places");
        assert!(distinct.iter().all(|index| job.request.members().contains(*index)));
        assert_eq!(job.members(), job.request.members().len(), "a member of {id} is lost");
        assert_eq!(job.ended.is_some(), seen.is_empty());
        let limit = job.request.array.as_ref().and_then(|array| array.max_running);
        assert!(limit.is_none_or(|limit| job.running <= limit));
    }
}

/// What must be true of a start, seen from the state before and the one after.
pub(crate) fn check_start(before: &State, after: &State, start: &StartedV1) {
    let member = MemberId { job: start.job, index: start.index };
    assert!(before.attempt_of(member).is_none(), "a member is started beside its last attempt");
    let job = before.job(start.job).expect("a started job is known");
    assert!(!job.held && job.open.is_empty() && !job.doomed);
    assert_eq!(start.tasks.len(), job.request.tasks as usize, "a gang starts as a whole");
    for task in &start.tasks {
        let node = before.node(task.node).expect("a node that gets work is known");
        assert!(node.schedulable, "a drained node gets new work");
        for device in &task.devices {
            assert!(!before.is_device_held(task.node, *device), "a fenced device is touched");
            assert!(!node.outside.contains(device), "a device that others hold is given");
            let device = &node.devices[usize::from(device.0)];
            let model = device.model.parse().ok();
            let suits = job.request.gpu_model.is_none_or(|asked| Some(asked) == model);
            assert!(suits, "a {} is given to who asked for another", device.model);
        }
    }
    let team = after.team(job.request.team).expect("a team that runs jobs is known");
    // A lowered quota may be exceeded by what runs: then nothing more of that part is taken.
    let (need, used) = (Amount::of_attempt(&job.request), after.used_by(job.request.team));
    for part in Resource::ALL {
        assert!(part.of(need) == 0 || part.of(used) <= part.of(team.limit()), "a quota is exceeded");
    }
}

/// What a job that is not the holder's leaves of each reservation that it runs into, beside all others
/// that are not the holder's either, by their time limits.
fn keeps_what_is_reserved(after: &State, start: &StartedV1) {
    let now = after.meta().clock;
    let attempt = after.attempt(start.attempt).expect("it has just started");
    let request = |attempt: &control::Attempt| &after.job(attempt.member.job).expect("it is known").request;
    let is_of = |row: &Reservation, attempt: &control::Attempt| match row.holder {
        HolderV1::User(user) => user == request(attempt).owner,
        HolderV1::Team(team) => team == request(attempt).team,
    };
    for (id, row) in after.reservations() {
        let begins = row.from.max(now);
        let ends = attempt.deadline.unwrap_or(Timestamp::MAX);
        if row.until <= now || ends <= begins || is_of(row, attempt) {
            continue;
        }
        let mut outside = Amount::default();
        for (other, _) in after
            .attempts()
            .filter(|(_, other)| !is_of(row, other) && (begins == now || other.expected_end() > begins))
        {
            let here =
                after.tasks_of(other).filter(|(_, task)| task.node == row.node && task.freed.is_none());
            outside = here.fold(outside, |sum, (_, task)| sum.plus(task.amount));
        }
        let own = after.tasks_of(start.attempt).filter(|(_, task)| task.node == row.node);
        let own = own.fold(Amount::default(), |sum, (_, task)| sum.plus(task.amount));
        let capacity = after.node(row.node).expect("it is known").capacity;
        for part in Resource::ALL {
            let full = part.of(outside.plus(row.amount)) <= part.of(capacity);
            assert!(part.of(own) == 0 || full, "what is reserved as {id} goes to somebody else");
        }
    }
}

/// After a decision.
pub(crate) fn check_decision(before: &State, after: &State, decision: &Event) {
    if let Event::Started(start) = decision {
        check_start(before, after, start);
        keeps_what_is_reserved(after, start);
    }
    check(after);
}
