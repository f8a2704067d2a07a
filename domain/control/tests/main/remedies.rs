//! What is told to help helps, a step less does not, and asking changes nothing.

use control::{Forecast, Remedy, Resource, Why, forecast, preflight, remedies};
use facts::event::{CancelRequestedV1, NodeSchedulableV1, PrioritySetV1, ReleasedV1, SubmittedV2};
use facts::reservation::ReservationCancelledV1;
use facts::{Condition, Event, IndexSet, JobRequest};
use proptest::prelude::*;
use units::{Bytes, Cores, JobId, MemberId, Nanos, NodeId, SubjectId, TeamId, Timestamp};

use crate::histories::{Step, happen, open_jobs, step, two_nodes};
use crate::world::{Refine, World, job, started};

const MINUTE: u64 = 60_000_000_000;
const MEBIBYTE: u64 = 1 << 20;

fn remedies_of(world: &mut World, job: JobId) -> Vec<Remedy> {
    remedies(&mut world.state, job, world.now, &world.policy)
}

fn forecast_of(world: &mut World, job: JobId) -> Forecast {
    forecast(&mut world.state, job, world.now, &world.policy)
}

#[test]
fn a_quota_is_raised_by_what_is_lacking() {
    let mut world = World::with_node(8, 0);
    world.team(1, Some(3), None);
    let holder = world.submit(job().team(1).cores(2));
    let waits = world.submit(job().team(1).cores(2));
    let expect = [
        Remedy::Quota { team: TeamId(1), resource: Resource::Cores, to: 4 },
        Remedy::PerTask(Resource::Cores, 1),
        Remedy::End(vec![MemberId::sole(holder)]),
    ];
    assert_eq!(remedies_of(&mut world, waits), expect);
}

#[test]
fn a_shorter_job_goes_ahead_of_the_head() {
    let mut world = World::with_node(4, 0);
    world.submit(job().cores(3).minutes(10));
    let head = world.submit(job().cores(4));
    let behind = world.submit(job().minutes(20));
    let menu = remedies_of(&mut world, behind);
    assert_eq!(menu, [Remedy::Priority(1), Remedy::TimeLimit(Nanos(10 * MINUTE))]);
    assert_eq!(forecast_of(&mut world, head), Forecast::At(world.now + Nanos(10 * MINUTE)));
    // The head has no time limit.
    assert_eq!(forecast_of(&mut world, behind), Forecast::Unforeseen);
}

#[test]
fn the_least_important_and_latest_are_named_to_end() {
    let mut world = World::with_node(4, 4);
    let first = world.submit(job().gpus(1));
    let important = world.submit(job().gpus(1).priority(5));
    let last = world.submit(job().gpus(2));
    let waits = world.submit(job().gpus(3));
    let menu = remedies_of(&mut world, waits);
    assert_eq!(menu, [Remedy::End(vec![MemberId::sole(last), MemberId::sole(first)])]);
    assert!(world.running(important) > 0);
    let small = world.submit(job().gpus(1));
    let menu = remedies_of(&mut world, small);
    assert_eq!(menu, [Remedy::End(vec![MemberId::sole(last)])]);
}

#[test]
fn a_hold_or_a_drained_node_in_the_way_is_named() {
    let mut world = World::with_node(4, 0);
    let held = world.submit(job().with(|job| job.hold = true));
    assert_eq!(remedies_of(&mut world, held), [Remedy::Release]);
    world.drain(0, false);
    let waits = world.submit(job());
    assert_eq!(remedies_of(&mut world, waits), [Remedy::Resume(NodeId(0))]);
    assert_eq!(remedies_of(&mut world, held), []);
}

#[test]
fn less_is_not_told_where_the_cancellation_itself_helps() {
    let mut world = World::with_node(8, 3);
    world.submit(job().cores(4));
    world.submit(job());
    world.submit(job().cores(4).gpus(2));
    world.submit(job());
    let waits = world.submit(job().gpus(2));
    // Goes to the head of the queue in the place of one that needs GPUs, once `waits` is cancelled.
    world.submit(job().cores(3).priority(1).after(waits, Condition::NotOk));
    assert!(helps(world.clone(), waits, &Remedy::PerTask(Resource::Gpus, 2)), "the same");
    assert!(!remedies_of(&mut world, waits).iter().any(|remedy| matches!(remedy, Remedy::PerTask(..))));
}

