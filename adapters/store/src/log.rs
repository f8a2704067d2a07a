//! The event log: what an append acknowledged survives a power loss.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use facts::Hash32;
use ops::ports::{Batch, Head, IdemRow, Lapse, LogStore, SideTable, SideWrite, Snapshot, StoreError, Visit};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use units::{JobId, Seq};

use crate::checkpoint::Checkpointer;
use crate::database::{self, Errors};
use crate::head::{self, HeadFile};
use crate::space::Reserve;
use crate::{rows, snapshot};

/// Sizes of what a log keeps on disk beside its history, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The WAL's preallocated length. Copying to `log.db` starts when half of it is used.
    pub wal: u64,
    /// Space given up when the disk is full. New work is refused when less than this is free.
    pub reserve: u64,
}

impl Default for Options {
    /// 32 MiB of WAL, 64 MiB of reserve.
    fn default() -> Self {
        Self { wal: 32 << 20, reserve: 64 << 20 }
    }
}

/// The event log of one state directory, held by one server.
pub struct SqliteLog {
    // Fields drop in this order: the thread ends, then the log closes, then others may open it.
    checkpointer: Checkpointer,
    db: Connection,
    head: Head,
    head_file: HeadFile,
    reserve: Reserve,
    dir: PathBuf,
    path: PathBuf,
    _lock: File,
}

impl SqliteLog {
    /// Opens the log in `dir`, making both if they are missing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another process has it open, [`StoreError::Damaged`] if its
    /// end is not what was acknowledged, [`StoreError::Newer`] if a newer version wrote it.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let path = database::log_path(dir);
        let at = Errors::new(&path, Seq(1));
        make_dir(dir).map_err(|error| at.io("making the directory of", error))?;
        let lock = lock(dir, &at)?;
        let reserve = Reserve::new(dir, options.reserve);
        let mut db = database::open(dir, options.wal, &reserve)?;
        let head = database::last(&db, &at)?;
        let known = head::read(dir).map_err(|error| at.io("reading the head file beside", error))?;
        check_tail(&db, known, head, &at)?;
        let head_file = HeadFile::open(dir).map_err(|error| at.io("opening the head file beside", error))?;
        let checkpointer = Checkpointer::new(dir, &mut db, options.wal, reserve.clone())?;
        Ok(Self { checkpointer, db, head, head_file, reserve, dir: dir.to_owned(), path, _lock: lock })
    }

    fn at(&self, seq: Seq) -> Errors {
        Errors::new(&self.path, seq)
    }

    fn reading<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| self.at(self.head.seq).sql("reading", error))
    }

    fn commit(&self, batch: &Batch) -> Result<Head, StoreError> {
        let at = self.at(self.head.seq.next());
        let head = self.head;
        database::transact(&self.db, |db| write(db, head, batch))
            .map_err(|error| at.sql("appending to", error))
    }

    /// With the reserve's space, and if that is not enough, with the WAL's own once it is copied:
    /// where the checkpoint thread gets no time, the WAL has grown instead of starting anew.
    fn commit_on_full_disk(&mut self, batch: &Batch) -> Result<Head, StoreError> {
        // Where there is no reserve, the checkpoint thread may have given it up just now.
        self.reserve.release();
        match self.commit(batch) {
            Err(StoreError::DiskFull { .. }) => {
                self.checkpointer.settle(&self.db);
                self.commit(batch)
            }
            done => done,
        }
    }
}

impl LogStore for SqliteLog {
    fn head(&self) -> Head {
        self.head
    }

    fn append(&mut self, batch: &Batch) -> Result<Head, StoreError> {
        self.head = match self.commit(batch) {
            Err(StoreError::DiskFull { .. }) => self.commit_on_full_disk(batch)?,
            done => done?,
        };
        // Only a witness: the events are durable already, so its failure takes nothing back.
        drop(self.head_file.write(self.head));
        self.checkpointer.after_commit(&self.db);
        Ok(self.head)
    }

    fn scan(&self, after: Head, visit: Visit<'_>) -> Result<Head, StoreError> {
        let at = self.at(after.seq);
        let end = database::walk(&self.db, &at, after, visit)?;
        if end != self.head {
            return Err(at.to(end.seq.next()).damaged("it was there when the log was opened"));
        }
        Ok(end)
    }

    fn event(&self, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        if seq == Seq(0) || seq > self.head.seq {
            return Ok(None);
        }
        let before = Seq(seq.0 - 1);
        let hash = self.reading(database::hash_at(&self.db, before))?;
        let hash = hash.ok_or_else(|| self.at(before).damaged("it is missing"))?;
        let select = || {
            self.db
                .prepare_cached("SELECT body, hash FROM event WHERE seq = ?1")?
                .query_row([seq.0.cast_signed()], |row| Ok((row.get(0)?, Hash32(row.get(1)?))))
                .optional()
        };
        let found: Option<(Vec<u8>, Hash32)> = self.reading(select())?;
        match found {
            None => Err(self.at(seq).damaged("it is missing")),
            Some((body, linked)) if (Head { seq: before, hash }).then(&body).hash == linked => Ok(Some(body)),
            Some(_) => Err(self.at(seq).damaged("its bytes do not fit the hash chain")),
        }
    }

