//! Health checks of running services: one thread for each attempt tells the writer when the
//! check first passes, and when it has failed so often in a row that the service is unhealthy.
//!
//! A service that has never passed is not unhealthy: loading takes as long as it takes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use control::State;
use facts::{Envelope, Event, HealthCheck, JobKind};
use units::AttemptId;

use crate::handle::Message;

/// A check that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest wait between the checks of a service that is not ready yet.
const STARTING: Duration = Duration::from_secs(1);
/// The status line of an answer is within so many bytes.
const STATUS_LINE: usize = 256;

/// What the checks of an attempt amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whether it is healthy now.
    pub healthy: bool,
    /// What the last check saw, in words.
    pub reason: String,
}

/// The checks under way, kept by the writer.
pub(crate) struct Prober {
    reports: Sender<Message>,
    /// Dropping its sender ends a check.
    checks: BTreeMap<AttemptId, Sender<()>>,
}

impl Prober {
    /// Begins to check every service that runs.
    pub(crate) fn new(reports: Sender<Message>, state: &State) -> Self {
        let mut prober = Self { reports, checks: BTreeMap::new() };
        prober.restart(state);
        prober
    }

    /// Checks anew, from what is known of each service: a report may have been lost.
    pub(crate) fn restart(&mut self, state: &State) {
        self.checks.clear();
        state.attempts().for_each(|(attempt, _)| self.begin(state, attempt));
    }

    /// Begins and ends checks after events that led to `state`.
    pub(crate) fn follow(&mut self, state: &State, committed: &[Envelope]) {
        for envelope in committed {
            match &envelope.event {
                Event::TaskRunning(body) => self.begin(state, body.attempt),
                Event::StopOrdered(body) => drop(self.checks.remove(&body.attempt)),
                Event::TaskEnded(body) => drop(self.checks.remove(&body.attempt)),
                _ => {}
            }
        }
    }

    fn begin(&mut self, state: &State, attempt: AttemptId) {
        let Some(target) = Target::of(state, attempt) else { return };
        let (end, ended) = channel();
        let reports = self.reports.clone();
        let body = move || target.watch(&ended, &reports);
        // Without a thread the service stays what it is known to be: not ready, at first.
        if std::thread::Builder::new().name(format!("health {attempt}")).spawn(body).is_ok() {
            self.checks.insert(attempt, end);
        }
    }
}

/// What is checked, and how.
struct Target {
    attempt: AttemptId,
    port: u16,
    check: HealthCheck,
    healthy: bool,
}

impl Target {
    /// None unless it is a service with a health check, all of which runs and may go on.
    fn of(state: &State, id: AttemptId) -> Option<Self> {
        let attempt = state.attempt(id).filter(|attempt| attempt.ended == 0 && attempt.stop.is_none())?;
        let JobKind::Service { port: Some(port), health: Some(check), .. } =
            &state.job(attempt.member.job)?.request.kind
        else {
            return None;
        };
        let runs = state.tasks_of(id).all(|(_, task)| task.running.is_some());
        let healthy = attempt.healthy == Some(true);
        runs.then(|| Self { attempt: id, port: *port, check: check.clone(), healthy })
    }

    fn watch(self, ended: &Receiver<()>, reports: &Sender<Message>) {
        let every = Duration::from_nanos(self.check.every.0);
        let mut streak = Streak { healthy: self.healthy, failed: 0, allowed: self.check.failures };
        let pause = |healthy| if healthy { every } else { every.min(STARTING) };
        // It waits first: where commits fail, checks begun anew must not become a flood.
        while ended.recv_timeout(pause(streak.healthy)) == Err(RecvTimeoutError::Timeout) {
            let seen = probe(self.port, self.check.http_path.as_deref(), TIMEOUT);
            if let Some(healthy) = streak.take(seen.is_ok()) {
                let reason = seen.unwrap_or_else(|reason| reason);
                let report = HealthReport { attempt: self.attempt, healthy, reason };
                // A writer that has stopped needs no news.
                drop(reports.send(Message::Health(report)));
            }
        }
    }
}

/// From single checks to changes that are worth telling.
struct Streak {
    healthy: bool,
    failed: u32,
    allowed: u32,
}

impl Streak {
    fn take(&mut self, passed: bool) -> Option<bool> {
        let before = self.healthy;
        self.failed = if passed { 0 } else { self.failed.saturating_add(1) };
        self.healthy = passed || (self.healthy && self.failed < self.allowed);
        (self.healthy != before).then_some(self.healthy)
    }
}

