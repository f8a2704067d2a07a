//! The head file: a hash chain cannot see that its tail is gone, a second file can.
//!
//! It is written without a sync before an append is acknowledged, so it survives a killed
//! process; after a power loss it may be older than the log or empty, which proves nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use facts::Hash32;
use ops::ports::Head;
use units::Seq;

const NAME: &str = "head";
/// seq (8), hash (32), checksum (8).
const LEN: usize = 48;

pub(crate) struct HeadFile(File);

impl HeadFile {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(dir.join(NAME)).map(Self)
    }

    pub(crate) fn write(&self, head: Head) -> io::Result<()> {
        self.0.write_all_at(&encode(head), 0)
    }
}

/// What the file says; none if it is missing or not whole.
pub(crate) fn read(dir: &Path) -> io::Result<Option<Head>> {
    match std::fs::read(dir.join(NAME)) {
        Ok(bytes) => Ok(decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(head: Head) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&head.seq.0.to_le_bytes());
    bytes[8..40].copy_from_slice(&head.hash.0);
    let sum = blake3::hash(&bytes[..40]);
    bytes[40..].copy_from_slice(&sum.as_bytes()[..8]);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Head> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let seq = Seq(u64::from_le_bytes(bytes[..8].try_into().ok()?));
    let head = Head { seq, hash: Hash32(bytes[8..40].try_into().ok()?) };
    (encode(head) == *bytes).then_some(head)
}
