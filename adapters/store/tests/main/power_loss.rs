//! Power loss at every sync: the system calls of a real process are recorded, the disk as it
//! would be is made for each moment, and the log must open there with all it acknowledged.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use fourplane_store::{Options, verify};
use ops::ports::{LogStore, Snapshot, StoreError};
use units::Seq;

use crate::common::{batch, body, fast_dir, skipped};
use crate::trace::{Call, read_trace};

const BATCHES: u64 = 120;
/// Small enough that the WAL is copied and begun anew several times.
const TINY: Options = Options { wal: 1 << 20, reserve: 64 << 10 };

/// The process that is recorded: appends the scripted batches and acknowledges each to a pipe
/// to nowhere, where the recording sees it.
#[test]
#[ignore = "started by the test below, under strace"]
fn recorded_process() {
    let Some(dir) = std::env::var_os("FOURPLANE_STORE_RECORDED") else { return };
    let dir = PathBuf::from(dir);
    let mut acknowledge = std::fs::File::create("/dev/null").unwrap();
    for half in [0..BATCHES / 2, BATCHES / 2..BATCHES] {
        let mut log = fourplane_store::SqliteLog::open(&dir, TINY).unwrap();
        for number in half {
            let head = log.append(&batch(number, log.head())).unwrap();
            acknowledge.write_all(format!("ACK {}\n", head.seq).as_bytes()).unwrap();
            if number % 20 == 7 {
                log.put_snapshot(&Snapshot { head, state: vec![9; 3_000] }).unwrap();
            }
        }
    }
}

