//! Why a job waits: each answer names what is in the way.

use control::{Amount, Holder, Policy, Resource, Why, why};
use facts::event::StopReason;
use facts::{Condition, TaskExit};
use units::{ArrayIndex, MemberId, Nanos, NodeId, SubjectId, TeamId};

use crate::world::{Refine, World, job};

#[test]
fn resources_name_the_holder_and_when_it_ends() {
    let mut world = World::with_node(4, 2);
    let since = world.now;
    let holder = world.submit(job().gpus(2).minutes(10));
    let waits = world.submit(job().gpus(1));
    world.pass(60);
    let end = since + Nanos::from_secs(600);
    let expect = Why::Resources {
        model: None,
        missing: vec![(Resource::Gpus, 1)],
        free_at: Some(end),
        holders: vec![Holder {
            member: MemberId::sole(holder),
            owner: SubjectId(7),
            amount: Amount { cores: 1, memory: 1, gpus: 2 },
            since,
            expected_end: Some(end),
        }],
    };
    assert_eq!(world.why(waits), expect);
}

#[test]
fn a_hold_without_end_is_never_free() {
    let mut world = World::with_node(1, 0);
    world.submit(job());
    let waits = world.submit(job());
    let Why::Resources { free_at, holders, .. } = world.why(waits) else { panic!("{:?}", world.why(waits)) };
    assert_eq!((free_at, holders.len()), (None, 1));
}

#[test]
fn a_quota_is_named_with_its_use() {
    let mut world = World::with_node(8, 0);
    world.team(1, Some(3), None);
    world.submit(job().team(1).cores(2));
    let waits = world.submit(job().team(1).cores(2));
    let (team, resource) = (TeamId(1), Resource::Cores);
    assert_eq!(world.why(waits), Why::QuotaOfTeam { team, resource, limit: 3, used: 2, need: 2 });
}

#[test]
fn a_job_behind_the_head_is_told_so() {
    let mut world = World::with_node(4, 0);
    world.submit(job().cores(3).minutes(10));
    let starts_at = Some(world.now + Nanos::from_secs(600));
    let head = world.submit(job().cores(4));
    let behind = world.submit(job().minutes(20));
    assert_eq!(world.why(behind), Why::Behind { head, starts_at });
}

#[test]
fn a_job_that_fits_and_is_not_seen_is_told_so() {
    let mut world = World::with_node(4, 0);
    world.submit(job().cores(3).minutes(10));
    world.submit(job().cores(4));
    world.policy = Policy { max_examined: 0 };
    let unseen = world.submit(job().minutes(5));
    assert_eq!(world.why(unseen), Why::NotExamined { limit: 0 });
    assert_eq!(world.decide(), None, "it is recorded");
    assert_eq!(world.state.meta().cut, Some((world.now, 0)));
    world.policy = Policy::default();
    assert_eq!(world.why(unseen), Why::Next);
    world.policy = Policy { max_examined: 0 };
    world.pass(3_599);
    assert_eq!(world.decide(), None, "once");
    world.pass(1);
    assert_eq!(world.state.meta().cut, Some((world.now, 0)), "an hour");
}

#[test]
fn each_state_has_its_answer() {
    let mut world = World::with_node(4, 0);
    let runs = world.submit(job().minutes(1));
    let (attempt, since) = (world.attempt(runs), world.now);
    let held = world.submit(job().with(|job| job.hold = true));
    let after = world.submit(job().after(runs, Condition::Any));
    let array = world.submit(job().array(0, 3, Some(2)).retries(1));
    let until = Some(world.now + Nanos::from_secs(60));
    assert_eq!(world.why(runs), Why::Running { attempt, since, until });
    assert_eq!(world.why(held), Why::Held);
    assert_eq!(world.why(after), Why::DependencyPending(vec![runs]));
    assert_eq!(world.why(array), Why::ArrayLimit { limit: 2 });
    let of =
        |world: &World, member| why(&world.state, array, Some(ArrayIndex(member)), world.now, &world.policy);
    assert!(matches!(of(&world, 1), Why::Running { .. }));
    assert_eq!(of(&world, 3), Why::ArrayLimit { limit: 2 });
    assert_eq!(of(&world, 4), Why::Unknown);

    world.ends(array, &TaskExit::Exited(1));
    world.cancel(array, Some(facts::IndexSet::range(1, 3)));
    assert_eq!(of(&world, 0), Why::ArrayLimit { limit: 2 });
    let Why::Stopping { reason, held: false, .. } = of(&world, 1) else { panic!("{:?}", of(&world, 1)) };
    assert_eq!(reason, StopReason::Cancel);
    assert!(matches!(of(&world, 3), Why::Ended { .. }));

    world.task_ends(attempt, 0, TaskExit::Exited(0), false);
    assert_eq!(world.why(runs), Why::Freeing { attempt, leaked: false });
    world.leak(attempt, 0);
    assert_eq!(world.why(runs), Why::Freeing { attempt, leaked: true });
    assert_eq!(world.why(units::JobId(99)), Why::Unknown);
}

#[test]
fn a_failed_job_waits_for_its_next_try() {
    let mut world = World::with_node(4, 0);
    let flaky = world.submit(job().retries(1));
    world.ends(flaky, &TaskExit::Exited(1));
    assert_eq!(world.why(flaky), Why::RetryWait(world.now + Nanos::from_secs(1)));
}

#[test]
fn a_drained_node_is_named() {
    let mut world = World::with_node(4, 0);
    world.node(1, 8, 0);
    world.drain(1, false);
    let waits = world.submit(job().cores(8));
    assert_eq!(world.why(waits), Why::NodesDrained(vec![NodeId(1)]));
    world.node(1, 2, 0);
    assert_eq!(world.why(waits), Why::NoNode);
}

#[test]
fn what_others_hold_is_given_to_nobody_until_they_let_go() {
    let mut world = World::with_node(8, 3);
    let holder = world.submit(job().gpus(1));
    world.outside(0, &[0, 1]);
    let (all, rest) = (world.submit(job().gpus(3)), world.submit(job().gpus(1)));
    world.assert_running(&[all, rest], &[rest]);
    assert_eq!(world.devices(rest), [2]);
    assert_eq!(world.why(all), Why::HeldOutside { gpus: 2 });
    world.succeeds(holder);
    world.succeeds(rest);
    world.assert_running(&[all], &[]);
    world.outside(0, &[]);
    world.settle();
    world.assert_running(&[all], &[all]);
}

#[test]
fn a_cancelled_job_is_ending_until_the_decision() {
    let mut world = World::with_node(1, 0);
    world.submit(job());
    let waits = world.submit(job());
    let members = None;
    let by = SubjectId(1);
    world.event(facts::Event::CancelRequested(facts::event::CancelRequestedV1 { job: waits, members, by }));
    assert_eq!(world.why(waits), Why::Ending);
}
