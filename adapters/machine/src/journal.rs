//! The supervisor's journal: fixed-size, checksummed records, each appended by one write.
//! It is unsynced while a server listens: the page cache survives any kill, and after a power
//! loss every attempt has ended by node restart anyway (decision D14).
//!
//! Shims append to the file that is the newest when their task comes. Files are numbered; a full
//! one is followed by the next and removed when no task of it is left.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ops::ports::TaskId;
use serde::{Deserialize, Serialize};
use units::{Epoch, Seq};

/// Bytes a record takes in the file.
const RECORD: usize = 256;
/// A file of this length is followed by a new one.
const FILE_MAX: u64 = 4 << 20;
/// Longest text kept of a start failure's subject, so that a record fits.
const SUBJECT_MAX: usize = 120;

/// A task's random proof of identity.
pub(crate) type Nonce = [u8; 16];

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// What the supervisor must not forget: written first in a file, and on every change.
    /// Reports up to `numbers` may have been used.
    Life { boot_id: [u8; 16], epoch: Epoch, numbers: u64 },
    /// Written before the fork.
    Intent { task: TaskId, decision: Seq, nonce: Nonce, slot: u32, uid: u32 },
    /// Written by the shim before anything of the user's runs. Without it nothing ever ran.
    Shim { nonce: Nonce, pid: i32 },
    /// The user's program runs.
    Began { nonce: Nonce, pid: i32, at: u64 },
    /// The user's program ended. `cpu` in nanoseconds, `peak` in bytes.
    Exit { nonce: Nonce, status: i32, oom_kills: u64, started: u64, ended: u64, cpu: u64, peak: Option<u64> },
    /// The user's program never ran.
    Failed { nonce: Nonce, step: String, subject: String, errno: i32, ended: u64 },
    /// The server knows all there is to know.
    Done { task: TaskId },
    /// Nobody used the terminal for as long as that is allowed: the shim ends the program.
    Idle { nonce: Nonce },
    /// The shim was told to end by the time its program ended: perhaps the machine goes down, and
    /// took the program with it.
    GoingDown { nonce: Nonce },
}

impl Entry {
    /// A start failure, its subject cut so that the record fits.
    pub(crate) fn failed(nonce: Nonce, step: &str, subject: &str, errno: i32, ended: u64) -> Self {
        let mut end = subject.len().min(SUBJECT_MAX);
        while !subject.is_char_boundary(end) {
            end -= 1;
        }
        let (step, subject) = (step.to_owned(), subject[..end].to_owned());
        Self::Failed { nonce, step, subject, errno, ended }
    }

    fn encode(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        let body = &mut record[2..RECORD - 8];
        let length = postcard::to_slice(self, body).expect("every entry fits a record").len();
        record[..2].copy_from_slice(&u16::try_from(length).unwrap_or(0).to_le_bytes());
        let sum = checksum(&record[..RECORD - 8]);
        record[RECORD - 8..].copy_from_slice(&sum.to_le_bytes());
        record
    }

    fn decode(record: &[u8; RECORD]) -> Option<Self> {
        let (body, sum) = record.split_at(RECORD - 8);
        if checksum(body).to_le_bytes() != sum {
            return None;
        }
        let length = usize::from(u16::from_le_bytes([body[0], body[1]]));
        postcard::from_bytes(body.get(2..2 + length)?).ok()
    }
}

/// FNV-1a: tells torn and never-written records from whole ones.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Appends entries, all by one write.
pub(crate) fn append(mut file: &File, entries: &[Entry]) -> io::Result<()> {
    let bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
    file.write_all(&bytes)
}

struct Part {
    number: u32,
    file: File,
    read: u64,
    /// Every start written here, so that a repeated one is known.
    starts: BTreeSet<(TaskId, Seq)>,
}

impl Part {
    fn open(dir: &Path, number: u32) -> io::Result<Self> {
        Ok(Self { number, file: open(dir, number)?, read: 0, starts: BTreeSet::new() })
    }
}

/// One file of the journal, for appending.
pub(crate) fn open(dir: &Path, number: u32) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path(dir, number))
}

fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("journal.{number:08}"))
}

/// All files of the journal, oldest first.
pub(crate) struct Journal {
    dir: PathBuf,
    parts: Vec<Part>,
}

