//! A connection all of which is over by a deadline, however slowly the other side answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The longest that making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) struct Bounded {
    stream: TcpStream,
    deadline: Instant,
}

impl Bounded {
    /// Connects to the first of `addresses` that answers.
    pub(crate) fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for address in addresses {
            match TcpStream::connect_timeout(address, left(deadline)?.min(CONNECT)) {
                Ok(stream) => return Ok(Self { stream, deadline }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// What a timeout of the socket is called differs.
fn timed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buffer).map_err(timed)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(bytes).map_err(timed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// What went wrong, in words.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "it took too long".to_owned(),
        io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        io::ErrorKind::UnexpectedEof => "it hung up".to_owned(),
        _ => error.to_string(),
    }
}
