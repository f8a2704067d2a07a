//! What the supervisor knows of each task, and the way from start to proof of free.

mod recover;
mod start;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use facts::TaskExit;
use ops::ports::{NodeCommand, NodeReport, ReportBody, TaskId, never_started};
use rustix::pipe::{PipeFlags, pipe_with};
use units::{Bytes, Epoch};

use crate::cgroup::Cgroups;
use crate::devices::Devices;
use crate::journal::{Entry, Journal, Nonce};
use crate::shim::Done;
use crate::slot::{Slot, Slots};
use crate::supervisor::SupervisorConfig;
use crate::sys;

const MS: u64 = 1_000_000;
/// A task that ends sooner is not reported as running first.
const QUICK: u64 = 20 * MS;
/// Between looks at tasks whose shim is not our child, and at what will not die.
const SLOW_LOOK: u64 = 100 * MS;
/// Between looks at a group that was just killed.
const QUICK_LOOK: u64 = 2 * MS;
/// A shim that has written its exit record and lives so much longer moves output of processes
/// that its job left behind; or, without cgroups, waits for them.
const LINGER: u64 = 50 * MS;
/// Report numbers are reserved so many at a time.
const NUMBERS: u64 = 4_096;

/// Stands for a slot in the record of a task that got none.
const NO_SLOT: u32 = u32::MAX;

/// How a task ended. Times in nanoseconds of `CLOCK_BOOTTIME`.
struct End {
    exit: TaskExit,
    ended: u64,
    cpu: Option<u64>,
    memory_peak: Option<Bytes>,
}

impl End {
    fn now(exit: TaskExit) -> Self {
        Self { exit, ended: sys::boottime(), cpu: None, memory_peak: None }
    }
}

struct Task {
    nonce: Nonce,
    /// Given back when the task is free.
    slot: Option<Slot>,
    /// The journal file that it writes to.
    part: u32,
    /// Its shim is a child of an earlier supervisor, or of nobody.
    adopted: bool,
    /// Its shim is done with it, or gone.
    gone: bool,
    /// Its shim saw that nothing of it is left.
    empty: bool,
    /// The shim has come so far that the user's program may have run.
    may_have_run: bool,
    /// The user's program: process and start.
    began: Option<(i32, u64)>,
    said_running: bool,
    /// Its shim ends it because nobody uses it.
    idle: bool,
    /// Its shim was told to end before it ended.
    going_down: bool,
    /// A signal that came before the program did.
    signal: Option<u8>,
    kill_at: Option<u64>,
    end: Option<End>,
    said_ended: bool,
    emptying_since: Option<u64>,
    said_leaked: bool,
    /// The number of the report that tells that it is free.
    last_report: Option<u64>,
}

impl Task {
    fn new(nonce: Nonce, slot: Option<Slot>, part: u32) -> Self {
        Self {
            nonce,
            slot,
            part,
            adopted: false,
            gone: false,
            empty: false,
            may_have_run: false,
            began: None,
            said_running: false,
            idle: false,
            going_down: false,
            signal: None,
            kill_at: None,
            end: None,
            said_ended: false,
            emptying_since: None,
            said_leaked: false,
            last_report: None,
        }
    }

    /// The name of its cgroup.
    fn group(&self) -> String {
        self.slot.as_ref().map(Slot::group).unwrap_or_default()
    }
}

/// All tasks that the server has not been told all about.
pub(crate) struct Tasks {
    config: SupervisorConfig,
    boot_id: [u8; 16],
    witness: Option<PathBuf>,
    journal: Journal,
    cgroups: Cgroups,
    devices: Devices,
    slots: Slots,
    /// All that the server has not been told all about.
    known: BTreeMap<TaskId, Task>,
    /// Those not proven free.
    live: BTreeSet<TaskId>,
    by_nonce: HashMap<Nonce, TaskId>,
    /// A pipe through which shims say that they are done with a task.
    done: (OwnedFd, OwnedFd),
    epoch: Epoch,
    /// Owed to the server, oldest first.
    reports: VecDeque<NodeReport>,
    next_number: u64,
    numbers: u64,
    unsynced: bool,
}

