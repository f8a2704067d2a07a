//! v1 controllers, each a hierarchy of its own: only those that a limit needs.

use std::io;
use std::path::{Path, PathBuf};

use super::{Hierarchy, Limits, kill_each, make, read_processes, write};

/// CPU time is shared out in periods of this many microseconds.
const PERIOD_US: u64 = 100_000;

/// Mount points of the controllers in use.
pub(crate) struct V1 {
    memory: PathBuf,
    pids: PathBuf,
    cpu: Option<PathBuf>,
    devices: Option<PathBuf>,
}

impl V1 {
    /// Finds the controllers in a mount table; none unless memory and pids are there.
    pub(crate) fn find(mounts: &str, devices: bool) -> Option<Self> {
        let mount = |controller: &str| {
            mounts.lines().find_map(|line| {
                let mut words = line.split(' ').skip(1);
                let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
                let found = kind == "cgroup" && options.split(',').any(|option| option == controller);
                found.then(|| PathBuf::from(path))
            })
        };
        Some(Self {
            memory: mount("memory")?,
            pids: mount("pids")?,
            cpu: mount("cpu"),
            devices: if devices { mount("devices") } else { None },
        })
    }

    /// Mount points of all controllers in use.
    pub(super) fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.memory), Some(&self.pids), self.cpu.as_ref(), self.devices.as_ref()].into_iter().flatten()
    }

    fn limit_memory(&self, group: &Path, limits: &Limits) -> io::Result<()> {
        let dir = self.memory.join(group);
        let value = limits.memory.map_or_else(|| "-1".to_owned(), |bytes| bytes.0.to_string());
        let (memory, swap) = (dir.join("memory.limit_in_bytes"), dir.join("memory.memsw.limit_in_bytes"));
        // Memory may never exceed memory and swap together: raise that one out of the way.
        // It is absent on a kernel without swap accounting.
        let _ = write(&swap, "-1");
        if write(&memory, &value).is_err() {
            // An earlier user's page cache is in the way.
            let _ = write(&dir.join("memory.force_empty"), "0");
            write(&memory, &value)?;
        }
        let _ = write(&swap, &value);
        Ok(())
    }
}

impl Hierarchy for V1 {
    fn create(&self, group: &Path) -> io::Result<()> {
        self.roots().try_for_each(|root| make(&root.join(group)))
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        self.roots().try_for_each(|root| std::fs::remove_dir(root.join(group)))
    }

    fn limit(&self, group: &Path, limits: &Limits) -> io::Result<()> {
        self.limit_memory(group, limits)?;
        write(&self.pids.join(group).join("pids.max"), &limits.pids.to_string())?;
        if let Some(cpu) = &self.cpu {
            let dir = cpu.join(group);
            let cores = u64::from(limits.cores);
            let quota = if cores == 0 { "-1".to_owned() } else { (cores * PERIOD_US).to_string() };
            write(&dir.join("cpu.shares"), &(cores.max(1) * 1_024).to_string())?;
            write(&dir.join("cpu.cfs_quota_us"), &quota)?;
        }
        if let Some(devices) = &self.devices {
            for (major, minor, allowed) in &limits.devices {
                let file = if *allowed { "devices.allow" } else { "devices.deny" };
                write(&devices.join(group).join(file), &format!("c {major}:{minor} rwm"))?;
            }
        }
        Ok(())
    }

    fn confines_devices(&self) -> bool {
        self.devices.is_some()
    }

    fn processes(&self, group: &Path) -> io::Result<Vec<i32>> {
        // A process can only leave one of them with rights that jobs do not have, except for
        // jobs of root: look in both that matter.
        let lists = self.proofs(group).into_iter().map(|file| read_processes(&file));
        Ok(lists.collect::<io::Result<Vec<_>>>()?.concat())
    }

    fn kill(&self, group: &Path) -> io::Result<()> {
        kill_each(&self.processes(group)?);
        Ok(())
    }

    fn entrances(&self, group: &Path) -> Vec<PathBuf> {
        self.roots().map(|root| root.join(group).join("cgroup.procs")).collect()
    }

    fn proofs(&self, group: &Path) -> Vec<PathBuf> {
        [&self.pids, &self.memory].map(|root| root.join(group).join("cgroup.procs")).to_vec()
    }

    fn reset(&self, group: &Path) -> PathBuf {
        self.peak(group)
    }

    fn oom_counter(&self, group: &Path) -> Option<PathBuf> {
        Some(self.memory.join(group).join("memory.oom_control"))
    }

    fn peak(&self, group: &Path) -> PathBuf {
        self.memory.join(group).join("memory.max_usage_in_bytes")
    }
}
