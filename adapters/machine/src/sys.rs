//! The system calls that no safe wrapper offers. All unsafe code of the project is here.
#![expect(unsafe_code, reason = "fork, exec and identity changes have no safe form")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::time::{ClockId, clock_gettime};

/// Which side of a fork this is.
pub(crate) enum Fork {
    Child,
    Parent(libc::pid_t),
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks. Only for a process that never starts a thread.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the supervisor and its shims have one thread, so the child sees no lock held.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Runs `child` in a process that shares this one's memory, on a stack of its own, while this one
/// waits; goes on when that process has executed a program or ended. Nothing is copied, so it costs
/// a fraction of a fork. What `child` allocates and does not give back stays allocated here.
pub(crate) fn spawn(stack: &mut [u128], child: &mut dyn FnMut()) -> io::Result<libc::pid_t> {
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `spawn` gives a pointer to its own `child` and waits while this runs.
        let child = unsafe { &mut *argument.cast::<&mut dyn FnMut()>() };
        // A panic must not unwind out of this stack.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        exit_now(127)
    }
    let mut child = child;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = (&raw mut child).cast();
    // SAFETY: the child runs on memory that is only its own, which is aligned for every machine,
    // and shares all other with one thread, which is suspended. It never returns.
    check(unsafe { libc::clone(enter, stack.as_mut_ptr_range().end.cast(), flags, argument) })
}

/// Ends this process at once: no destructors, no buffers of the process it was forked from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any value and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for `pid`, or any child for -1. None if `block` is false and none has ended, or there
/// is no such child.
pub(crate) fn wait(pid: libc::pid_t, block: bool) -> Option<(libc::pid_t, i32)> {
    let mut status = 0;
    let options = if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` lives over the call.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, options) };
        if ended > 0 {
            return Some((ended, status));
        }
        if ended == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Becomes another user for good. Without privileges it succeeds only for the user's own ids.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), (&'static str, io::Error)> {
    // SAFETY: `groups` points to as many group ids as its length says; the rest takes integers.
    unsafe {
        if libc::geteuid() == 0 {
            check(libc::setgroups(groups.len(), groups.as_ptr())).map_err(|error| ("setgroups", error))?;
        }
        check(libc::setresgid(gid, gid, gid)).map_err(|error| ("setgid", error))?;
        check(libc::setresuid(uid, uid, uid)).map_err(|error| ("setuid", error))?;
    }
    Ok(())
}

/// Strings as `execve` takes them.
pub(crate) struct Strings {
    pointers: Vec<*const libc::c_char>,
    _owners: Vec<CString>,
}

impl Strings {
    pub(crate) fn new(owners: Vec<CString>) -> Self {
        let pointers = owners.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Self { pointers, _owners: owners }
    }
}

/// Replaces this process by `path`; returns only the error.
pub(crate) fn exec(path: &CStr, argv: &Strings, env: &Strings) -> io::Error {
    // SAFETY: both lists end by a null pointer and own what they point to.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Closes every descriptor from 3 on but those of `keep`.
pub(crate) fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut first: libc::c_uint = 3;
    let close = |from: libc::c_uint, to: libc::c_uint| {
        if from <= to {
            // SAFETY: only called right after a fork, in code that uses only what it keeps.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    };
    for &fd in keep.iter() {
        let fd = fd.unsigned_abs();
        if fd >= first {
            close(first, fd.saturating_sub(1));
            first = fd + 1;
        }
    }
    close(first, libc::c_uint::MAX);
}

/// Blocks SIGCHLD and SIGTERM and gives a non-blocking descriptor that is readable when one is
/// pending.
pub(crate) fn signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before use and the descriptor is owned by nobody else.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
        let fd = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Empties a descriptor of [`signals`]. Whether SIGTERM was among them.
pub(crate) fn take_signals(signals: &OwnedFd) -> bool {
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    let mut told_to_end = false;
    let mut buffer = [0; SIZE * 8];
    while let Ok(count) = rustix::io::read(signals, &mut buffer) {
        let (each, _) = buffer[..count].as_chunks::<SIZE>();
        // A record begins with the signal's number.
        told_to_end |= each.iter().any(|one| one.starts_with(&libc::SIGTERM.to_ne_bytes()));
    }
    told_to_end
}

/// Whether this process, which blocks SIGTERM, was sent one since it was last asked.
pub(crate) fn was_told_to_end() -> bool {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set is initialised before use; no information on the signal is asked for.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now) == libc::SIGTERM
    }
}

/// Blocks every signal that can be blocked.
pub(crate) fn block_signals() {
    // SAFETY: the set is filled before use.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Gives a job the signal handling that a login would: nothing blocked, nothing ignored.
pub(crate) fn reset_signals() {
    // SAFETY: default dispositions and an empty mask are valid in any process.
    unsafe {
        for signal in 1..=31 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Sends a signal to a process, or to a group where `pid` is negative.
pub(crate) fn kill(pid: libc::pid_t, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` takes integers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// CPU time of all waited-for descendants, in nanoseconds.
pub(crate) fn children_cpu() -> u64 {
    // SAFETY: an all-zero `rusage` is valid and lives over the call.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let nanos =
        |time: libc::timeval| u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000).unwrap_or(0);
    nanos(usage.ru_utime) + nanos(usage.ru_stime)
}

