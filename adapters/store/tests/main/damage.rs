//! Flipped bytes and lost tails are found and named, or harmless; never silently wrong.

use std::path::Path;

use fourplane_store::{Options, SqliteLog, verify};
use ops::ports::{Head, LogStore, SideTable, StoreError};
use units::{JobId, Seq};

use crate::common::{SMALL, fast_dir, fill, hash, open, read_all};

const BATCHES: u64 = 24;

/// All that a log holds beside its events.
#[derive(Debug, PartialEq, Eq)]
struct Beside {
    keys: Vec<Option<Seq>>,
    payloads: Vec<Option<Vec<u8>>>,
    people: Vec<(Vec<u8>, Vec<u8>)>,
}

fn beside(log: &dyn LogStore) -> Result<Beside, StoreError> {
    let key = |number| hash(&format!("key {number}"));
    Ok(Beside {
        keys: (0..BATCHES)
            .map(|number| Ok(log.idem(&key(number))?.map(|row| row.seq)))
            .collect::<Result<_, StoreError>>()?,
        payloads: (0..BATCHES).map(|number| log.payload(JobId(number))).collect::<Result<_, StoreError>>()?,
        people: log.side(SideTable::Subject)?,
    })
}

/// A closed log, its files' bytes, and what they hold.
struct Original {
    files: Vec<(String, Vec<u8>)>,
    head: Head,
    beside: Beside,
}

impl Original {
    fn new() -> Self {
        let dir = fast_dir();
        let mut log = open(dir.path()).unwrap();
        fill(&mut log, 0..BATCHES - 2);
        drop(log);
        // What an open finds in the WAL it copies: the last batches lie only there, the rest in log.db.
        let mut log = SqliteLog::open(dir.path(), Options { wal: 2 << 20, ..SMALL }).unwrap();
        let head = *fill(&mut log, BATCHES - 2..BATCHES).last().unwrap();
        let beside = beside(&log).unwrap();
        drop(log);
        let read = |name: &str| (name.to_owned(), std::fs::read(dir.path().join(name)).unwrap());
        let mut files = ["log.db", "log.db-wal", "head"].map(read);
        // The zeros behind the written part only make the test slow.
        let used = files[1].1.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        files[1].1.truncate(used);
        Self { files: files.into(), head, beside }
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.files.iter().find(|(file, _)| file == name).unwrap().1
    }

