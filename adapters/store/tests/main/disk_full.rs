//! A small disk that fills up: new work is refused, ends still fit, space heals it.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use facts::Hash32;
use fourplane_store::verify;
use ops::ports::{Batch, LogStore, StoreError};

use crate::common::{body, fast_dir, fill, open, read_all, skipped};

/// A file system of 8 MiB, unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = fast_dir();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).status());
    }
}

fn fill_up(path: &Path) {
    let mut filler = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while filler.write_all(&vec![1; size]).is_ok() {}
    }
}

#[test]
fn ends_of_jobs_fit_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount() else {
        skipped("the full disk: no tmpfs can be mounted here (needs root)");
        return;
    };
    let (state, filler) = (disk.0.path().join("state"), disk.0.path().join("filler"));
    let mut log = open(&state).unwrap();
    fill(&mut log, 0..20);
    assert!(!log.low_space());

    fill_up(&filler);
    assert!(log.low_space(), "new work is refused as soon as the disk is full");
    let end = |log: &dyn LogStore| Batch { events: vec![body(log.head().seq.0 + 1)], ..Batch::default() };
    for number in 0..600 {
        let batch = end(&log);
        log.append(&batch).unwrap_or_else(|error| panic!("end {number} does not fit: {error}"));
    }
    assert!(log.low_space());

    // Without end even the reserve is used up; what is refused changes nothing.
    let (mut full, mut before) = (None, log.head());
    for _ in 0..40_000 {
        let batch = end(&log);
        before = log.head();
        if let Err(error) = log.append(&batch) {
            full = Some(error);
            break;
        }
    }
    assert!(matches!(full, Some(StoreError::DiskFull { .. })), "{full:?}");
    assert!(log.low_space());
    assert_eq!((log.head(), read_all(&log).unwrap()), (before, before));

    // A server that starts on the full disk serves what is there.
    drop(log);
    let mut log = open(&state).unwrap();
    assert_eq!(log.head(), before);
    assert!(log.low_space());

    std::fs::remove_file(&filler).unwrap();
    assert!(!log.low_space(), "space heals it");
    let batch = end(&log);
    assert_ne!(log.append(&batch).unwrap().hash, Hash32::default());
    drop(log);
    verify(&state).unwrap();
}