    fn idem(&self, key: &Hash32) -> Result<Option<IdemRow>, StoreError> {
        let select = || {
            self.db
                .prepare_cached("SELECT request, seq, sum FROM idem WHERE key = ?1")?
                .query_row([key.0], |row| {
                    let seq: i64 = row.get(1)?;
                    let found =
                        IdemRow { key: *key, request: Hash32(row.get(0)?), seq: Seq(seq.cast_unsigned()) };
                    Ok((found, row.get::<_, i64>(2)?))
                })
                .optional()
        };
        let Some((found, sum)) = self.reading(select())? else { return Ok(None) };
        self.checked(rows::idem_sum(&found) == sum, "reading an idempotency key of")?;
        Ok(Some(found))
    }

    fn lapses(&self, most: usize) -> Result<Vec<Lapse>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let select = || {
            self.db
                .prepare_cached("SELECT at, seq, sum FROM lapse ORDER BY at, seq LIMIT ?1")?
                .query_map([most], |row| Ok((rows::lapse(row)?, row.get(2)?)))?
                .collect::<rusqlite::Result<Vec<(Lapse, i64)>>>()
        };
        let mut first = Vec::new();
        for (lapse, sum) in self.reading(select())? {
            self.checked(rows::lapse_sum(&lapse) == sum, "reading when a key lapses in")?;
            first.push(lapse);
        }
        Ok(first)
    }

    fn payload(&self, job: JobId) -> Result<Option<Vec<u8>>, StoreError> {
        let select = || {
            self.db
                .prepare_cached("SELECT bytes, sum FROM payload WHERE job = ?1")?
                .query_row([job.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        };
        let found: Option<(Vec<u8>, i64)> = self.reading(select())?;
        let Some((bytes, sum)) = found else { return Ok(None) };
        self.checked(rows::payload_sum(job, &bytes) == sum, "reading a job's payload in")?;
        Ok(Some(bytes))
    }

    fn side(&self, table: SideTable) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let select = || {
            self.db
                .prepare_cached("SELECT key, value, sum FROM side WHERE kind = ?1 ORDER BY key")?
                .query_map([rows::kind(table)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<Vec<(Vec<u8>, Vec<u8>, i64)>>>()
        };
        let mut all = Vec::new();
        for (key, value, sum) in self.reading(select())? {
            self.checked(rows::side_sum(rows::kind(table), &key, &value) == sum, "reading a side table of")?;
            all.push((key, value));
        }
        Ok(all)
    }

    fn side_row(&self, table: SideTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let select = || {
            self.db
                .prepare_cached("SELECT value, sum FROM side WHERE kind = ?1 AND key = ?2")?
                .query_row(params![rows::kind(table), key], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        };
        let found: Option<(Vec<u8>, i64)> = self.reading(select())?;
        let Some((value, sum)) = found else { return Ok(None) };
        self.checked(rows::side_sum(rows::kind(table), key, &value) == sum, "reading a side table of")?;
        Ok(Some(value))
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        let failed = |error| self.at(Seq(1)).io("reading snapshots beside", error);
        for (_, path) in snapshot::list(&self.dir).map_err(failed)? {
            let Some(found) = snapshot::read(&path).map_err(failed)? else { continue };
            if self.reading(database::hash_at(&self.db, found.head.seq))? == Some(found.head.hash) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn put_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        // It only saves time; the space that is left belongs to the ends of jobs.
        if self.reserve.is_low() {
            return Err(StoreError::DiskFull { path: self.path.display().to_string() });
        }
        snapshot::put(&self.dir, snapshot)
            .map_err(|error| self.at(snapshot.head.seq).io("writing a snapshot beside", error))
    }

    fn low_space(&self) -> bool {
        self.reserve.is_low()
    }
}

impl SqliteLog {
    fn checked(&self, fits: bool, doing: &'static str) -> Result<(), StoreError> {
        if fits { Ok(()) } else { Err(self.at(self.head.seq).failed(doing, rows::MISMATCH)) }
    }
}

fn write(to: &Connection, mut head: Head, batch: &Batch) -> rusqlite::Result<Head> {
    let mut insert = to.prepare_cached("INSERT INTO event(seq, body, hash) VALUES (?1, ?2, ?3)")?;
    for body in &batch.events {
        head = head.then(body);
        insert.execute(params![head.seq.0.cast_signed(), body, head.hash.0])?;
    }
    each(
        to,
        "INSERT OR REPLACE INTO idem(key, request, seq, sum) VALUES (?1, ?2, ?3, ?4)",
        &batch.idem,
        |insert, row| {
            insert.execute(params![row.key.0, row.request.0, row.seq.0.cast_signed(), rows::idem_sum(row)])
        },
    )?;
    each(
        to,
        "INSERT OR REPLACE INTO payload(job, bytes, sum) VALUES (?1, ?2, ?3)",
        &batch.payloads,
        |insert, (job, bytes)| {
            insert.execute(params![job.0.cast_signed(), bytes, rows::payload_sum(*job, bytes)])
        },
    )?;
    each(to, "DELETE FROM payload WHERE job = ?1", &batch.erase, |delete, job| {
        delete.execute([job.0.cast_signed()])
    })?;
    each(
        to,
        "INSERT OR REPLACE INTO lapse(at, seq, sum) VALUES (?1, ?2, ?3)",
        &batch.lapses,
        |insert, lapse| {
            insert.execute(params![lapse.at.0, lapse.seq.0.cast_signed(), rows::lapse_sum(lapse)])
        },
    )?;
    each(to, "DELETE FROM lapse WHERE at = ?1 AND seq = ?2", &batch.lapsed, |delete, (lapse, _)| {
        delete.execute(params![lapse.at.0, lapse.seq.0.cast_signed()])
    })?;
    each(to, "DELETE FROM idem WHERE key = ?1 AND seq = ?2", &batch.lapsed, |delete, (lapse, key)| {
        key.map_or(Ok(0), |key| delete.execute(params![key.0, lapse.seq.0.cast_signed()]))
    })?;
    // In their order: a key may be written and deleted in one batch.
    for same in batch.side.chunk_by(|a, b| a.value.is_some() == b.value.is_some()) {
        write_side(to, same)?;
    }
    Ok(head)
}

/// Writes rows that all have a value, or deletes rows that all have none.
fn write_side(to: &Connection, rows: &[SideWrite]) -> rusqlite::Result<()> {
    if rows.iter().any(|row| row.value.is_none()) {
        return each(to, "DELETE FROM side WHERE kind = ?1 AND key = ?2", rows, |delete, row| {
            delete.execute(params![rows::kind(row.table), row.key])
        });
    }
    each(
        to,
        "INSERT OR REPLACE INTO side(kind, key, value, sum) VALUES (?1, ?2, ?3, ?4)",
        rows,
        |insert, row| {
            let (kind, value) = (rows::kind(row.table), row.value.as_deref().unwrap_or_default());
            insert.execute(params![kind, row.key, value, rows::side_sum(kind, &row.key, value)])
        },
    )
}

/// Executes one statement for each of `rows`; it is not even looked up if there are none.
fn each<T>(
    to: &Connection,
    statement: &str,
    rows: &[T],
    execute: impl Fn(&mut CachedStatement<'_>, &T) -> rusqlite::Result<usize>,
) -> rusqlite::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = to.prepare_cached(statement)?;
    rows.iter().try_for_each(|row| execute(&mut statement, row).map(drop))
}

/// Compares the log's end with the head file.
pub(crate) fn check_tail(
    db: &Connection,
    known: Option<Head>,
    end: Head,
    at: &Errors,
) -> Result<(), StoreError> {
    let Some(known) = known else { return Ok(()) };
    if known.seq > end.seq {
        return Err(at.to(end.seq.next()).damaged(&format!(
            "it and all up to event {} are lost (the file `head` remembers them; remove it to go on without them)",
            known.seq
        )));
    }
    let hash = database::hash_at(db, known.seq).map_err(|error| at.to(known.seq).sql("reading", error))?;
    if hash == Some(known.hash) {
        return Ok(());
    }
    Err(at.to(known.seq).damaged("the file `head` remembers another event in its place"))
}

/// Makes `dir`, private, with its way there, and makes the new names durable.
fn make_dir(dir: &Path) -> std::io::Result<()> {
    let dir = std::path::absolute(dir)?;
    let missing: Vec<_> = dir.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    for parent in missing.iter().filter_map(|path| path.parent()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// A lock that is held is asked for again for so long: a child that a killed server had just
/// forked holds its lock until it has become another program.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Takes the directory's lock and leaves this process's id in it.
fn lock(dir: &Path, at: &Errors) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let failed = |error| at.io("locking", error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    let start = Instant::now();
    let mut locked = file.try_lock();
    while matches!(locked, Err(TryLockError::WouldBlock)) && start.elapsed() < LOCK_PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Who holds it is a courtesy; that it is held is what counts.
            drop(file.read_to_string(&mut holder));
            return Err(StoreError::InUse {
                path: dir.display().to_string(),
                holder: holder.trim().parse().ok(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}