#[test]
fn another_model_is_told_where_it_is_free() {
    let mut world = World::with_node(8, 0);
    world.node_of(0, 8, &["H200", "A100-SXM4-40GB"]);
    let holder = world.submit(job().gpus_of("h200", 1));
    let waits = world.submit(job().gpus_of("h200", 1));
    let end = Remedy::End(vec![MemberId::sole(holder)]);
    assert_eq!(remedies_of(&mut world, waits), [Remedy::AnyModel(1), end]);
}

#[test]
fn a_forecast_follows_the_queue() {
    let mut world = World::with_node(1, 0);
    let jobs: Vec<JobId> = (0..4).map(|_| world.submit(job().minutes(10))).collect();
    let at = |minutes: u64| Forecast::At(world.now + Nanos(minutes * MINUTE));
    let expect = [at(10), at(20), at(30)];
    let told: Vec<Forecast> = jobs[1..].iter().map(|job| forecast_of(&mut world, *job)).collect();
    assert_eq!(told, expect);
}

#[test]
fn a_request_is_tried_without_a_trace() {
    let mut world = World::with_node(4, 2);
    let holder = world.submit(job().gpus(2).minutes(10));
    let before = world.state.clone();
    let tried = preflight(&mut world.state, &job().gpus(2), world.now, &world.policy).unwrap();
    assert!(matches!(tried.why, Why::Resources { .. }), "{:?}", tried.why);
    assert_eq!(tried.forecast, Forecast::At(world.now + Nanos(10 * MINUTE)));
    assert_eq!(tried.remedies, [Remedy::End(vec![MemberId::sole(holder)])]);
    assert_eq!(tried.ahead, Some(0));
    let tried = preflight(&mut world.state, &job(), world.now, &world.policy).unwrap();
    assert_eq!((tried.why, tried.remedies), (Why::Next, vec![]));
    assert!(preflight(&mut world.state, &job().gpus(9), world.now, &world.policy).is_err());
    assert!(world.state == before);
}

/// The same remedy, one step less, in every way.
fn less(remedy: &Remedy) -> Vec<Remedy> {
    match remedy {
        Remedy::Quota { team, resource, to } => {
            vec![Remedy::Quota { team: *team, resource: *resource, to: to - 1 }]
        }
        Remedy::Priority(to) => vec![Remedy::Priority(to - 1)],
        Remedy::Tasks(to) => vec![Remedy::Tasks(to + 1)],
        Remedy::PerTask(Resource::Memory, to) => vec![Remedy::PerTask(Resource::Memory, to + MEBIBYTE)],
        Remedy::PerTask(resource, to) => vec![Remedy::PerTask(*resource, to + 1)],
        Remedy::TimeLimit(to) if to.0 < 30 * 24 * 60 * MINUTE => {
            vec![Remedy::TimeLimit(Nanos(to.0 + MINUTE))]
        }
        Remedy::End(members) => (0..members.len())
            .map(|at| [&members[..at], &members[at + 1..]].concat())
            .map(Remedy::End)
            .collect(),
        Remedy::Release
        | Remedy::Resume(_)
        | Remedy::Unreserve(_)
        | Remedy::AnyModel(_)
        | Remedy::TimeLimit(_) => Vec::new(),
    }
}

