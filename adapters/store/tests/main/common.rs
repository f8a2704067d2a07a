use std::io::Write;
use std::path::{Path, PathBuf};

use facts::Hash32;
use fourplane_store::{Options, SqliteLog};
use ops::ports::{Batch, Head, IdemRow, Lapse, LogStore, SideTable, SideWrite, StoreError};
use units::{JobId, Seq, Timestamp};

/// Small sizes, so that a short test fills and reuses the WAL.
pub(crate) const SMALL: Options = Options { wal: 256 << 10, reserve: 1 << 20 };

pub(crate) fn open(dir: &Path) -> Result<SqliteLog, StoreError> {
    SqliteLog::open(dir, SMALL)
}

/// A directory in memory where there is one: tests of thousands of images need no disk.
pub(crate) fn fast_dir() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("fourplane-store-").tempdir_in(base).unwrap()
}

/// Tells what could not be proven here, past the capture of a passing test's output, and writes
/// it where `./dev test` counts.
#[expect(clippy::explicit_write, reason = "what is printed by macro is captured")]
pub(crate) fn skipped(what: &str) {
    writeln!(std::io::stderr(), "SKIPPED {what}").unwrap();
    if let Some(path) = std::env::var_os("FOURPLANE_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{what}").unwrap();
    }
}

pub(crate) fn hash(text: &str) -> Hash32 {
    Hash32(*blake3::hash(text.as_bytes()).as_bytes())
}

/// The body of event `seq`; lengths vary from a few bytes to several pages.
pub(crate) fn body(seq: u64) -> Vec<u8> {
    let length = match seq % 50 {
        49 => 9_000,
        other => 40 + other * 7,
    };
    let start = format!("event {seq} ");
    start.bytes().chain(std::iter::repeat(b'.')).take(usize::try_from(length).unwrap()).collect()
}

pub(crate) fn payload(job: u64) -> Vec<u8> {
    format!("launch {job} ").repeat(300).into_bytes()
}

/// When the key of batch `number`, whose first event is `first`, is to be forgotten: in no order.
pub(crate) fn lapse(number: u64, first: u64) -> Lapse {
    Lapse { at: Timestamp::from_secs(i64::try_from(number * 7 % 13).unwrap()), seq: Seq(first) }
}

/// What a scripted log of `batches` batches is told to append as its `number`th, from 0: between
/// one and four events, a new job's payload and key, the end of an earlier one.
pub(crate) fn batch(number: u64, head: Head) -> Batch {
    let first = head.seq.0 + 1;
    let count = if number % 3 == 2 { 4 } else { 1 };
    let side = SideWrite {
        table: SideTable::Subject,
        key: (number % 5).to_le_bytes().to_vec(),
        value: Some(format!("person of batch {number}").into_bytes()),
    };
    Batch {
        events: (first..first + count).map(body).collect(),
        idem: vec![IdemRow {
            key: hash(&format!("key {number}")),
            request: hash("request"),
            seq: Seq(first),
        }],
        payloads: vec![(JobId(number), payload(number))],
        erase: number.checked_sub(3).map(JobId).into_iter().collect(),
        side: if number.is_multiple_of(4) { vec![side] } else { Vec::new() },
        lapses: vec![lapse(number, first)],
        lapsed: Vec::new(),
    }
}

/// Appends scripted batches and returns the head after each.
pub(crate) fn fill(log: &mut dyn LogStore, batches: std::ops::Range<u64>) -> Vec<Head> {
    batches.map(|number| log.append(&batch(number, log.head())).unwrap()).collect()
}

/// Reads the whole log; every body must be the scripted one.
pub(crate) fn read_all(log: &dyn LogStore) -> Result<Head, StoreError> {
    log.scan(Head::default(), &mut |seq, bytes| {
        assert_eq!(bytes, body(seq.0), "event {seq} is silently wrong");
        Ok(())
    })
}