impl Tasks {
    /// Takes up where an earlier supervisor stopped.
    pub(crate) fn open(
        config: SupervisorConfig,
        boot_id: [u8; 16],
        cgroups: Cgroups,
        devices: Devices,
    ) -> io::Result<Self> {
        let mut tasks = Self {
            boot_id,
            witness: std::env::var_os("FOURPLANE_WITNESS_DIR").map(PathBuf::from),
            journal: Journal::open(&config.dir)?,
            slots: Slots::open(&config.dir)?,
            config,
            cgroups,
            devices,
            known: BTreeMap::new(),
            live: BTreeSet::new(),
            by_nonce: HashMap::new(),
            done: pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?,
            epoch: Epoch(0),
            reports: VecDeque::new(),
            next_number: 1,
            numbers: 0,
            unsynced: false,
        };
        tasks.recover()?;
        Ok(tasks)
    }

    /// Takes in what shims wrote since the last time.
    fn read_facts(&mut self) -> io::Result<()> {
        let mut facts = Vec::new();
        self.journal.read(|_, entry| facts.push(entry))?;
        for fact in facts {
            self.take_fact(fact);
        }
        Ok(())
    }

    fn insert(&mut self, id: TaskId, task: Task) {
        self.by_nonce.insert(task.nonce, id);
        self.live.insert(id);
        self.known.insert(id, task);
    }

    fn forget(&mut self, id: TaskId) {
        if let Some(task) = self.known.remove(&id) {
            self.by_nonce.remove(&task.nonce);
        }
        self.live.remove(&id);
    }

    /// What a shim wrote.
    fn take_fact(&mut self, entry: Entry) {
        let (Entry::Shim { nonce, .. }
        | Entry::Began { nonce, .. }
        | Entry::Exit { nonce, .. }
        | Entry::Failed { nonce, .. }
        | Entry::Idle { nonce }
        | Entry::GoingDown { nonce }) = &entry
        else {
            return;
        };
        let Some(task) = self.by_nonce.get(nonce).and_then(|id| self.known.get_mut(id)) else { return };
        task.may_have_run = true;
        match entry {
            Entry::Began { pid, at, .. } => task.began = Some((pid, at)),
            Entry::Idle { .. } => task.idle = true,
            Entry::GoingDown { .. } => task.going_down = true,
            Entry::Exit { status, oom_kills, ended, cpu, peak, .. } => {
                let exit = if task.idle { TaskExit::IdleLimit } else { classify(status, oom_kills) };
                task.end = Some(End { exit, ended, cpu: Some(cpu), memory_peak: peak.map(Bytes) });
                self.unsynced = true;
            }
            Entry::Failed { step, subject, errno, ended, .. } => {
                let exit = never_started(&step, &subject, errno);
                task.end = Some(End { exit, ended, cpu: None, memory_peak: None });
                self.unsynced = true;
            }
            _ => {}
        }
    }

