//! The log as a model in memory, for the deterministic simulation: same contract, and faults
//! on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use facts::Hash32;
use ops::ports::{Batch, Head, IdemRow, Lapse, LogStore, SideTable, Snapshot, StoreError, Visit};
use units::{JobId, Seq};

const PATH: &str = "the model log";

/// A log in memory. A clone is another handle on the same simulated disk, as a server that
/// starts again after a crash has.
#[derive(Clone, Debug, Default)]
pub struct ModelLog(Arc<Mutex<Disk>>);

/// How full the simulated disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Room for everything.
    #[default]
    Plenty,
    /// New work must be refused; appends still fit.
    Low,
    /// No append fits.
    None,
}

#[derive(Debug, Default)]
struct Disk {
    synced: Content,
    /// A commit that was written and failed before it was synced: a crash may keep it or not.
    unsynced: Option<Batch>,
    room: Room,
    failing: u32,
}

#[derive(Clone, Debug, Default)]
struct Content {
    events: Vec<(Vec<u8>, Hash32)>,
    idem: BTreeMap<Hash32, IdemRow>,
    payloads: BTreeMap<JobId, Vec<u8>>,
    side: BTreeMap<(SideTable, Vec<u8>), Vec<u8>>,
    lapses: BTreeSet<Lapse>,
    snapshots: Vec<Snapshot>,
}

impl ModelLog {
    /// An empty log on a new disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how full the disk is.
    pub fn set_room(&self, room: Room) {
        self.disk().room = room;
    }

    /// Lets the next `count` appends fail at their sync, after their bytes were written.
    pub fn fail_commits(&self, count: u32) {
        self.disk().failing = count;
    }

    /// Power loss. What the last append wrote without a sync is there afterwards if
    /// `keep_unsynced`: commits are whole or absent, acknowledged ones are always there.
    pub fn crash(&self, keep_unsynced: bool) {
        let mut disk = self.disk();
        let unsynced = disk.unsynced.take();
        if let Some(batch) = unsynced.filter(|_| keep_unsynced) {
            disk.synced.apply(&batch);
        }
        disk.failing = 0;
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn head(&self) -> Head {
        let seq = Seq(self.events.len() as u64);
        Head { seq, hash: self.hash_at(seq).unwrap_or_default() }
    }

    fn hash_at(&self, seq: Seq) -> Option<Hash32> {
        match usize::try_from(seq.0).ok()? {
            0 => Some(Hash32::default()),
            count => self.events.get(count - 1).map(|(_, hash)| *hash),
        }
    }

    fn apply(&mut self, batch: &Batch) {
        for body in &batch.events {
            let hash = self.head().then(body).hash;
            self.events.push((body.clone(), hash));
        }
        self.idem.extend(batch.idem.iter().map(|row| (row.key, *row)));
        self.payloads.extend(batch.payloads.iter().cloned());
        for job in &batch.erase {
            self.payloads.remove(job);
        }
        for side in &batch.side {
            let key = (side.table, side.key.clone());
            match &side.value {
                Some(value) => self.side.insert(key, value.clone()),
                None => self.side.remove(&key),
            };
        }
        self.lapses.extend(&batch.lapses);
        for (lapse, key) in &batch.lapsed {
            self.lapses.remove(lapse);
            let of_event = |row: &IdemRow| row.seq == lapse.seq;
            if let Some(key) = key.filter(|key| self.idem.get(key).is_some_and(of_event)) {
                self.idem.remove(&key);
            }
        }
    }
}

impl LogStore for ModelLog {
    fn head(&self) -> Head {
        self.disk().synced.head()
    }

    fn append(&mut self, batch: &Batch) -> Result<Head, StoreError> {
        let mut disk = self.disk();
        if disk.room == Room::None {
            return Err(StoreError::DiskFull { path: PATH.to_owned() });
        }
        if disk.failing > 0 {
            disk.failing -= 1;
            disk.unsynced = Some(batch.clone());
            let source = "the simulated disk failed to sync".into();
            return Err(StoreError::Failed { doing: "appending to", path: PATH.to_owned(), source });
        }
        // It takes the place of what failed before it.
        disk.unsynced = None;
        disk.synced.apply(batch);
        Ok(disk.synced.head())
    }

    fn scan(&self, after: Head, visit: Visit<'_>) -> Result<Head, StoreError> {
        // The lock is not held while visiting: the visitor may ask the log.
        let (events, head, known) = {
            let disk = self.disk();
            let content = &disk.synced;
            (content.events.clone(), content.head(), content.hash_at(after.seq))
        };
        if known != Some(after.hash) {
            let what = "the chain does not lead through the place to start from".to_owned();
            return Err(StoreError::Damaged { path: PATH.to_owned(), seq: after.seq, what });
        }
        for ((body, _), seq) in events.iter().zip(1..) {
            if seq > after.seq.0 {
                visit(Seq(seq), body)?;
            }
        }
        Ok(head)
    }

    fn event(&self, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        let index = usize::try_from(seq.0).ok().and_then(|seq| seq.checked_sub(1));
        Ok(index.and_then(|index| self.disk().synced.events.get(index).map(|(body, _)| body.clone())))
    }

    fn idem(&self, key: &Hash32) -> Result<Option<IdemRow>, StoreError> {
        Ok(self.disk().synced.idem.get(key).copied())
    }

    fn lapses(&self, most: usize) -> Result<Vec<Lapse>, StoreError> {
        Ok(self.disk().synced.lapses.iter().take(most).copied().collect())
    }

    fn payload(&self, job: JobId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.disk().synced.payloads.get(&job).cloned())
    }

    fn side(&self, table: SideTable) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let disk = self.disk();
        let rows = disk.synced.side.iter().filter(|((of, _), _)| *of == table);
        Ok(rows.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn side_row(&self, table: SideTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.disk().synced.side.get(&(table, key.to_owned())).cloned())
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        let disk = self.disk();
        let fits = |snapshot: &&Snapshot| disk.synced.hash_at(snapshot.head.seq) == Some(snapshot.head.hash);
        Ok(disk.synced.snapshots.iter().rev().find(fits).cloned())
    }

    fn put_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut disk = self.disk();
        if disk.room != Room::Plenty {
            return Err(StoreError::DiskFull { path: PATH.to_owned() });
        }
        let snapshots = &mut disk.synced.snapshots;
        snapshots.push(snapshot.clone());
        snapshots.sort_by_key(|snapshot| snapshot.head.seq);
        let extra = snapshots.len().saturating_sub(2);
        snapshots.drain(..extra);
        Ok(())
    }

    fn low_space(&self) -> bool {
        self.disk().room != Room::Plenty
    }
}
