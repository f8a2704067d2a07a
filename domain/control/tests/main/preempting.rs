//! Whoever is stopped for another was to give way, was needed, and is enough.

use control::State;
use facts::applied::PreemptsSetV1;
use facts::event::{
    PreemptibleSetV1, PreemptionSetV1, ReceiptV1, Reclaim, RightV1, StartedV1, StopOrderedV2,
};
use facts::{Event, Outcome};
use proptest::prelude::*;
use units::{AttemptId, JobId, Nanos, TeamId, Timestamp};

use crate::histories::{happen, step, two_nodes};
use crate::world::{Refine, World, job};

/// Eight devices. Team 1 is promised five and team 2 three; each may borrow all that is lent.
fn shared() -> World {
    let mut world = World::with_node(64, 8);
    world.team_sharing(1, (None, Some(5)), (0, 8), (None, None));
    world.team_sharing(2, (None, Some(3)), (0, 8), (None, None));
    world
}

fn set(world: &mut World, change: impl FnOnce(&mut PreemptionSetV1)) {
    let mut body = PreemptionSetV1::default();
    change(&mut body);
    world.event(Event::PreemptionSet(body));
}

fn preemptible(world: &mut World, job: JobId) {
    world.event(Event::PreemptibleSet(PreemptibleSetV1 { job, preemptible: true }));
}

/// Attempts that are being stopped to make room, and for whom.
fn stopping(state: &State) -> Vec<(AttemptId, ReceiptV1)> {
    state.attempts().filter_map(|(id, attempt)| Some((id, attempt.stop?.receipt?))).collect()
}

/// Jobs that are being stopped to make room.
fn stopped(world: &World) -> Vec<JobId> {
    let member = |(id, _)| world.state.attempt(id).map(|attempt| attempt.member.job);
    stopping(&world.state).into_iter().filter_map(member).collect()
}

/// All that is being stopped to make room ends by its signal.
fn give_way(world: &mut World) {
    for (attempt, _) in stopping(&world.state) {
        world.ends_all(attempt);
    }
    world.settle();
}

#[test]
fn what_was_lent_is_given_back() {
    let mut world = shared();
    let jobs: Vec<JobId> = (0..4).map(|_| world.submit(job().team(1).gpus(2))).collect();
    world.assert_running(&jobs, &jobs);
    let owner = world.submit(job().team(2).gpus(2));
    assert_eq!(stopped(&world), [jobs[3]]);
    let right = RightV1::Reclaim { part: facts::event::PartV1::Gpus, quota: 5, held: 8 };
    let receipt = ReceiptV1 { job: owner, team: TeamId(2), right };
    assert_eq!(stopping(&world.state)[0].1, receipt);
    let control::Why::RoomIsMade { by, holders } = world.why(owner) else { panic!("{:?}", world.why(owner)) };
    let grace = job().stop.grace;
    assert_eq!((by, holders.len(), holders[0].member.job), (Some(world.now + grace), 1, jobs[3]));
    // It was waiting for longer, but the room is promised.
    give_way(&mut world);
    world.assert_running(&[jobs[3], owner], &[owner]);
    let waits = world.state.retries_of(jobs[3]).next().expect("it is queued again").1;
    assert_eq!((waits.preempted, waits.counted, waits.receipt), (1, 0, Some(receipt)));
    world.succeeds(owner);
    world.assert_running(&jobs, &jobs);
}

#[test]
fn a_team_is_never_brought_below_its_quota() {
    let mut world = shared();
    let jobs: Vec<JobId> = (0..8).map(|_| world.submit(job().team(1).gpus(1))).collect();
    let owner = world.submit(job().team(2).gpus(3));
    assert_eq!(stopped(&world), jobs[5..]);
    give_way(&mut world);
    world.assert_running(&[owner], &[owner]);
    let more = world.submit(job().team(2).gpus(1));
    assert_eq!(stopped(&world), []);
    world.assert_running(&[more], &[]);
}

#[test]
fn nobody_is_stopped_in_vain() {
    let mut world = shared();
    // One that is not borrowed holds more than the gang can do without.
    let base = world.submit(job().team(0).gpus(6));
    let borrower = world.submit(job().team(1).gpus(2));
    world.team_sharing(1, (None, Some(1)), (0, 8), (None, None));
    let waits = world.submit(job().team(2).gpus(3));
    assert_eq!(stopped(&world), []);
    world.succeeds(base);
    world.assert_running(&[borrower, waits], &[borrower, waits]);
}

