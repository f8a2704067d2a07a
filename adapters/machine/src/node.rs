//! The server's side: starts the supervisor and talks to it.

use std::fs::OpenOptions;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ops::ports::{Node, NodeCommand, NodeError, NodeEvent, NodeHello};
use units::Epoch;

use crate::supervisor::socket_path;
use crate::sys;
use crate::wire::{self, FromNode, ToNode};

/// Why no supervisor could be started.
#[derive(Debug, thiserror::Error)]
pub enum EnsureError {
    /// The program did not start.
    #[error("starting the supervisor {exe}: {source}", exe = exe.display())]
    Start {
        /// The program.
        exe: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It started and does not answer.
    #[error("the supervisor of {dir} does not answer; see {log}", dir = dir.display(), log = log.display())]
    Silent {
        /// Its directory.
        dir: PathBuf,
        /// What it said.
        log: PathBuf,
    },
}

/// Makes sure that a supervisor of `dir` runs: starts `exe supervisor --dir DIR`, detached and
/// in a session of its own, unless one answers.
pub fn ensure_supervisor(exe: &Path, dir: &Path) -> Result<(), EnsureError> {
    let socket = socket_path(dir);
    if UnixStream::connect(&socket).is_ok() {
        return Ok(());
    }
    let log = dir.join("supervisor.log");
    let start = || -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let output = OpenOptions::new().append(true).create(true).mode(0o600).open(&log)?;
        let mut command = Command::new(exe);
        command.arg("supervisor").arg("--dir").arg(dir).current_dir("/");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        sys::detach(&mut command);
        // What is waited for is only the process between.
        command.spawn()?.wait().map(drop)
    };
    start().map_err(|source| EnsureError::Start { exe: exe.to_owned(), source })?;
    for _ in 0..500 {
        if UnixStream::connect(&socket).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(EnsureError::Silent { dir: dir.to_owned(), log })
}

type OnEvent = Arc<dyn Fn(NodeEvent) + Send + Sync>;

/// This machine as a [`Node`]: a connection to its supervisor, made anew by each hello.
pub struct LocalNode {
    dir: PathBuf,
    exe: Option<PathBuf>,
    on_event: OnEvent,
    connection: Option<Connection>,
}

struct Connection {
    stream: UnixStream,
    /// Of the frames that the supervisor reads.
    version: u16,
    /// Set when it is given up on purpose, so that its end is no news.
    retired: Arc<AtomicBool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.retired.store(true, Ordering::Release);
        // One that is closed already needs no closing.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl LocalNode {
    /// A node whose supervisor keeps `dir`. With `exe`, a hello starts a missing supervisor.
    /// `on_event` is called from a thread of the connection, with reports in order and, when
    /// the connection is gone, one [`NodeEvent::Lost`].
    pub fn new(dir: &Path, exe: Option<&Path>, on_event: impl Fn(NodeEvent) + Send + Sync + 'static) -> Self {
        let exe = exe.map(Path::to_owned);
        Self { dir: dir.to_owned(), exe, on_event: Arc::new(on_event), connection: None }
    }

    fn connect(&self, epoch: Epoch) -> Result<(UnixStream, u16, NodeHello), NodeError> {
        if let Some(exe) = &self.exe {
            ensure_supervisor(exe, &self.dir).map_err(|error| self.unreachable(io::Error::other(error)))?;
        }
        let exchange = || -> io::Result<(UnixStream, FromNode)> {
            let mut stream = UnixStream::connect(socket_path(&self.dir))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            wire::send(&mut stream, &ToNode::Hello { version: wire::VERSION, epoch })?;
            let answer = wire::receive(&mut stream)?;
            stream.set_read_timeout(None)?;
            Ok((stream, answer))
        };
        match exchange().map_err(|source| self.unreachable(source))? {
            (stream, FromNode::Hello { version, hello }) => Ok((stream, version, hello)),
            (_, FromNode::Superseded(newer)) => Err(NodeError::Superseded(newer)),
            (_, FromNode::Reports(_)) => {
                Err(self.unreachable(io::Error::new(io::ErrorKind::InvalidData, "no hello")))
            }
        }
    }

    fn unreachable(&self, source: io::Error) -> NodeError {
        NodeError::Unreachable { path: socket_path(&self.dir).display().to_string(), source }
    }
}

impl Node for LocalNode {
    fn hello(&mut self, epoch: Epoch) -> Result<NodeHello, NodeError> {
        self.connection = None;
        let (stream, version, hello) = self.connect(epoch)?;
        let retired = Arc::new(AtomicBool::new(false));
        let reader = stream.try_clone().map_err(|source| self.unreachable(source))?;
        let (on_event, flag) = (Arc::clone(&self.on_event), Arc::clone(&retired));
        std::thread::Builder::new()
            .name("node-reports".to_owned())
            .spawn(move || read_reports(reader, &on_event, &flag))
            .map_err(|source| self.unreachable(source))?;
        self.connection = Some(Connection { stream, version, retired });
        Ok(hello)
    }

    fn send(&mut self, commands: &[NodeCommand]) -> Result<(), NodeError> {
        let sent = match &mut self.connection {
            None => Err(io::ErrorKind::NotConnected.into()),
            Some(connection) => {
                let together = if connection.version < 2 { 1 } else { commands.len().max(1) };
                let mut frames = commands.chunks(together).map(|part| ToNode::Commands(part.to_vec()));
                frames.try_for_each(|frame| wire::send(&mut connection.stream, &frame)).inspect_err(|_| {
                    // Its reader tells of the loss.
                    let _ = connection.stream.shutdown(Shutdown::Both);
                })
            }
        };
        sent.map_err(|source| self.unreachable(source))
    }
}

fn read_reports(stream: UnixStream, on_event: &OnEvent, retired: &AtomicBool) {
    let mut stream = BufReader::new(stream);
    while let Ok(FromNode::Reports(reports)) = wire::receive(&mut stream) {
        for report in reports {
            on_event(NodeEvent::Report(report));
        }
    }
    if !retired.load(Ordering::Acquire) {
        on_event(NodeEvent::Lost);
    }
}
