//! A small keep-alive HTTP/1.1 client, so that the client's own cost stays out of the figures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};

pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One kept-open connection.
pub(super) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    headers: String,
}

/// Where to connect to.
#[derive(Clone)]
pub(super) enum Address {
    Tcp { port: u16, token: String },
    Unix(std::path::PathBuf),
}

impl Address {
    pub(super) fn connect(&self) -> Result<Connection> {
        match self {
            Self::Tcp { port, token } => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                let headers = format!("Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n");
                Ok(Connection::over(Box::new(stream), headers))
            }
            Self::Unix(path) => Connection::unix(path),
        }
    }
}

impl Connection {
    fn unix(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| path.display().to_string())?;
        Ok(Self::over(Box::new(stream), "Host: localhost\r\n".into()))
    }

    fn over(stream: Box<dyn Stream>, headers: String) -> Self {
        Self { stream: BufReader::new(stream), headers }
    }

    /// Sends a JSON request and returns the body of a 2xx answer.
    pub(super) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        let request = self.request(method, path, body);
        self.repeat(&request).with_context(|| format!("{method} {path}"))
    }

    /// A request's bytes, for [`Self::repeat`].
    pub(super) fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
            self.headers
        );
        request.into_bytes()
    }

    /// Sends a request that was made before.
    pub(super) fn repeat(&mut self, request: &[u8]) -> Result<String> {
        self.stream.get_mut().write_all(request)?;
        let (status, answer) = self.answer()?;
        ensure!((200..300).contains(&status), "{status} {answer}");
        Ok(answer)
    }

    fn answer(&mut self) -> Result<(u16, String)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).context(first.clone())?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse()?,
                Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
                Some(_) => {}
                None => break,
            }
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size = usize::from_str_radix(self.line()?.trim(), 16)?;
                self.read(size, &mut body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.read(length, &mut body)?;
        }
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the server closed the connection");
        Ok(line.trim_end().to_owned())
    }

    fn read(&mut self, size: usize, into: &mut Vec<u8>) -> Result<()> {
        let start = into.len();
        into.resize(start + size, 0);
        Ok(self.stream.read_exact(&mut into[start..])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Canned(&'static [u8]);
    impl Read for Canned {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl Write for Canned {
        fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
            Ok(buffer.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn reads_answers() {
        let check = |bytes: &'static str, expect: Option<&str>| {
            let mut connection = Connection::over(Box::new(Canned(bytes.as_bytes())), String::new());
            assert_eq!(connection.send("GET", "/", "").ok().as_deref(), expect, "{bytes}");
        };
        check("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", Some("ok"));
        check(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            Some("abc"),
        );
        check("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", None);
        check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", None);
    }
}
