//! Who starts, when and where.

use control::{Denial, Misfit, Policy, Resource, State, Why, admit, admit_action};
use facts::event::{CancelRequestedV1, HeldV1, PlacementV1, StartedV1};
use facts::{Condition, Event, IndexSet, Outcome, TaskExit};
use units::{ArrayIndex, AttemptId, Bytes, DeviceIndex, JobId, Nanos, NodeId, SubjectId, TeamId};

use crate::world::{Refine, World, job, started};

#[test]
fn first_come_first_served() {
    let mut world = World::with_node(4, 0);
    let jobs: Vec<_> = [3, 4, 1].into_iter().map(|cores| world.submit(job().cores(cores))).collect();
    // The third would fit, but without a time limit it might delay the second for ever.
    world.assert_running(&jobs, &jobs[..1]);
    world.succeeds(jobs[0]);
    world.assert_running(&jobs, &jobs[1..2]);
}

#[test]
fn a_short_job_passes_the_head_without_delaying_it() {
    let mut world = World::with_node(4, 0);
    let runs = world.submit(job().cores(3).minutes(10));
    let head = world.submit(job().cores(4).minutes(10));
    let long = world.submit(job().minutes(11));
    let short = world.submit(job().minutes(10));
    world.assert_running(&[head, long, short], &[short]);
    world.succeeds(runs);
    world.succeeds(short);
    world.assert_running(&[head, long], &[head]);
}

#[test]
fn a_long_job_may_use_what_the_head_leaves() {
    let mut world = World::with_node(4, 0);
    world.submit(job().cores(3).minutes(10));
    let head = world.submit(job().cores(3).minutes(10));
    let long = world.submit(job());
    world.assert_running(&[head, long], &[long]);
}

#[test]
fn what_is_overdue_counts_as_left_and_wakes() {
    let mut world = World::with_node(4, 0);
    let begin = world.now;
    world.submit(job().cores(2).minutes(1));
    let stopping = world.submit(job().with(|job| job.stop.grace = Nanos::from_secs(100)));
    world.cancel(stopping, None);
    let head = world.submit(job().cores(3));
    let small = world.submit(job());
    world.pass(60);
    // The head waits for the first job alone, and leaves nothing until the second is overdue.
    world.assert_running(&[head, small], &[]);
    assert_eq!(world.state.next_wake(world.now), Some(begin + Nanos::from_secs(100)));
    world.pass(40);
    world.assert_running(&[head, small], &[small]);
}

#[test]
fn backfill_looks_at_no_more_jobs_than_the_policy_says() {
    let mut world = World::with_node(2, 3);
    let memory = |memory| job().with(|job| job.per_task.memory = Bytes(memory));
    world.submit(memory(1 << 10).minutes(10));
    world.submit(job().cores(2).minutes(10));
    // One is too long and one a little too large, so that neither part alone rules them both out.
    let free = (1 << 20) - (1 << 10);
    let shapes = [memory(free).minutes(60), memory(free + 1).minutes(5)];
    let misfits: Vec<_> = (0..20).map(|at| world.submit(shapes[at % 2].clone())).collect();
    world.policy = Policy { max_examined: 10 };
    let short = world.submit(memory(free).minutes(5));
    world.assert_running(&[short], &[]);
    world.policy = Policy::default();
    world.settle();
    world.assert_running(&[short], &[short]);
    world.assert_running(&misfits, &[]);
}

#[test]
fn higher_priority_and_longer_waiting_come_first() {
    let mut world = World::with_node(1, 0);
    let runs = world.submit(job());
    let [plain, urgent] = [0, 1].map(|priority| world.submit(job().priority(priority)));
    world.succeeds(runs);
    world.assert_running(&[plain, urgent], &[urgent]);
    // One step of priority is worth an hour of waiting and no more.
    world.pass(2 * 3_600);
    let newer = world.submit(job().priority(1));
    world.succeeds(urgent);
    world.assert_running(&[plain, newer], &[plain]);
    let last = world.submit(job());
    world.set_priority(last, 5);
    world.succeeds(plain);
    world.assert_running(&[newer, last], &[last]);
}

#[test]
fn a_held_job_lets_others_pass_until_it_is_released() {
    let mut world = World::with_node(1, 0);
    let held = world.submit(job().with(|job| job.hold = true));
    let other = world.submit(job());
    world.assert_running(&[held, other], &[other]);
    world.release(held);
    world.succeeds(other);
    world.assert_running(&[held], &[held]);
}