/// `CLOCK_BOOTTIME` in nanoseconds.
pub(crate) fn boottime() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// Whether the kernel counts the wall clock as synchronised, and the largest error that it admits in
/// microseconds.
pub(crate) fn clock_state() -> io::Result<(bool, u64)> {
    // SAFETY: an all-zero `timex` asks and changes nothing; it lives over the call.
    let (state, told) = unsafe {
        let mut told = std::mem::zeroed::<libc::timex>();
        (libc::adjtimex(&raw mut told), told)
    };
    check(state)?;
    Ok((
        state != libc::TIME_ERROR && told.status & libc::STA_UNSYNC == 0,
        u64::try_from(told.maxerror).unwrap_or(0),
    ))
}

/// Makes `command` start in a session of its own, as a child of nobody here.
pub(crate) fn detach(command: &mut Command) {
    let leave = || {
        rustix::process::setsid()?;
        match fork()? {
            Fork::Child => Ok(()),
            Fork::Parent(_) => exit_now(0),
        }
    };
    // SAFETY: between fork and exec it only makes system calls.
    unsafe { command.pre_exec(leave) };
}

/// Device number of a device file as (major, minor).
pub(crate) fn device_numbers(rdev: u64) -> (u32, u32) {
    (libc::major(rdev), libc::minor(rdev))
}

/// `bpf(2)`. The kernel reads no more of `attributes` than it is long.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: `attributes` is a `repr(C)` beginning of the call's union, without padding, and
    // lives over the call, as does what it points to.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    check(libc::c_int::try_from(result).unwrap_or(-1))
}

/// Hands a program for `BPF_PROG_TYPE_CGROUP_DEVICE` to the kernel, which checks it.
pub(crate) fn load_device_program(instructions: &[u64]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
    }
    const PROG_LOAD: libc::c_int = 5;
    const CGROUP_DEVICE: u32 = 15;
    let load = Load {
        kind: CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: c"".as_ptr().expose_provenance() as u64,
    };
    let fd = bpf(PROG_LOAD, &load)?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What `BPF_PROG_ATTACH` and `BPF_PROG_DETACH` take.
#[repr(C)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// `BPF_CGROUP_DEVICE`
const ATTACH_DEVICE: u32 = 6;

/// Attaches a program to a v2 cgroup, in place of the one that was attached by this.
pub(crate) fn attach_device_program(group: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    const PROG_ATTACH: libc::c_int = 8;
    let (group, program) = (group.as_raw_fd().unsigned_abs(), program.as_raw_fd().unsigned_abs());
    bpf(PROG_ATTACH, &Attach { group, program, kind: ATTACH_DEVICE, flags: 0 }).map(drop)
}

/// Takes the program off again.
pub(crate) fn detach_device_program(group: BorrowedFd<'_>) -> io::Result<()> {
    const PROG_DETACH: libc::c_int = 9;
    let group = group.as_raw_fd().unsigned_abs();
    bpf(PROG_DETACH, &Attach { group, program: 0, kind: ATTACH_DEVICE, flags: 0 }).map(drop)
}
