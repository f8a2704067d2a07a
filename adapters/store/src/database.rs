//! Opening `log.db`: settings, schema, and what `SQLite`'s errors mean here.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use facts::Hash32;
use ops::ports::{Head, StoreError, Visit};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, ffi};
use units::Seq;

use crate::head;
use crate::space::Reserve;

/// Raised when an older server could no longer take up what this one leaves, for another reason
/// than its events: the tables of `log.db`, or what the supervisor says and keeps.
const LAYOUT: u32 = 1;
/// The newest of all that this version writes and reads, kept in the log so that no older one
/// opens it. Logs written before events were counted have 1.
const FORMAT: u32 = LAYOUT * 1000 + facts::FORMAT;
/// "4pln", so that `file` and a reader of the header know whose it is.
const APPLICATION_ID: i32 = 0x3470_6c6e;

// 4 KiB pages: a commit of one event rewrites one page; measured against 2, 8 and 16 KiB this
// is the fastest, and file systems write no less.
const CREATE: &str = "
    CREATE TABLE event(seq INTEGER PRIMARY KEY, body BLOB NOT NULL, hash BLOB NOT NULL);
    CREATE TABLE idem(key BLOB PRIMARY KEY, request BLOB NOT NULL, seq INTEGER NOT NULL,
                      sum INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE payload(job INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL);
    CREATE TABLE side(kind INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
                      sum INTEGER NOT NULL, PRIMARY KEY(kind, key)) WITHOUT ROWID;";

// What a log from before it has not: keys that were used then are kept.
const LATER: &str = "
    CREATE TABLE IF NOT EXISTS lapse(at INTEGER NOT NULL, seq INTEGER NOT NULL, sum INTEGER NOT NULL,
                                     PRIMARY KEY(at, seq)) WITHOUT ROWID;";

// secure_delete: what is erased (payloads, people) must be gone from the file. Its traces in the
// WAL go as the WAL is written over.
const SETTINGS: &str = "
    PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA journal_size_limit = -1;
    PRAGMA cache_size = -16384;
    PRAGMA temp_store = MEMORY;
    PRAGMA secure_delete = ON;
    PRAGMA cell_size_check = ON;
    PRAGMA trusted_schema = OFF;";

pub(crate) fn log_path(dir: &Path) -> PathBuf {
    dir.join("log.db")
}

fn wal_path(dir: &Path) -> PathBuf {
    dir.join("log.db-wal")
}

/// Opens the log of `dir` for its one writer, making it if there never was one.
pub(crate) fn open(dir: &Path, wal_bytes: u64, reserve: &Reserve) -> Result<Connection, StoreError> {
    let path = log_path(dir);
    let at = Errors::new(&path, Seq(1));
    refuse_lost(dir, &at)?;
    touch_private(&path).map_err(|error| at.io("creating", error))?;
    let db = connect(&path)?;
    if is_new(&db).map_err(|error| at.sql("opening", error))? {
        create(&db).map_err(|error| at.sql("creating", error))?;
    }
    check_format(&db, &at)?;
    db.execute_batch(LATER).map_err(|error| at.sql("opening", error))?;
    let mode: String = db.pragma_query_one(None, "journal_mode").map_err(|error| at.sql("opening", error))?;
    if mode != "wal" {
        return Err(at.failed("opening", "its file system does not take a write-ahead log"));
    }
    settle_wal(&db, reserve, &at)?;
    raise_format(&db, reserve, &at)?;
    preallocate(dir, wal_bytes).map_err(|error| at.io("preallocating the WAL of", error))?;
    Ok(db)
}

/// Whatever a crash left in the WAL is written once more and synced, even if it was only in the
/// page cache when a sync failed. Without room it stays where it is and is as good there.
fn settle_wal(db: &Connection, reserve: &Reserve, at: &Errors) -> Result<(), StoreError> {
    let copy = || copy_wal(db).map_err(|error| at.sql("checkpointing", error));
    match copy() {
        Err(StoreError::DiskFull { .. }) if reserve.release() => match copy() {
            Err(StoreError::DiskFull { .. }) | Ok(_) => Ok(()),
            Err(other) => Err(other),
        },
        Err(StoreError::DiskFull { .. }) | Ok(_) => Ok(()),
        Err(other) => Err(other),
    }
}

/// From here on no older version may write to this log, even before it has an event that those
/// do not know: that one could come at any time.
fn raise_format(db: &Connection, reserve: &Reserve, at: &Errors) -> Result<(), StoreError> {
    let raise = || {
        let found: u32 = db.pragma_query_one(None, "user_version")?;
        if found < FORMAT { db.pragma_update(None, "user_version", FORMAT) } else { Ok(()) }
    };
    let raise = || raise().map_err(|error| at.sql("raising the format of", error));
    match raise() {
        Err(StoreError::DiskFull { .. }) if reserve.release() => raise(),
        done => done,
    }
}

/// Makes sure that a database file exists which only its owner can read; `SQLite` gives the
/// files that it makes beside it the same mode.
pub(crate) fn touch_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A connection on a log that exists.
pub(crate) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let at = Errors::new(path, Seq(1));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let prepare = || {
        let db = Connection::open_with_flags(path, flags)?;
        // The WAL stays, with its blocks; it is copied at the next open.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.set_prepared_statement_cache_capacity(32);
        db.execute_batch(SETTINGS)?;
        Ok(db)
    };
    prepare().map_err(|error| at.sql("opening", error))
}

