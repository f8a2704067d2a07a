//! Real listeners: who is at the other end, slow readers, shutdown.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Blocking;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use control::Policy;
use serde_json::{Value, json};
use store::ModelLog;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fixture::{FakeNode, job, start_writer};
use crate::{ServeError, ServeOptions, serve};

struct Listening {
    directory: tempfile::TempDir,
    address: std::net::SocketAddr,
    node: FakeNode,
    handle: ops::Handle,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), ServeError>>,
    _running: ops::Running,
}

fn listen() -> Listening {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (running, node) = start_writer(ModelLog::new(), true, Policy::default(), directory.path());
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let path = directory.path().join("api.sock");
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let options = ServeOptions {
        handle: running.handle.clone(),
        tcp: Some(tcp),
        unix: Some(unix),
        admin_uid: rustix::process::geteuid().as_raw(),
        allow_root: true,
        version: "0.0.0".to_owned(),
        hosts: Vec::new(),
        rehearsal: false,
    };
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(serve(options, async { drop(stopped.await) }));
    let handle = running.handle.clone();
    Listening { directory, address, node, handle, stop: Some(stop), served, _running: running }
}

impl Listening {
    fn socket(&self) -> PathBuf {
        self.directory.path().join("api.sock")
    }

    fn connect(&self) -> Blocking {
        let stream = Blocking::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// One exchange on a connection that stays open.
fn exchange(stream: &mut (impl Read + Write), request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed after {:?}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
}

/// Runs blocking client code beside the server.
async fn beside<T: Send + 'static>(client: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(client).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_listeners_serve_and_only_the_socket_vouches() {
    let server = listen();
    let (mut unix, address) = (server.connect(), server.address);
    beside(move || {
        let submit = request("POST", "/api/v1/jobs", &job(&json!({})).to_string());
        let (status, body) = exchange(&mut unix, &submit);
        assert_eq!(status, 201, "{body}");
        let (status, body) = exchange(&mut unix, &request("GET", "/api/v1/jobs/1/wait", ""));
        assert_eq!(
            (status, serde_json::from_str::<Value>(&body).unwrap()["over"].clone()),
            (200, json!(true))
        );
        let mut tcp = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(exchange(&mut tcp, &submit).0, 401);
        let link = exchange(&mut unix, &request("POST", "/api/v1/login-link", "")).1;
        let link: Value = serde_json::from_str(&link).unwrap();
        assert!(link["url"].as_str().unwrap().starts_with(&format!("http://{address}/login?token=")));
        assert_eq!(exchange(&mut tcp, &request("GET", link["path"].as_str().unwrap(), "")).0, 303);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_is_known_by_the_kernels_word() {
    if !rustix::process::geteuid().is_root() {
        return skipped("another_user_is_known_by_the_kernels_word needs root");
    }
    let server = listen();
    let script = r"
import socket, sys
peer = socket.socket(socket.AF_UNIX); peer.connect(sys.argv[1])
peer.sendall(sys.argv[2].encode()); print(peer.recv(65536).decode())";
    let submit = request("POST", "/api/v1/jobs", &job(&json!({"hold": true})).to_string());
    let mut client = Command::new("/usr/bin/python3");
    client.args(["-c", script]).arg(server.socket()).arg(submit).uid(12_345).gid(12_346).current_dir("/");
    let output = beside(move || client.output().unwrap()).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("201 Created"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let (answer, answered) = std::sync::mpsc::channel();
    server.handle.read(Box::new(move |store| answer.send(store.payload(units::JobId(1))).unwrap()));
    let payload = beside(move || answered.recv().unwrap()).await.unwrap().unwrap();
    let launch: facts::LaunchSpec = postcard::from_bytes(&payload).unwrap();
    assert_eq!((launch.uid, launch.gid), (12_345, 12_346));
}

/// Says that something was not proven, where the test run collects it.
fn skipped(what: &str) {
    if let Some(path) = std::env::var_os("FOURPLANE_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{what}").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_tell_of_changes_and_a_slow_reader_is_told_that_it_lagged() {
    let server = listen();
    let (mut slow, mut quick, mut submitter) = (server.connect(), server.connect(), server.connect());
    beside(move || {
        let events = request("GET", "/api/v1/events", "");
        for stream in [&mut slow, &mut quick] {
            stream.write_all(events.as_bytes()).unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(&head[9..], b"200");
        }
        let reader = std::thread::spawn(move || {
            let mut seen = String::new();
            let mut buffer = vec![0; 65_536];
            while !seen.contains("\"id\":1,") {
                let read = quick.read(&mut buffer).unwrap();
                seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
            seen
        });
        let submit = request("POST", "/api/v1/jobs", &job(&json!({"name": "n".repeat(4_000)})).to_string());
        // A list shows the last submission, so that each is told as a change of its own.
        let list = request("GET", "/api/v1/jobs?limit=1", "");
        for _ in 0..3_000 {
            assert_eq!(exchange(&mut submitter, &submit).0, 201);
            assert_eq!(exchange(&mut submitter, &list).0, 200);
        }
        assert!(reader.join().unwrap().contains("event: job"));
        let mut seen = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        let lagged = |seen: &[u8]| seen.windows(13).any(|window| window == b"event: lagged");
        while !lagged(&seen) {
            let read = slow.read(&mut buffer).unwrap();
            assert!(read > 0, "the stream ended without a word");
            seen.extend_from_slice(&buffer[..read]);
            assert!(seen.len() < 64 << 20, "nothing was left out for a reader that did not read");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_user_cannot_have_all_connections() {
    let server = listen();
    let address = server.address;
    let mine = beside({
        let socket = server.socket();
        move || {
            let ask = |stream: &mut Blocking| exchange(stream, &request("GET", "/api/v1/jobs", ""));
            let mut mine = Vec::new();
            loop {
                let mut stream = Blocking::connect(&socket).unwrap();
                let (status, body) = ask(&mut stream);
                if status != 200 {
                    assert_eq!(status, 429, "{body}");
                    let body: Value = serde_json::from_str(&body).unwrap();
                    assert_eq!(body["code"], "too-many-open");
                    assert!(body["message"].as_str().unwrap().contains(&mine.len().to_string()), "{body}");
                    assert!(body["hint"].as_str().unwrap().contains("logs -f"), "{body}");
                    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "told and closed");
                    return mine;
                }
                mine.push(stream);
            }
        }
    })
    .await;
    beside(move || {
        let mut other = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(exchange(&mut other, &request("GET", "/api/v1/healthz", "")).0, 200, "others get in");
    })
    .await;
    drop(mine);
    let mut again = server.connect();
    beside(move || {
        let asked = Instant::now();
        while exchange(&mut again, &request("GET", "/api/v1/jobs", "")).0 != 200 {
            assert!(asked.elapsed() < Duration::from_secs(10));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_lets_go_of_idle_and_waiting_clients() {
    let mut server = listen();
    let (mut idle, mut waiting) = (server.connect(), server.connect());
    let waiter = std::thread::spawn(move || {
        let submit = request("POST", "/api/v1/jobs", &job(&json!({"hold": true})).to_string());
        assert_eq!(exchange(&mut waiting, &submit).0, 201);
        exchange(&mut waiting, &request("GET", "/api/v1/jobs/1/wait?timeout=600", ""))
    });
    assert_eq!(
        beside(move || (exchange(&mut idle, &request("GET", "/api/v1/healthz", "")).0, idle)).await.0,
        200
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    drop(server.stop.take());
    server.served.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "took {:?}", begun.elapsed());
    let (status, body) = beside(move || waiter.join().unwrap()).await;
    assert_eq!((status, body.contains("stopping")), (503, true), "{body}");
    server.node.end_all(0);
}

/// How long a durable submission takes without a disk: what the server itself costs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo test --release -p fourplane-server --lib cost -- --ignored --nocapture"]
async fn cost_of_a_submission() {
    let server = listen();
    let mut stream = server.connect();
    let mut times = beside(move || {
        let submit = request("POST", "/api/v1/jobs", &job(&json!({"hold": true})).to_string());
        let once = |_| {
            let begun = Instant::now();
            assert_eq!(exchange(&mut stream, &submit).0, 201);
            begun.elapsed()
        };
        (0..5_000).map(once).collect::<Vec<_>>()
    })
    .await;
    times.sort_unstable();
    let mut out = std::io::stderr();
    writeln!(out, "p50 {:?}, p99 {:?} a submission", times[2_500], times[4_950]).unwrap();
}
