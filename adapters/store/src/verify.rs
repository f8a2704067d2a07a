//! Reading a whole log to prove it, closed or beside the server that writes it.

use std::path::Path;

use facts::Hash32;
use ops::ports::{Head, IdemRow, StoreError};
use rusqlite::{Connection, Row};
use units::{JobId, Seq};

use crate::database::{self, Errors};
use crate::log::check_tail;
use crate::{rows, snapshot};

/// What [`verify`] read and found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The last event and the hash of the chain up to it.
    pub head: Head,
    /// Idempotency keys.
    pub keys: u64,
    /// Launch payloads of jobs that have not ended.
    pub payloads: u64,
    /// Rows of the erasable side tables.
    pub side_rows: u64,
    /// Snapshots that fit the chain.
    pub snapshots: u64,
    /// Snapshots that do not; a start passes them over.
    pub snapshots_unusable: u64,
}

/// Checks every page, the whole hash chain, its end against the head file, and every row
/// beside it. Changes nothing, needs no lock and sees one moment of a log that is written to.
///
/// # Errors
/// [`StoreError::Damaged`] names the first event, or the page, that is not as written.
pub fn verify(dir: &Path) -> Result<VerifyReport, StoreError> {
    let path = database::log_path(dir);
    let at = Errors::new(&path, Seq(1));
    if let Err(error) = std::fs::metadata(&path) {
        return Err(at.io("reading", error));
    }
    let db = database::connect(&path)?;
    database::check_format(&db, &at)?;
    // The head file is read first: the log may go on meanwhile, but not back.
    let known = crate::head::read(dir).map_err(|error| at.io("reading the head file beside", error))?;
    let reading = |error| at.sql("reading", error);
    db.execute_batch("PRAGMA query_only = ON; BEGIN").map_err(reading)?;
    let head = database::walk(&db, &at, Head::default(), &mut |_, _| Ok(()))?;
    check_tail(&db, known, head, &at)?;
    check_pages(&db, &at)?;
    let (keys, payloads, side_rows) = check_rows(&db, head, &at)?;
    let mut report = VerifyReport { head, keys, payloads, side_rows, snapshots: 0, snapshots_unusable: 0 };
    let listing = |error| at.io("reading snapshots beside", error);
    for (_, file) in snapshot::list(dir).map_err(listing)? {
        let usable = match snapshot::read(&file).map_err(listing)? {
            Some(found) => database::hash_at(&db, found.head.seq).map_err(reading)? == Some(found.head.hash),
            None => false,
        };
        *if usable { &mut report.snapshots } else { &mut report.snapshots_unusable } += 1;
    }
    Ok(report)
}

/// `SQLite`'s own check of every page; its answer names the page.
fn check_pages(db: &Connection, at: &Errors) -> Result<(), StoreError> {
    let answer: String = db
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|error| at.sql("checking", error))?;
    if answer == "ok" { Ok(()) } else { Err(at.damaged(&answer)) }
}

fn check_rows(db: &Connection, head: Head, at: &Errors) -> Result<(u64, u64, u64), StoreError> {
    let keys = count(db, at, "an idempotency key of", "SELECT key, request, seq, sum FROM idem", |row| {
        let seq: i64 = row.get(2)?;
        let found =
            IdemRow { key: Hash32(row.get(0)?), request: Hash32(row.get(1)?), seq: Seq(seq.cast_unsigned()) };
        Ok(rows::idem_sum(&found) == row.get::<_, i64>(3)? && found.seq <= head.seq)
    })?;
    let has_lapses: bool = db
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'lapse'", [], |row| row.get(0))
        .map_err(|error| at.sql("reading", error))?;
    if has_lapses {
        count(db, at, "when a key lapses in", "SELECT at, seq, sum FROM lapse", |row| {
            let lapse = rows::lapse(row)?;
            Ok(rows::lapse_sum(&lapse) == row.get::<_, i64>(2)? && lapse.seq <= head.seq)
        })?;
    }
    let payloads = count(db, at, "a job's payload in", "SELECT job, bytes, sum FROM payload", |row| {
        let job: i64 = row.get(0)?;
        let bytes: Vec<u8> = row.get(1)?;
        Ok(rows::payload_sum(JobId(job.cast_unsigned()), &bytes) == row.get::<_, i64>(2)?)
    })?;
    let side = count(db, at, "a side table of", "SELECT kind, key, value, sum FROM side", |row| {
        let (key, value): (Vec<u8>, Vec<u8>) = (row.get(1)?, row.get(2)?);
        Ok(rows::side_sum(row.get(0)?, &key, &value) == row.get::<_, i64>(3)?)
    })?;
    Ok((keys, payloads, side))
}

/// Counts the rows of `select`, all of which must fit their checksum.
fn count(
    db: &Connection,
    at: &Errors,
    what: &'static str,
    select: &str,
    fits: impl Fn(&Row<'_>) -> rusqlite::Result<bool>,
) -> Result<u64, StoreError> {
    let reading = |error| at.sql(what, error);
    let mut statement = db.prepare(select).map_err(reading)?;
    let mut found = statement.query([]).map_err(reading)?;
    let mut count = 0;
    while let Some(row) = found.next().map_err(reading)? {
        if !fits(row).map_err(reading)? {
            return Err(at.failed(what, rows::MISMATCH));
        }
        count += 1;
    }
    Ok(count)
}
