//! The shim: one small process per task, forked without exec from the supervisor. It keeps
//! its privileges, so that the job's user cannot kill it; it starts the job's process, waits
//! for it and appends one exit record. It outlives the supervisor.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use ops::ports::StartTask;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::cgroup::Cgroups;
use crate::idle::Idle;
use crate::job::{Failure, become_job};
use crate::journal::{self, Entry};
use crate::output::{self, Pump};
use crate::sys::{self, Fork};

/// What a shim works with, apart from the task itself.
pub(crate) struct Plan<'a> {
    pub(crate) journal: &'a File,
    /// The slot's lock: held as long as this process, or a child that is not yet the job, lives.
    pub(crate) lock: &'a File,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) group: &'a str,
    pub(crate) scratch: PathBuf,
    /// Where a terminal is served.
    pub(crate) terminal: PathBuf,
    pub(crate) witness: Option<&'a Path>,
}

impl Plan<'_> {
    /// Signals every process of the job whose first process is `pid`.
    pub(crate) fn signal(&self, pid: i32, signal: i32) {
        let targets = if self.cgroups.can_prove() {
            self.cgroups.processes(self.group).unwrap_or_default()
        } else {
            vec![-pid]
        };
        for target in targets.into_iter().filter(|target| *target != 0) {
            // One that has ended meanwhile needs no signal.
            let _ = sys::kill(target, signal);
        }
    }

    /// Kills them.
    pub(crate) fn kill(&self, pid: i32) {
        self.cgroups.kill(self.group);
        if !self.cgroups.can_prove() {
            let _ = sys::kill(-pid, libc::SIGKILL);
        }
    }
}

/// How a job's output reaches its files. Pipes are (ours, the job's).
pub(crate) enum Streams {
    /// Written by the job itself.
    Direct,
    /// Through the shim, which stops at a limit.
    Piped { out: (OwnedFd, OwnedFd), err: Option<(OwnedFd, OwnedFd)> },
    /// A terminal, served and recorded by the shim.
    Terminal { master: OwnedFd, user: OwnedFd },
}

impl Streams {
    fn open(start: &StartTask) -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        if start.terminal {
            let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            grantpt(&master)?;
            unlockpt(&master)?;
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let user = ioctl_tiocgptpeer(&master, flags)?;
            if rustix::process::geteuid().is_root() {
                let owner = rustix::fs::Uid::from_raw(start.launch.uid);
                rustix::fs::fchown(&user, Some(owner), None)?;
            }
            Ok(Self::Terminal { master, user })
        } else if start.launch.output_max.is_some() {
            let err = if start.launch.stderr.is_some() { Some(pipe()?) } else { None };
            Ok(Self::Piped { out: pipe()?, err })
        } else {
            Ok(Self::Direct)
        }
    }
}

/// Runs a task to its end, then ends this process.
pub(crate) fn run(start: &StartTask, plan: &Plan<'_>) -> ! {
    sys::block_signals();
    sys::close_all_but(&mut [plan.journal.as_raw_fd(), plan.lock.as_raw_fd()]);
    // Its own session keeps it clear of signals to the supervisor's group.
    let _ = rustix::process::setsid();
    // Without cgroups, what the job leaves behind must come back to this process.
    let _ = rustix::process::set_child_subreaper((!plan.cgroups.can_prove()).then(rustix::process::getpid));
    let up = Entry::Shim { nonce: start.nonce, pid: rustix::process::getpid().as_raw_nonzero().get() };
    // Without this record nothing may run: it would be taken for never started.
    let done = journal::append(plan.journal, &[up]).and_then(|()| supervise(start, plan));
    sys::exit_now(i32::from(done.is_err()));
}

