//! Random histories: the scheduler against its oracle, decision by decision, with the
//! invariants checked after every step.

use control::{Policy, State, Wish, decide};
use facts::applied::PreemptsSetV1;
use facts::event::{HealthChangedV1, PreemptibleSetV1, PreemptionSetV1, Reclaim, SubmittedV2};
use facts::reservation::{HolderV1, ReservationCancelledV1};
use facts::{Condition, Event, IndexSet, JobRequest, Resources, TaskExit};
use proptest::prelude::*;
use units::{AttemptId, Bytes, Cores, JobId, Nanos, Rank, Timestamp};

use crate::invariants;
use crate::oracle;
use crate::world::{Refine, World, job};

/// One thing that happens. Numbers choose among what there is, modulo its count.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Submit(Box<JobRequest>, Option<(usize, Condition)>),
    Hold(usize),
    Release(usize),
    Priority(usize, i32),
    Cancel(usize, Option<u32>),
    End(usize, TaskExit, bool),
    Free(usize),
    Leak(usize),
    Health(usize, bool),
    Drain(u32, bool),
    Outside(u32, Vec<u16>),
    Quota(u32, Sharing),
    Preemption(PreemptionSetV1),
    Preemptible(usize, bool),
    Preempts(usize, bool),
    Reserve(Box<Wish>),
    Unreserve(usize),
    Pass(u64),
}

/// A quota, what is borrowed and what is lent, of cores and devices.
type Sharing = ((Option<u32>, Option<u32>), (u32, u32), (Option<u32>, Option<u32>));

fn sharing() -> impl Strategy<Value = Sharing> {
    let quota = || prop::option::weighted(0.8, 0_u32..14);
    let borrow = || prop_oneof![2 => Just(0_u32), 3 => 1_u32..12];
    let lend = || prop::option::weighted(0.4, 0_u32..8);
    ((quota(), quota()), (borrow(), borrow()), (lend(), lend()))
}

fn preemption() -> impl Strategy<Value = PreemptionSetV1> {
    let reclaim = prop_oneof![
        1 => Just(Reclaim::Never), 3 => Just(Reclaim::BorrowedFirst), 3 => Just(Reclaim::LowestPriority)
    ];
    let protect = prop_oneof![2 => Just(0_u64), 1 => 1_u64..60];
    (reclaim, protect, prop::option::of(-1_i32..2), 0_u32..4).prop_map(
        |(reclaim, protect, preempts_from, most)| PreemptionSetV1 {
            reclaim,
            protect: Nanos::from_secs(protect),
            preempts_from,
            most,
        },
    )
}

fn request() -> impl Strategy<Value = JobRequest> {
    let size = (1_u32..6, 0_u16..3, prop_oneof![4 => Just(1_u32), 1 => 2_u32..4]);
    let limit = prop::option::of(1_u64..40);
    let array = prop::option::weighted(0.25, (1_u32..5, prop::option::of(1_u32..3)));
    let model = prop::option::weighted(0.4, prop::sample::select(vec!["H200", "A100-SXM4-40GB"]));
    let size = (size, model);
    (size, limit, array, (0_u32..2, 7_u64..9), -1_i32..2, 0_u32..3, any::<bool>()).prop_map(
        |(((cores, gpus, tasks), model), limit, array, (team, owner), priority, retries, requeue)| {
            let mut request = job().cores(cores).gpus(gpus).tasks(tasks).team(team).retries(retries);
            if let Some(model) = model.filter(|_| gpus > 0) {
                request = request.gpus_of(model, gpus);
            }
            request.owner = units::SubjectId(owner);
            request.priority = priority;
            request.time_limit = limit.map(|limit| Nanos::from_secs(limit * 10));
            request.retry.requeue = requeue;
            match array {
                Some((last, at_once)) => request.array(0, last, at_once),
                None => request,
            }
        },
    )
}