    /// The highest epoch that ever drove this node.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Remembers a higher epoch.
    pub(crate) fn raise_epoch(&mut self, epoch: Epoch) -> io::Result<()> {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.journal.append(&[self.life()])?;
        }
        Ok(())
    }

    fn life(&self) -> Entry {
        Entry::Life { boot_id: self.boot_id, epoch: self.epoch, numbers: self.numbers }
    }

    fn reserve_numbers(&mut self) -> io::Result<()> {
        self.numbers = self.next_number + NUMBERS;
        self.journal.append(&[self.life()])
    }

    /// Every task that the server has not been told all about.
    pub(crate) fn ids(&self) -> Vec<TaskId> {
        self.known.keys().copied().collect()
    }

    /// Reports above `number`, oldest first.
    pub(crate) fn reports_after(&self, number: u64) -> Vec<NodeReport> {
        let start = self.reports.partition_point(|report| report.number <= number);
        self.reports.range(start..).cloned().collect()
    }

    /// Does what the server says. Only a failing journal is an error.
    pub(crate) fn take(&mut self, command: NodeCommand) -> io::Result<()> {
        match command {
            NodeCommand::Start(start) => self.start(&start),
            NodeCommand::Signal { task, signal } => {
                self.signal(task, signal);
                Ok(())
            }
            NodeCommand::Stop { task, signal, grace } => {
                self.signal(task, signal);
                if let Some(task) = self.known.get_mut(&task) {
                    let at = sys::boottime().saturating_add(grace);
                    task.kill_at = Some(task.kill_at.map_or(at, |earlier| earlier.min(at)));
                }
                Ok(())
            }
            NodeCommand::Acknowledge(number) => self.acknowledge(number),
        }
    }

    /// Signals every process of a task, at once or as soon as it is there.
    fn signal(&mut self, id: TaskId, signal: u8) {
        let Some(task) = self.known.get_mut(&id) else { return };
        if task.end.is_some() {
            return;
        }
        let Some((pid, _)) = task.began else {
            task.signal = Some(signal);
            return;
        };
        let pids = self.cgroups.processes(&task.group()).unwrap_or_default();
        let targets = if self.cgroups.can_prove() { pids } else { vec![-pid] };
        for target in targets {
            if target != 0 {
                // One that has ended meanwhile needs no signal.
                let _ = sys::kill(target, i32::from(signal));
            }
        }
    }

    fn kill(&self, task: &Task) {
        self.cgroups.kill(&task.group());
        if let (false, Some((pid, _)), None) = (self.cgroups.can_prove(), task.began, &task.end) {
            let _ = sys::kill(-pid, libc::SIGKILL);
        }
    }

    fn acknowledge(&mut self, number: u64) -> io::Result<()> {
        let mut done = Vec::new();
        while let Some(report) = self.reports.pop_front_if(|report| report.number <= number) {
            let (ReportBody::Running { task, .. }
            | ReportBody::Ended { task, .. }
            | ReportBody::Freed { task, .. }
            | ReportBody::Leaked { task, .. }) = report.body;
            if self.known.get(&task).is_some_and(|task| task.last_report == Some(report.number)) {
                done.push(Entry::Done { task });
                self.forget(task);
            }
        }
        if done.is_empty() { Ok(()) } else { self.journal.append(&done) }
    }

    /// Readable when a shim is done with a task.
    pub(crate) fn done(&self) -> &OwnedFd {
        &self.done.0
    }

    /// Learns which shims are done with their tasks, and waits for every child that has ended.
    /// Those that we did not fork are orphans of jobs.
    pub(crate) fn reap(&mut self) {
        let mut words = [0; size_of::<Done>() * 64];
        while let Ok(count) = rustix::io::read(&self.done.0, &mut words) {
            let (each, _) = words[..count].as_chunks::<{ size_of::<Done>() }>();
            for (nonce, empty) in each.iter().filter_map(|done| done.split_first_chunk()) {
                if let Some(task) = self.by_nonce.get(nonce).and_then(|id| self.known.get_mut(id)) {
                    (task.gone, task.empty) = (true, *empty == [1]);
                }
            }
            if count < words.len() {
                break;
            }
        }
        while let Some((pid, status)) = sys::wait(-1, false) {
            self.slots.child_ended(pid, status);
            for id in &self.live {
                if let Some(task) = self.known.get_mut(id)
                    && let Some(slot) = &mut task.slot
                    && slot.shim.take_if(|shim| shim.pid == pid).is_some()
                {
                    task.gone = true;
                }
            }
        }
    }

    /// Looks at every task that is not free. Gives the time of the next look, if one is due
    /// without anything else happening.
    pub(crate) fn look(&mut self) -> io::Result<Option<u64>> {
        for id in &self.live {
            if let Some(task) = self.known.get_mut(id)
                && task.adopted
                && !task.gone
            {
                let index = task.slot.as_ref().map_or(0, |slot| slot.index);
                task.gone = self.slots.try_lock(index).is_ok();
            }
        }
        // Read after looking who is gone: what a shim wrote, it wrote before.
        self.read_facts()?;
        let mut next: Option<u64> = None;
        for id in self.live.clone() {
            if let Some(at) = self.look_at(id)? {
                next = Some(next.map_or(at, |earlier| earlier.min(at)));
            }
        }
        if self.journal.is_full() {
            let in_use = self.known.values().map(|task| task.part).collect();
            self.journal.rotate(&self.life(), &in_use)?;
        }
        Ok(next)
    }

    fn look_at(&mut self, id: TaskId) -> io::Result<Option<u64>> {
        let now = sys::boottime();
        let Some(task) = self.known.get_mut(&id) else { return Ok(None) };
        if task.gone && task.end.is_none() {
            let exit = if task.may_have_run {
                TaskExit::Unknown
            } else {
                never_started("start shim", "", libc::EIO)
            };
            task.end = Some(End::now(exit));
        }
        if let Some(end) = &task.end {
            // If the machine goes down it is no end of the job's own, and nobody may hear of it.
            let doubt = if task.going_down { self.config.doubt } else { 0 };
            let due = end.ended + doubt.max(LINGER);
            if now >= due || task.gone && doubt == 0 {
                return self.settle(id, now);
            }
            return Ok(Some(due));
        }
        let mut next = task.adopted.then_some(now + SLOW_LOOK);
        match task.began {
            None => next = Some(now + QUICK),
            Some((_, at)) if !task.said_running => {
                if now < at + QUICK {
                    next = Some(at + QUICK);
                } else {
                    task.said_running = true;
                    self.report(ReportBody::Running { task: id, at })?;
                }
            }
            Some(_) => {}
        }
        Ok([next, self.press(id, now)].into_iter().flatten().min())
    }

    /// Delivers what a running task is owed: a signal that came early, the kill after the grace.
    fn press(&mut self, id: TaskId, now: u64) -> Option<u64> {
        let task = self.known.get_mut(&id)?;
        if task.began.is_some()
            && let Some(signal) = task.signal.take()
        {
            self.signal(id, signal);
        }
        let task = self.known.get_mut(&id)?;
        let at = task.kill_at?;
        if now < at {
            return Some(at);
        }
        task.kill_at = Some(now + SLOW_LOOK);
        let task = self.known.get(&id)?;
        self.kill(task);
        Some(now + SLOW_LOOK)
    }

    /// The program has ended: clears away what it left, and says when nothing is left.
    fn settle(&mut self, id: TaskId, now: u64) -> io::Result<Option<u64>> {
        let Some(task) = self.known.get(&id) else { return Ok(None) };
        if self.is_free(task) {
            return self.free(id, now).map(|()| None);
        }
        self.kill(task);
        let since = task.emptying_since.unwrap_or(now);
        let reason =
            (now - since >= self.config.leak_after && !task.said_leaked).then(|| self.leftovers(task));
        let Some(task) = self.known.get_mut(&id) else { return Ok(None) };
        task.emptying_since = Some(since);
        // Most groups are empty a moment after the kill: one report then tells both.
        if now - since >= LINGER {
            self.say_ended(id, None)?;
        }
        if let Some(reason) = reason {
            self.report(ReportBody::Leaked { task: id, since, reason })?;
            if let Some(task) = self.known.get_mut(&id) {
                task.said_leaked = true;
            }
        }
        Ok(Some(now + if now - since < LINGER { QUICK_LOOK } else { SLOW_LOOK }))
    }

    /// The proof: first no shim at work, nor a child of it that is not yet the job; then an empty
    /// group.
    fn is_free(&self, task: &Task) -> bool {
        let Some(slot) = &task.slot else { return true };
        // A shim that is there still waits for its next task, or is not done with this one.
        let left = if slot.shim.is_some() { task.gone } else { self.slots.try_lock(slot.index).is_ok() };
        if !left {
            return false;
        }
        if self.cgroups.can_prove() {
            return task.empty || self.cgroups.is_empty(&slot.group());
        }
        // The shim waited for all that descended from it, if it came to its end.
        let vanished = matches!(task.end, Some(End { exit: TaskExit::Unknown, .. }));
        !vanished
    }

    fn free(&mut self, id: TaskId, now: u64) -> io::Result<()> {
        self.live.remove(&id);
        let Some(task) = self.known.get_mut(&id) else { return Ok(()) };
        let mut slot = task.slot.take();
        if let (Some(slot), Some(End { exit: TaskExit::StartFailed(_), .. })) = (&mut slot, &task.end) {
            // Perhaps somebody removed its group: the next task has it made again.
            slot.forget();
        }
        // One that the server may have heard of before is told in two parts: it then takes
        // the second even where it knows the first.
        let number = if task.said_ended || task.adopted {
            self.say_ended(id, None)?;
            self.report(ReportBody::Freed { task: id, at: now })?
        } else {
            self.say_ended(id, Some(now))?
        };
        if let Some(task) = self.known.get_mut(&id) {
            task.last_report = Some(number);
        }
        if let Some(slot) = slot {
            self.slots.release(slot);
        }
        Ok(())
    }

    fn say_ended(&mut self, id: TaskId, freed: Option<u64>) -> io::Result<u64> {
        let Some(task) = self.known.get_mut(&id) else { return Ok(0) };
        let (false, Some(end)) = (task.said_ended, &task.end) else { return Ok(0) };
        let body = ReportBody::Ended {
            task: id,
            exit: end.exit.clone(),
            started: task.began.map(|(_, at)| at),
            ended: end.ended,
            freed,
            cpu: end.cpu,
            memory_peak: end.memory_peak,
        };
        task.said_ended = true;
        self.report(body)
    }

    fn report(&mut self, body: ReportBody) -> io::Result<u64> {
        if self.next_number > self.numbers {
            self.reserve_numbers()?;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.reports.push_back(NodeReport { number, body });
        Ok(number)
    }

    /// What is left of a task, in words.
    fn leftovers(&self, task: &Task) -> String {
        let pids = self.cgroups.processes(&task.group()).unwrap_or_default();
        if pids.is_empty() {
            return if self.cgroups.can_prove() {
                "its shim does not end".to_owned()
            } else {
                "its shim vanished, and without cgroups nothing proves that its processes ended".to_owned()
            };
        }
        let each: Vec<String> = pids.iter().take(4).map(|&pid| describe(pid)).collect();
        let more = if pids.len() > 4 { format!(" and {} more", pids.len() - 4) } else { String::new() };
        format!("{}{more}", each.join(", "))
    }

    /// While no server listens, ends are made to survive a power loss by ourselves.
    pub(crate) fn sync_ends(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) { self.sync() } else { Ok(()) }
    }

    /// Makes all that shims wrote survive a power loss.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.journal.sync()
    }
}

