//! Capacity that is kept for somebody, as sentences.

use control::{Amount, Denial, Remedy, Standing, Why, Wish, reserve, standing};
use facts::event::{PreemptibleSetV1, PreemptionSetV1};
use facts::reservation::{HolderV1, ReservationCancelledV1};
use facts::{Event, Resources};
use units::{Bytes, Cores, Nanos, ReservationId, SubjectId, TeamId, Timestamp};

use crate::world::{MINUTE, Refine, World, job};

fn gpus(gpus: u64) -> Amount {
    Amount { cores: gpus, memory: gpus, gpus }
}

const USER: HolderV1 = HolderV1::User(SubjectId(8));

/// So many devices with a core and a byte each, from and until so many minutes from now.
fn wish(world: &World, gpus: u16, from: u64, until: u64) -> Wish {
    let at = |minutes| world.now + Nanos::from_secs(minutes * MINUTE);
    Wish {
        amount: Resources { cores: Cores(gpus.into()), memory: Bytes(gpus.into()), gpus },
        from: Some(at(from)),
        until: at(until),
        holder: USER,
        reason: "course".to_owned(),
    }
}

fn reserved(world: &mut World, gpus: u16, from: u64, until: u64) -> ReservationId {
    let event = reserve(&world.state, wish(world, gpus, from, until), world.now).expect("there is room");
    let id = event.reservation;
    world.event(Event::ReservationSet(event));
    world.settle();
    id
}

#[test]
fn a_job_that_would_run_into_a_window_waits_for_its_end() {
    let mut world = World::with_node(16, 8);
    reserved(&mut world, 6, 30, 60);
    let short = world.submit(job().gpus(4).minutes(30));
    let beside = world.submit(job().gpus(2).minutes(31));
    let long = world.submit(job().gpus(1).minutes(31));
    let endless = world.submit(job().gpus(1));
    world.assert_running(&[short, beside, long, endless], &[short, beside]);
    world.pass(30 * MINUTE);
    world.succeeds(short);
    world.succeeds(beside);
    world.assert_running(&[long, endless], &[long, endless]);
    let full = world.submit(job().gpus(6));
    assert_eq!(world.state.next_wake(world.now), Some(world.now + Nanos::from_secs(30 * MINUTE)));
    world.pass(30 * MINUTE - 1);
    world.assert_running(&[full], &[]);
    world.pass(1);
    world.assert_running(&[full], &[full]);
    assert_eq!(world.state.reservations().count(), 0, "it frees itself");
}

#[test]
fn its_holder_uses_it_and_leaves_the_rest_to_others() {
    let mut world = World::with_node(16, 8);
    reserved(&mut world, 6, 0, 60);
    let holder = |gpus| job().gpus(gpus).with(|job| job.owner = SubjectId(8));
    let own = world.submit(holder(4));
    let others = world.submit(job().gpus(2));
    let more = world.submit(job().gpus(1));
    world.assert_running(&[own, others, more], &[own, others]);
    // Without a limit it runs beyond the window, and delays the head; within the window it may.
    let rest = world.submit(holder(2));
    world.assert_running(&[rest, more], &[rest]);
}

#[test]
fn a_head_that_waits_does_not_keep_the_holder_out() {
    let mut world = World::with_node(16, 8);
    let first = world.submit(job().gpus(4).minutes(20));
    reserved(&mut world, 4, 0, 60);
    let head = world.submit(job().gpus(4).minutes(20));
    let own = world.submit(job().gpus(4).with(|job| job.owner = SubjectId(8)));
    world.assert_running(&[first, head, own], &[first, own]);
    world.succeeds(first);
    world.assert_running(&[head], &[head]);
}

#[test]
fn a_teams_window_is_every_members() {
    let mut world = World::with_node(16, 8);
    world.team(1, None, None);
    let wish = Wish { holder: HolderV1::Team(TeamId(1)), ..wish(&world, 8, 0, 60) };
    let event = reserve(&world.state, wish, world.now).expect("there is room");
    world.event(Event::ReservationSet(event));
    let own = world.submit(job().gpus(8).team(1));
    world.assert_running(&[own], &[own]);
}

