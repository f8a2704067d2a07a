//! What one event costs when many jobs wait: `instructions EVENT QUEUED` lets one event happen to a
//! queue that is hostile to backfill; without arguments the events are listed. It counts nothing
//! itself: `cargo xtask bench instructions` runs it under callgrind, which collects in
//! [`measured_event`] only.

extern crate fourplane_control as control;

#[path = "../tests/main/world.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod world;

use control::decide;
use facts::event::{LimitsV1, NodeSchedulableV1, PrioritySetV1, SubmittedV2, TaskEndedV1, TeamSetV2};
use facts::{Event, JobRequest, TaskExit};
use units::{Bytes, JobId, Nanos, NodeId, Rank, TeamId};
use world::{Refine, World, job};

const DEVICES: u16 = 128;
const CORES: u32 = 256;
/// All the memory of a node in [`World`].
const MEMORY: Bytes = Bytes(1 << 20);
/// The team that is given a quota.
const LIMITED: u32 = 1;

/// A full machine, and the jobs of 1, 8 and 64 devices whose ends are measured.
struct Busy {
    world: World,
    ends: [JobId; 3],
}

/// A head that waits for the whole machine, and behind it jobs that each miss by one thing: time,
/// memory or cores. The least of each need would fit, so no search can leave out a whole subtree.
fn hostile(queued: u32) -> Busy {
    let mut world = World::with_node(CORES, usize::from(DEVICES));
    world.team(LIMITED, None, None);
    let hour = || job().cores(2).minutes(60);
    let ends = [1, 8, 64].map(|gpus| world.submit(hour().gpus(gpus)));
    for _ in 0..DEVICES - 73 {
        world.submit(hour().gpus(1));
    }
    world.submit(job().cores(CORES - 2 * (u32::from(DEVICES) - 73 + 3)).minutes(60));
    world.submit(job().cores(CORES).gpus(DEVICES).minutes(60));
    for at in 0..queued {
        world.now = world.now + Nanos(10_000_000);
        let waiting = misfit(at).gpus([0, 1, 5, 40][(at / 8 % 4) as usize]);
        world.try_event(submission(&world, waiting)).expect("the job is accepted");
        commit(&mut world);
    }
    assert_eq!(world.settle(), [], "nothing may start");
    Busy { world, ends }
}

/// A job that cannot start beside the head when two cores are free, yet misses only by one thing.
fn misfit(at: u32) -> JobRequest {
    match at % 4 {
        0 => job().cores(2).minutes(90 + u64::from(at % 97)),
        1 | 2 => job().cores(2).minutes(5).with(|job| job.per_task.memory = MEMORY).team(at % 8 / 4),
        _ => job().cores(3).minutes(5).team(at % 8 / 4),
    }
}

fn submission(world: &World, request: JobRequest) -> Event {
    Event::Submitted(SubmittedV2 { job: world.state.next_job_id(), request })
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

fn end(busy: &Busy, which: usize) -> Event {
    let world = &busy.world;
    Event::TaskEnded(TaskEndedV1 {
        attempt: world.attempt(busy.ends[which]),
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
    Event::TeamSet(TeamSetV2 {
        team: TeamId(LIMITED),
        name: "limited".to_owned(),
        quota: LimitsV1 { cores: Some(2), memory: Some(Bytes(10)), gpus: None },
        borrow: LimitsV1::NOTHING,
        lend: LimitsV1::UNLIMITED,
    })
}

fn schedulable(schedulable: bool) -> Event {
    let reason = "maintenance".to_owned();
    Event::NodeSchedulable(NodeSchedulableV1 { node: NodeId(0), schedulable, reason })
}

/// What can happen to the queue: its name, and what makes it of a busy world.
type Scenario = (&'static str, fn(&mut Busy) -> Event);

const SCENARIOS: &[Scenario] = &[
    ("submit at the tail", |busy| submission(&busy.world, misfit(0))),
    ("end of a 1-device job", |busy| end(busy, 0)),
    ("end of an 8-device job", |busy| end(busy, 1)),
    ("end of a 64-device job", |busy| end(busy, 2)),
    ("quota change", |_| tight_quota()),
    ("drain", |_| schedulable(false)),
    ("resume", |busy| {
        busy.world.drain(0, false);
        schedulable(true)
    }),
    ("priority change", |busy| {
        let job = busy.world.state.jobs().next_back().expect("jobs wait").0;
        Event::PrioritySet(PrioritySetV1 { job, priority: 1 })
    }),
];

#[expect(clippy::print_stdout, reason = "whoever runs this reads the names")]
fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [name, queued] = args.as_slice() else {
        for (name, _) in SCENARIOS {
            println!("{name}");
        }
        return;
    };
    let (_, event) = SCENARIOS.iter().find(|scenario| scenario.0 == name).expect("a name from the list");
    let mut busy = hostile(queued.parse().expect("a number of jobs"));
    let event = event(&mut busy);
    measured_event(&mut busy.world, event);
}
