//! What the events of a job mean to whoever wants to be told.

use control::news;
use facts::event::{CancelRequestedV1, PreemptibleSetV1, PreemptionSetV1, ReleasedV1};
use facts::notify::Occasion::{self, Cancelled, Completed, Failed, Leaked, Preempted, Started};
use facts::{Event, JobRequest, TaskExit};
use units::{JobId, SubjectId};

use crate::world::{Refine, World, job};

/// Takes all decisions, and tells what each means that is about `job`.
fn told(world: &mut World, job: JobId) -> Vec<Occasion> {
    let mut told = Vec::new();
    while let Some(event) = world.decide() {
        if matches!(&event, Event::Started(e) if e.job != job) {
            continue;
        }
        told.extend(news(&world.state, &event, job));
    }
    told
}

/// Submits, held at first, so that its start is seen.
fn start(world: &mut World, request: JobRequest) -> (JobId, Vec<Occasion>) {
    let job = world.submit(request.with(|request| request.hold = true));
    world.event(Event::Released(ReleasedV1 { job }));
    (job, told(world, job))
}

fn end(world: &mut World, job: JobId, exit: TaskExit) -> Vec<Occasion> {
    let attempt = world.attempt(job);
    world.task_ends(attempt, 0, exit, true);
    told(world, job)
}

#[test]
fn an_end_is_told_as_what_it_was() {
    let check = |request: JobRequest, exit: TaskExit, expect: &[Occasion]| {
        let mut world = World::with_node(4, 0);
        let (job, started) = start(&mut world, request);
        assert_eq!(started, [Started]);
        assert_eq!(end(&mut world, job, exit), expect);
    };
    check(job(), TaskExit::Exited(0), &[Completed]);
    check(job(), TaskExit::Exited(1), &[Failed]);
    check(job(), TaskExit::Unknown, &[Failed]);
    check(job().retries(1), TaskExit::Exited(1), &[]);
}

#[test]
fn a_job_starts_once_and_ends_once_however_many_members_and_tries() {
    let mut world = World::with_node(1, 0);
    let (job, mut all) = start(&mut world, job().array(0, 2, None).retries(1));
    for code in [1, 0, 0, 1, 0, 0] {
        if world.running(job) == 0 {
            world.pass(600);
        }
        if world.running(job) > 0 {
            all.extend(end(&mut world, job, TaskExit::Exited(code)));
        }
    }
    assert_eq!(all, [Started, Failed]);
}

#[test]
fn a_cancelled_job_did_not_fail() {
    let mut world = World::with_node(4, 0);
    let cancel = |job| Event::CancelRequested(CancelRequestedV1 { job, members: None, by: SubjectId(7) });
    let held = world.submit(job().with(|request| request.hold = true));
    world.event(cancel(held));
    assert_eq!(told(&mut world, held), [Cancelled]);
    let (running, _) = start(&mut world, job());
    world.event(cancel(running));
    assert_eq!(told(&mut world, running), []);
    assert_eq!(end(&mut world, running, TaskExit::Signalled(15)), [Cancelled]);
}

#[test]
fn what_gives_way_is_told_and_what_cannot_be_freed_too() {
    let mut world = World::with_node(4, 0);
    world.event(Event::PreemptionSet(PreemptionSetV1 {
        preempts_from: Some(2),
        ..PreemptionSetV1::default()
    }));
    let (gentle, _) = start(&mut world, job().cores(4));
    world.event(Event::PreemptibleSet(PreemptibleSetV1 { job: gentle, preemptible: true }));
    world.submit(job().cores(4).priority(2));
    assert_eq!(end(&mut world, gentle, TaskExit::Signalled(15)), [Preempted]);

    let mut world = World::with_node(4, 0);
    let (stuck, _) = start(&mut world, job());
    let attempt = world.attempt(stuck);
    world.task_ends(attempt, 0, TaskExit::Exited(0), false);
    let leak = facts::event::HoldLeakedV1 {
        attempt,
        rank: units::Rank(0),
        since: world.now,
        reason: "a frozen process".to_owned(),
    };
    let leak = Event::HoldLeaked(leak);
    world.event(leak.clone());
    assert_eq!(news(&world.state, &leak, stuck), [Leaked]);
}