#[test]
fn why_names_the_reservation_and_what_would_help() {
    let mut world = World::with_node(16, 8);
    let id = reserved(&mut world, 8, 30, 60);
    let waits = world.submit(job().gpus(1));
    let at = |minutes| world.now + Nanos::from_secs(minutes * MINUTE);
    let (from, until) = (at(30), at(60));
    let expect = Why::Reserved { reservation: id, holder: USER, from, until, free_at: Some(until) };
    assert_eq!(world.why(waits), expect);
    let told = control::remedies(&mut world.state, waits, world.now, &world.policy);
    assert_eq!(told, [Remedy::Unreserve(id), Remedy::TimeLimit(Nanos::from_secs(30 * MINUTE))]);
    world.event(Event::ReservationCancelled(ReservationCancelledV1 { reservation: id }));
    world.settle();
    world.assert_running(&[waits], &[waits]);
}

#[test]
fn what_runs_at_its_start_goes_on_and_is_told() {
    let mut world = World::with_node(16, 8);
    let runs = world.submit(job().gpus(5).minutes(40));
    let id = reserved(&mut world, 6, 30, 60);
    let Standing { used, taken, holders } = standing(&world.state, id, world.now).expect("it is open");
    assert_eq!((used, taken), (gpus(0), Amount { gpus: 3, ..Amount::default() }));
    assert_eq!(holders.iter().map(|holder| holder.member.job).collect::<Vec<_>>(), [runs]);
    world.pass(35 * MINUTE);
    world.assert_running(&[runs], &[runs]);
    assert_eq!(standing(&world.state, id, world.now).expect("it is open").taken.gpus, 3);
    world.succeeds(runs);
    let own = world.submit(job().gpus(6).cores(6).with(|job| job.owner = SubjectId(8)));
    let told = standing(&world.state, id, world.now).expect("it is open");
    assert_eq!((told.used.gpus, told.taken, told.holders), (6, gpus(0), vec![]));
    world.assert_running(&[own], &[own]);
}

#[test]
fn windows_that_cannot_be_are_refused_with_what_fits() {
    let mut world = World::with_node(16, 8);
    reserved(&mut world, 6, 30, 60);
    let check = |wish: Wish, expect: Result<(), Denial>| {
        assert_eq!(reserve(&world.state, wish.clone(), world.now).map(drop), expect, "{wish:?}");
    };
    let over = |asked, fits: u64| {
        let others = 8 - fits;
        let fits = Amount { cores: 16 - others, memory: (1 << 20) - others, gpus: fits };
        Err(Denial::OverReserved { asked: gpus(asked), fits })
    };
    check(wish(&world, 2, 0, 90), Ok(()));
    check(wish(&world, 8, 0, 30), Ok(()));
    check(wish(&world, 8, 60, 90), Ok(()));
    check(wish(&world, 3, 0, 31), over(3, 2));
    check(wish(&world, 9, 0, 30), over(9, 8));
    check(wish(&world, 0, 0, 30), Err(Denial::NothingReserved));
    check(wish(&world, 1, 30, 30), Err(Denial::ReservationEndsFirst));
    let past = Timestamp(world.now.0 - 1);
    check(Wish { from: Some(past), ..wish(&world, 1, 0, 30) }, Err(Denial::ReservedInPast));
    let nobody = HolderV1::Team(TeamId(9));
    check(Wish { holder: nobody, ..wish(&world, 1, 0, 30) }, Err(Denial::UnknownTeam(TeamId(9))));
}

#[test]
fn nobody_is_stopped_for_room_that_a_window_withholds() {
    // A window begins in half an hour, and whoever is stopped takes ten seconds at most.
    let check = |limit: Option<u64>, gpus: u16, expect: bool| {
        let mut world = World::with_node(16, 4);
        world.event(Event::PreemptionSet(PreemptionSetV1 {
            preempts_from: Some(2),
            ..PreemptionSetV1::default()
        }));
        let gentle = world.submit(job().gpus(4));
        world.event(Event::PreemptibleSet(PreemptibleSetV1 { job: gentle, preemptible: true }));
        reserved(&mut world, 3, 30, 60);
        let urgent = job().gpus(gpus).priority(2).with(|job| job.time_limit = limit.map(Nanos::from_secs));
        world.submit(urgent);
        let is_stopped = world.state.attempts_of(gentle).any(|(_, attempt)| attempt.stop.is_some());
        assert_eq!(is_stopped, expect, "{limit:?} {gpus}");
    };
    check(Some(30 * MINUTE - 10), 2, true);
    check(Some(30 * MINUTE - 9), 2, false);
    check(None, 2, false);
    check(None, 1, true);
}