fn supervise(start: &StartTask, plan: &Plan<'_>) -> io::Result<()> {
    let (streams, status, job_status) = match prepare(start) {
        Ok(prepared) => prepared,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return fail(start, plan, "prepare streams", "", errno);
        }
    };
    let before = Counters::read(plan);
    let pid = match sys::fork() {
        Ok(Fork::Child) => {
            let failure = become_job(start, plan, &streams, &job_status);
            if let Ok(bytes) = postcard::to_stdvec(&failure) {
                let _ = rustix::net::send(&job_status, &bytes, rustix::net::SendFlags::empty());
            }
            sys::exit_now(127)
        }
        Ok(Fork::Parent(pid)) => pid,
        Err(error) => return fail(start, plan, "fork", "", error.raw_os_error().unwrap_or(libc::EAGAIN)),
    };
    drop(job_status);
    let (failure, files) = output::await_start(&status)?;
    if let Some(Failure { step, subject, errno }) = failure {
        sys::wait(pid, true);
        return fail(start, plan, &step, &subject, errno);
    }
    let at = sys::boottime();
    journal::append(plan.journal, &[Entry::Began { nonce: start.nonce, pid, at }])?;
    let pump = Pump::new(start, streams, files, &plan.terminal);
    let ended = |status| record_exit(start, plan, at, status, &before);
    match pump {
        None => ended(sys::wait(pid, true).map_or(0, |(_, status)| status))?,
        Some(pump) => pump.run(pid, Idle::new(start, plan), ended)?,
    }
    if !plan.cgroups.can_prove() {
        reap_descendants();
    }
    Ok(())
}

fn prepare(start: &StartTask) -> io::Result<(Streams, OwnedFd, OwnedFd)> {
    let streams = Streams::open(start)?;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((streams, ours, theirs))
}

fn fail(start: &StartTask, plan: &Plan<'_>, step: &str, subject: &str, errno: i32) -> io::Result<()> {
    let entry = Entry::failed(start.nonce, step, subject, errno, sys::boottime());
    journal::append(plan.journal, &[entry])
}

/// What the slot's group had counted before this task.
struct Counters {
    oom_kills: u64,
    peak: Option<u64>,
}

impl Counters {
    fn read(plan: &Plan<'_>) -> Self {
        Self {
            oom_kills: plan.cgroups.oom_kills(plan.group).unwrap_or(0),
            peak: plan.cgroups.memory_peak(plan.group),
        }
    }
}

fn record_exit(
    start: &StartTask,
    plan: &Plan<'_>,
    started: u64,
    status: i32,
    before: &Counters,
) -> io::Result<()> {
    let after = Counters::read(plan);
    // A mark that did not rise may be an earlier task's: absent is not known.
    let peak = after.peak.filter(|_| after.peak > before.peak);
    // A machine that goes down tells all processes at once: this one knew before its job ended.
    let told = sys::was_told_to_end().then_some(Entry::GoingDown { nonce: start.nonce });
    let exit = Entry::Exit {
        nonce: start.nonce,
        status,
        oom_kills: after.oom_kills.saturating_sub(before.oom_kills),
        started,
        ended: sys::boottime(),
        cpu: sys::children_cpu(),
        peak,
    };
    let entries: Vec<Entry> = told.into_iter().chain([exit]).collect();
    journal::append(plan.journal, &entries)
}

/// Kills and waits for all that the job left behind, which as a subreaper this process
/// inherits. When it returns, nothing of the job is left.
fn reap_descendants() {
    let path = format!("/proc/self/task/{}/children", rustix::process::getpid().as_raw_nonzero());
    loop {
        let children = std::fs::read_to_string(&path).unwrap_or_default();
        let mut left = false;
        for pid in children.split_whitespace().filter_map(|word| word.parse().ok()) {
            let _ = sys::kill(pid, libc::SIGKILL);
            left = true;
        }
        if !left {
            return;
        }
        sys::wait(-1, true);
    }
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn end_of(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

impl Streams {
    /// Closes the job's ends, which would keep ours from ever reading an end of file.
    pub(crate) fn into_ours(self) -> Vec<OwnedFd> {
        match self {
            Self::Direct => Vec::new(),
            Self::Piped { out, err } => {
                [Some(out.0), err.map(|(ours, _)| ours)].into_iter().flatten().collect()
            }
            Self::Terminal { master, .. } => vec![master],
        }
    }
}