    /// Writes the files with one of them changed.
    fn restore(&self, dir: &Path, changed: &str, change: impl FnOnce(&mut Vec<u8>)) {
        for entry in std::fs::read_dir(dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let mut change = Some(change);
        for (name, bytes) in &self.files {
            let mut bytes = bytes.clone();
            if name == changed {
                change.take().unwrap()(&mut bytes);
            }
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    }

    /// Opens and reads everything. True if nothing was lost; an error is as good, silence is not.
    fn check(&self, dir: &Path, what: &str) -> bool {
        let verified = verify(dir);
        let read = open(dir).and_then(|log| Ok((read_all(&log)?, beside(&log)?)));
        match read {
            Ok((head, beside)) => {
                assert_eq!(head, self.head, "{what}: events are gone without a word");
                let whole = beside == self.beside;
                assert!(whole || verified.is_err(), "{what}: rows are gone and verify does not see it");
                whole
            }
            Err(StoreError::Damaged { .. } | StoreError::Failed { .. } | StoreError::Newer { .. }) => false,
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

#[test]
fn a_flipped_byte_is_found_or_harmless() {
    let original = Original::new();
    let dir = fast_dir();
    let mut found = 0;
    for (name, step) in [("log.db", 53), ("log.db-wal", 211), ("head", 1)] {
        let length = original.bytes(name).len();
        // The headers byte by byte, the rest in steps.
        for offset in (0..length).filter(|offset| *offset < 128 || offset % step == 0) {
            original.restore(dir.path(), name, |bytes| bytes[offset] ^= 0x41);
            found += u32::from(!original.check(dir.path(), &format!("byte {offset} of {name}")));
        }
    }
    assert!(found > 200, "only {found} flips were found");
}

#[test]
fn a_truncated_file_is_found_or_harmless() {
    let original = Original::new();
    let dir = fast_dir();
    for (name, step) in [("log.db", 1_777), ("log.db-wal", 3_333), ("head", 5)] {
        let length = original.bytes(name).len();
        for keep in (0..length).step_by(step) {
            original.restore(dir.path(), name, |bytes| bytes.truncate(keep));
            let whole = original.check(dir.path(), &format!("{keep} bytes of {name}"));
            assert!(whole || name != "head", "a missing head file proves nothing");
        }
    }
}

#[test]
fn a_flipped_event_is_named() {
    let original = Original::new();
    let dir = fast_dir();
    original.restore(dir.path(), "log.db", |_| ());
    // An open copies the WAL, an append begins it anew: the early pages lie in log.db only.
    fill(&mut open(dir.path()).unwrap(), BATCHES..BATCHES + 1);
    let file = dir.path().join("log.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let needle = b"event 5 ";
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at + needle.len()] ^= 1;
    std::fs::write(&file, bytes).unwrap();

    let log = open(dir.path()).unwrap();
    let by_scan = log.scan(Head::default(), &mut |_, _| Ok(())).unwrap_err();
    let by_read = log.event(Seq(5)).unwrap_err();
    let by_verify = verify(dir.path()).unwrap_err();
    for error in [by_scan, by_read, by_verify] {
        assert!(matches!(error, StoreError::Damaged { seq: Seq(5), .. }), "{error}");
    }
}

#[test]
fn a_lost_tail_is_named() {
    let original = Original::new();
    let dir = fast_dir();
    original.restore(dir.path(), "log.db-wal", Vec::clear);
    let error = open(dir.path()).err().unwrap();
    let known = format!("up to event {} are lost", original.head.seq);
    assert!(error.to_string().contains(&known), "{error}");
    assert!(matches!(verify(dir.path()), Err(StoreError::Damaged { .. })));
    // As the message says: without the file the rest of the log is the log.
    std::fs::remove_file(dir.path().join("head")).unwrap();
    let log = open(dir.path()).unwrap();
    assert_eq!(read_all(&log).unwrap(), log.head());
}

#[test]
fn a_lost_log_is_never_begun_anew() {
    for name in ["log.db", "log.db-wal"] {
        let original = Original::new();
        let dir = fast_dir();
        original.restore(dir.path(), name, |_| ());
        std::fs::remove_file(dir.path().join(name)).unwrap();
        assert!(matches!(open(dir.path()), Err(StoreError::Damaged { .. })), "without {name}");
    }
}

#[test]
fn a_damaged_snapshot_is_passed_over() {
    let dir = fast_dir();
    let mut log = open(dir.path()).unwrap();
    let heads = fill(&mut log, 0..9);
    for head in [heads[3], heads[7]] {
        log.put_snapshot(&ops::ports::Snapshot { head, state: vec![7; 5_000] }).unwrap();
    }
    let newest = dir.path().join(format!("snapshot-{:020}", heads[7].seq.0));
    let mut bytes = std::fs::read(&newest).unwrap();
    for offset in (0..bytes.len()).step_by(97) {
        bytes[offset] ^= 0x10;
        std::fs::write(&newest, &bytes).unwrap();
        assert_eq!(log.snapshot().unwrap().unwrap().head, heads[3]);
        bytes[offset] ^= 0x10;
    }
    let report = verify(dir.path()).unwrap();
    assert_eq!((report.snapshots, report.snapshots_unusable), (1, 1));
}

#[test]
fn a_log_is_verified_while_a_server_writes_it() {
    let dir = fast_dir();
    let mut log = open(dir.path()).unwrap();
    fill(&mut log, 0..10);
    let path = dir.path().to_owned();
    let verifier =
        std::thread::spawn(move || (0..40).map(|_| verify(&path).unwrap().head.seq).collect::<Vec<_>>());
    let mut number = 10;
    while !verifier.is_finished() {
        fill(&mut log, number..number + 1);
        number += 1;
    }
    let seen = verifier.join().unwrap();
    assert!(seen.is_sorted() && seen.last() > seen.first(), "{seen:?}");
    assert!(log.head().seq >= *seen.last().unwrap());
}

/// Reads the format that a closed log has, or sets another.
fn format(dir: &Path, set: Option<u32>) -> u32 {
    let db = rusqlite::Connection::open(dir.join("log.db")).unwrap();
    if let Some(set) = set {
        db.pragma_update(None, "user_version", set).unwrap();
    }
    db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn a_newer_version_takes_a_log_over_for_good() {
    let dir = fast_dir();
    let mut log = open(dir.path()).unwrap();
    fill(&mut log, 0..8);
    let head = log.head();
    drop(log);
    let newest = format(dir.path(), None);
    format(dir.path(), Some(1));
    assert_eq!(verify(dir.path()).unwrap().head, head);
    assert_eq!(format(dir.path(), None), 1, "to verify changes nothing");
    assert_eq!(open(dir.path()).unwrap().head(), head);
    assert_eq!(format(dir.path(), None), newest);

    format(dir.path(), Some(newest + 1));
    for error in [open(dir.path()).err().unwrap(), verify(dir.path()).unwrap_err()] {
        let is_newer =
            matches!(error, StoreError::Newer { found, known, .. } if (found, known) == (newest + 1, newest));
        assert!(is_newer, "{error}");
    }
}

#[test]
fn what_was_erased_is_gone_from_the_file() {
    let dir = fast_dir();
    let mut log = open(dir.path()).unwrap();
    fill(&mut log, 0..8);
    drop(log);
    drop(open(dir.path()).unwrap());
    let bytes = std::fs::read(dir.path().join("log.db")).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("launch 7 ") && !holds("launch 2 "));
}