/// A log that once had events is never taken for a new one.
fn refuse_lost(dir: &Path, at: &Errors) -> Result<(), StoreError> {
    let length = std::fs::metadata(log_path(dir)).map_or(0, |meta| meta.len());
    if length > 0 {
        return Ok(());
    }
    let known = head::read(dir).map_err(|error| at.io("reading the head file beside", error))?;
    let in_wal = starts_with_data(&wal_path(dir)).map_err(|error| at.io("reading the WAL of", error))?;
    if in_wal || known.is_some_and(|head| head.seq > Seq(0)) {
        return Err(at.damaged("the file is missing or empty, but what lies beside it shows that it was not"));
    }
    Ok(())
}

fn starts_with_data(path: &Path) -> io::Result<bool> {
    let mut start = [0; 32];
    match std::fs::File::open(path) {
        Ok(mut file) => Ok(file.read(&mut start)? > 0 && start != [0; 32]),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_new(db: &Connection) -> rusqlite::Result<bool> {
    let version: u32 = db.pragma_query_one(None, "user_version")?;
    let tables: u32 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(version == 0 && tables == 0)
}

fn create(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch("PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE;")?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    db.execute_batch(&format!(
        "BEGIN; {CREATE} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT"
    ))
}

pub(crate) fn check_format(db: &Connection, at: &Errors) -> Result<(), StoreError> {
    let opening = |error| at.sql("opening", error);
    let found: u32 = db.pragma_query_one(None, "user_version").map_err(opening)?;
    let application: i32 = db.pragma_query_one(None, "application_id").map_err(opening)?;
    match found {
        _ if application != APPLICATION_ID => Err(at.damaged("it is not an event log of fourplane")),
        1..=FORMAT => Ok(()),
        0 => Err(at.damaged("its format number is gone")),
        _ => Err(StoreError::Newer { path: at.path.clone(), found, known: FORMAT }),
    }
}

/// Does `work` in one transaction, all of it or nothing, with statements that are parsed once.
pub(crate) fn transact<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let run = |statement| db.prepare_cached(statement)?.execute([]).map(drop);
    run("BEGIN IMMEDIATE")?;
    let done = work(db).and_then(|done| run("COMMIT").map(|()| done));
    // Some errors have ended the transaction already.
    if done.is_err() && !db.is_autocommit() {
        run("ROLLBACK")?;
    }
    done
}

/// Copies to the database what readers allow, without waiting for them. Returns how many
/// frames the WAL has and how many of them are copied.
pub(crate) fn copy_wal(db: &Connection) -> rusqlite::Result<(u32, u32)> {
    db.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| {
        let count = |column| row.get(column).map(|frames: i64| u32::try_from(frames).unwrap_or(0));
        Ok((count(1)?, count(2)?))
    })
}

/// Lengthens the WAL with zeros, which `SQLite` reads as its end. Real blocks, so that an
/// overwrite changes no metadata of the file system. (The directory was synced by `SQLite`.)
fn preallocate(dir: &Path, bytes: u64) -> io::Result<()> {
    let mut wal = OpenOptions::new().append(true).open(wal_path(dir))?;
    let zeros = vec![0; 64 * 1024];
    let mut missing = bytes.saturating_sub(wal.metadata()?.len());
    while missing > 0 {
        let chunk = usize::try_from(missing).map_or(zeros.len(), |missing| missing.min(zeros.len()));
        match wal.write(&zeros[..chunk]) {
            Ok(written) => missing -= written as u64,
            // A full disk must not keep a server from starting: its jobs may be ending.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
            Err(error) => return Err(error),
        }
    }
    wal.sync_all()
}

