//! The shim: one small process per slot, forked without exec from the supervisor. It keeps
//! its privileges, so that the job's user cannot kill it. For one task after another it starts the
//! job's process, waits for it and appends one exit record. It outlives the supervisor until its
//! task is over.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ops::ports::StartTask;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::cgroup::{Cgroups, Group};
use crate::idle::Idle;
use crate::job::{Failure, Image, JOIN, become_job};
use crate::journal::{self, Entry, Nonce};
use crate::output::{self, Pump};
use crate::slot::tidy;
use crate::tasks::terminal_path;
use crate::{sys, wire};

/// Bytes of stack on which a process becomes a job.
const STACK: usize = 256 << 10;

/// What a shim works with, apart from the task itself.
pub(crate) struct Plan<'a> {
    /// The supervisor's directory.
    pub(crate) dir: &'a Path,
    pub(crate) journal: File,
    /// The slot's lock: held as long as this process, or a child that is not yet the job, lives.
    pub(crate) lock: &'a File,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) group: &'a str,
    pub(crate) scratch: PathBuf,
    pub(crate) witness: Option<&'a Path>,
}

/// The shim's ends of what it talks to the supervisor by.
pub(crate) struct Line {
    /// Brings tasks, each with the number of the journal's file that it writes to.
    pub(crate) tasks: UnixStream,
    /// Takes a [`Done`] for each task.
    pub(crate) done: OwnedFd,
}

/// A shim is done with a task: its nonce, and 1 if nothing lives in its group any more.
pub(crate) type Done = [u8; size_of::<Nonce>() + 1];

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

/// How a job's output reaches its files. Pipes, and the socket over which the job's process
/// hands over the files that it opened, are (ours, the job's).
pub(crate) enum Streams {
    /// Written by the job itself.
    Direct,
    /// Through the shim, which stops at a limit.
    Piped { out: (OwnedFd, OwnedFd), err: Option<(OwnedFd, OwnedFd)>, files: (OwnedFd, OwnedFd) },
    /// A terminal, served and recorded by the shim.
    Terminal { master: OwnedFd, user: OwnedFd, files: (OwnedFd, OwnedFd) },
}

impl Streams {
    fn open(start: &StartTask) -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let files = || {
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        };
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
            Ok(Self::Terminal { master, user, files: files()? })
        } else if start.launch.output_max.is_some() {
            let err = if start.launch.stderr.is_some() { Some(pipe()?) } else { None };
            Ok(Self::Piped { out: pipe()?, err, files: files()? })
        } else {
            Ok(Self::Direct)
        }
    }
}

/// Runs the tasks that come, one after another, until the supervisor is gone. Ends this process.
pub(crate) fn serve(mut plan: Plan<'_>, mut line: Line, mut part: u32) -> ! {
    sys::block_signals();
    let kept =
        [plan.journal.as_raw_fd(), plan.lock.as_raw_fd(), line.tasks.as_raw_fd(), line.done.as_raw_fd()];
    sys::close_all_but(&mut kept.clone());
    // Its own session keeps it clear of signals to the supervisor's group.
    let _ = rustix::process::setsid();
    // Without cgroups, what the job leaves behind must come back to this process.
    let _ = rustix::process::set_child_subreaper((!plan.cgroups.can_prove()).then(rustix::process::getpid));
    let mut group = None;
    let mut stack = vec![0; STACK / size_of::<u128>()];
    let mut turn = |(number, start): (u32, StartTask)| -> io::Result<()> {
        if number != part {
            (part, plan.journal) = (number, journal::open(plan.dir, number)?);
        }
        run(&start, &plan, &mut group, &mut stack)?;
        // No more enters it: what would is dead or the job.
        let empty = group.as_ref().is_some_and(Group::is_empty);
        if empty {
            tidy(&plan.scratch);
        }
        let mut done: Done = [u8::from(empty); _];
        done[..start.nonce.len()].copy_from_slice(&start.nonce);
        rustix::io::write(&line.done, &done)?;
        // It would be told to end before the next task's end too.
        if sys::was_told_to_end() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    };
    loop {
        if wire::receive(&mut line.tasks).and_then(&mut turn).is_err() {
            sys::exit_now(0);
        }
    }
}