#[test]
fn a_team_at_its_quota_blocks_nobody() {
    let mut world = World::with_node(8, 0);
    world.team(1, Some(2), None);
    let jobs: Vec<_> = [1, 1, 0].map(|team| world.submit(job().cores(2).team(team))).to_vec();
    world.assert_running(&jobs, &[jobs[0], jobs[2]]);
    world.team(1, Some(4), None);
    world.settle();
    world.assert_running(&jobs, &jobs);
}

#[test]
fn gangs_start_whole_or_not_at_all_and_span_nodes() {
    let mut world = World::with_node(4, 2);
    world.node(1, 4, 2);
    let single = world.submit(job().gpus(1));
    let gang = world.submit(job().gpus(1).tasks(4));
    world.assert_running(&[single, gang], &[single]);
    world.succeeds(single);
    let nodes: Vec<_> = world.state.tasks_of(world.attempt(gang)).map(|(_, task)| task.node.0).collect();
    assert_eq!(nodes, [0, 0, 1, 1]);
    assert_eq!(world.devices(gang), [0, 1, 0, 1]);
}

#[test]
fn devices_are_of_the_model_asked_for() {
    let mut world = World::with_node(16, 0);
    world.node_of(0, 16, &["NVIDIA H200", "A100-SXM4-40GB", "NVIDIA H200"]);
    let a100 = world.submit(job().gpus_of("A100-SXM4-40GB", 1));
    let h200 = world.submit(job().gpus_of("h200", 1));
    assert_eq!((world.devices(a100), world.devices(h200)), (vec![1], vec![0]));
    let (second, free) =
        (world.submit(job().gpus_of("A100-SXM4-40GB", 1).minutes(1)), world.submit(job().minutes(1)));
    let any = world.submit(job().gpus(1).minutes(1));
    world.assert_running(&[second, free, any], &[free, any]);
    assert_eq!(world.devices(any), [2]);
    let Why::Resources { missing, model, .. } = world.why(second) else { panic!("{:?}", world.why(second)) };
    assert_eq!(
        (missing, model.map(units::GpuModel::name)),
        (vec![(Resource::Gpus, 1)], Some("A100-SXM-40GB"))
    );
    world.succeeds(a100);
    world.assert_running(&[second], &[second]);
    assert_eq!(world.devices(second), [1]);
}

#[test]
fn a_model_that_is_not_there_or_not_often_enough_is_refused() {
    let mut world = World::with_node(16, 0);
    world.node_of(0, 16, &["NVIDIA H200", "A100-SXM4-40GB", "NVIDIA H200"]);
    let check = |request: facts::JobRequest, expect: &str| {
        let refused = admit(&world.state, &request).expect_err("it can never run");
        assert_eq!(refused.to_string(), expect);
    };
    check(
        job().gpus_of("b200", 1),
        "it asks for GPUs of model B200-SXM-180GB, and there are 1 A100-SXM4-40GB, 2 NVIDIA H200",
    );
    check(
        job().gpus_of("h200", 3),
        "it asks for 1 x (1 core, 1 B of memory, 3 GPUs) of model H200-SXM-141GB, more than the nodes \
         have even when nothing else runs; 0 such tasks would fit, and a task may have at most 16 cores, \
         1 MiB of memory, 2 GPUs",
    );
    check(
        job().gpus_of("h200", 0),
        "it asks for 0 GPUs of model H200-SXM-141GB; ask for at least one, or for no model",
    );
    let nothing = World::with_node(1, 0);
    let refused = admit(&nothing.state, &job().gpus_of("h200", 1)).expect_err("there is none");
    assert_eq!(refused.to_string(), "it asks for GPUs of model H200-SXM-141GB, and there are none");
}

#[test]
fn the_lowest_free_device_is_taken() {
    let mut world = World::with_node(8, 4);
    let jobs: Vec<_> = (0..3).map(|_| world.submit(job().gpus(1))).collect();
    world.succeeds(jobs[1]);
    let pair = world.submit(job().gpus(2));
    assert_eq!(world.devices(pair), [1, 3]);
}

#[test]
fn a_drained_node_gets_no_new_work_and_keeps_the_old() {
    let mut world = World::with_node(4, 0);
    let old = world.submit(job());
    world.drain(0, false);
    let new = world.submit(job());
    world.assert_running(&[old, new], &[old]);
    world.drain(0, true);
    world.assert_running(&[old, new], &[old, new]);
}