impl Journal {
    /// Opens the files found in `dir`, or begins the first one.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let mut numbers: Vec<u32> = std::fs::read_dir(dir)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("journal.")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        if numbers.is_empty() {
            numbers.push(1);
        }
        let parts = numbers.into_iter().map(|number| Part::open(dir, number)).collect::<io::Result<_>>()?;
        Ok(Self { dir: dir.to_owned(), parts })
    }

    fn last(&mut self) -> &mut Part {
        self.parts.last_mut().expect("a journal has at least one file")
    }

    /// The number of the file that new tasks write to.
    pub(crate) fn current(&mut self) -> u32 {
        self.last().number
    }

    /// Appends to the newest file.
    pub(crate) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        append(&self.last().file, entries)
    }

    /// Whether this start was ever taken.
    pub(crate) fn has_start(&self, task: TaskId, decision: Seq) -> bool {
        self.parts.iter().any(|part| part.starts.contains(&(task, decision)))
    }

    /// Visits what was appended since the last call, with the number of its file. Damaged
    /// records, which only a power loss leaves, are passed over.
    pub(crate) fn read(&mut self, mut visit: impl FnMut(u32, Entry)) -> io::Result<()> {
        let mut buffer = [0; RECORD * 64];
        for part in &mut self.parts {
            loop {
                let count = part.file.read_at(&mut buffer, part.read)?;
                let (records, _) = buffer[..count].as_chunks::<RECORD>();
                for entry in records.iter().filter_map(Entry::decode) {
                    if let Entry::Intent { task, decision, .. } = &entry {
                        part.starts.insert((*task, *decision));
                    }
                    visit(part.number, entry);
                }
                part.read += (records.len() * RECORD) as u64;
                if count < buffer.len() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes back a start of which nothing ever ran, so that it may be repeated.
    pub(crate) fn forget_start(&mut self, task: TaskId, decision: Seq) {
        for part in &mut self.parts {
            part.starts.remove(&(task, decision));
        }
    }

    /// Whether the newest file is full.
    pub(crate) fn is_full(&mut self) -> bool {
        self.last().read >= FILE_MAX
    }

    /// Begins a new file with `life` and removes those that no task of `in_use` needs. The
    /// newest full one stays, so that a repeated start is still known.
    pub(crate) fn rotate(&mut self, life: &Entry, in_use: &BTreeSet<u32>) -> io::Result<()> {
        let number = self.last().number + 1;
        let part = Part::open(&self.dir, number)?;
        append(&part.file, std::slice::from_ref(life))?;
        self.parts.push(part);
        let dir = &self.dir;
        self.parts.retain(|part| {
            let needed = part.number + 1 >= number || in_use.contains(&part.number);
            if !needed {
                // One that stays is only read once more.
                let _ = std::fs::remove_file(path(dir, part.number));
            }
            needed
        });
        Ok(())
    }

    /// Makes everything appended so far survive a power loss.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.file.sync_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_damage_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let entries = [
            Entry::Shim { nonce: [1; 16], pid: 7 },
            Entry::failed([255; 16], "open output", &"ü".repeat(500), i32::MIN, u64::MAX),
            Entry::Shim { nonce: [2; 16], pid: 8 },
        ];
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.append(&entries).unwrap();
        let file = OpenOptions::new().write(true).open(path(dir.path(), 1)).unwrap();
        file.write_all_at(b"x", RECORD as u64 + 9).unwrap();
        let mut seen = Vec::new();
        Journal::open(dir.path()).unwrap().read(|_, entry| seen.push(entry)).unwrap();
        assert_eq!(seen, [entries[0].clone(), entries[2].clone()]);
    }

    #[test]
    fn files_go_when_no_task_needs_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        let life = Entry::Life { boot_id: [0; 16], epoch: Epoch(1), numbers: 0 };
        for _ in 0..3 {
            journal.rotate(&life, &BTreeSet::from([1])).unwrap();
        }
        let numbers: Vec<u32> = journal.parts.iter().map(|part| part.number).collect();
        assert_eq!(numbers, [1, 3, 4]);
        assert!(!path(dir.path(), 2).exists());
    }
}