#[test]
fn whoever_keeps_to_the_quota_comes_before_whoever_borrows() {
    let mut world = shared();
    let first = world.submit(job().team(1).gpus(8));
    let borrows = world.submit(job().team(1).gpus(1));
    let owns = world.submit(job().team(2).gpus(1));
    give_way(&mut world);
    world.assert_running(&[first, borrows, owns], &[borrows, owns]);
}

#[test]
fn what_is_not_lent_is_not_borrowed() {
    let mut world = shared();
    world.team_sharing(2, (None, Some(3)), (0, 0), (None, Some(1)));
    let jobs: Vec<JobId> = (0..7).map(|_| world.submit(job().team(1).gpus(1))).collect();
    world.assert_running(&jobs, &jobs[..6]);
    let why = world.why(jobs[6]);
    let resource = control::Resource::Gpus;
    assert_eq!(why, control::Why::NotLent { team: TeamId(1), resource, free: 2, kept: 2, need: 1 });
    let owner = world.submit(job().team(2).gpus(2));
    world.assert_running(&[owner], &[owner]);
}

#[test]
fn the_urgent_stop_the_preemptible_of_their_team() {
    let mut world = World::with_node(64, 4);
    set(&mut world, |policy| policy.preempts_from = Some(2));
    let firm = world.submit(job().gpus(2));
    let gentle = world.submit(job().gpus(2));
    preemptible(&mut world, gentle);
    let usual = world.submit(job().gpus(1).priority(1));
    assert_eq!(stopped(&world), []);
    let urgent = world.submit(job().gpus(2).priority(2));
    assert_eq!(stopped(&world), [gentle]);
    assert_eq!(stopping(&world.state)[0].1.right, RightV1::Priority { above: 2, below: 0 });
    give_way(&mut world);
    world.assert_running(&[firm, gentle, usual, urgent], &[firm, urgent]);
}

#[test]
fn nobody_runs_in_the_place_that_others_were_stopped_for() {
    let mut world = World::with_node(64, 4);
    set(&mut world, |policy| policy.preempts_from = Some(2));
    let gentle = world.submit(job().gpus(3));
    preemptible(&mut world, gentle);
    let urgent = world.submit(job().gpus(4).priority(2));
    assert_eq!(stopped(&world), [gentle]);
    // It would be over before the stopped are killed, and they may be gone before that.
    let short = world.submit(job().gpus(1).with(|job| job.time_limit = Some(Nanos::from_secs(1))));
    world.assert_running(&[short], &[]);
    let starts_at = Some(world.now + job().stop.grace);
    assert_eq!(world.why(short), control::Why::Behind { head: urgent, starts_at });
    give_way(&mut world);
    world.assert_running(&[gentle, urgent, short], &[urgent]);
}

#[test]
fn a_class_lets_its_jobs_stop_less_urgent_ones() {
    let check = |priority: i32, preempts: bool, from: Option<i32>, expect: bool| {
        let mut world = World::with_node(64, 4);
        set(&mut world, |policy| policy.preempts_from = from);
        let gentle = world.submit(job().gpus(4));
        preemptible(&mut world, gentle);
        let urgent = world.submit(job().gpus(2).priority(priority).with(|job| job.hold = true));
        world.event(Event::PreemptsSet(PreemptsSetV1 { job: urgent, preempts }));
        world.event(Event::Released(facts::event::ReleasedV1 { job: urgent }));
        world.settle();
        let expect: &[JobId] = if expect { &[gentle] } else { &[] };
        assert_eq!(stopped(&world), expect, "{priority} {preempts} {from:?}");
    };
    check(1, true, None, true);
    check(1, false, None, false);
    check(1, false, Some(2), false);
    check(2, false, Some(2), true);
    check(1, true, Some(2), true);
    // It is no more urgent than the other.
    check(0, true, None, false);
}

