//! The supervisor process: one thread, one loop over its socket and its children.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ops::ports::NodeHello;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};

use crate::cgroup::Cgroups;
use crate::clock::boot_id;
use crate::devices::Devices;
use crate::sys;
use crate::tasks::Tasks;
use crate::wire::{self, FromNode, ToNode};

/// How a supervisor is set up.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// Its directory: socket, journal, slots, scratch.
    pub dir: PathBuf,
    /// Where device files are; `/dev` but in tests.
    pub devices: PathBuf,
    /// Where the NVIDIA driver tells of its GPUs; `/proc/driver/nvidia/gpus` but in tests.
    pub nvidia: PathBuf,
    /// Most processes and threads of one task.
    pub pids_max: u32,
    /// Nanoseconds after a task's end, from which what is left of it counts as leaked.
    pub leak_after: u64,
    /// Nanoseconds for which the end of a task is not told whose shim had been sent SIGTERM: a
    /// server that stops with the machine must not hear of it. Longer than a server takes to stop.
    pub doubt: u64,
}

impl SupervisorConfig {
    /// The usual settings for a directory.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            devices: PathBuf::from("/dev"),
            nvidia: PathBuf::from("/proc/driver/nvidia/gpus"),
            pids_max: 4_096,
            leak_after: 3_000_000_000,
            doubt: 15_000_000_000,
        }
    }
}

/// Socket of the supervisor of a directory.
pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    dir.join("supervisor.sock")
}

/// Runs the supervisor of a directory until it is killed or, by SIGTERM, told to end. Its jobs go
/// on without it, and a server starts another.
#[expect(clippy::print_stderr, reason = "this is the main function of a process")]
pub fn supervisor_main(config: SupervisorConfig) -> ExitCode {
    match Supervisor::start(config).and_then(Supervisor::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fourplane supervisor: {error}");
            ExitCode::from(125)
        }
    }
}

struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The number of the last report sent, once it has said hello.
    sent: Option<u64>,
}

struct Supervisor {
    tasks: Tasks,
    boot_id: [u8; 16],
    listener: UnixListener,
    signals: OwnedFd,
    connections: Vec<Connection>,
    /// Held as long as this process lives: one supervisor a directory.
    _lock: File,
}