/// A file as the disk has it, and what was written to it since its last sync.
#[derive(Clone, Default)]
struct Simulated {
    synced: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Length(length) => to.resize(usize::try_from(*length).unwrap(), 0),
            Self::Write { offset, bytes } => {
                let start = usize::try_from(*offset).unwrap();
                to.resize(to.len().max(start + bytes.len()), 0);
                to[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

/// Files by number, and which name leads to which: as seen by processes, and as on the disk.
#[derive(Clone, Default)]
struct Machine {
    files: Vec<Simulated>,
    names: BTreeMap<String, usize>,
    names_synced: BTreeMap<String, usize>,
    acknowledged: Seq,
    syncs: u64,
    syncs_at_acknowledgement: Vec<u64>,
}

/// What of the unsynced writes reached the disk.
#[derive(Clone, Copy, Debug)]
enum Luck {
    Nothing,
    Everything,
    /// Each write by a coin, and some of them only in part.
    Coin(u64),
}

impl Machine {
    fn step(&mut self, call: &Call) {
        match call {
            Call::Open { name, create } => {
                if *create && !self.names.contains_key(name) {
                    self.files.push(Simulated::default());
                    self.names.insert(name.clone(), self.files.len() - 1);
                }
            }
            Call::Write { name, offset, bytes } => {
                let file = &mut self.files[self.names[name]];
                file.pending.push(Change::Write { offset: *offset, bytes: bytes.clone() });
            }
            Call::Length { name, length } => {
                self.files[self.names[name]].pending.push(Change::Length(*length));
            }
            Call::Sync { name, started } => {
                self.syncs += 1;
                let file = &mut self.files[self.names[name]];
                for change in file.pending.drain(..(*started).min(file.pending.len())) {
                    change.apply(&mut file.synced);
                }
            }
            Call::SyncNames => self.names_synced = self.names.clone(),
            Call::Rename { from, to } => {
                let file = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), file);
            }
            Call::Remove { name } => drop(self.names.remove(name)),
            Call::Acknowledge(seq) => {
                self.acknowledged = *seq;
                self.syncs_at_acknowledgement.push(self.syncs);
            }
        }
    }

    /// Writes the disk as the power loss left it.
    fn image(&self, dir: &Path, luck: Luck) {
        for entry in std::fs::read_dir(dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let mut random = match luck {
            Luck::Coin(seed) => seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            Luck::Nothing | Luck::Everything => 1,
        };
        let names = if matches!(luck, Luck::Everything) { &self.names } else { &self.names_synced };
        // The index of the WAL is shared memory: recorded in part only, and never trusted.
        for (name, file) in names.iter().filter(|(name, _)| !name.ends_with("-shm")) {
            let file = &self.files[*file];
            let mut bytes = file.synced.clone();
            for change in &file.pending {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                match (luck, change) {
                    (Luck::Nothing, _) => {}
                    (Luck::Coin(_), _) if random.is_multiple_of(2) => {}
                    (Luck::Coin(_), Change::Write { offset, bytes: written }) if random % 8 == 1 => {
                        // Torn at a sector.
                        let kept = (written.len() / 2).next_multiple_of(512).min(written.len());
                        Change::Write { offset: *offset, bytes: written[..kept].to_vec() }.apply(&mut bytes);
                    }
                    (Luck::Everything | Luck::Coin(_), change) => change.apply(&mut bytes),
                }
            }
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    }
}

/// Records a run; none where that cannot be done here.
fn record() -> Option<Vec<Call>> {
    let (dir, trace) = (fast_dir(), fast_dir());
    let trace = trace.path().join("trace");
    let state = dir.path().join("state");
    let ran = Command::new("strace")
        .args(["-f", "-y", "-xx", "-s", "1000000", "-o"])
        .arg(&trace)
        .args(["-e", "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,unlink"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "power_loss::recorded_process", "--test-threads=1"])
        .env("FOURPLANE_STORE_RECORDED", &state)
        .output();
    match ran {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("ptrace"), "the recorded process failed: {said}");
            skipped("power loss: strace may not trace here");
            return None;
        }
        Err(_) => {
            skipped("power loss: strace is not installed");
            return None;
        }
    }
    Some(read_trace(&std::fs::read(&trace).unwrap(), &state))
}

/// Opens an image: all that was acknowledged must be there, and the chain whole.
fn check(machine: &Machine, dir: &Path, luck: Luck, moment: usize) {
    machine.image(dir, luck);
    let case = || format!("call {moment}, {luck:?}, acknowledged up to {}", machine.acknowledged);
    let log =
        fourplane_store::SqliteLog::open(dir, TINY).unwrap_or_else(|error| panic!("{}: {error}", case()));
    let mut expect = Seq(0);
    let head = log
        .scan(ops::ports::Head::default(), &mut |seq, bytes| {
            expect = expect.next();
            assert_eq!((seq, bytes), (expect, body(seq.0).as_slice()), "{}", case());
            Ok::<(), StoreError>(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", case()));
    assert!(head.seq >= machine.acknowledged, "{}: only up to {}", case(), head.seq);
    if let Some(snapshot) = log.snapshot().unwrap() {
        assert_eq!(snapshot.state, vec![9; 3_000], "{}", case());
    }
    drop(log);
    if moment.is_multiple_of(7) {
        verify(dir).unwrap_or_else(|error| panic!("{}: {error}", case()));
    }
}

#[test]
fn every_power_loss_keeps_what_was_acknowledged() {
    let Some(calls) = record() else { return };
    let mut machine = Machine::default();
    let dir = fast_dir();
    let mut images = 0;
    for (moment, call) in calls.iter().enumerate() {
        // Before and after each sync, and right after each acknowledgement.
        let boundary = matches!(call, Call::Sync { .. } | Call::SyncNames);
        let seed = moment as u64;
        if boundary {
            for luck in [Luck::Everything, Luck::Coin(2 * seed), Luck::Coin(2 * seed + 1)] {
                check(&machine, dir.path(), luck, moment);
                images += 1;
            }
        }
        machine.step(call);
        if boundary || matches!(call, Call::Acknowledge(_)) {
            for luck in [Luck::Nothing, Luck::Coin(3 * seed)] {
                check(&machine, dir.path(), luck, moment);
                images += 1;
            }
        }
    }
    let acknowledged = &machine.syncs_at_acknowledgement;
    assert_eq!(acknowledged.len() as u64, BATCHES);
    assert!(images > 500, "{images} images");
    let between: Vec<_> = acknowledged.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(between.iter().all(|syncs| *syncs >= 1), "a sync before each acknowledgement: {between:?}");
    let single = between.iter().filter(|syncs| **syncs == 1).count();
    assert!(single * 10 >= between.len() * 7, "one sync an acknowledgement as a rule: {between:?}");
    let copied =
        calls.iter().filter(|call| matches!(call, Call::Sync { name, .. } if name == "log.db")).count();
    assert!(copied > 5, "the WAL was copied {copied} times");
}
