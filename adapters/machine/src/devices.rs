//! The device files of GPUs: which of them a task may use.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ops::ports::StartTask;

use crate::sys;

/// The major number of NVIDIA's device files (Linux `Documentation/admin-guide/devices.txt`).
const NVIDIA_MAJOR: u32 = 195;

/// A device file's (major, minor).
type Numbers = (u32, u32);

/// The GPUs of this machine.
pub(crate) struct Devices {
    /// Where device files are.
    dir: PathBuf,
    /// In the order of the inventory.
    gpus: Vec<Numbers>,
}

impl Devices {
    /// Finds GPUs by their files in `dir` and by what the NVIDIA driver says in `nvidia`: its tools
    /// make the files at first use, be it a job's.
    pub(crate) fn find(dir: &Path, nvidia: &Path) -> Self {
        let told = nvidia_minors(nvidia).map(|minor| (minor, (NVIDIA_MAJOR, minor)));
        let found = character_devices(dir)
            .filter_map(|(name, numbers)| Some((name.strip_prefix("nvidia")?.parse().ok()?, numbers)));
        let gpus: BTreeMap<u32, Numbers> = told.chain(found).collect();
        Self { dir: dir.to_owned(), gpus: gpus.into_values().collect() }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Which files a task may use. Those that do not tell which GPU they lead to only a task may
    /// use that has them all. Empty on a machine without GPUs.
    pub(crate) fn confine(&self, start: &StartTask) -> Vec<(u32, u32, bool)> {
        if self.is_empty() {
            return Vec::new();
        }
        let given = |position: usize| start.devices.iter().any(|(index, _)| usize::from(*index) == position);
        let all = (0..self.gpus.len()).all(given);
        let gpus = self.gpus.iter().enumerate().map(|(position, numbers)| (*numbers, given(position)));
        let shared = self.shared().into_iter().map(|numbers| (numbers, all));
        gpus.chain(shared).map(|((major, minor), allowed)| (major, minor, allowed)).collect()
    }

    fn shared(&self) -> Vec<Numbers> {
        let dri = character_devices(&self.dir.join("dri")).map(|(_, numbers)| numbers);
        let mut files: Vec<Numbers> = dri.chain(numbers(&self.dir.join("kfd"))).collect();
        files.sort_unstable();
        files
    }
}

/// The numbers of a character device's file.
fn numbers(file: &Path) -> Option<Numbers> {
    let meta = file.metadata().ok()?;
    meta.file_type().is_char_device().then(|| sys::device_numbers(meta.rdev()))
}

/// The minor numbers that the NVIDIA driver's files about its GPUs tell.
fn nvidia_minors(dir: &Path) -> impl Iterator<Item = u32> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("information")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse().ok())
    })
}

/// The character devices of a directory, by name.
fn character_devices(dir: &Path) -> impl Iterator<Item = (String, Numbers)> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.file_name().into_string().ok()?, numbers(&entry.path())?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_known_before_its_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let find = || Devices::find(&dir.path().join("dev"), dir.path()).gpus;
        assert_eq!(find(), []);
        for minor in [3, 0] {
            let gpu = dir.path().join(format!("0000:0{minor}:00.0"));
            std::fs::create_dir(&gpu).unwrap();
            let text = format!("Model: \t H100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n");
            std::fs::write(gpu.join("information"), text).unwrap();
        }
        assert_eq!(find(), [(195, 0), (195, 3)]);
    }
}
