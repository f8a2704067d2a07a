//! Every format that a log was ever written in is read for ever: for each there is a log, with
//! all kinds of faults in it, and what a replay of it must come to. Neither file ever changes.

use std::fmt::Write as _;
use std::path::PathBuf;

use control::State;
use facts::decode;
use ops::ports::{Head, LogStore};

use crate::simulation::world::World;

/// Logs so far, oldest first.
const LOGS: [&str; 1] = ["log-v1"];

fn path(name: &str, ending: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.{ending}"))
}

/// The events of a file: each its length in four bytes, least first, and its bytes.
fn events(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (event, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        events.push(event);
        bytes = rest;
    }
    events
}

/// How the jobs of a log ended, a line each.
fn replay(events: &[&[u8]]) -> String {
    let mut state = State::new();
    for bytes in events {
        let envelope = decode(bytes).expect("an old event is read");
        state.apply(&envelope).expect("an old event fits");
    }
    let mut told = String::new();
    for (id, job) in state.jobs() {
        let (good, bad, worst) = (job.succeeded, job.failed, &job.worst);
        writeln!(told, "job {id}: {good} succeeded, {bad} did not, worst {worst:?}").expect("a string grows");
    }
    told
}

#[test]
fn every_old_log_replays_to_what_it_was() {
    for name in LOGS {
        let log = std::fs::read(path(name, "bin")).expect("the log is there");
        let expect = std::fs::read_to_string(path(name, "txt")).expect("its outcome is there");
        let events = events(&log);
        assert!(events.len() > 100, "{name} has {} events", events.len());
        assert_eq!(replay(&events), expect, "{name}");
    }
}

/// For a new format: add its name to [`LOGS`] and run this once.
#[test]
#[ignore = "writes the newest log where there is none; a person does so when a format is added"]
fn write_the_newest_log() {
    let name = LOGS[LOGS.len() - 1];
    assert!(!path(name, "bin").exists(), "{name} never changes");
    let (mut file, mut copies) = (Vec::new(), Vec::new());
    let disk = World::new(8).run();
    let scanned = disk.scan(Head::default(), &mut |_, bytes| {
        file.extend(u32::try_from(bytes.len()).expect("events are small").to_le_bytes());
        file.extend(bytes);
        copies.push(bytes.to_vec());
        Ok(())
    });
    scanned.expect("the chain is whole");
    let slices: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
    std::fs::write(path(name, "txt"), replay(&slices)).expect("tests/data can be written");
    std::fs::write(path(name, "bin"), file).expect("tests/data can be written");
}