#[test]
fn a_job_that_only_a_drained_node_could_hold_blocks_nobody() {
    let mut world = World::with_node(4, 0);
    world.node(1, 8, 0);
    world.drain(1, false);
    let jobs = [8, 1].map(|cores| world.submit(job().cores(cores)));
    world.assert_running(&jobs, &jobs[1..]);
}

#[test]
fn an_array_runs_its_members_in_order_and_so_many_at_once() {
    let mut world = World::with_node(8, 0);
    let array = world.submit(job().array(3, 6, Some(2)));
    assert_eq!(world.running(array), 2);
    let next = world.ends(array, &TaskExit::Exited(0));
    assert_eq!(started(&next), [(array, 5)]);
    (0..3).for_each(|_| world.succeeds(array));
    assert_eq!(world.outcome(array), Some(Outcome::Success));
}

#[test]
fn dependencies_say_who_may_start_and_who_never_will() {
    for (exit, ok, not_ok) in [(0, true, false), (3, false, true)] {
        let mut world = World::with_node(8, 0);
        let first = world.submit(job());
        let conditions = [Condition::Ok, Condition::NotOk, Condition::Any];
        let [on_ok, on_not_ok, on_any] =
            conditions.map(|condition| world.submit(job().after(first, condition)));
        let chained = world.submit(job().after(on_ok, Condition::Ok));
        world.assert_running(&[on_ok, on_not_ok, on_any, chained], &[]);
        world.ends(first, &TaskExit::Exited(exit));
        assert_eq!((world.running(on_ok) > 0, world.running(on_not_ok) > 0), (ok, not_ok));
        assert_eq!(world.running(on_any), 1);
        let dead = |job| world.outcome(job) == Some(Outcome::DependencyFailed);
        assert_eq!((dead(on_ok), dead(on_not_ok), dead(chained)), (!ok, !not_ok, !ok));
    }
}

#[test]
fn one_failed_member_dooms_who_waits_for_all() {
    let mut world = World::with_node(1, 0);
    let array = world.submit(job().array(0, 9, None));
    let after = world.submit(job().after(array, Condition::Ok));
    world.ends(array, &TaskExit::Exited(1));
    assert_eq!(world.outcome(after), Some(Outcome::DependencyFailed));
}

#[test]
fn the_place_in_the_queue_counts_all_teams() {
    let mut world = World::with_node(1, 0);
    world.team(1, None, None);
    world.submit(job());
    let jobs: Vec<_> = [0, 1, 0].map(|team| world.submit(job().team(team))).to_vec();
    let places: Vec<_> = jobs.iter().map(|job| world.state.jobs_ahead(*job)).collect();
    assert_eq!(places, [Some(0), Some(1), Some(2)]);
}

#[test]
fn a_job_is_forgotten_a_day_after_its_end() {
    let mut world = World::with_node(1, 0);
    let old = world.submit(job());
    world.succeeds(old);
    world.pass(86_399);
    world.team(1, None, None);
    assert!(world.state.job(old).is_some());
    world.pass(1);
    world.team(1, None, None);
    assert!(world.state.job(old).is_none());
    assert_eq!(world.submit(job()), JobId(2));
}

#[test]
fn admission_refuses_what_could_never_run() {
    let mut world = World::with_node(8, 2);
    world.node(1, 4, 0);
    world.team(1, Some(6), Some(1));
    world.drain(1, false);
    let check = |request, expect: Option<&str>| {
        let got = admit(&world.state, &request).err().map(|denial| denial.to_string());
        assert_eq!(got.as_deref(), expect);
    };
    check(job(), None);
    check(job().cores(4).tasks(3), None);
    check(job().tasks(0), Some("a job needs at least one task"));
    check(job().cores(0), Some("a task needs at least one core"));
    check(job().team(9), Some("there is no team 9"));
    check(
        job().cores(5).tasks(2),
        Some(
            "it asks for 2 x (5 cores, 1 B of memory), more than the nodes have even when nothing else runs; \
             1 such task would fit, and a task may have at most 8 cores, 1 MiB of memory, 2 GPUs",
        ),
    );
    check(
        job().team(1).cores(2).tasks(4),
        Some(
            "it asks for 8 cores, team t1 may hold 6 cores at once (it holds 0 cores now); \
             3 of its 4 tasks would fit",
        ),
    );
    check(
        job().array(0, 1_000_000, None),
        Some("1000001 array members are more than the 1000000 that a job may have"),
    );
    check(
        job().array(0, 1, Some(0)),
        Some("an array with at most 0 members at once never runs; the limit is 1 or more"),
    );
    check(
        job().after(JobId(5), Condition::Any),
        Some("it waits for job 5, which is not known; jobs are known until a day after their end"),
    );
}

