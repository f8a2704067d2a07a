//! Rows for lists and pages. Disposable: whatever does not open is made again from the log.
//!
//! Its WAL is synced only when it is copied (`synchronous = NORMAL`), never at a commit: a
//! power loss costs the last rows, which the log brings back, and cannot leave wrong ones.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use cost::{Amounts, Entry, QUARTER, Sums, Tally};
use facts::Hash32;
use ops::ports::{Head, StoreError};
use ops::view::{AttemptRow, Changed, JobFilter, JobRow, JobState, ViewReader, ViewStore};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use units::{AttemptId, JobId, Seq, SubjectId, TeamId, Timestamp};

use crate::database::{Errors, touch_private, transact};

/// Raised with every change of the tables or of a row's encoding: an older view is made again.
const FORMAT: u32 = 4;

const CREATE: &str = "
    CREATE TABLE applied(seq INTEGER NOT NULL, hash BLOB NOT NULL);
    CREATE TABLE job(id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, team INTEGER NOT NULL,
                     state TEXT NOT NULL, ended INTEGER, body BLOB NOT NULL);
    CREATE INDEX job_open ON job(id) WHERE ended IS NULL;
    CREATE INDEX job_owner ON job(owner, id);
    CREATE TABLE label(key TEXT, value TEXT, job INTEGER, PRIMARY KEY(key, value, job)) WITHOUT ROWID;
    CREATE TABLE attempt(id INTEGER PRIMARY KEY, job INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE INDEX attempt_job ON attempt(job, id);
    CREATE TABLE tally(body BLOB NOT NULL);
    CREATE TABLE usage(quarter INTEGER, entry TEXT, devices INTEGER NOT NULL, cores INTEGER NOT NULL,
                       PRIMARY KEY(quarter, entry)) WITHOUT ROWID;
    INSERT INTO applied VALUES (0, zeroblob(32));";

const SETTINGS: &str = "
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = 8192;
    PRAGMA cache_size = -16384;
    PRAGMA temp_store = MEMORY;
    PRAGMA trusted_schema = OFF;";

/// `view.db` of a state directory.
pub struct SqliteView {
    db: Connection,
    path: PathBuf,
    applied: Head,
}

impl SqliteView {
    /// Opens the view in `dir`; one that is missing, damaged or of another version is begun anew.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("view.db");
        let (db, applied) = match open_existing(&path) {
            Some(found) => found,
            None => (begin_anew(&path)?, Head::default()),
        };
        Ok(Self { db, path, applied })
    }
}

impl ViewStore for SqliteView {
    fn applied(&self) -> Head {
        self.applied
    }

    fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        read_job(&self.db, id).map_err(|error| failed(&self.path, self.applied.seq, error))
    }

    fn attempt(&self, id: AttemptId) -> Result<Option<AttemptRow>, StoreError> {
        let select = || {
            self.db
                .prepare_cached("SELECT body FROM attempt WHERE id = ?1")?
                .query_row([id.0.cast_signed()], |row| decode(row.get_ref(0)?.as_blob()?))
                .optional()
        };
        select().map_err(|error| failed(&self.path, self.applied.seq, error))
    }

    fn tally(&self) -> Result<Tally, StoreError> {
        read_tally(&self.db).map_err(|error| failed(&self.path, self.applied.seq, error))
    }

    fn write(&mut self, changed: &Changed, applied: Head) -> Result<(), StoreError> {
        transact(&self.db, |db| write(db, changed, applied))
            .map_err(|error| failed(&self.path, self.applied.seq, error))?;
        self.applied = applied;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), StoreError> {
        // Closed first: a connection that closes deletes the WAL by its name.
        let none = Connection::open_in_memory().map_err(|error| failed(&self.path, Seq(0), error))?;
        drop(std::mem::replace(&mut self.db, none));
        self.db = begin_anew(&self.path)?;
        self.applied = Head::default();
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn ViewReader>, StoreError> {
        let open = || {
            let db = connect(&self.path)?;
            db.execute_batch("PRAGMA query_only = ON")?;
            Ok(db)
        };
        let db = open().map_err(|error| failed(&self.path, self.applied.seq, error))?;
        Ok(Box::new(Reader { db, path: self.path.clone() }))
    }
}

