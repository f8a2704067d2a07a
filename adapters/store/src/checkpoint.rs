//! Copying the WAL to `log.db` without stalling the writer.
//!
//! A passive checkpoint on another connection copies while the writer appends, but never
//! catches up with it, and only a wholly copied WAL is begun anew. So the thread copies until
//! little is left, and the writer copies that rest between two commits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ops::ports::StoreError;
use rusqlite::Connection;
use units::Seq;

use crate::database::{Errors, connect, copy_wal, log_path};
use crate::space::Reserve;

/// The thread is done when so few frames (pages of 4 KiB) are left to copy,
const REST: u32 = 64;
/// or after so many rounds: a writer that is faster than the disk grows the WAL.
const ROUNDS: usize = 4;
/// The longest wait for the thread.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a frame in the WAL.
const FRAME: u64 = 4096 + 24;

pub(crate) struct Checkpointer {
    /// Dropped to end the thread.
    start: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    running: bool,
    /// Frames after which copying starts: half of what is preallocated.
    limit: u32,
    /// Frames that a reader keeps in the WAL though they are copied.
    kept: u32,
}

#[derive(Default)]
struct Shared {
    /// Frames in the WAL after the last commit.
    frames: AtomicU32,
    /// The thread has done what it can.
    done: AtomicBool,
}

impl Checkpointer {
    pub(crate) fn new(
        dir: &Path,
        writer: &mut Connection,
        wal_bytes: u64,
        reserve: Reserve,
    ) -> Result<Self, StoreError> {
        let at = Errors::new(&log_path(dir), Seq(1));
        let shared = Arc::new(Shared::default());
        let counter = Arc::clone(&shared);
        let count = move |_: &mut _, frames| {
            counter.frames.store(u32::try_from(frames).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(count)).map_err(|error| at.sql("opening", error))?;
        let db = connect(&log_path(dir))?;
        let (start, requests) = channel();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || run(&db, &requests, &for_thread, &reserve))
            .map_err(|error| at.io("starting the checkpoint thread of", error))?;
        let limit = u32::try_from(wal_bytes / 2 / FRAME).unwrap_or(u32::MAX).max(1);
        Ok(Self { start: Some(start), thread: Some(thread), shared, running: false, limit, kept: 0 })
    }

    /// To be called between two commits. Waits where the thread has not kept up over a whole
    /// WAL: on a full disk there is room for no larger one.
    pub(crate) fn after_commit(&mut self, writer: &Connection) {
        let frames = self.shared.frames.load(Ordering::Relaxed);
        if frames < self.kept {
            self.kept = 0;
        }
        if self.running {
            self.finish(writer);
            if self.running && frames >= 2 * self.limit {
                self.settle(writer);
            }
        } else if frames - self.kept >= self.limit
            && let Some(start) = &self.start
        {
            self.running = start.send(()).is_ok();
        }
    }

    /// Copies the rest, if the thread is done.
    fn finish(&mut self, writer: &Connection) {
        if self.shared.done.swap(false, Ordering::Acquire) {
            self.running = false;
            self.kept = self.shared.frames.load(Ordering::Relaxed);
            // What cannot be copied now stays in the WAL and is tried again later.
            drop(copy_wal(writer));
        }
    }

    /// Waits for the thread and copies the rest, so that the next commit starts the WAL anew.
    pub(crate) fn settle(&mut self, writer: &Connection) {
        let start = Instant::now();
        while self.running && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
            self.finish(writer);
        }
        // What does not fit stays in the WAL; the commit that follows tells.
        drop(copy_wal(writer));
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.start = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed, and the WAL it left is whole.
            drop(thread.join());
        }
    }
}

fn run(db: &Connection, requests: &Receiver<()>, shared: &Shared, reserve: &Reserve) {
    while requests.recv().is_ok() {
        for _ in 0..ROUNDS {
            match copy_wal(db) {
                Ok((_, copied)) if shared.frames.load(Ordering::Relaxed).saturating_sub(copied) <= REST => {
                    break;
                }
                Ok(_) => {}
                // Most likely the disk is full: with the reserve's space it may fit.
                Err(_) if reserve.release() => {}
                Err(_) => break,
            }
        }
        shared.done.store(true, Ordering::Release);
    }
}
