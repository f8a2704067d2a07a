//! Our side: the real binary with its own state, every feature on.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::http::{Address, Connection};
use crate::processes::supervisors;

/// A round that takes longer hangs.
const LONGEST: Duration = Duration::from_mins(10);

/// A running `fourplane up`.
pub(super) struct Fourplane {
    child: Child,
    binary: PathBuf,
    state: PathBuf,
    pub(super) address: Address,
}

impl Fourplane {
    /// Starts a server that keeps up to `in_flight` one-core jobs running.
    pub(super) fn start(binary: &Path, dir: &Path, in_flight: usize) -> Result<Self> {
        let binary = binary.canonicalize().with_context(|| {
            format!("{}: build it by `cargo build --release` or name it by --binary", binary.display())
        })?;
        let state = dir.join("state");
        std::fs::remove_dir_all(&state).ok();
        // Freed at once; the server takes it again.
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = std::fs::File::create(dir.join("fourplane.log"))?;
        let child = Command::new(&binary)
            .args(["up", "--allow-root", "--cores", &in_flight.to_string()])
            .args(["--listen", &format!("127.0.0.1:{port}"), "--state"])
            .arg(&state)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let address = Address::Tcp { port, token: String::new() };
        let mut server = Self { child, binary, state, address };
        server.wait_until_up()?;
        let token = server.token()?;
        server.address = Address::Tcp { port, token };
        Ok(server)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.address.connect().and_then(|mut c| c.send("GET", "/api/v1/healthz", "")).is_err() {
            ensure!(self.child.try_wait()?.is_none(), "fourplane ended; see fourplane.log");
            ensure!(
                start.elapsed() < Duration::from_secs(30),
                "fourplane does not answer; see fourplane.log"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A command that asks this server.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).env("FOURPLANE_STATE", &self.state);
        command
    }

    fn token(&self) -> Result<String> {
        let output = self.command(&["token", "create", "bench"]).output()?;
        ensure!(output.status.success(), "token create: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// One array of `count` members: from the request to the last member's recorded end.
    pub(super) fn run(&self, count: usize, out: &Path) -> Result<Duration> {
        let mut request = request(r#"echo done; echo x >"$FOURPLANE_SCRATCH/x""#, out);
        request["array"] = serde_json::json!({"indexes": format!("0-{}", count - 1)});
        let mut connection = self.address.connect()?;
        let start = Instant::now();
        let job = submit(&mut connection, &request)?;
        loop {
            let answer = connection.send("GET", &format!("/api/v1/jobs/{job}/wait"), "")?;
            let answer: Value = serde_json::from_str(&answer)?;
            if answer["over"] == true {
                ensure!(answer["job"]["state"] == "completed", "not all succeeded: {}", answer["job"]);
                return Ok(start.elapsed());
            }
            ensure!(start.elapsed() < LONGEST, "still not over: {}", answer["job"]);
        }
    }

    /// The request that submits one held job.
    pub(super) fn submission(connection: &Connection) -> Vec<u8> {
        connection.request("POST", "/api/v1/jobs", &held().to_string())
    }

    /// Takes all cores for as long as the server lives, so that what comes later waits.
    pub(super) fn occupy(&self, cores: usize) -> Result<()> {
        let mut request = request("exec sleep 86400", Path::new("/tmp"));
        request["cores"] = cores.into();
        submit(&mut self.address.connect()?, &request).map(drop)
    }

    /// The request that submits one job, which waits where all cores are taken.
    pub(super) fn waiting(connection: &Connection) -> Vec<u8> {
        connection.request("POST", "/api/v1/jobs", &request("true", Path::new("/tmp")).to_string())
    }

    /// Submits one held array.
    pub(super) fn submit_array(connection: &mut Connection, count: usize) -> Result<()> {
        let mut request = held();
        request["array"] = serde_json::json!({"indexes": format!("0-{}", count - 1)});
        submit(connection, &request).map(drop)
    }
}

fn held() -> Value {
    let mut request = request("true", Path::new("/tmp"));
    request["hold"] = true.into();
    request
}

fn request(script: &str, cwd: &Path) -> Value {
    serde_json::json!({
        "name": "bench",
        "argv": ["/bin/sh", "-c", script],
        "cwd": cwd,
        "env": ["PATH=/usr/bin:/bin"],
        "stdout": "bench-%j.out",
    })
}

/// Sends a request and returns the job's id.
fn submit(connection: &mut Connection, request: &Value) -> Result<u64> {
    let answer = connection.send("POST", "/api/v1/jobs", &request.to_string())?;
    let answer: Value = serde_json::from_str(&answer)?;
    answer["job"].as_u64().context("the answer names no job")
}

impl Drop for Fourplane {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        // The supervisor outlives its server by design; this one has no jobs left.
        for pid in supervisors(&self.state) {
            Command::new("kill").args(["-KILL", &pid]).status().ok();
        }
    }
}
