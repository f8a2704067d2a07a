//! Room for the ends of running jobs when the disk is full.
//!
//! The WAL's blocks exist already, so ends fit there first. When the WAL's content must move
//! to `log.db` and the disk has no room, the reserve is given up. New work is refused before
//! any of that: as soon as less than the reserve's size is left beside it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    dir: PathBuf,
    file: PathBuf,
    bytes: u64,
    /// Held while the file goes: whoever finds it gone finds its space free as well.
    going: Arc<Mutex<()>>,
    /// When there was room in plenty last.
    plenty: Arc<Mutex<Option<Instant>>>,
}

/// Free space of so many reserves is room in plenty:
const PLENTY: u64 = 8;
/// it does not run out within this time, as no disk takes 100 GB a second.
const MOMENT: Duration = Duration::from_millis(5);

impl Reserve {
    pub(crate) fn new(dir: &Path, bytes: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            file: dir.join("reserve"),
            bytes,
            going: Arc::default(),
            plenty: Arc::default(),
        }
    }

    /// Whether new work must be refused. Makes the reserve again once there is room for it.
    pub(crate) fn is_low(&self) -> bool {
        let mut plenty = self.plenty.lock().unwrap_or_else(PoisonError::into_inner);
        if plenty.is_some_and(|seen| seen.elapsed() < MOMENT) {
            return false;
        }
        *plenty = None;
        let Some(free) = self.free() else { return true };
        if self.is_whole() {
            *plenty = (free >= PLENTY.saturating_mul(self.bytes)).then(Instant::now);
            return free < self.bytes;
        }
        // Twice the size: once for the file, once beside it.
        free < 2 * self.bytes || !self.make()
    }

    /// Gives the space up. True if there was any.
    pub(crate) fn release(&self) -> bool {
        let _going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_whole() && std::fs::remove_file(&self.file).is_ok()
    }

    fn is_whole(&self) -> bool {
        std::fs::metadata(&self.file).is_ok_and(|meta| meta.len() == self.bytes)
    }

    fn make(&self) -> bool {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let made = options
            .open(&self.file)
            .is_ok_and(|file| fallocate(&file, FallocateFlags::empty(), 0, self.bytes).is_ok());
        if !made {
            // What there is of it only takes space; the next try makes it from nothing.
            drop(std::fs::remove_file(&self.file));
        }
        made
    }

    /// Free bytes, where the system tells.
    fn free(&self) -> Option<u64> {
        statvfs(&self.dir).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}