/// The hash of the chain up to and with `seq`.
pub(crate) fn hash_at(db: &Connection, seq: Seq) -> rusqlite::Result<Option<Hash32>> {
    if seq == Seq(0) {
        return Ok(Some(Hash32::default()));
    }
    db.prepare_cached("SELECT hash FROM event WHERE seq = ?1")?
        .query_row([seq.0.cast_signed()], |row| row.get(0).map(Hash32))
        .optional()
}

/// Where the log ends. Its last link is checked.
pub(crate) fn last(db: &Connection, at: &Errors) -> Result<Head, StoreError> {
    let last: Option<i64> = db
        .query_row("SELECT max(seq) FROM event", [], |row| row.get(0))
        .map_err(|error| at.sql("reading", error))?;
    let Some(last) = last.filter(|last| *last > 0) else { return Ok(Head::default()) };
    let before = Seq(last.cast_unsigned() - 1);
    let hash = hash_at(db, before).map_err(|error| at.sql("reading", error))?;
    let hash = hash.ok_or_else(|| at.to(before).damaged("it is missing"))?;
    walk(db, at, Head { seq: before, hash }, &mut |_, _| Ok(()))
}

/// Visits every event after `after`, checking each link.
pub(crate) fn walk(db: &Connection, at: &Errors, after: Head, visit: Visit<'_>) -> Result<Head, StoreError> {
    let known = hash_at(db, after.seq).map_err(|error| at.to(after.seq).sql("reading", error))?;
    if known != Some(after.hash) {
        return Err(at.to(after.seq).damaged("the chain does not lead through the place to start from"));
    }
    let mut head = after;
    let failed = |error, head: Head| at.to(head.seq.next()).sql("reading", error);
    let mut select = db
        .prepare_cached("SELECT seq, body, hash FROM event WHERE seq > ?1 ORDER BY seq")
        .map_err(|error| failed(error, head))?;
    let mut events = select.query([after.seq.0.cast_signed()]).map_err(|error| failed(error, head))?;
    while let Some(row) = events.next().map_err(|error| failed(error, head))? {
        let next = head.seq.next();
        let seq: i64 = row.get(0).map_err(|error| failed(error, head))?;
        let hash: [u8; 32] = row.get(2).map_err(|error| failed(error, head))?;
        let body = row.get_ref(1).map_err(|error| failed(error, head))?;
        let body = body.as_blob().map_err(|error| failed(error.into(), head))?;
        if seq.cast_unsigned() != next.0 {
            return Err(at.to(next).damaged(&format!("it is missing: event {seq} follows {}", head.seq)));
        }
        if head.then(body).hash.0 != hash {
            return Err(at.to(next).damaged("its bytes do not fit the hash chain"));
        }
        visit(next, body)?;
        head = Head { seq: next, hash: Hash32(hash) };
    }
    Ok(head)
}

/// Makes errors about one file, at one event.
#[derive(Clone)]
pub(crate) struct Errors {
    path: String,
    seq: Seq,
}

impl Errors {
    pub(crate) fn new(path: &Path, seq: Seq) -> Self {
        Self { path: path.display().to_string(), seq }
    }

    pub(crate) fn to(&self, seq: Seq) -> Self {
        Self { path: self.path.clone(), seq }
    }

    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), seq: self.seq, what: what.to_owned() }
    }

    pub(crate) fn failed(
        &self,
        doing: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> StoreError {
        StoreError::Failed { doing, path: self.path.clone(), source: source.into() }
    }

    pub(crate) fn io(&self, doing: &'static str, error: io::Error) -> StoreError {
        if error.kind() == io::ErrorKind::StorageFull {
            return StoreError::DiskFull { path: self.path.clone() };
        }
        self.failed(doing, error)
    }

    pub(crate) fn sql(&self, doing: &'static str, error: rusqlite::Error) -> StoreError {
        use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, SqliteFailure};
        match &error {
            SqliteFailure(code, _) => match (code.code, code.extended_code) {
                (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => self.damaged(&error.to_string()),
                (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => {
                    StoreError::DiskFull { path: self.path.clone() }
                }
                _ => self.failed(doing, error),
            },
            FromSqlConversionFailure(..) | InvalidColumnType(..) => self.damaged(&error.to_string()),
            _ => self.failed(doing, error),
        }
    }
}
