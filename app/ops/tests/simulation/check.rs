//! Checkers that share nothing with what they check: they read the log, and the machine's own
//! record of what really ran.

use std::collections::{BTreeMap, BTreeSet};

use control::State;
use cost::{Meter, Occupancy, Unit, balance};
use facts::{Envelope, Event, Hash32, TaskExit, decode};
use ops::core::Core;
use ops::notify::Delivery;
use ops::ports::{Head, LogStore, SideTable, TaskId};
use store::ModelLog;
use units::{AttemptId, JobId, Rank, Seq, Timestamp};

use super::machine::{Life, Machine};
use super::sharing;
use super::world::{Promises, key_of};

pub(crate) fn history(store: &ModelLog) -> Vec<Envelope> {
    let mut events = Vec::new();
    let mut hash = blake3::Hasher::new();
    let mut chain = Hash32::default();
    let scanned = store.scan(Head::default(), &mut |seq, bytes| {
        hash.reset();
        hash.update(&chain.0).update(bytes);
        chain = Hash32(*hash.finalize().as_bytes());
        let envelope = decode(bytes).expect("the log is readable");
        assert_eq!(envelope.seq, seq);
        assert_eq!(seq, Seq(events.len() as u64 + 1), "no gap");
        events.push(envelope);
        Ok(())
    });
    assert_eq!(scanned.expect("the chain is whole").hash, chain);
    events
}

/// Of each job whose end its owner wants to know there is one delivery, however often the server
/// died; and nobody waits for news of a job that is over.
fn each_end_is_told_once(log: &[Envelope], core: &Core<ModelLog>) {
    let rows = core.store().side(SideTable::Delivery).expect("the table is readable");
    let deliveries = rows.iter().map(|(_, row)| postcard::from_bytes::<Delivery>(row).expect("a delivery"));
    let mut told: Vec<JobId> = deliveries.map(|one| one.notice.job).collect();
    told.sort_unstable();
    let submitted = log.iter().filter_map(|envelope| match &envelope.event {
        Event::Submitted(body) => Some(body.job),
        _ => None,
    });
    assert_eq!(told, submitted.collect::<Vec<_>>());
    assert_eq!(core.store().side(SideTable::Watch).expect("the table is readable"), []);
}

/// Whatever was acknowledged is there.
pub(crate) fn promises_kept(core: &Core<ModelLog>, promises: &Promises) {
    assert!(core.head().seq >= promises.head.seq, "an acknowledged tail is lost");
    for job in promises.jobs.values() {
        assert!(core.state().job(*job).is_some(), "acknowledged job {job} is lost");
    }
}

pub(crate) fn everything(core: &Core<ModelLog>, machine: &Machine, promises: &Promises, clock_faults: bool) {
    let log = history(core.store());
    promises_kept(core, promises);
    one_job_a_submission(&log, promises);
    replay_gives_the_same_state(&log, core);
    time_never_goes_back(&log);
    sharing::is_fair(&log);
    exits_are_true(&log, machine);
    gangs_are_whole(&log, machine);
    the_unhealthy_are_stopped(&log);
    time_is_conserved(&log, core.now(), machine, clock_faults);
    payloads_are_erased(core);
    each_end_is_told_once(&log, core);
}

fn one_job_a_submission(log: &[Envelope], promises: &Promises) {
    let mut by_key: BTreeMap<Hash32, JobId> = BTreeMap::new();
    for envelope in log {
        if let (Event::Submitted(body), Some(key)) = (&envelope.event, envelope.idem_key) {
            assert!(by_key.insert(key, body.job).is_none(), "a key was used twice");
        }
    }
    for (submission, job) in &promises.jobs {
        assert_eq!(by_key.get(&key_of(*submission)), Some(job));
    }
}

fn replay_gives_the_same_state(log: &[Envelope], core: &Core<ModelLog>) {
    let mut state = State::new();
    for envelope in log {
        state.apply(envelope).expect("the log fits itself");
    }
    assert!(state.to_snapshot() == core.state().to_snapshot(), "replay differs from what lived");
    let again = State::from_snapshot(&core.state().to_snapshot()).expect("a snapshot is readable");
    assert!(again.to_snapshot() == core.state().to_snapshot(), "a snapshot loses something");
}

fn time_never_goes_back(log: &[Envelope]) {
    for pair in log.windows(2) {
        assert!(pair[0].ledger_time <= pair[1].ledger_time, "ledger time went back at {}", pair[1].seq);
    }
}

