//! What one event costs when many jobs wait: `instructions QUEUED` lets each kind of event happen
//! once to a queue that is hostile to backfill, and prints their names in order. It counts nothing
//! itself: `cargo xtask bench instructions` runs it under callgrind, which dumps a profile each
//! time [`measured_event`] returns.

extern crate fourplane_control as control;

#[path = "../tests/main/world.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod world;

use control::decide;
use facts::event::{NodeSchedulableV1, PrioritySetV1, SubmittedV1, TaskEndedV1, TeamSetV1};
use facts::{Event, JobRequest, TaskExit};
use units::{Bytes, JobId, Nanos, NodeId, Rank, TeamId};
use world::{Refine, World, job};

const DEVICES: u16 = 128;
const CORES: u32 = 256;
/// All the memory of a node in [`World`].
const MEMORY: Bytes = Bytes(1 << 20);
/// The team that is given a quota.
const LIMITED: u32 = 1;

/// A full machine, and the jobs whose ends are measured.
struct Busy {
    world: World,
    ends: [(&'static str, JobId); 3],
}

/// A head that waits for the whole machine, and behind it jobs that each miss by one thing: time,
/// memory or cores. The least of each need would fit, so no search can leave out a whole subtree.
fn hostile(queued: u32) -> Busy {
    let mut world = World::with_node(CORES, usize::from(DEVICES));
    world.team(LIMITED, None, None);
    let hour = || job().cores(2).minutes(60);
    let ends = [("1", 1), ("8", 8), ("64", 64)].map(|(name, gpus)| (name, world.submit(hour().gpus(gpus))));
    for _ in 0..DEVICES - 73 {
        world.submit(hour().gpus(1));
    }
    world.submit(job().cores(CORES - 2 * (u32::from(DEVICES) - 73 + 3)).minutes(60));
    world.submit(job().cores(CORES).gpus(DEVICES).minutes(60));
    for at in 0..queued {
        world.now = world.now + Nanos(10_000_000);
        let waiting = misfit(at).gpus([0, 1, 5, 40][(at / 8 % 4) as usize]).team(at % 8 / 4);
        world.try_event(submission(&world, waiting)).expect("the job is accepted");
        commit(&mut world);
    }
    assert_eq!(world.settle(), [], "nothing may start");
    Busy { world, ends }
}

/// A job that cannot start beside the head when two cores are free, yet misses only by one thing.
fn misfit(at: u32) -> JobRequest {
    match at % 4 {
        0 => job().cores(2).minutes(90 + u64::from(at % 97)).team(0),
        1 | 2 => job().cores(2).minutes(5).with(|job| job.per_task.memory = MEMORY),
        _ => job().cores(3).minutes(5),
    }
}

fn submission(world: &World, request: JobRequest) -> Event {
    Event::Submitted(SubmittedV1 { job: world.state.next_job_id(), request })
}

fn commit(world: &mut World) {
    world.state.forget_undo();
    world.log.clear();
}

/// The whole cost of one event: to apply it, to find and apply all that follows, to let go of the
/// undo log. Its name is what callgrind looks for.
#[inline(never)]
fn measured_event(world: &mut World, event: Event) {
    world.try_event(event).expect("the event fits");
    while let Some(event) = decide(&world.state, world.now, &world.policy) {
        world.try_event(event).expect("a decision fits");
    }
    world.state.forget_undo();
}

fn end(world: &World, of: JobId) -> Event {
    Event::TaskEnded(TaskEndedV1 {
        attempt: world.attempt(of),
        rank: Rank(0),
        exit: TaskExit::Exited(0),
        started: None,
        ended: world.now,
        freed: Some(world.now),
        cpu: None,
        memory_peak: None,
    })
}

/// Leaves a team room for two cores and a little memory: nothing of it fits.
fn tight_quota() -> Event {
    Event::TeamSet(TeamSetV1 {
        team: TeamId(LIMITED),
        name: "limited".to_owned(),
        max_cores: Some(2),
        max_memory: Some(Bytes(10)),
        max_gpus: None,
    })
}

fn schedulable(schedulable: bool) -> Event {
    let reason = "maintenance".to_owned();
    Event::NodeSchedulable(NodeSchedulableV1 { node: NodeId(0), schedulable, reason })
}

#[expect(clippy::print_stdout, reason = "the names go with callgrind's dumps")]
fn main() {
    let queued = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(1_000);
    let Busy { mut world, ends } = hostile(queued);
    let measure = |name: &str, world: &mut World, event: Event| {
        println!("{name}");
        measured_event(world, event);
        world.log.clear();
    };
    let tail = submission(&world, misfit(0));
    measure("submit at the tail", &mut world, tail);
    measure("quota change", &mut world, tight_quota());
    measure("drain", &mut world, schedulable(false));
    measure("resume", &mut world, schedulable(true));
    let last = world.state.jobs().next_back().expect("jobs wait").0;
    let priority = Event::PrioritySet(PrioritySetV1 { job: last, priority: -1 });
    measure("priority change", &mut world, priority);
    for (devices, job) in ends {
        let event = end(&world, job);
        measure(&format!("end of a {devices}-device job"), &mut world, event);
    }
}