/// Checks once: whether the port accepts a connection and, where there is a path, answers a GET
/// of it with 2xx. Says what it saw.
fn probe(port: u16, path: Option<&str>, timeout: Duration) -> Result<String, String> {
    let deadline = Instant::now() + timeout;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |doing: &str, error: &io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("{doing} took longer than {} s", timeout.as_secs_f32())
        }
        _ => format!("{doing} failed: {error}"),
    };
    let mut stream = TcpStream::connect_timeout(&address, timeout)
        .map_err(|error| failed(&format!("connecting to port {port}"), &error))?;
    let Some(path) = path else { return Ok(format!("port {port} accepts connections")) };
    let line = status_line(&mut stream, port, path, deadline)
        .map_err(|error| failed(&format!("GET {path} on port {port}"), &error))?;
    let mut words = line.split_ascii_whitespace();
    let version = words.next().unwrap_or_default();
    match words.next().and_then(|code| code.parse::<u16>().ok()) {
        Some(code) if version.starts_with("HTTP/1.") => {
            let seen = format!("GET {path} on port {port} answered {code}");
            if (200..300).contains(&code) { Ok(seen) } else { Err(seen) }
        }
        _ => Err(format!("GET {path} on port {port} was not answered in HTTP/1")),
    }
}

fn status_line(stream: &mut TcpStream, port: u16, path: &str, deadline: Instant) -> io::Result<String> {
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(Some(left)) }
    };
    stream.set_write_timeout(left()?)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    let mut buffer = [0; STATUS_LINE];
    while line.len() < STATUS_LINE && !line.contains(&b'\n') {
        stream.set_read_timeout(left()?)?;
        match stream.read(&mut buffer)? {
            0 => break,
            count => line.extend(&buffer[..count]),
        }
    }
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_changes_are_told_and_only_of_what_was_once_ready() {
        let check = |healthy: bool, checks: &str, expect: &str| {
            let mut streak = Streak { healthy, failed: 0, allowed: 3 };
            let told: String = checks
                .chars()
                .map(|check| match streak.take(check == '+') {
                    Some(true) => 'H',
                    Some(false) => 'U',
                    None => '.',
                })
                .collect();
            assert_eq!(told, expect, "{checks}");
        };
        check(false, "+++", "H..");
        check(false, "-----+", ".....H");
        check(false, "+--+--+---", "H........U");
        check(true, "---", "..U");
        check(true, "-----+", "..U..H");
    }

    /// Answers one connection, and tells the port.
    fn answering(answer: &'static [u8], linger: Duration) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let count = stream.read(&mut request).unwrap();
            assert!(count == 0 || request.starts_with(b"GET /ok HTTP/1.1\r\nHost: 127.0.0.1:"));
            stream.write_all(answer).unwrap();
            std::thread::sleep(linger);
        });
        port
    }

    #[test]
    fn a_check_passes_on_2xx_alone() {
        let check = |answer: &'static [u8], expect: Result<&str, &str>| {
            let port = answering(answer, Duration::ZERO);
            let seen = probe(port, Some("/ok"), TIMEOUT);
            let say = |text: &str| format!("GET /ok on port {port} {text}");
            assert_eq!(seen, expect.map(say).map_err(say));
        };
        check(b"HTTP/1.1 200 OK\r\n\r\n", Ok("answered 200"));
        check(b"HTTP/1.0 204 No Content\r\n\r\n", Ok("answered 204"));
        check(b"HTTP/1.1 302 Found\r\n\r\n", Err("answered 302"));
        check(b"HTTP/1.1 503 Busy\r\n\r\n", Err("answered 503"));
        check(b"SSH-2.0-OpenSSH 200\r\n", Err("was not answered in HTTP/1"));
        check(b"", Err("was not answered in HTTP/1"));
    }

    #[test]
    fn a_port_is_enough_without_a_path() {
        let port = answering(b"", Duration::ZERO);
        assert_eq!(probe(port, None, TIMEOUT), Ok(format!("port {port} accepts connections")));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let refused = probe(free, None, TIMEOUT).unwrap_err();
        assert!(refused.starts_with(&format!("connecting to port {free} failed: ")), "{refused}");
    }

    #[test]
    fn one_that_hangs_or_drips_has_failed() {
        for answer in [&b""[..], b"HTTP/1.1 2"] {
            let port = answering(answer, Duration::from_secs(2));
            let start = Instant::now();
            let seen = probe(port, Some("/ok"), Duration::from_millis(200)).unwrap_err();
            assert_eq!(seen, format!("GET /ok on port {port} took longer than 0.2 s"));
            assert!(start.elapsed() < Duration::from_secs(1));
        }
    }
}
