//! The crash drill: server, supervisor and both die again and again under load, with real
//! processes. An outside witness, which no crash can reach, says what really ran.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::world::{Place, World, finish};

/// Who dies, and how often.
const DEATHS: [(Victim, usize); 3] = [(Victim::Server, 100), (Victim::Supervisor, 20), (Victim::Both, 10)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Supervisor,
    Both,
}

/// The deaths in an order that is always the same and looks like none.
fn order() -> Vec<Victim> {
    let mut victims: Vec<Victim> = DEATHS.iter().flat_map(|(victim, count)| vec![*victim; *count]).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for at in (1..victims.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        victims.swap(at, usize::try_from(state % (at as u64 + 1)).unwrap());
    }
    victims
}

/// Submits jobs until told to stop, each under its own key and as often as it takes. Job N
/// says that it ran and exits with N % 5. Tells the id that each N was acknowledged with.
fn load(place: &Place, stop: &AtomicBool) -> BTreeMap<usize, String> {
    let mut accepted = BTreeMap::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let script = format!("echo {number} >> ran; sleep 0.{}; exit {}", number % 4, number % 5);
        let key = format!("drill-{number}");
        let args =
            ["run", "--parsable", "--idempotency-key", &key, "-o", "/dev/null", "--", "sh", "-c", &script];
        let start = Instant::now();
        let id = loop {
            assert!(start.elapsed() < Duration::from_mins(1), "no server answers");
            let ran = finish(place.command(&args));
            if ran.code == 0 {
                break ran.out.trim().to_owned();
            }
            assert_eq!(ran.code, 125, "a crash may delay a submission, not refuse it: {ran:?}");
        };
        accepted.insert(number, id);
    }
    accepted
}

#[test]
fn no_crash_loses_a_job_or_runs_one_twice() {
    let mut world = World::with(&["--allow-root", "--cores", "6"]);
    let stop = AtomicBool::new(false);
    let place = world.place();
    let accepted = std::thread::scope(|scope| {
        let submitting = scope.spawn(|| load(&place, &stop));
        for (nth, victim) in order().into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(nth as u64 * 37 % 160));
            if victim != Victim::Supervisor {
                world.kill_server();
            }
            if victim != Victim::Server
                && let Some(supervisor) = world.supervisor()
            {
                _ = kill_process(supervisor, Signal::KILL);
            }
            if victim != Victim::Supervisor {
                world.up();
            }
        }
        stop.store(true, Ordering::Relaxed);
        submitting.join().unwrap()
    });

    assert!(accepted.len() > 50, "the drill had no load: {}", accepted.len());
    for (number, id) in &accepted {
        let waited = world.run(&["wait", id, "--timeout", "60s"]);
        assert_eq!(
            usize::try_from(waited.code),
            Ok(number % 5),
            "number {number}: {waited:?}, {}",
            world.job(id)
        );
    }
    let mut ran: Vec<usize> = world.file("ran").lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, accepted.keys().copied().collect::<Vec<_>>(), "each accepted job ran once");
    assert_eq!(world.witnesses(), accepted.len(), "each start left its own nonce");
    let verified = world.run(&["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}
