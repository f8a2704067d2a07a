//! The v2 tree, with whatever controllers it has: on hybrid machines none, but emptiness and
//! the kill of a whole group are there all the same.

use std::io;
use std::path::{Path, PathBuf};

use super::{Hierarchy, Limits, device_program, kill_each, make, read_processes, write};

/// CPU time is shared out in periods of this many microseconds.
const PERIOD_US: u64 = 100_000;
/// What the limits need.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The tree's mount point and the controllers that it can hand out.
pub(crate) struct V2 {
    root: PathBuf,
    controllers: Vec<&'static str>,
    /// Whether devices are confined here.
    devices: bool,
}

impl V2 {
    /// Finds the tree in a mount table.
    pub(crate) fn find(mounts: &str) -> Option<Self> {
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (path, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(path))
        })?;
        let offered = std::fs::read_to_string(root.join("cgroup.controllers")).ok()?;
        let has = |name: &&str| offered.split_whitespace().any(|word| word == *name);
        let controllers = CONTROLLERS.into_iter().filter(has).collect();
        Some(Self { root, controllers, devices: false })
    }

    /// Confines devices too, where the kernel lets it. `base` is a group that no process is in.
    pub(super) fn with_devices(mut self, base: &Path) -> Self {
        self.devices = device_program::works(&self.root.join(base));
        self
    }

    pub(super) fn root(&self) -> &PathBuf {
        &self.root
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.contains(&controller)
    }

    /// Hands the controllers down to the children of `dir`.
    fn delegate(&self, dir: &Path) -> io::Result<()> {
        self.controllers
            .iter()
            .try_for_each(|name| write(&dir.join("cgroup.subtree_control"), &format!("+{name}")))
    }
}

impl Hierarchy for V2 {
    fn create(&self, group: &Path) -> io::Result<()> {
        let mut dir = self.root.clone();
        for component in group {
            self.delegate(&dir)?;
            dir.push(component);
            make(&dir)?;
        }
        Ok(())
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        std::fs::remove_dir(self.root.join(group))
    }

    fn limit(&self, group: &Path, limits: &Limits) -> io::Result<()> {
        let dir = self.root.join(group);
        let or_max = |value: Option<u64>| value.map_or_else(|| "max".to_owned(), |value| value.to_string());
        if self.has("memory") {
            write(&dir.join("memory.max"), &or_max(limits.memory.map(|bytes| bytes.0)))?;
            // Absent on a kernel without swap.
            let _ = write(&dir.join("memory.swap.max"), if limits.memory.is_some() { "0" } else { "max" });
        }
        if self.has("cpu") {
            let quota = (limits.cores > 0).then(|| u64::from(limits.cores) * PERIOD_US);
            write(&dir.join("cpu.max"), &format!("{} {PERIOD_US}", or_max(quota)))?;
        }
        if self.has("pids") {
            write(&dir.join("pids.max"), &limits.pids.to_string())?;
        }
        if self.devices {
            device_program::confine(&dir, &limits.devices)?;
        }
        Ok(())
    }

    fn confines_devices(&self) -> bool {
        self.devices
    }

    fn processes(&self, group: &Path) -> io::Result<Vec<i32>> {
        read_processes(&self.root.join(group).join("cgroup.procs"))
    }

    fn kill(&self, group: &Path) -> io::Result<()> {
        // Before Linux 5.14 the file does not exist.
        if write(&self.root.join(group).join("cgroup.kill"), "1").is_err() {
            kill_each(&self.processes(group)?);
        }
        Ok(())
    }

    fn entrances(&self, group: &Path) -> Vec<PathBuf> {
        vec![self.root.join(group).join("cgroup.procs")]
    }

    fn proofs(&self, group: &Path) -> Vec<PathBuf> {
        vec![self.root.join(group).join("cgroup.events")]
    }

    /// A task that froze itself and was killed leaves a group that would freeze the next one.
    fn reset(&self, group: &Path) -> PathBuf {
        self.root.join(group).join("cgroup.freeze")
    }

    fn oom_counter(&self, group: &Path) -> Option<PathBuf> {
        self.has("memory").then(|| self.root.join(group).join("memory.events"))
    }

    /// It can only be restarted for one open file, and not on every kernel: the shim tells a peak
    /// only where it is higher than all before.
    fn peak(&self, group: &Path) -> PathBuf {
        self.root.join(group).join("memory.peak")
    }
}
