//! A server without sockets, and requests to it from anybody.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use control::Policy;
use facts::TaskExit;
use facts::event::DeviceV1;
use http_body_util::BodyExt;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use ops::core::{NodeFacts, Opening};
use ops::notify::{Courier, Parcel, Setback};
use ops::ports::{
    Clock, ClockReading, Node, NodeCommand, NodeError, NodeEvent, NodeHello, NodeReport, ReportBody, TaskId,
};
use ops::{Inbox, Parts, Running};
use serde_json::{Value, json};
use store::{ModelLog, SqliteView};
use tokio::sync::watch;
use units::{Bytes, Cores, Epoch};

use crate::app::{App, Config};
use crate::guard::Peer;
use crate::people::Rights;
use crate::serve::router;

/// The administrator in these tests; `ANN` and `BOB` are users.
pub(crate) const ADMIN: u32 = 4_000_000_001;
pub(crate) const ANN: u32 = 4_000_000_002;
pub(crate) const BOB: u32 = 4_000_000_003;

/// Starts what it is told to and ends it when the test says so, or at once.
#[derive(Clone)]
pub(crate) struct FakeNode {
    inner: Arc<Mutex<Inner>>,
    tell: Arc<dyn Fn(NodeEvent) + Send + Sync>,
    /// How far the machine's wall clock was stepped, in nanoseconds.
    pub(crate) wall_step: Arc<AtomicI64>,
}

struct Inner {
    at_once: bool,
    running: BTreeMap<TaskId, u64>,
    reports: u64,
}

impl FakeNode {
    /// Processes that were not started here hold these devices.
    pub(crate) fn outside(&self, devices: &[u16]) {
        (self.tell)(NodeEvent::Outside(devices.iter().copied().map(units::DeviceIndex).collect()));
    }

    fn report(&self, inner: &mut Inner, body: ReportBody) {
        inner.reports += 1;
        (self.tell)(NodeEvent::Report(NodeReport { number: inner.reports, body }));
    }

    fn end(&self, inner: &mut Inner, task: TaskId, exit: TaskExit) {
        let started = inner.running.remove(&task);
        let ended = boottime();
        let body = ReportBody::Ended {
            task,
            exit,
            started,
            ended,
            freed: Some(ended),
            cpu: Some(1_000_000),
            memory_peak: Some(Bytes(4096)),
        };
        self.report(inner, body);
    }

    /// Ends everything that runs.
    pub(crate) fn end_all(&self, code: u8) {
        let inner = &mut *self.inner.lock().unwrap();
        for task in inner.running.keys().copied().collect::<Vec<_>>() {
            self.end(inner, task, TaskExit::Exited(code));
        }
    }
}

impl Node for FakeNode {
    fn hello(&mut self, _: Epoch) -> Result<NodeHello, NodeError> {
        Ok(NodeHello { boot_id: [7; 16], tasks: Vec::new() })
    }

