//! How the cost of an event grows with the queue: 1,000 and 100,000 jobs wait in a queue that
//! is hostile to backfill. Run by hand:
//! `cargo test --release -p fourplane-control --test main -- --ignored --nocapture scale`

use std::collections::BTreeMap;

use facts::TaskExit;

use crate::world::{Refine, World, job};

/// A full machine, a head that waits for all of it, and behind it jobs of many shapes none of
/// which may start.
fn hostile(queued: u32) -> World {
    let mut world = World::with_node(64, 8);
    for _ in 0..8 {
        world.submit(job().cores(6).gpus(1).minutes(60));
    }
    world.submit(job().cores(64).gpus(8).minutes(60));
    for at in 0..queued {
        // Either too long, or in need of a device.
        let request =
            if at % 2 == 0 { job().minutes(61 + u64::from(at % 97)) } else { job().gpus(1).minutes(5) };
        world.submit(request.cores(1 + at % 13));
        world.state.forget_undo();
        world.log.clear();
    }
    world
}

/// Median nanoseconds of a round of each kind of event, decisions included.
fn measure(queued: u32) -> BTreeMap<&'static str, u128> {
    let mut world = hostile(queued);
    let mut cost = BTreeMap::new();
    let mut time = |name, world: &mut World, act: &mut dyn FnMut(&mut World)| {
        let mut rounds: Vec<u128> = (0..101)
            .map(|_| {
                #[expect(clippy::disallowed_methods, reason = "a measurement of the code itself")]
                let start = std::time::Instant::now();
                act(world);
                let round = start.elapsed().as_nanos();
                world.state.forget_undo();
                world.log.clear();
                round
            })
            .collect();
        rounds.sort_unstable();
        cost.insert(name, rounds[rounds.len() / 2]);
    };
    time("submit at the tail", &mut world, &mut |world| _ = world.submit(job().minutes(90)));
    time("quota change", &mut world, &mut |world| {
        world.team(0, Some(1_000), None);
        world.settle();
    });
    time("drain and resume", &mut world, &mut |world| {
        world.drain(0, false);
        world.drain(0, true);
    });
    let last = world.state.jobs().next_back().map(|(id, _)| id).expect("jobs wait");
    let mut priority = 0;
    time("priority change", &mut world, &mut |world| {
        priority = -1 - priority;
        world.set_priority(last, priority);
    });
    let short = |world: &mut World| world.submit(job().cores(1).minutes(5).priority(1));
    time("start and end of a short job", &mut world, &mut |world| {
        let job = short(world);
        world.ends(job, &TaskExit::Exited(0));
    });
    cost
}

#[test]
#[ignore = "a measurement; see the module"]
fn scale() {
    let (small, large) = (measure(1_000), measure(100_000));
    for (name, few) in &small {
        let many = large[name];
        report(name, *few, many);
        assert!(many <= few * 3, "{name} costs {many} ns with a long queue, {few} ns with a short one");
    }
}

#[expect(clippy::print_stdout, reason = "the measurement's result")]
fn report(name: &str, few: u128, many: u128) {
    println!("{name}: {few} ns, {many} ns, x{}.{}", many / few, many * 10 / few % 10);
}
