//! Output that passes through the shim: cut at a limit, or a terminal that is recorded and
//! served to whoever attaches.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use ops::ports::StartTask;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::idle::Idle;
use crate::shim::{Streams, end_of};

/// So much of a terminal's output is shown to one who attaches.
const SCROLLBACK: usize = 64 << 10;
/// An attached client that is so far behind is dropped; it may attach again.
const BEHIND_MAX: usize = 1 << 20;

/// Sends open files to the other end of a socket.
pub(crate) fn hand_over(socket: &OwnedFd, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(socket, &[IoSlice::new(b"")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// The files that were handed over, if any were.
pub(crate) fn take_over(socket: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    match recvmsg(socket, &mut [IoSliceMut::new(&mut [])], &mut control, flags) {
        Err(rustix::io::Errno::AGAIN) => return Ok(Vec::new()),
        received => received.map(drop)?,
    }
    let files = |part| if let RecvAncillaryMessage::ScmRights(files) = part { Some(files) } else { None };
    Ok(control.drain().filter_map(files).flatten().collect())
}

/// One source of output and the file that it goes to.
struct Flow {
    source: OwnedFd,
    file: File,
    /// Bytes that may still be written.
    left: u64,
    /// Whether the file says that it was cut.
    told: bool,
}

impl Flow {
    /// Moves what is there. Gives it, or nothing at the end.
    fn step<'a>(&mut self, buffer: &'a mut [u8]) -> &'a [u8] {
        // A terminal that its last process has left reads as an error.
        let count = rustix::io::read(&self.source, &mut *buffer).unwrap_or(0);
        let chunk = &buffer[..count];
        let allowed = usize::try_from(self.left).unwrap_or(usize::MAX).min(count);
        self.left -= allowed as u64;
        // A full disk must not stop the job.
        let _ = self.file.write_all(&chunk[..allowed]);
        if allowed < count && !self.told {
            self.told = true;
            let _ = self.file.write_all(b"\n--- fourplane: output limit reached, the rest is dropped ---\n");
        }
        chunk
    }
}

/// Moves a job's output until its last writer is gone.
pub(crate) struct Pump {
    flows: Vec<Flow>,
    terminal: Option<Terminal>,
}

impl Pump {
    /// None where the job writes its files itself.
    pub(crate) fn new(start: &StartTask, streams: Streams, terminal: &Path) -> io::Result<Option<Self>> {
        if matches!(streams, Streams::Direct) {
            return Ok(None);
        }
        let left = start.launch.output_max.map_or(u64::MAX, |bytes| bytes.0);
        let flow = |(source, file)| Flow { source, file: File::from(file), left, told: false };
        let flows = streams.into_ours()?.into_iter().map(flow).collect();
        let terminal = start.terminal.then(|| Terminal::serve(terminal, start.launch.uid).ok()).flatten();
        Ok(Some(Self { flows, terminal }))
    }

    /// Runs to the end of all output. `ended` is called with the wait status when `pid` ends.
    pub(crate) fn run(
        mut self,
        pid: i32,
        mut idle: Option<Idle<'_>>,
        ended: impl FnOnce(i32) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = end_of(pid)?;
        let mut ended = Some(ended);
        let mut buffer = vec![0; 64 << 10];
        while ended.is_some() || !self.flows.is_empty() {
            let patience = idle.as_mut().filter(|_| ended.is_some()).map(|idle| idle.press(pid));
            let ready = self.wait(ended.is_some().then_some(&end), patience)?;
            if ready.end
                && let Some(ended) = ended.take()
            {
                ended(crate::sys::wait(pid, true).map_or(0, |(_, status)| status))?;
            }
            let mut used = false;
            let mut position = 0;
            for readable in ready.flows {
                if readable {
                    let chunk = self.flows[position].step(&mut buffer);
                    if chunk.is_empty() {
                        self.flows.remove(position);
                        continue;
                    }
                    used = true;
                    if let Some(terminal) = &mut self.terminal {
                        terminal.show(chunk);
                    }
                }
                position += 1;
            }
            if let (Some(terminal), Some(flow)) = (&mut self.terminal, self.flows.first()) {
                used |= terminal.serve_clients(&flow.source);
            }
            if let (Some(idle), true) = (&mut idle, used) {
                idle.used();
            }
        }
        Ok(())
    }

    /// Waits for any of it, at most so many nanoseconds.
    fn wait(&self, end: Option<&OwnedFd>, patience: Option<u64>) -> io::Result<Ready> {
        let patience = patience.map(|nanos| Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        });
        let mut fds: Vec<PollFd<'_>> =
            self.flows.iter().map(|flow| PollFd::new(&flow.source, PollFlags::IN)).collect();
        fds.extend(end.map(|end| PollFd::new(end, PollFlags::IN)));
        if let Some(terminal) = &self.terminal {
            fds.push(PollFd::new(&terminal.listener, PollFlags::IN));
            for client in &terminal.clients {
                let write = if client.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                fds.push(PollFd::new(&client.stream, PollFlags::IN | write));
            }
        }
        loop {
            match poll(&mut fds, patience.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result.map(drop)?,
            }
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let count = self.flows.len();
        Ok(Ready {
            flows: fds[..count].iter().map(ready).collect(),
            end: end.is_some() && fds.get(count).is_some_and(ready),
        })
    }
}

struct Ready {
    flows: Vec<bool>,
    end: bool,
}

/// Serves a terminal on a socket. To the client go raw bytes; from it come frames of a kind
/// byte, a length (u16, little endian) and a body: 0 is input, 1 is a size (rows and columns,
/// u16 each).
struct Terminal {
    path: PathBuf,
    listener: UnixListener,
    clients: Vec<Client>,
    scrollback: VecDeque<u8>,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    pending: VecDeque<u8>,
}

impl Terminal {
    fn serve(path: &Path, uid: u32) -> io::Result<Self> {
        // Left by a supervisor before a restart of the machine.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(uid), None)?;
        }
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), listener, clients: Vec::new(), scrollback: VecDeque::new() })
    }

    /// Keeps output for later and shows it to all that are attached.
    fn show(&mut self, chunk: &[u8]) {
        self.scrollback.extend(chunk);
        let excess = self.scrollback.len().saturating_sub(SCROLLBACK);
        self.scrollback.drain(..excess);
        for client in &mut self.clients {
            client.pending.extend(chunk);
        }
    }

    /// Takes new clients and their input; writes what they can take. Whether anything was typed.
    fn serve_clients(&mut self, master: &OwnedFd) -> bool {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                let pending = self.scrollback.clone();
                self.clients.push(Client { stream, input: Vec::new(), pending });
            }
        }
        let mut typed = false;
        self.clients.retain_mut(|client| client.step(master.as_fd(), &mut typed).is_ok());
        typed
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that stays is replaced by the next terminal of that name.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Client {
    fn step(&mut self, master: BorrowedFd<'_>, typed: &mut bool) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while let Some((kind, length)) = frame_head(&self.input)
            && self.input.len() >= 3 + length
        {
            let body = &self.input[3..3 + length];
            match (kind, body) {
                (0, input) => {
                    *typed = true;
                    rustix::io::write(master, input).map(drop)?;
                }
                (1, &[row_low, row_high, column_low, column_high]) => {
                    let size = Winsize {
                        ws_row: u16::from_le_bytes([row_low, row_high]),
                        ws_col: u16::from_le_bytes([column_low, column_high]),
                        ws_xpixel: 0,
                        ws_ypixel: 0,
                    };
                    tcsetwinsize(master, size)?;
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            self.input.drain(..3 + length);
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            let (front, _) = self.pending.as_slices();
            match self.stream.write(front) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.pending.len() > BEHIND_MAX { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

fn frame_head(input: &[u8]) -> Option<(u8, usize)> {
    match input {
        [kind, low, high, ..] => Some((*kind, usize::from(u16::from_le_bytes([*low, *high])))),
        _ => None,
    }
}