    fn send(&mut self, commands: &[NodeCommand]) -> Result<(), NodeError> {
        let inner = &mut *self.inner.lock().unwrap();
        for command in commands {
            match command {
                NodeCommand::Start(start) => {
                    let at = boottime();
                    inner.running.insert(start.task, at);
                    self.report(inner, ReportBody::Running { task: start.task, at });
                    if inner.at_once {
                        self.end(inner, start.task, TaskExit::Exited(0));
                    }
                }
                NodeCommand::Stop { task, signal, .. } if inner.running.contains_key(task) => {
                    self.end(inner, *task, TaskExit::Signalled(*signal));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Takes whatever is told.
struct Deaf;

impl Courier for Deaf {
    fn deliver(&self, _: &Parcel) -> Result<String, Setback> {
        Ok("nobody heard it".to_owned())
    }
}

fn boottime() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

struct TestClock(Arc<AtomicI64>);

impl Clock for TestClock {
    fn read(&self) -> ClockReading {
        ClockReading { boottime: boottime(), wall: crate::tokens::now().0 + self.0.load(Relaxed) }
    }

    fn boot_id(&self) -> [u8; 16] {
        [7; 16]
    }
}

/// A running server, without sockets.
pub(crate) struct Fixture {
    pub(crate) app: Arc<App>,
    pub(crate) node: FakeNode,
    pub(crate) log: ModelLog,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) close: watch::Sender<bool>,
    _running: Running,
}

/// A server whose jobs end at once, or else when told.
pub(crate) async fn start(at_once: bool) -> Fixture {
    start_on(ModelLog::new(), at_once, Config::default()).await
}

impl Default for Config {
    fn default() -> Self {
        Self {
            admin_uid: ADMIN,
            server_uid: 0,
            allow_root: false,
            version: "0.0.0".to_owned(),
            name: "node1".to_owned(),
            hosts: Vec::new(),
            address: None,
            rehearsal: false,
        }
    }
}

pub(crate) async fn start_on(log: ModelLog, at_once: bool, config: Config) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let (running, node) = start_writer(log.clone(), at_once, Policy::default(), directory.path());
    start_around(running, node, log, config, directory).await
}

/// A server with a policy of its own, whose jobs end when told.
pub(crate) async fn start_with(policy: Policy) -> Fixture {
    let (directory, log) = (tempfile::tempdir().unwrap(), ModelLog::new());
    let (running, node) = start_writer(log.clone(), false, policy, directory.path());
    start_around(running, node, log, Config::default(), directory).await
}

async fn start_around(
    running: Running,
    node: FakeNode,
    log: ModelLog,
    config: Config,
    directory: tempfile::TempDir,
) -> Fixture {
    let (close, closing) = watch::channel(false);
    let handle = running.handle.clone();
    let app = tokio::task::spawn_blocking(move || App::open(handle, config, closing)).await.unwrap().unwrap();
    Fixture { app, node, log, directory, close, _running: running }
}

/// A writer over `log`: 8 cores, 16 GiB and two made-up devices.
pub(crate) fn start_writer(
    log: ModelLog,
    at_once: bool,
    policy: Policy,
    directory: &std::path::Path,
) -> (Running, FakeNode) {
    let inbox = Inbox::new();
    let inner = Inner { at_once, running: BTreeMap::new(), reports: 0 };
    // A day ahead of this process's clock, which nobody can then take for the ledger's.
    let wall_step = Arc::new(AtomicI64::new(86_400_000_000_000));
    let clock = TestClock(Arc::clone(&wall_step));
    let node = FakeNode { inner: Arc::new(Mutex::new(inner)), tell: inbox.node_events().into(), wall_step };
    let device = |index: u8| DeviceV1 {
        key: format!("GPU-{index}"),
        model: "H100".to_owned(),
        memory: Bytes(80 << 30),
        simulated: true,
    };
    let opening = Opening {
        version: "0.0.0".to_owned(),
        boot_id: [7; 16],
        entropy: [1; 32],
        reading: clock.read(),
        node: NodeFacts {
            name: "node1".to_owned(),
            cores: Cores(8),
            memory: Bytes(16 << 30),
            devices: vec![device(0), device(1)],
        },
        policy,
    };
    let view = Box::new(SqliteView::open(directory).unwrap());
    let courier = Arc::new(Deaf);
    let parts = Parts { store: log, view, node: node.clone(), clock, courier, inbox, opening };
    (ops::start(parts).unwrap(), node)
}

impl Fixture {
    /// Somebody at the Unix socket.
    pub(crate) fn user(&self, uid: u32) -> Client<'_> {
        let rights = Rights { uid, gid: uid, groups: vec![uid, 7] };
        Client { fixture: self, peer: Peer::Socket(Arc::new(rights)), headers: HeaderMap::new() }
    }

    /// Somebody at the TCP port.
    pub(crate) fn remote(&self) -> Client<'_> {
        let client = Client { fixture: self, peer: Peer::Tcp, headers: HeaderMap::new() };
        client.header("host", "127.0.0.1:1")
    }
}

/// Who asks.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    fixture: &'a Fixture,
    peer: Peer,
    headers: HeaderMap,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client<'_> {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Sends a request; the body is JSON unless it is null.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send_bytes(method, path, body.into()).await
    }

    pub(crate) async fn send_bytes(&self, method: &str, path: &str, body: Vec<u8>) -> Answer {
        let response = self.open(method, path, body).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// Sends a request and leaves the answer's body to be read.
    pub(crate) async fn open(&self, method: &str, path: &str, body: Vec<u8>) -> hyper::Response<Body> {
        let mut request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
        *request.headers_mut() = self.headers.clone();
        request.extensions_mut().insert(self.peer.clone());
        let router = TowerToHyperService::new(router(Arc::clone(&self.fixture.app)));
        router.call(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Value::Null).await
    }

    /// Submits a job with these fields beside the usual and returns its id.
    pub(crate) async fn submit(&self, more: Value) -> u64 {
        let answer = self.send("POST", "/api/v1/jobs", job(&more)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["job"].as_u64().unwrap()
    }
}

/// A request for a job: the usual fields, and `more`.
pub(crate) fn job(more: &Value) -> Value {
    let mut job = json!({"argv": ["/bin/echo", "hi"], "cwd": "/tmp", "env": ["PATH=/bin"]});
    for (name, value) in more.as_object().into_iter().flatten() {
        job[name] = value.clone();
    }
    job
}