struct Reader {
    db: Connection,
    path: PathBuf,
}

impl Reader {
    fn reading<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| failed(&self.path, Seq(0), error))
    }
}

impl ViewReader for Reader {
    fn applied(&self) -> Result<Seq, StoreError> {
        self.reading(read_applied(&self.db)).map(|head| head.seq)
    }

    fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        self.reading(read_job(&self.db, id))
    }

    fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        let select = || {
            self.db
                .prepare_cached("SELECT body FROM attempt WHERE job = ?1 ORDER BY id")?
                .query_map([job.0.cast_signed()], |row| decode(row.get_ref(0)?.as_blob()?))?
                .collect()
        };
        self.reading(select())
    }

    fn usage(&self, since: Timestamp) -> Result<(Sums, Tally), StoreError> {
        // One transaction: sums and tally are of the same moment.
        self.reading(
            self.db.unchecked_transaction().and_then(|db| Ok((read_usage(&db, since)?, read_tally(&db)?))),
        )
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError> {
        let (query, values) = list_query(filter);
        let select = || {
            self.db
                .prepare_cached(&query)?
                .query_map(params_from_iter(values), |row| decode(row.get_ref(0)?.as_blob()?))?
                .collect()
        };
        self.reading(select())
    }
}

/// The statement that lists what `filter` shows, and its values in order.
fn list_query(filter: &JobFilter) -> (String, Vec<Value>) {
    let (mut query, mut values) = ("SELECT body FROM job WHERE true".to_owned(), Vec::new());
    let owners = filter.owners.iter().map(|SubjectId(owner)| integer(*owner));
    let teams = filter.teams.iter().map(|TeamId(team)| Value::from(*team));
    let states = filter.states.iter().map(|state| Value::from(state.word().to_owned()));
    one_of("owner", owners, &mut query, &mut values);
    one_of("team", teams, &mut query, &mut values);
    one_of("state", states, &mut query, &mut values);
    if !filter.states.is_empty() && !filter.states.iter().any(|state| JobState::is_over(*state)) {
        // Follows from the states, and lets the index of open jobs be used.
        query.push_str(" AND ended IS NULL");
    }
    if let Some(Timestamp(since)) = filter.since {
        query.push_str(" AND (ended IS NULL OR ended >= ?)");
        values.push(since.into());
    }
    for (key, value) in &filter.labels {
        query.push_str(" AND id IN (SELECT job FROM label WHERE key = ? AND value = ?)");
        values.extend([key.clone().into(), value.clone().into()]);
    }
    if let Some(JobId(before)) = filter.before {
        query.push_str(" AND id < ?");
        values.push(integer(before));
    }
    query.push_str(" ORDER BY id DESC LIMIT ?");
    values.push(i64::try_from(filter.limit).unwrap_or(i64::MAX).into());
    (query, values)
}

/// Adds "column is one of", unless there is nothing to choose from.
fn one_of(
    column: &str,
    choices: impl ExactSizeIterator<Item = Value>,
    query: &mut String,
    values: &mut Vec<Value>,
) {
    if choices.len() > 0 {
        let marks = vec!["?"; choices.len()].join(", ");
        write!(query, " AND {column} IN ({marks})").expect("a String takes all text");
        values.extend(choices);
    }
}

fn integer(id: u64) -> Value {
    Value::from(id.cast_signed())
}

fn write(db: &Connection, changed: &Changed, applied: Head) -> rusqlite::Result<()> {
    for row in changed.jobs.values() {
        write_job(db, row)?;
    }
    for row in changed.attempts.values() {
        db.prepare_cached("INSERT OR REPLACE INTO attempt(id, job, body) VALUES (?1, ?2, ?3)")?
            .execute(params![row.id.0.cast_signed(), row.job.0.cast_signed(), encode(row)?])?;
    }
    for ((quarter, entry), amounts) in &changed.quarters {
        db.prepare_cached(
            "INSERT INTO usage(quarter, entry, devices, cores) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET devices = devices + ?3, cores = cores + ?4",
        )?
        .execute(params![quarter.0, entry.word(), amounts.devices, amounts.cores])?;
    }
    // Its one row, or the first.
    db.prepare_cached("INSERT OR REPLACE INTO tally(rowid, body) VALUES (1, ?1)")?
        .execute([encode(&changed.tally)?])?;
    db.prepare_cached("UPDATE applied SET seq = ?1, hash = ?2")?
        .execute(params![applied.seq.0.cast_signed(), applied.hash.0])?;
    Ok(())
}