/// A reservation whose times count from when it is asked for.
fn wish() -> impl Strategy<Value = Wish> {
    let holder = prop_oneof![
        (7_u64..9).prop_map(|user| HolderV1::User(units::SubjectId(user))),
        (0_u32..2).prop_map(|team| HolderV1::Team(units::TeamId(team))),
    ];
    let amount = (0_u32..7, 0_u64..4, 0_u16..3).prop_map(|(cores, memory, gpus)| Resources {
        cores: Cores(cores),
        memory: Bytes(memory),
        gpus,
    });
    (amount, prop::option::of(0_i64..200), 1_i64..300, holder).prop_map(|(amount, from, length, holder)| {
        let until = Timestamp::from_secs(from.unwrap_or(0) + length);
        Wish { amount, from: from.map(Timestamp::from_secs), until, holder, reason: String::new() }
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let condition = prop_oneof![Just(Condition::Ok), Just(Condition::NotOk), Just(Condition::Any)];
    let exit = prop_oneof![
        4 => Just(TaskExit::Exited(0)),
        2 => (1_u8..4).prop_map(TaskExit::Exited),
        1 => Just(TaskExit::NodeRestart),
        1 => Just(TaskExit::Unknown),
    ];
    let which = any::<usize>;
    prop_oneof![
        8 => (request(), prop::option::weighted(0.2, (which(), condition))).prop_map(|(r, d)| Step::Submit(Box::new(r), d)),
        1 => which().prop_map(Step::Hold),
        2 => which().prop_map(Step::Release),
        1 => (which(), -2_i32..3).prop_map(|(at, priority)| Step::Priority(at, priority)),
        1 => (which(), prop::option::of(0_u32..5)).prop_map(|(at, member)| Step::Cancel(at, member)),
        8 => (which(), exit, prop::bool::weighted(0.7)).prop_map(|(at, exit, freed)| Step::End(at, exit, freed)),
        3 => which().prop_map(Step::Free),
        1 => which().prop_map(Step::Leak),
        1 => (which(), prop::bool::weighted(0.7)).prop_map(|(at, healthy)| Step::Health(at, healthy)),
        1 => (0_u32..2, any::<bool>()).prop_map(|(node, up)| Step::Drain(node, up)),
        2 => (0_u32..2, prop::sample::subsequence(vec![0, 1, 2], 0..3)).prop_map(|(node, held)| Step::Outside(node, held)),
        2 => (0_u32..2, sharing()).prop_map(|(team, sharing)| Step::Quota(team, sharing)),
        1 => preemption().prop_map(Step::Preemption),
        2 => (which(), prop::bool::weighted(0.8)).prop_map(|(at, preemptible)| Step::Preemptible(at, preemptible)),
        1 => (which(), prop::bool::weighted(0.8)).prop_map(|(at, preempts)| Step::Preempts(at, preempts)),
        2 => wish().prop_map(|wish| Step::Reserve(Box::new(wish))),
        1 => which().prop_map(Step::Unreserve),
        3 => (1_u64..120).prop_map(Step::Pass),
    ]
}

fn choose<T: Copy>(all: &[T], at: usize) -> Option<T> {
    all.get(at.checked_rem(all.len())?).copied()
}

pub(crate) fn open_jobs(state: &State) -> Vec<JobId> {
    state.jobs().filter(|(_, job)| job.ended.is_none()).map(|(id, _)| id).collect()
}

fn tasks(state: &State, which: impl Fn(&control::Task) -> bool) -> Vec<(AttemptId, Rank)> {
    let all =
        state.attempts().flat_map(|(id, _)| state.tasks_of(id).map(move |(rank, task)| (id, rank, task)));
    all.filter(|(_, _, task)| which(task)).map(|(id, rank, _)| (id, rank)).collect()
}

/// Lets the step happen, if there is anything that it can happen to.
pub(crate) fn happen(world: &mut World, step: Step) {
    let jobs = open_jobs(&world.state);
    match step {
        Step::Submit(request, dependency) => {
            let mut request = *request;
            if let Some((other, condition)) = dependency.and_then(|(at, c)| Some((choose(&jobs, at)?, c))) {
                request = request.after(other, condition);
            }
            let job = world.state.next_job_id();
            world.event(Event::Submitted(SubmittedV2 { job, request }));
        }
        Step::Hold(at) => _ = choose(&jobs, at).map(|job| world.hold(job)),
        Step::Release(at) => {
            let held: Vec<_> =
                jobs.into_iter().filter(|job| world.state.job(*job).is_some_and(|row| row.held)).collect();
            if let Some(job) = choose(&held, at) {
                world.event(Event::Released(facts::event::ReleasedV1 { job }));
            }
        }
        Step::Priority(at, priority) => {
            if let Some(job) = choose(&jobs, at) {
                world.event(Event::PrioritySet(facts::event::PrioritySetV1 { job, priority }));
            }
        }
        Step::Cancel(at, member) => {
            if let Some(job) = choose(&jobs, at) {
                let members = member.map(|member| IndexSet::range(member, member + 1));
                let by = units::SubjectId(1);
                world.event(Event::CancelRequested(facts::event::CancelRequestedV1 { job, members, by }));
            }
        }
        Step::End(at, exit, freed) => {
            if let Some((attempt, rank)) = choose(&tasks(&world.state, |task| task.end.is_none()), at) {
                world.task_ends(attempt, rank.0, exit, freed);
            }
        }
        Step::Free(at) => {
            let ended = tasks(&world.state, |task| task.end.is_some() && task.freed.is_none());
            if let Some((attempt, rank)) = choose(&ended, at) {
                world.task_freed(attempt, rank.0);
            }
        }
        Step::Leak(at) => {
            if let Some((attempt, rank)) = choose(&tasks(&world.state, |task| task.freed.is_none()), at) {
                world.leak(attempt, rank.0);
            }
        }
        Step::Health(at, healthy) => {
            if let Some((attempt, _)) = choose(&tasks(&world.state, |task| task.end.is_none()), at) {
                let (at, reason) = (world.now, String::new());
                world.event(Event::HealthChanged(HealthChangedV1 { attempt, healthy, at, reason }));
            }
        }
        Step::Drain(node, schedulable) => {
            let (node, reason) = (units::NodeId(node), String::new());
            world.event(Event::NodeSchedulable(facts::event::NodeSchedulableV1 {
                node,
                schedulable,
                reason,
            }));
        }
        Step::Outside(node, devices) => world.outside(node, &devices),
        Step::Quota(team, (quota, borrow, lend)) => world.team_sharing(team, quota, borrow, lend),
        Step::Preemption(body) => world.event(Event::PreemptionSet(body)),
        Step::Preemptible(at, preemptible) => {
            if let Some(job) = choose(&jobs, at) {
                world.event(Event::PreemptibleSet(PreemptibleSetV1 { job, preemptible }));
            }
        }
        Step::Preempts(at, preempts) => {
            if let Some(job) = choose(&jobs, at) {
                world.event(Event::PreemptsSet(PreemptsSetV1 { job, preempts }));
            }
        }
        Step::Reserve(wish) => {
            let later = |at: Timestamp| Timestamp(at.0 + world.now.0);
            let wish = Wish { from: wish.from.map(later), until: later(wish.until), ..*wish };
            if let Ok(event) = control::reserve(&world.state, wish, world.now) {
                world.event(Event::ReservationSet(event));
            }
        }
        Step::Unreserve(at) => {
            let all: Vec<_> = world.state.reservations().map(|(id, _)| id).collect();
            if let Some(reservation) = choose(&all, at) {
                world.event(Event::ReservationCancelled(ReservationCancelledV1 { reservation }));
            }
        }
        Step::Pass(secs) => world.now = world.now + Nanos::from_secs(secs),
    }
}

/// Takes all decisions, each compared with the oracle's.
fn settle_with_oracle(world: &mut World) {
    for turn in 0.. {
        assert!(turn < 1_000, "decisions go round in circles");
        let expect = oracle::decide(&world.state, world.now);
        let before = world.state.clone();
        let got = world.decide();
        assert_eq!(got, expect, "the scheduler and its oracle differ");
        let Some(decision) = got else { return };
        invariants::check_decision(&before, &world.state, &decision);
    }
}

pub(crate) fn two_nodes() -> World {
    let mut world = World::with_node(8, 0);
    world.node_of(0, 8, &["H200", "A100-SXM4-40GB", "H200"]);
    world.node_of(1, 6, &["A100-SXM4-40GB", "no known model"]);
    world.team(1, Some(10), Some(3));
    world.policy = Policy { max_examined: u32::MAX };
    world
}

/// Nothing happens between now and the next wake without an event.
fn check_wake(world: &World) {
    let wake = world.state.next_wake(world.now);
    let end = wake.unwrap_or(world.now + Nanos::from_secs(1_000_000));
    assert!(end > world.now);
    let span = end.0 - world.now.0;
    for at in [1, span / 3, span / 2, span - 1] {
        let at = Timestamp(world.now.0 + at);
        if at < end {
            assert_eq!(decide(&world.state, at, &world.policy), None, "woken too late: {at:?}");
        }
    }
}

/// Everything ends well and nothing is in the way: then every job comes to its end.
fn check_liveness(mut world: World) {
    world.policy = Policy::default();
    for team in 0..2 {
        world.team(team, None, None);
    }
    for node in 0..2 {
        world.drain(node, true);
        world.outside(node, &[]);
    }
    for job in open_jobs(&world.state) {
        let row = world.state.job(job).expect("no day goes by");
        if row.ended.is_some() {
            // With the job that it waited for.
            continue;
        }
        // A gang that no empty nodes can hold waits for ever: admission would have refused it.
        if control::admit(&world.state, &row.request.clone()).is_err() {
            world.cancel(job, None);
        } else {
            world.release(job);
        }
    }
    for _ in 0..10_000 {
        world.settle();
        for (attempt, rank) in tasks(&world.state, |task| task.end.is_none()) {
            world.task_ends(attempt, rank.0, TaskExit::Exited(0), true);
        }
        for (attempt, rank) in tasks(&world.state, |task| task.freed.is_none()) {
            world.task_freed(attempt, rank.0);
        }
        if open_jobs(&world.state).is_empty() {
            assert_eq!(world.state.attempts().count(), 0);
            return;
        }
        if decide(&world.state, world.now, &world.policy).is_none() {
            world.now = world.state.next_wake(world.now).expect("open jobs run or wait for a time");
        }
    }
    panic!("jobs {:?} never end", open_jobs(&world.state));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn decides_as_a_rescan_would(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = two_nodes();
        for (at, step) in steps.into_iter().enumerate() {
            let (before, mark) = (world.state.clone(), world.state.mark());
            let mut trial = world.clone();
            happen(&mut trial, step.clone());
            trial.settle();
            trial.state.rollback(mark);
            prop_assert!(trial.state == before, "rollback of {:?} is not the identity", step);

            happen(&mut world, step);
            invariants::check(&world.state);
            // Several events may come between two rounds of decisions.
            if at % 3 > 0 {
                settle_with_oracle(&mut world);
                check_wake(&world);
            }
            let back = State::from_snapshot(&world.state.to_snapshot()).expect("a snapshot reads back");
            prop_assert!(back == world.state, "a snapshot loses something");
        }
        let mut replayed = State::new();
        for envelope in &world.log {
            replayed.apply(envelope).expect("what was applied once applies again");
            replayed.forget_undo();
        }
        prop_assert!(replayed == world.state, "a replay leads elsewhere");
        check_liveness(world);
    }
}
