//! The machine's clocks and its boot id.

use std::path::{Path, PathBuf};

use ops::ports::{Clock, ClockReading};
use rustix::time::{ClockId, clock_gettime};

use crate::sys;

/// Where the kernel tells its boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Names another file to read the boot id from, for the reboot drill.
const BOOT_ID_OVERRIDE: &str = "FOURPLANE_BOOT_ID_FILE";

/// This machine's clocks.
#[derive(Debug)]
pub struct HostClock {
    boot_id: [u8; 16],
}

impl HostClock {
    /// Reads the boot id once; it cannot change while a process lives.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { boot_id: boot_id()? })
    }
}

impl Clock for HostClock {
    fn read(&self) -> ClockReading {
        let boottime = sys::boottime();
        let wall = clock_gettime(ClockId::Realtime);
        ClockReading { boottime, wall: wall.tv_sec * 1_000_000_000 + wall.tv_nsec }
    }

    fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }
}

/// The kernel's boot id, or that of the file which `FOURPLANE_BOOT_ID_FILE` names.
pub fn boot_id() -> std::io::Result<[u8; 16]> {
    let path = std::env::var_os(BOOT_ID_OVERRIDE).map_or_else(|| PathBuf::from(BOOT_ID), PathBuf::from);
    read_boot_id(&path)
}

fn read_boot_id(path: &Path) -> std::io::Result<[u8; 16]> {
    let text = std::fs::read_to_string(path)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).map_err(|_| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{} holds no boot id", path.display()))
    })?;
    Ok(id.to_be_bytes())
}