/// Runs one task to its end. `group` is the slot's, if a task before opened it.
fn run(start: &StartTask, plan: &Plan<'_>, group: &mut Option<Group>, stack: &mut [u128]) -> io::Result<()> {
    let up = Entry::Shim { nonce: start.nonce, pid: rustix::process::getpid().as_raw_nonzero().get() };
    // Without this record nothing may run: it would be taken for never started.
    journal::append(&plan.journal, &[up])?;
    let streams = match Streams::open(start) {
        Ok(streams) => streams,
        Err(error) => return fail(start, plan, "prepare streams", "", &error),
    };
    // One that failed may have been removed: it is opened again.
    let kept = group.take();
    let open = match kept.map_or_else(|| plan.cgroups.open(plan.group), Ok) {
        Ok(open) => open,
        Err(error) => return fail(start, plan, JOIN, plan.group, &error),
    };
    open.reset();
    let before = Counters::read(&open);
    let mut failure = None;
    let spawned = match Image::new(start, plan) {
        Ok(image) => {
            let mut become_job = || failure = Some(become_job(start, plan, &open, &streams, &image));
            sys::spawn(stack, &mut become_job)
        }
        Err(failure) => return fail_to_become(start, plan, &failure),
    };
    let pid = match spawned {
        Ok(pid) => pid,
        Err(error) => return fail(start, plan, "fork", "", &error),
    };
    if let Some(failure) = failure {
        sys::wait(pid, true);
        return fail_to_become(start, plan, &failure);
    }
    let at = sys::boottime();
    journal::append(&plan.journal, &[Entry::Began { nonce: start.nonce, pid, at }])?;
    let open = group.insert(open);
    let ended = |status| record_exit(start, plan, open, at, status, &before);
    match Pump::new(start, streams, &terminal_path(plan.dir, start.task))? {
        None => ended(sys::wait(pid, true).map_or(0, |(_, status)| status))?,
        Some(pump) => pump.run(pid, Idle::new(start, plan), ended)?,
    }
    if !plan.cgroups.can_prove() {
        reap_descendants();
    }
    Ok(())
}

fn fail_to_become(start: &StartTask, plan: &Plan<'_>, failure: &Failure) -> io::Result<()> {
    fail(start, plan, failure.step, &failure.subject, &io::Error::from_raw_os_error(failure.errno))
}

fn fail(start: &StartTask, plan: &Plan<'_>, step: &str, subject: &str, error: &io::Error) -> io::Result<()> {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let entry = Entry::failed(start.nonce, step, subject, errno, sys::boottime());
    journal::append(&plan.journal, &[entry])
}

/// What the slot's group and this process had counted before this task.
struct Counters {
    oom_kills: u64,
    peak: Option<u64>,
    cpu: u64,
}

impl Counters {
    fn read(group: &Group) -> Self {
        Self {
            oom_kills: group.oom_kills().unwrap_or(0),
            peak: group.memory_peak(),
            cpu: sys::children_cpu(),
        }
    }
}

fn record_exit(
    start: &StartTask,
    plan: &Plan<'_>,
    group: &Group,
    started: u64,
    status: i32,
    before: &Counters,
) -> io::Result<()> {
    let after = Counters::read(group);
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
        cpu: after.cpu.saturating_sub(before.cpu),
        peak,
    };
    let entries: Vec<Entry> = told.into_iter().chain([exit]).collect();
    journal::append(&plan.journal, &entries)
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
    /// Closes the job's ends, which would keep ours from ever reading an end of file. Gives ours,
    /// each with the file that its output goes to.
    pub(crate) fn into_ours(self) -> io::Result<Vec<(OwnedFd, OwnedFd)>> {
        let (sources, files) = match self {
            Self::Direct => return Ok(Vec::new()),
            Self::Piped { out, err, files } => (vec![Some(out.0), err.map(|(ours, _)| ours)], files.0),
            Self::Terminal { master, files, .. } => (vec![Some(master)], files.0),
        };
        Ok(sources.into_iter().flatten().zip(output::take_over(&files)?).collect())
    }
}
