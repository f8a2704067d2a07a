//! Snapshots are files beside the log, so that they do not bloat it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use facts::Hash32;
use ops::ports::{Head, Snapshot};
use units::Seq;

const PREFIX: &str = "snapshot-";
const MAGIC: &[u8; 8] = b"4psnap01";
/// magic (8), content hash (32), then what it covers: seq (8), chain hash (32), state.
const COVERED: usize = 40;
const STATE: usize = 80;
/// The newest, and one more in case its bytes rot.
const KEPT: usize = 2;

/// Writes a snapshot so that it is there whole or not at all, and deletes old ones.
pub(crate) fn put(dir: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let mut covered = Vec::with_capacity(STATE - COVERED + snapshot.state.len());
    covered.extend_from_slice(&snapshot.head.seq.0.to_le_bytes());
    covered.extend_from_slice(&snapshot.head.hash.0);
    covered.extend_from_slice(&snapshot.state);
    let unfinished = dir.join("snapshot.tmp");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(MAGIC)?;
    file.write_all(blake3::hash(&covered).as_bytes())?;
    file.write_all(&covered)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, dir.join(format!("{PREFIX}{:020}", snapshot.head.seq.0)))?;
    File::open(dir)?.sync_all()?;
    for (_, old) in list(dir)?.into_iter().skip(KEPT) {
        std::fs::remove_file(old)?;
    }
    Ok(())
}

/// All snapshots, newest first, by the position in their name.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<(Seq, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let seq = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        found.extend(seq.map(|seq| (Seq(seq), entry.path())));
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Reads a snapshot; none if its bytes are not what was written.
pub(crate) fn read(path: &Path) -> io::Result<Option<Snapshot>> {
    let mut bytes = std::fs::read(path)?;
    Ok(check(&bytes).map(|head| Snapshot { head, state: bytes.split_off(STATE) }))
}

fn check(bytes: &[u8]) -> Option<Head> {
    let magic = bytes.get(..8)?;
    let (hash, covered) = (bytes.get(8..COVERED)?, bytes.get(COVERED..)?);
    if magic != MAGIC || blake3::hash(covered).as_bytes() != hash {
        return None;
    }
    let seq = u64::from_le_bytes(covered.get(..8)?.try_into().ok()?);
    Some(Head { seq: Seq(seq), hash: Hash32(covered.get(8..40)?.try_into().ok()?) })
}
