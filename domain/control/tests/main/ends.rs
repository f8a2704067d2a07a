//! How attempts end, what follows, and when what they held is free.

use control::{Obligation, Why, nonce};
use facts::event::StopReason;
use facts::{
    ExitClass, Hash32, HealthCheck, IndexSet, JobKind, JobRequest, Outcome, RestartPolicy, StartFailure,
    TaskExit,
};
use units::{AttemptId, Nanos, Rank, Timestamp};

use crate::world::{Refine, World, job, started, stops};

#[test]
fn nothing_is_free_before_it_is_proven_free() {
    let mut world = World::with_node(4, 1);
    let jobs: Vec<_> = (0..2).map(|_| world.submit(job().gpus(1))).collect();
    let attempt = world.attempt(jobs[0]);
    world.task_ends(attempt, 0, TaskExit::Exited(0), false);
    world.settle();
    world.assert_running(&jobs, &jobs[..1]);
    world.task_freed(attempt, 0);
    world.settle();
    world.assert_running(&jobs, &jobs[1..]);
    assert_eq!(world.outcome(jobs[0]), Some(Outcome::Success));
}

#[test]
fn a_leaked_hold_stays_held_and_is_listed_until_proven_free() {
    let mut world = World::with_node(4, 1);
    let jobs: Vec<_> = (0..2).map(|_| world.submit(job().gpus(1).retries(1))).collect();
    let attempt = world.attempt(jobs[0]);
    world.task_ends(attempt, 0, TaskExit::Signalled(9), false);
    world.leak(attempt, 0);
    world.settle();
    let leaked: Vec<_> = world.state.leaked().map(|(attempt, rank, _)| (attempt, rank)).collect();
    assert_eq!(leaked, [(attempt, Rank(0))]);
    // Neither another job nor its own next attempt gets the device.
    world.pass(86_400);
    world.assert_running(&jobs, &jobs[..1]);
    world.task_freed(attempt, 0);
    world.settle();
    assert_eq!(world.state.leaked().count(), 0);
    world.assert_running(&jobs, &jobs[1..]);
}

#[test]
fn outcomes_are_told_apart() {
    let failure = StartFailure { step: "exec".to_owned(), subject: "/nope".to_owned(), errno: 2 };
    let cases: [(&[TaskExit], Outcome); 9] = [
        (&[TaskExit::Exited(0)], Outcome::Success),
        (&[TaskExit::Exited(3)], Outcome::Code(3)),
        (&[TaskExit::Signalled(9)], Outcome::Signal(9)),
        (&[TaskExit::OutOfMemory(9)], Outcome::OutOfMemory),
        (&[TaskExit::StartFailed(failure.clone())], Outcome::StartFailed(failure)),
        (&[TaskExit::Unknown], Outcome::Unknown),
        (&[TaskExit::Exited(2), TaskExit::Exited(7), TaskExit::Exited(0)], Outcome::Code(7)),
        (&[TaskExit::Exited(2), TaskExit::Signalled(9)], Outcome::Signal(9)),
        (&[TaskExit::Exited(1), TaskExit::Unknown], Outcome::Unknown),
    ];
    for (exits, outcome) in cases {
        let mut world = World::with_node(8, 0);
        let gang = world.submit(job().tasks(u32::try_from(exits.len()).expect("a few")));
        let attempt = world.attempt(gang);
        for (rank, exit) in (0..).zip(exits) {
            world.task_ends(attempt, rank, exit.clone(), true);
        }
        world.settle();
        assert_eq!(world.outcome(gang), Some(outcome));
    }
}

#[test]
fn a_time_limit_stops_and_names_itself() {
    let mut world = World::with_node(4, 0);
    let late = world.submit(job().minutes(10));
    assert_eq!(world.state.next_wake(world.now), Some(world.now + Nanos::from_secs(600)));
    world.pass(599);
    assert_eq!(stops(&world.state.obligations()), []);
    world.pass(1);
    assert_eq!(stops(&world.state.obligations()), [(0, StopReason::TimeLimit)]);
    world.ends(late, &TaskExit::Exited(0));
    assert_eq!(world.outcome(late), Some(Outcome::TimeLimit));
}