/// The log says of each task what really happened to it, or that it does not know.
fn exits_are_true(log: &[Envelope], machine: &Machine) {
    for envelope in log {
        let Event::TaskEnded(body) = &envelope.event else { continue };
        let life = machine.lives.get(&TaskId { attempt: body.attempt, rank: body.rank });
        match &body.exit {
            TaskExit::Unknown => {}
            // An end that the machine knew over its restart is told as it was.
            TaskExit::NodeRestart => {
                let true_end = |life: &Life| life.vanished || life.exit == TaskExit::NodeRestart;
                assert!(life.is_none_or(true_end), "{body:?} ended by itself");
            }
            TaskExit::StartFailed(_) => assert!(life.is_none(), "{body:?} did run"),
            exit => assert_eq!(Some(exit), life.map(|life| &life.exit), "at {}", envelope.seq),
        }
    }
}

/// Of a gang, all tasks were told to start, or the attempt was stopped or lost.
fn gangs_are_whole(log: &[Envelope], machine: &Machine) {
    let mut cut_short = BTreeSet::new();
    for envelope in log {
        match &envelope.event {
            Event::StopOrdered(body) => {
                cut_short.insert(body.attempt);
            }
            Event::TaskEnded(body) if body.exit == TaskExit::NodeRestart => {
                cut_short.insert(body.attempt);
            }
            _ => {}
        }
    }
    for envelope in log {
        let Event::Started(body) = &envelope.event else { continue };
        let ran = (0..)
            .map(Rank)
            .zip(&body.tasks)
            .filter(|(rank, _)| machine.lives.contains_key(&TaskId { attempt: body.attempt, rank: *rank }));
        let whole = ran.count() == body.tasks.len();
        assert!(whole || cut_short.contains(&body.attempt), "{body:?} ran in part");
    }
}

/// Whatever turns unhealthy is told to stop, or ends, in the very turn that says so; and nothing
/// is said twice, or of what is stopping or over.
fn the_unhealthy_are_stopped(log: &[Envelope]) {
    let mut said: BTreeMap<AttemptId, bool> = BTreeMap::new();
    let mut over = BTreeSet::new();
    let mut unhealthy: BTreeMap<AttemptId, Timestamp> = BTreeMap::new();
    for envelope in log {
        let now = envelope.ledger_time;
        assert!(unhealthy.values().all(|since| *since == now), "unhealthy jobs run on at {}", envelope.seq);
        match &envelope.event {
            Event::HealthChanged(body) => {
                assert!(!over.contains(&body.attempt), "late news at {}", envelope.seq);
                assert_ne!(said.insert(body.attempt, body.healthy), Some(body.healthy), "no news");
                if body.healthy {
                    unhealthy.remove(&body.attempt);
                } else {
                    unhealthy.insert(body.attempt, now);
                }
            }
            Event::StopOrdered(body) => {
                unhealthy.remove(&body.attempt);
                over.insert(body.attempt);
            }
            Event::TaskEnded(body) => drop(unhealthy.remove(&body.attempt)),
            Event::AttemptClosed(body) => drop(over.insert(body.attempt)),
            _ => {}
        }
    }
    assert!(unhealthy.is_empty());
}

/// Residue 0, and the running time equals what the machine itself counted.
fn time_is_conserved(log: &[Envelope], now: Timestamp, machine: &Machine, clock_faults: bool) {
    let mut meter = Meter::default();
    for envelope in log {
        meter.apply(envelope);
    }
    let (intervals, capacity) = meter.close(now);
    let (devices, cores) = balance(&intervals, &capacity, Timestamp(i64::MIN), Timestamp::MAX);
    assert_eq!((devices.residue, cores.residue), (0, 0));
    if clock_faults || machine.boot > 0 {
        return; // Ledger time is then slewed against the machine's own, and unseen ends are guessed late.
    }
    let running = intervals.iter().filter(|interval| interval.state == Occupancy::Running);
    let (mut device_time, mut core_time) = (0_u128, 0_u128);
    for interval in running {
        let gone = u128::from(interval.until.since(interval.from).0);
        match interval.unit {
            Unit::Device(..) => device_time += gone,
            Unit::Core(..) => core_time += gone,
        }
    }
    let (mut true_devices, mut true_cores) = (0_u128, 0_u128);
    for life in machine.lives.values() {
        let ended = life.ended.expect("everything ended");
        let gone = u128::from(life.leaked.unwrap_or(ended).min(ended) - life.started);
        true_devices += gone * life.start.devices.len() as u128;
        true_cores += gone * u128::from(life.start.resources.cores.0);
    }
    assert_eq!((device_time, core_time), (true_devices, true_cores), "the witness counted otherwise");
}

fn payloads_are_erased(core: &Core<ModelLog>) {
    for (id, job) in core.state().jobs() {
        let kept = core.store().payload(id).expect("readable").is_some();
        assert_eq!(kept, job.ended.is_none(), "payload of job {id}");
    }
}
