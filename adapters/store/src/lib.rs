//! The event log and its views on `SQLite`.
//!
//! A state directory holds:
//!
//! | file | what | lost or damaged |
//! |---|---|---|
//! | `log.db`, `log.db-wal` | the history | refused: [`StoreError::Damaged`] |
//! | `log.db-shm` | index of the WAL, made again by any open | harmless |
//! | `head` | unsynced copy of the last (seq, hash): shows a lost tail | harmless, but a lost tail shows no more |
//! | `snapshot-*` | states to start from | harmless: an older one, or the whole log |
//! | `reserve` | space given up when the disk is full | made again |
//! | `view.db` | lists for people, made from the log | made again |
//! | `lock` | held by the one server; its process id | made again |
//!
//! One sync an acknowledgement: an append writes frames into a WAL whose blocks exist already,
//! then syncs it once. What is in the WAL is copied to `log.db` by another thread
//! (`checkpoint.rs`). That thread needs a second connection, so `log.db` is not opened with
//! `locking_mode=EXCLUSIVE`: the file lock keeps other servers out, an append pays some
//! microseconds for `SQLite`'s own locks, and in exchange [`verify()`] can read a log that a
//! server is writing.

mod checkpoint;
mod database;
mod head;
mod log;
mod model;
mod rows;
mod snapshot;
mod space;
mod verify;
mod view;

pub use log::{Options, SqliteLog};
pub use model::{ModelLog, Room};
pub use ops::ports::StoreError;
pub use verify::{VerifyReport, verify};
pub use view::SqliteView;