#[test]
fn who_was_done_before_the_stop_was_not_stopped() {
    let mut world = World::with_node(4, 0);
    let done = world.submit(job().minutes(10));
    let ended = world.now;
    world.pass(600);
    let attempt = world.attempt(done);
    // The end is told late, and lies before the stop.
    let now = std::mem::replace(&mut world.now, ended);
    world.task_ends(attempt, 0, TaskExit::Exited(0), true);
    world.now = now;
    world.settle();
    assert_eq!(world.outcome(done), Some(Outcome::Success));
}

#[test]
fn cancelling_ends_who_waits_at_once_and_who_runs_when_it_is_free() {
    let mut world = World::with_node(2, 0);
    let array = world.submit(job().array(0, 5, None).retries(9));
    world.cancel(array, Some(IndexSet::range(1, 3)));
    let row = world.state.job(array).expect("it is known");
    assert_eq!((row.running, row.failed, row.pending.to_string().as_str()), (2, 2, "4-5"));
    assert_eq!(stops(&world.state.obligations()).len(), 1);
    world.cancel(array, None);
    world.ends(array, &TaskExit::Signalled(15));
    assert_eq!(world.outcome(array), None);
    world.ends(array, &TaskExit::Exited(0));
    assert_eq!(world.outcome(array), Some(Outcome::Cancelled));
}

#[test]
fn a_gang_ends_with_its_first_bad_task_and_by_its_code() {
    let mut world = World::with_node(4, 0);
    let gang = world.submit(job().tasks(3));
    let attempt = world.attempt(gang);
    world.task_ends(attempt, 1, TaskExit::Exited(0), true);
    world.settle();
    assert_eq!(stops(&world.state.obligations()), []);
    world.task_ends(attempt, 0, TaskExit::Exited(5), true);
    world.settle();
    assert_eq!(stops(&world.state.obligations()), [(2, StopReason::GangMate)]);
    world.task_ends(attempt, 2, TaskExit::Signalled(15), true);
    world.settle();
    assert_eq!(world.outcome(gang), Some(Outcome::Code(5)));
}

#[test]
fn retries_wait_twice_as_long_each_time_and_then_give_up() {
    let mut world = World::with_node(4, 0);
    let flaky = world.submit(job().with(|job| {
        job.retry.max = 3;
        job.retry.backoff = Nanos::from_secs(10);
        job.retry.backoff_max = Nanos::from_secs(30);
    }));
    for wait in [10, 20, 30] {
        world.ends(flaky, &TaskExit::Exited(1));
        assert_eq!(world.running(flaky), 0);
        assert_eq!(world.state.next_wake(world.now), Some(world.now + Nanos::from_secs(wait)));
        world.pass(wait - 1);
        assert_eq!(world.running(flaky), 0);
        world.pass(1);
        assert_eq!(world.running(flaky), 1);
    }
    assert_eq!(world.state.attempt(world.attempt(flaky)).map(|attempt| attempt.number), Some(4));
    world.ends(flaky, &TaskExit::Exited(1));
    assert_eq!(world.outcome(flaky), Some(Outcome::Code(1)));
}

#[test]
fn only_the_listed_classes_are_retried() {
    for (exit, listed, again) in [
        (TaskExit::Exited(1), ExitClass::Failure, true),
        (TaskExit::Exited(1), ExitClass::OutOfMemory, false),
        (TaskExit::OutOfMemory(9), ExitClass::OutOfMemory, true),
        (TaskExit::Unknown, ExitClass::Failure, false),
        (TaskExit::Exited(0), ExitClass::Failure, false),
    ] {
        let mut world = World::with_node(4, 0);
        let job = world.submit(job().retries(1).with(|job| job.retry.on = std::iter::once(listed).collect()));
        world.ends(job, &exit);
        assert_eq!(world.outcome(job).is_none(), again, "{listed:?}");
    }
}