impl Supervisor {
    fn start(mut config: SupervisorConfig) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&config.dir)?;
        config.dir = config.dir.canonicalize()?;
        let dir = &config.dir;
        let lock = lock(dir)?;
        // It may lead its group already, which is as good.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let signals = sys::signals()?;
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir.join("tty"))?;
        let devices = Devices::find(&config.devices, &config.nvidia);
        let cgroups = Cgroups::detect(&cgroup_base(dir), !devices.is_empty());
        // Out of the server's group, which may be killed as a whole.
        if let Err(error) = cgroups.create("supervisor").and_then(|()| cgroups.open("supervisor")?.join()) {
            return Err(io::Error::new(error.kind(), format!("own cgroup: {error}")));
        }
        let boot_id = boot_id()?;
        let socket = socket_path(dir);
        let tasks = Tasks::open(config, boot_id, cgroups, devices)?;
        let listener = listen(&socket)?;
        Ok(Self { tasks, boot_id, listener, signals, connections: Vec::new(), _lock: lock })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            self.tasks.reap();
            let next = self.tasks.look()?;
            if !self.connections.iter().any(|connection| connection.sent.is_some()) {
                self.tasks.sync_ends()?;
            }
            self.send_reports()?;
            if !self.wait(next)? {
                return self.tasks.sync();
            }
            self.accept();
            self.receive()?;
        }
    }

    /// Waits until there is something to do. False if this process was told to end.
    fn wait(&mut self, next: Option<u64>) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(self.tasks.done(), PollFlags::IN),
        ];
        for connection in &self.connections {
            let write = if connection.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), PollFlags::IN | write));
        }
        let timeout = next.map(|at| {
            let left = Duration::from_nanos(at.saturating_sub(sys::boottime()));
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Which children ended is found by waiting for them.
        Ok(!sys::take_signals(&self.signals))
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if is_trusted(&stream) && stream.set_nonblocking(true).is_ok() {
                self.connections.push(Connection {
                    stream,
                    input: Vec::new(),
                    output: Vec::new(),
                    sent: None,
                });
            }
        }
    }

    /// Reads what is there and does it. A connection that fails or speaks nonsense is dropped.
    fn receive(&mut self) -> io::Result<()> {
        let mut position = 0;
        while position < self.connections.len() {
            let open = self.connections[position].fill();
            let input = std::mem::take(&mut self.connections[position].input);
            let mut rest = input.as_slice();
            let mut keep = true;
            while keep {
                match wire::take::<ToNode>(&mut rest) {
                    Ok(Some(message)) => keep = self.take(position, message)?,
                    Ok(None) => break,
                    Err(_) => keep = false,
                }
            }
            let connection = &mut self.connections[position];
            connection.input = rest.to_vec();
            keep &= open && connection.flush();
            if keep {
                position += 1;
            } else {
                self.connections.remove(position);
            }
        }
        // A server that was followed by another says no more.
        let last = self.connections.iter().rposition(|connection| connection.sent.is_some());
        let mut position = 0;
        self.connections.retain(|connection| {
            position += 1;
            connection.sent.is_none() || Some(position - 1) == last
        });
        Ok(())
    }

    /// Does what one message says. False if the sender may say no more.
    fn take(&mut self, position: usize, message: ToNode) -> io::Result<bool> {
        match message {
            ToNode::Hello { epoch, .. } => {
                let answer = if epoch < self.tasks.epoch() {
                    FromNode::Superseded(self.tasks.epoch())
                } else {
                    self.tasks.raise_epoch(epoch)?;
                    for other in &mut self.connections {
                        other.sent = None;
                    }
                    self.connections[position].sent = Some(0);
                    let hello = NodeHello { boot_id: self.boot_id, tasks: self.tasks.ids() };
                    FromNode::Hello { version: wire::VERSION, hello }
                };
                let welcome = matches!(answer, FromNode::Hello { .. });
                wire::put(&answer, &mut self.connections[position].output)?;
                Ok(welcome)
            }
            ToNode::Commands(commands) => {
                if self.connections[position].sent.is_none() {
                    return Ok(false);
                }
                for command in commands {
                    self.tasks.take(command)?;
                }
                Ok(true)
            }
        }
    }

    fn send_reports(&mut self) -> io::Result<()> {
        for connection in &mut self.connections {
            let Some(sent) = connection.sent else { continue };
            let reports = self.tasks.reports_after(sent);
            if let Some(last) = reports.last() {
                connection.sent = Some(last.number);
                wire::put(&FromNode::Reports(reports), &mut connection.output)?;
            }
            // One that cannot be written to is found when it is read.
            connection.flush();
        }
        Ok(())
    }
}

impl Connection {
    /// Reads all that is there. False at the end.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Writes what it takes. False if it is broken.
    fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// One supervisor a directory. A shim that was just forked holds the lock for a moment after
/// its supervisor was killed.
fn lock(dir: &Path) -> io::Result<File> {
    let path = dir.join("supervisor.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    for _ in 0..100 {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(file);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} has a supervisor already", dir.display())))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    // The lock is ours: whoever made this is gone.
    let _ = std::fs::remove_file(path);
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Only its own user and root may command it.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Removes the cgroups of a directory whose supervisor and jobs are gone. Fails while a process
/// is left in one.
pub fn remove_cgroups(dir: &Path) -> io::Result<()> {
    Cgroups::remove_all(&cgroup_base(&dir.canonicalize()?))
}

/// Name of a directory's cgroup: supervisors of two directories never share one.
pub(crate) fn cgroup_base(dir: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let hash =
        dir.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    PathBuf::from(format!("fourplane-{hash:016x}"))
}