#[test]
fn the_quota_that_refuses_is_named() {
    let mut world = World::with_node(8, 2);
    world.team(1, None, Some(1));
    world.submit(job().gpus(1).team(1));
    let denial = admit(&world.state, &job().gpus(2).team(1));
    assert_eq!(
        denial,
        Err(Denial::OverQuota {
            team: TeamId(1),
            name: "t1".to_owned(),
            resource: Resource::Gpus,
            limit: 1,
            borrow: 0,
            used: 1,
            asked: 2,
            tasks: 1,
            fits: 0,
        })
    );
}

#[test]
fn calls_about_what_is_not_there_are_refused() {
    let mut world = World::with_node(1, 0);
    let array = world.submit(job().array(0, 2, None));
    let hold = |job| Event::Held(HeldV1 { job });
    let cancel =
        |members| Event::CancelRequested(CancelRequestedV1 { job: array, members, by: SubjectId(1) });
    assert_eq!(admit_action(&world.state, &hold(array)), Ok(()));
    assert_eq!(admit_action(&world.state, &cancel(None)), Ok(()));
    let strangers = Denial::NoSuchMembers { job: array, members: IndexSet::range(3, 4) };
    assert_eq!(admit_action(&world.state, &cancel(Some(IndexSet::range(1, 4)))), Err(strangers));
    assert_eq!(admit_action(&world.state, &hold(JobId(9))), Err(Denial::NoSuchJob(JobId(9))));
    world.cancel(array, None);
    world.ends(array, &TaskExit::Signalled(15));
    assert_eq!(admit_action(&world.state, &hold(array)), Err(Denial::JobEnded(array)));
}

#[test]
fn a_log_that_does_not_fit_changes_nothing() {
    let mut world = World::with_node(8, 2);
    let runs = world.submit(job().gpus(1));
    let waits = world.submit(job().gpus(2));
    let place = |node: u32, devices: &[u16]| PlacementV1 {
        node: NodeId(node),
        devices: devices.iter().copied().map(DeviceIndex).collect(),
    };
    let start = |attempt: u64, job: JobId, tasks: Vec<PlacementV1>| {
        let (attempt, index) = (AttemptId(attempt), ArrayIndex(0));
        Event::Started(StartedV1 { attempt, job, index, number: 1, tasks })
    };
    let member = units::MemberId::sole(runs);
    let cases = [
        (start(1, waits, vec![place(0, &[0, 1])]), Misfit::AttemptIdUsed(AttemptId(1))),
        (start(2, JobId(9), vec![place(0, &[0, 1])]), Misfit::UnknownJob(JobId(9))),
        (start(2, runs, vec![place(0, &[1])]), Misfit::NotWaiting(member)),
        (start(2, waits, vec![place(0, &[0, 1])]), Misfit::DeviceHeld(NodeId(0), DeviceIndex(0))),
        (start(2, waits, vec![place(0, &[1, 2])]), Misfit::UnknownDevice(NodeId(0), DeviceIndex(2))),
        (start(2, waits, vec![place(7, &[0, 1])]), Misfit::UnknownNode(NodeId(7))),
        (start(2, waits, vec![place(0, &[1])]), Misfit::OtherShape(AttemptId(2))),
        (start(2, waits, vec![]), Misfit::OtherShape(AttemptId(2))),
        (Event::Held(HeldV1 { job: JobId(9) }), Misfit::UnknownJob(JobId(9))),
    ];
    for (event, misfit) in cases {
        let before = world.state.clone();
        assert_eq!(world.try_event(event), Err(misfit));
        assert!(world.state == before);
    }
}

#[test]
fn a_snapshot_that_is_none_is_refused() {
    let world = World::with_node(8, 2);
    let snapshot = world.state.to_snapshot();
    for cut in 0..snapshot.len() {
        assert!(State::from_snapshot(&snapshot[..cut]).is_err());
    }
    let mut long = snapshot.clone();
    long.push(0);
    assert!(State::from_snapshot(&long).is_err());
    let other = [&[99], &snapshot[1..]].concat();
    let error = State::from_snapshot(&other).expect_err("another layout");
    assert_eq!(error.to_string(), "the snapshot has layout 99, this program reads 9");
}