#[test]
fn the_urgent_make_room_within_a_full_quota() {
    let mut world = World::with_node(64, 8);
    world.team(1, None, Some(2));
    set(&mut world, |policy| policy.preempts_from = Some(2));
    let gentle = world.submit(job().team(1).gpus(2));
    preemptible(&mut world, gentle);
    let urgent = world.submit(job().team(1).gpus(2).priority(2));
    assert_eq!(stopped(&world), [gentle]);
    // Nobody else of the team takes what becomes free.
    let other = world.submit(job().team(1).gpus(1));
    give_way(&mut world);
    world.assert_running(&[gentle, urgent, other], &[urgent]);
}

#[test]
fn a_policy_says_who_is_stopped_first() {
    let check = |change: fn(&mut PreemptionSetV1), expect: &[usize]| {
        let mut world = shared();
        set(&mut world, change);
        let jobs = [-1, 0, 0].map(|priority| world.submit(job().team(1).gpus(2).priority(priority)));
        let owner = world.submit(job().team(2).gpus(3));
        assert_eq!(stopped(&world), expect.iter().map(|at| jobs[*at]).collect::<Vec<_>>());
        (world, jobs, owner)
    };
    check(|_| (), &[2]);
    check(|policy| policy.reclaim = Reclaim::LowestPriority, &[0]);
    check(|policy| policy.reclaim = Reclaim::Never, &[]);
    check(|policy| policy.most = 0, &[]);
    let (mut world, jobs, owner) = check(|policy| policy.protect = Nanos::from_secs(60), &[]);
    let wake = world.state.next_wake(world.now).expect("it is left alone for a while");
    assert_eq!(wake, world.now + Nanos::from_secs(60));
    world.pass(60);
    assert_eq!(stopped(&world), [jobs[2]]);
    give_way(&mut world);
    world.assert_running(&[owner], &[owner]);
}

#[test]
fn what_may_not_be_put_back_ends() {
    let mut world = shared();
    let borrower = world.submit(job().team(1).gpus(6).with(|job| job.retry.requeue = false));
    let owner = world.submit(job().team(2).gpus(3));
    give_way(&mut world);
    world.assert_running(&[owner], &[owner]);
    assert_eq!(world.outcome(borrower), Some(Outcome::Preempted));
}

/// Lets all that is coming free be free at `at`, with what is over by then by its limit, but for one;
/// says whether `job` is the next to start.
fn starts_next(world: &World, job: JobId, at: Timestamp, but: Option<AttemptId>) -> bool {
    let mut world = world.clone();
    let since = std::mem::replace(&mut world.now, at);
    let sound = world.state.attempts().filter(|(_, attempt)| attempt.leaked == 0);
    let coming = sound.filter(|(id, attempt)| {
        let is_over = since < at && attempt.expected_end() <= at;
        (attempt.stop.is_some() || !attempt.is_live() || is_over) && Some(*id) != but
    });
    for attempt in coming.map(|(id, _)| id).collect::<Vec<_>>() {
        world.ends_all(attempt);
    }
    while let Some(event) = world.decide() {
        if let Event::Started(StartedV1 { job: started, .. }) = event {
            return started == job;
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn the_stopped_are_enough_and_all_needed(steps in prop::collection::vec(step(), 10..60)) {
        let mut world = two_nodes();
        world.team_sharing(1, (Some(5), Some(2)), (9, 5), (None, None));
        for step in steps {
            happen(&mut world, step);
            let events = world.settle();
            let ordered = events.iter().filter_map(|event| match event {
                Event::StopOrdered(StopOrderedV2 { attempt, receipt: Some(receipt), .. }) => {
                    Some((*attempt, receipt.job))
                }
                _ => None,
            });
            let ordered: Vec<(AttemptId, JobId)> = ordered.collect();
            let Some(job) = ordered.first().map(|(_, job)| *job) else { continue };
            prop_assert!(ordered.iter().all(|(_, other)| *other == job), "room is made for one job at a time");
            prop_assert!(starts_next(&world, job, world.now, None), "the stopped are not enough");
            // What was ordered before may be needed no more: other room has come since.
            // Who is, with windows to come, depends on how long the ends take.
            let ordered = ordered.into_iter().filter(|_| world.state.reservations().next().is_none());
            for (attempt, _) in ordered {
                prop_assert!(!starts_next(&world, job, world.now, Some(attempt)), "one of them was not needed");
            }
        }
    }
}