/// Tells a kill by the kernel for want of memory from any other. A job that outlives the kill
/// of one of its processes ended as it says.
fn classify(status: i32, oom_kills: u64) -> TaskExit {
    let byte = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
    if status != 0 && oom_kills > 0 {
        TaskExit::OutOfMemory(status)
    } else if libc::WIFSIGNALED(status) {
        TaskExit::Signalled(byte(libc::WTERMSIG(status)))
    } else {
        TaskExit::Exited(byte(libc::WEXITSTATUS(status)))
    }
}

/// A process with its state: what does not die is mostly frozen or stuck in the kernel.
fn describe(pid: i32) -> String {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let status = read("status");
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim();
    let frozen = read("cgroup").lines().any(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let path = words.next().filter(|name| *name == "freezer").and(words.next());
        path.is_some_and(|path| {
            let state = std::fs::read_to_string(format!("/sys/fs/cgroup/freezer{path}/freezer.state"));
            state.is_ok_and(|state| state.trim() != "THAWED")
        })
    });
    let state = if frozen { "frozen by its freezer cgroup" } else { field("State:") };
    format!("process {pid} ({}) is {state}", field("Name:"))
}

/// Where the terminal of a task is served.
pub(crate) fn terminal_path(dir: &Path, task: TaskId) -> PathBuf {
    dir.join(format!("tty/{}-{}.sock", task.attempt.0, task.rank.0))
}