#[test]
fn a_node_restart_puts_back_without_counting() {
    for (requeue, again) in [(true, true), (false, false)] {
        let mut world = World::with_node(4, 0);
        let job = world.submit(job().with(|job| job.retry.requeue = requeue));
        for _ in 0..3 {
            if world.running(job) > 0 {
                world.ends(job, &TaskExit::NodeRestart);
            }
        }
        assert_eq!(world.running(job) > 0, again);
        assert_eq!(world.outcome(job), (!again).then_some(Outcome::NodeRestart));
    }
}

#[test]
fn services_are_started_again_as_they_say() {
    for (restart, exit, again) in [
        (RestartPolicy::Always, 0, true),
        (RestartPolicy::OnFailure, 0, false),
        (RestartPolicy::OnFailure, 1, true),
        (RestartPolicy::Never, 1, false),
    ] {
        let mut world = World::with_node(4, 0);
        let kind = JobKind::Service { port: None, health: None, restart };
        let service = world.submit(job().with(|job| job.kind = kind));
        world.ends(service, &TaskExit::Exited(exit));
        world.pass(60);
        assert_eq!(world.running(service) > 0, again, "{restart:?} {exit}");
        if again {
            world.cancel(service, None);
            world.ends(service, &TaskExit::Signalled(15));
            assert_eq!(world.outcome(service), Some(Outcome::Cancelled));
        }
    }
}

fn service(restart: RestartPolicy) -> JobRequest {
    let health = HealthCheck { http_path: None, every: Nanos::from_secs(1), failures: 3 };
    let kind = JobKind::Service { port: Some(8_080), health: Some(health), restart };
    job().with(|job| job.kind = kind)
}

#[test]
fn an_unhealthy_service_is_stopped_and_started_again_as_it_says() {
    for (restart, again) in
        [(RestartPolicy::Always, true), (RestartPolicy::OnFailure, true), (RestartPolicy::Never, false)]
    {
        let mut world = World::with_node(4, 0);
        let service = world.submit(service(restart));
        let attempt = world.attempt(service);
        world.runs(attempt, 0);
        world.health(attempt, true);
        assert_eq!(stops(&world.state.obligations()), []);
        world.health(attempt, false);
        assert_eq!(stops(&world.state.obligations()), [(0, StopReason::Unhealthy)]);
        // What is said of one that is stopping changes nothing more.
        world.health(attempt, true);
        assert_eq!(stops(&world.state.obligations()), [(0, StopReason::Unhealthy)]);
        world.ends(service, &TaskExit::Exited(0));
        world.pass(60);
        assert_eq!(world.running(service) > 0, again, "{restart:?}");
        assert_eq!(world.outcome(service), (!again).then_some(Outcome::Signal(15)), "{restart:?}");
        if again {
            let next = world.state.attempt(world.attempt(service)).expect("it was started again");
            assert_eq!((next.number, next.healthy), (2, None));
        }
    }
}

#[test]
fn a_cancelled_service_is_not_unhealthy() {
    let mut world = World::with_node(4, 0);
    let service = world.submit(service(RestartPolicy::Always));
    let attempt = world.attempt(service);
    world.cancel(service, None);
    world.health(attempt, false);
    assert_eq!(stops(&world.state.obligations()), [(0, StopReason::Cancel)]);
    world.ends(service, &TaskExit::Signalled(15));
    assert_eq!(world.outcome(service), Some(Outcome::Cancelled));
}

#[test]
fn a_restart_loop_slows_down_until_the_service_runs_long_enough() {
    let mut world = World::with_node(4, 0);
    let service = world.submit(service(RestartPolicy::Always));
    // It runs so long, and is started again after so long, in seconds.
    for (ran, wait) in
        [(0, 1), (1, 2), (0, 4), (300, 8), (301, 1), (0, 2), (0, 4), (0, 8), (0, 16), (0, 32), (0, 64)]
            .into_iter()
            .chain([(0, 128), (0, 256), (0, 300), (0, 300)])
    {
        world.pass(ran);
        world.ends(service, &TaskExit::Exited(1));
        let due = world.now + Nanos::from_secs(wait);
        assert_eq!(world.why(service), Why::RetryWait(due), "after {ran} s");
        world.pass(wait);
        assert_eq!(world.running(service), 1);
    }
}

