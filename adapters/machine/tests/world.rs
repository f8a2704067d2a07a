//! A supervisor in a directory of its own, and a server's end of its socket.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use facts::{LaunchSpec, Resources, TaskExit};
use fourplane_machine::LocalNode;
use ops::ports::{Node, NodeCommand, NodeEvent, NodeReport, ReportBody, StartTask, TaskId};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use units::{ArrayIndex, AttemptId, Bytes, Cores, Epoch, JobId, MemberId, Rank, Seq};

pub(crate) const UID: u32 = 12_345;
pub(crate) const GID: u32 = 23_456;
const PATIENCE: Duration = Duration::from_secs(20);

/// Says that a test was not run, also where `./dev test` counts.
#[expect(clippy::explicit_write, reason = "the harness swallows what `eprintln` says")]
pub(crate) fn skip(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED {test}: {why}").unwrap();
    if let Some(path) = std::env::var_os("FOURPLANE_SKIPS") {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{test}: {why}\n").as_bytes()).unwrap();
    }
}

/// Whether the test may go on. Says so where it may not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "it needs root");
    }
    root
}

pub(crate) struct World {
    pub(crate) home: TempDir,
    pub(crate) node: LocalNode,
    events: Receiver<NodeEvent>,
    pub(crate) seen: Vec<NodeReport>,
    supervisor: Option<Child>,
    env: Vec<(String, String)>,
    pub(crate) base: String,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_env(&[])
    }

    pub(crate) fn with_env(env: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o777)).unwrap();
        let (sender, events) = channel();
        let node = LocalNode::new(&home.path().join("state"), None, move |event| {
            // The test may be over.
            let _ = sender.send(event);
        });
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut world =
            Self { home, node, events, seen: Vec::new(), supervisor: None, env, base: String::new() };
        world.start_supervisor();
        world.hello(1);
        world
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn supervisor(&self) -> i32 {
        i32::try_from(self.supervisor.as_ref().unwrap().id()).unwrap()
    }

    pub(crate) fn start_supervisor(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_test-supervisor"));
        command.arg("supervisor").arg("--dir").arg(self.state());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let child = command.spawn().unwrap();
        let pid = child.id();
        self.supervisor = Some(child);
        let socket = self.state().join("supervisor.sock");
        until("the supervisor listens", || UnixStream::connect(&socket).ok());
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let own = groups.lines().find_map(|line| line.split(':').nth(2)?.strip_suffix("/supervisor"));
        own.unwrap_or_default().trim_start_matches('/').clone_into(&mut self.base);
    }

    /// Tells the supervisor to end, as a machine that goes down does.
    pub(crate) fn end_supervisor(&mut self) {
        kill(self.supervisor(), Signal::TERM);
        let mut child = self.supervisor.take().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "it ends in order");
    }

    pub(crate) fn kill_supervisor(&mut self) {
        let mut child = self.supervisor.take().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it ran until it was killed");
    }

    pub(crate) fn hello(&mut self, epoch: u64) -> Vec<TaskId> {
        while self.events.try_recv().is_ok() {}
        // A shim that was just forked has the dead supervisor's socket for a moment.
        until("an answer to hello", || self.node.hello(Epoch(epoch)).ok()).tasks
    }

    pub(crate) fn send(&mut self, command: NodeCommand) {
        self.node.send(&[command]).unwrap();
    }

    pub(crate) fn start(&mut self, start: &StartTask) {
        self.send(NodeCommand::Start(Box::new(start.clone())));
    }

    /// Waits for a report for which `pick` gives something.
    pub(crate) fn wait<T>(&mut self, what: &str, pick: impl Fn(&ReportBody) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(NodeEvent::Report(report)) => {
                    let found = pick(&report.body);
                    self.seen.push(report);
                    if let Some(found) = found {
                        return found;
                    }
                }
                Ok(NodeEvent::Lost | NodeEvent::Outside(_)) => {}
                Err(error) => panic!("{what}: {error}; seen: {:#?}", self.seen),
            }
        }
    }

    /// Nothing is reported for a while.
    pub(crate) fn quiet(&mut self) {
        let news = self.events.recv_timeout(Duration::from_millis(300));
        assert!(news.is_err(), "unexpected {news:?}");
    }

    pub(crate) fn ended(&mut self, task: TaskId) -> (TaskExit, Option<u64>) {
        self.wait("an end", |body| match body {
            ReportBody::Ended { task: of, exit, freed, .. } if *of == task => Some((exit.clone(), *freed)),
            _ => None,
        })
    }

    pub(crate) fn running(&mut self, task: TaskId) {
        self.wait("running", |body| {
            matches!(body, ReportBody::Running { task: of, .. } if *of == task).then_some(())
        });
    }

    pub(crate) fn freed(&mut self, task: TaskId) {
        self.wait("freed", |body| {
            matches!(body, ReportBody::Freed { task: of, .. } if *of == task).then_some(())
        });
    }

    /// Runs a task to its end.
    pub(crate) fn run(&mut self, start: &StartTask) -> TaskExit {
        self.start(start);
        self.ended(start.task).0
    }

    /// The task `attempt`, running a shell line as an ordinary user.
    pub(crate) fn shell(&self, attempt: u64, line: &str) -> StartTask {
        self.task(attempt, &["/bin/sh", "-c", line])
    }

    pub(crate) fn task(&self, attempt: u64, argv: &[&str]) -> StartTask {
        let mut nonce = [7; 16];
        nonce[..8].copy_from_slice(&attempt.to_le_bytes());
        let root = rustix::process::geteuid().is_root();
        let (uid, gid) = if root {
            (UID, GID)
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let launch = LaunchSpec {
            uid,
            gid,
            groups: if root { vec![GID, 34_567] } else { Vec::new() },
            argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            script: None,
            cwd: self.home.path().to_str().unwrap().as_bytes().to_vec(),
            env: vec![b"PATH=/usr/bin:/bin".to_vec()],
            umask: 0o022,
            stdout: b"%x-%j.out".to_vec(),
            stderr: None,
            output_max: None,
        };
        StartTask {
            task: TaskId { attempt: AttemptId(attempt), rank: Rank(0) },
            decision: Seq(attempt * 10),
            nonce,
            member: MemberId { job: JobId(attempt), index: ArrayIndex(0) },
            is_array: false,
            name: "job".to_owned(),
            number: 1,
            world_size: 1,
            rendezvous_port: 20_000,
            resources: Resources { cores: Cores(1), memory: Bytes(64 << 20), gpus: 0 },
            devices: Vec::new(),
            terminal: false,
            launch: Arc::new(launch),
            idle: None,
            port: None,
        }
    }

    /// The processes of a slot.
    pub(crate) fn processes(&self, slot: u32) -> Vec<i32> {
        let path = format!("/sys/fs/cgroup/pids/{}/slot-{slot}/cgroup.procs", self.base);
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Waits until a slot's scratch is erased and the slot may be handed on.
    pub(crate) fn erased(&mut self, slot: u32) {
        let scratch = self.state().join(format!("scratch/slot-{slot}"));
        until("scratch is erased", || fs::read_dir(&scratch).unwrap().next().is_none().then_some(()));
        // It is handed on a moment later, when the supervisor hears that the eraser has ended.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// The shim of the only process of a slot whose parent it is.
    pub(crate) fn shim(&self, slot: u32) -> i32 {
        let pid = until("the job runs", || self.processes(slot).first().copied());
        parent(pid)
    }
}

pub(crate) fn parent(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap()
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn change(start: &mut StartTask, change: impl FnOnce(&mut LaunchSpec)) {
    change(Arc::make_mut(&mut start.launch));
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

impl Drop for World {
    /// Leaves no process and no cgroup behind.
    fn drop(&mut self) {
        if let Some(mut child) = self.supervisor.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let cleared = || {
            for slot in fs::read_dir(self.state().join("slots")).into_iter().flatten().enumerate() {
                for pid in self.processes(u32::try_from(slot.0).unwrap()) {
                    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
                }
            }
            fourplane_machine::remove_cgroups(&self.state()).is_ok()
        };
        for _ in 0..200 {
            if cleared() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("cgroups of {} are left behind", self.state().display());
    }
}