fn write_job(db: &Connection, row: &JobRow) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO job(id, owner, team, state, ended, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT(id) DO UPDATE SET state = ?4, ended = ?5, body = ?6",
    )?
    .execute(params![
        row.id.0.cast_signed(),
        row.request.owner.0.cast_signed(),
        row.request.team.0,
        row.state.word(),
        row.ended.map(|at| at.0),
        encode(row)?
    ])?;
    for (key, value) in row.request.labels.iter() {
        db.prepare_cached("INSERT OR IGNORE INTO label(key, value, job) VALUES (?1, ?2, ?3)")?
            .execute(params![key, value, row.id.0.cast_signed()])?;
    }
    Ok(())
}

fn read_job(db: &Connection, id: JobId) -> rusqlite::Result<Option<JobRow>> {
    db.prepare_cached("SELECT body FROM job WHERE id = ?1")?
        .query_row([id.0.cast_signed()], |row| decode(row.get_ref(0)?.as_blob()?))
        .optional()
}

fn read_tally(db: &Connection) -> rusqlite::Result<Tally> {
    let body = db
        .prepare_cached("SELECT body FROM tally")?
        .query_row([], |row| decode(row.get_ref(0)?.as_blob()?))
        .optional()?;
    Ok(body.unwrap_or_default())
}

fn read_usage(db: &Connection, since: Timestamp) -> rusqlite::Result<Sums> {
    let mut select =
        db.prepare_cached("SELECT sum(devices), sum(cores) FROM usage WHERE quarter > ?1 AND entry = ?2")?;
    let before = (since - QUARTER).0;
    let sum = |entry: Entry| {
        select.query_row(params![before, entry.word()], |row| {
            let part = |at| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
            Ok((entry, Amounts { devices: part(0)?, cores: part(1)? }))
        })
    };
    Entry::ALL.into_iter().map(sum).collect()
}

fn read_applied(db: &Connection) -> rusqlite::Result<Head> {
    db.prepare_cached("SELECT seq, hash FROM applied")?.query_row([], |row| {
        let seq: i64 = row.get(0)?;
        Ok(Head { seq: Seq(seq.cast_unsigned()), hash: Hash32(row.get(1)?) })
    })
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.set_prepared_statement_cache_capacity(64);
    db.execute_batch(SETTINGS)?;
    Ok(db)
}

/// The view as it was left; none if anything at all is wrong with it.
fn open_existing(path: &Path) -> Option<(Connection, Head)> {
    if !path.exists() {
        return None;
    }
    let db = connect(path).ok()?;
    let format: u32 = db.pragma_query_one(None, "user_version").ok()?;
    let applied = read_applied(&db).ok()?;
    (format == FORMAT).then_some((db, applied))
}

fn begin_anew(path: &Path) -> Result<Connection, StoreError> {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Errors::new(path, Seq(0)).io("removing", error));
            }
            _ => {}
        }
    }
    touch_private(path).map_err(|error| Errors::new(path, Seq(0)).io("creating", error))?;
    let create = || {
        let db = connect(path)?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.execute_batch(&format!("BEGIN; {CREATE} PRAGMA user_version = {FORMAT}; COMMIT"))?;
        Ok(db)
    };
    create().map_err(|error| failed(path, Seq(0), error))
}

fn encode<T: serde::Serialize>(row: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_allocvec(row).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> rusqlite::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, error.into())
    })
}

fn failed(path: &Path, seq: Seq, error: rusqlite::Error) -> StoreError {
    Errors::new(path, seq).sql("using the view", error)
}