#[test]
fn an_idle_terminal_says_so_and_does_not_come_back() {
    let mut world = World::with_node(4, 0);
    let shell = world.submit(job().retries(3).with(|job| {
        job.kind = JobKind::Interactive { idle_limit: Some(Nanos::from_secs(900)) };
    }));
    world.ends(shell, &TaskExit::IdleLimit);
    assert_eq!(world.outcome(shell), Some(Outcome::IdleLimit));
}

#[test]
fn a_terminal_does_not_come_back() {
    let mut world = World::with_node(4, 0);
    let shell = world.submit(job().with(|job| job.kind = JobKind::Interactive { idle_limit: None }));
    world.ends(shell, &TaskExit::NodeRestart);
    assert_eq!(world.outcome(shell), Some(Outcome::NodeRestart));
}

#[test]
fn what_is_owed_follows_from_the_state() {
    let mut world = World::with_node(4, 0);
    let gang = world.submit(job().tasks(2));
    let attempt = world.attempt(gang);
    let start = |rank| Obligation::Start { attempt, rank: Rank(rank) };
    assert_eq!(world.state.obligations(), [start(0), start(1)]);
    let decision = world.log.last().expect("it was started").event.clone();
    assert_eq!(world.state.obligations_of(&decision), [start(0), start(1)]);
    world.runs(attempt, 0);
    assert_eq!(world.state.obligations(), [start(1)]);
    let decisions = world.cancel(gang, None);
    let stop = |rank| Obligation::Stop { attempt, rank: Rank(rank), reason: StopReason::Cancel };
    assert_eq!(world.state.obligations_of(&decisions[0]), [stop(0), stop(1)]);
    world.task_ends(attempt, 0, TaskExit::Signalled(15), false);
    assert_eq!(world.state.obligations(), [stop(1)]);
}

#[test]
fn a_warning_comes_once_before_the_limit() {
    let mut world = World::with_node(4, 0);
    let warned =
        world.submit(job().minutes(10).with(|job| job.stop.warn = Some((10, Nanos::from_secs(120)))));
    let at = world.now + Nanos::from_secs(480);
    assert_eq!(world.state.next_wake(world.now), Some(at));
    let (attempt, rank) = (world.attempt(warned), Rank(0));
    let before = Timestamp(at.0 - 1);
    assert_eq!(world.state.warnings(world.now, before), []);
    assert_eq!(world.state.warnings(before, at), [Obligation::Warn { attempt, rank, signal: 10 }]);
    assert_eq!(world.state.warnings(at, at + Nanos::from_secs(1)), []);
}

#[test]
fn members_of_a_mixed_array_make_its_worst_outcome() {
    let mut world = World::with_node(1, 0);
    let array = world.submit(job().array(0, 2, None));
    world.ends(array, &TaskExit::Exited(4));
    world.ends(array, &TaskExit::Exited(9));
    let last = world.ends(array, &TaskExit::Exited(0));
    assert_eq!(started(&last), []);
    assert_eq!(world.outcome(array), Some(Outcome::Code(9)));
}

#[test]
fn nonces_differ_by_everything_that_they_depend_on() {
    let seeds = [Hash32([1; 32]), Hash32([2; 32])];
    let of = |seed: usize, attempt, rank| nonce(&seeds[seed], AttemptId(attempt), Rank(rank));
    let all = [of(0, 1, 0), of(1, 1, 0), of(0, 2, 0), of(0, 1, 1)];
    let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert_eq!(distinct.len(), 4);
    assert_eq!(of(0, 1, 0), all[0]);
}