/// Does what the remedy says, as people would, and tells whether the job, or the one asked for in
/// its stead, starts.
fn helps(mut world: World, job: JobId, remedy: &Remedy) -> bool {
    let mut awaited = job;
    let again = |world: &mut World, change: &dyn Fn(&mut JobRequest)| {
        let row = world.state.job(job).expect("it waits").clone();
        let mut request = JobRequest::clone(&row.request);
        request.after = row.open;
        request.priority = row.priority;
        change(&mut request);
        world.event(Event::CancelRequested(CancelRequestedV1 { job, members: None, by: SubjectId(1) }));
        let job = world.state.next_job_id();
        world.event(Event::Submitted(SubmittedV2 { job, request }));
        job
    };
    match remedy {
        Remedy::Release => world.event(Event::Released(ReleasedV1 { job })),
        Remedy::Resume(node) => world.event(Event::NodeSchedulable(NodeSchedulableV1 {
            node: *node,
            schedulable: true,
            reason: String::new(),
        })),
        Remedy::Unreserve(reservation) => {
            let event = ReservationCancelledV1 { reservation: *reservation };
            world.event(Event::ReservationCancelled(event));
        }
        Remedy::Quota { team, resource, to } => {
            let row = world.state.team(*team).expect("it has jobs").clone();
            let raised = control::Team { quota: resource.with(row.quota, *to), ..row };
            world.event(Event::TeamSet(raised.as_event(*team)));
        }
        Remedy::Priority(priority) => {
            world.event(Event::PrioritySet(PrioritySetV1 { job, priority: *priority }));
        }
        Remedy::Tasks(tasks) => awaited = again(&mut world, &|request| request.tasks = *tasks),
        Remedy::PerTask(resource, to) => {
            awaited = again(&mut world, &|request| match resource {
                Resource::Cores => {
                    request.per_task.cores = Cores((*to).try_into().expect("less than before"));
                }
                Resource::Memory => request.per_task.memory = Bytes(*to),
                Resource::Gpus => request.per_task.gpus = (*to).try_into().expect("less than before"),
            });
        }
        Remedy::AnyModel(_) => awaited = again(&mut world, &|request| request.gpu_model = None),
        Remedy::TimeLimit(to) => awaited = again(&mut world, &|request| request.time_limit = Some(*to)),
        Remedy::End(members) => {
            for member in members {
                let (attempt, _) = world.state.attempt_of(*member).expect("it runs");
                let by = SubjectId(1);
                let indexes = Some(IndexSet::one(member.index));
                world.event(Event::CancelRequested(CancelRequestedV1 {
                    job: member.job,
                    members: indexes,
                    by,
                }));
                world.ends_all(attempt);
            }
        }
    }
    started(&world.settle()).iter().any(|(job, _)| *job == awaited)
}

/// A history in which nothing ends by itself, as it would be over before anything waits.
fn crowded(steps: Vec<Step>) -> World {
    let mut world = two_nodes();
    for step in steps.into_iter().filter(|step| !matches!(step, Step::End(..))) {
        happen(&mut world, step);
        world.settle();
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_told_to_help_helps(steps in prop::collection::vec(step(), 10..40)) {
        let mut world = crowded(steps);
        for job in open_jobs(&world.state).into_iter().take(8) {
            let before = world.state.clone();
            let menu = remedies_of(&mut world, job);
            prop_assert!(world.state == before, "asking changed something");
            for remedy in menu {
                prop_assert!(helps(world.clone(), job, &remedy), "{remedy:?} does not help job {job}");
                for less in less(&remedy) {
                    prop_assert!(!helps(world.clone(), job, &less), "{less:?} is enough for job {job}");
                }
            }
        }
    }

    #[test]
    fn a_forecast_comes_true(steps in prop::collection::vec(step(), 10..40)) {
        let mut world = crowded(steps);
        for job in open_jobs(&world.state).into_iter().take(8) {
            let before = world.state.clone();
            let told = forecast_of(&mut world, job);
            prop_assert!(world.state == before, "asking changed something");
            if let Forecast::At(at) = told {
                prop_assert_eq!(start_if_all_run_to_their_limits(world.clone(), job), Some(at));
            }
        }
    }
}

/// Plays on until the next member of `job` starts; the slow way.
fn start_if_all_run_to_their_limits(mut world: World, job: JobId) -> Option<Timestamp> {
    for _ in 0..10_000 {
        let due: Vec<_> = world
            .state
            .attempts()
            .filter(|(_, attempt)| attempt.expected_end() <= world.now)
            .map(|(id, _)| id)
            .collect();
        for attempt in due {
            world.ends_all(attempt);
        }
        if started(&world.settle()).iter().any(|(started, _)| *started == job) {
            return Some(world.now);
        }
        world.now = world.state.next_wake(world.now)?;
    }
    None
}
