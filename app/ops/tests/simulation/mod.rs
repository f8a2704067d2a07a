//! The whole server from a seed: the writer's logic over a log that can crash, a clock that
//! can step and a machine double, with checkers of their own. A failing seed replays:
//! `FOURPLANE_SEED=42 FOURPLANE_SEEDS=1 cargo test -p fourplane-ops --test main no_seed`.

mod check;
mod machine;
mod rng;
mod sharing;
pub(crate) mod world;

use std::env;

use facts::event::RightV1;
use ops::ports::LogStore;
use world::World;

/// Seeds in an ordinary test run; `FOURPLANE_SEEDS` asks for more.
const SEEDS: u64 = 3_000;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn no_seed_breaks_a_promise() {
    let first = number("FOURPLANE_SEED").unwrap_or(0);
    for seed in first..first + number("FOURPLANE_SEEDS").unwrap_or(SEEDS) {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(run.is_ok(), "seed {seed} fails; replay it with FOURPLANE_SEED={seed} FOURPLANE_SEEDS=1");
    }
}

/// What no seed does is not tested by any.
#[test]
fn seeds_stop_jobs_by_every_right() {
    let logs = (0..200).map(|seed| check::history(&World::new(seed).run()));
    let (reclaims, urgencies) = logs.fold((0, 0), |(reclaims, urgencies), log| {
        let rights = || log.iter().filter_map(|envelope| sharing::right(&envelope.event));
        let is_reclaim = |right: &RightV1| matches!(right, RightV1::Reclaim { .. });
        let here = rights().filter(is_reclaim).count();
        (reclaims + here, urgencies + rights().count() - here)
    });
    assert!(reclaims > 10 && urgencies > 10, "{reclaims} reclaims, {urgencies} stops for the urgent");
}

#[test]
fn a_seed_means_one_history() {
    for seed in 0..20 {
        assert_eq!(World::new(seed).run().head(), World::new(seed).run().head(), "seed {seed}");
    }
}
