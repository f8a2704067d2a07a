//! The API against its own description: Schemathesis sends what docs/openapi.json allows and what it
//! does not, to a real server, and holds the answers against it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::processes::supervisors;

/// Whom the server runs as where root starts it: what is submitted runs as nobody.
const NOBODY: u32 = 65_534;

/// Operations that are left out, each for a reason.
const LEFT_OUT: [&str; 2] = [
    // It never ends.
    "/api/v1/events",
    // It would take back the token that everything else is asked with.
    "/api/v1/tokens/{id}",
];

/// `cargo xtask api`
#[derive(Args)]
pub(crate) struct Options {
    /// The binary to test
    #[arg(long, default_value = "target/debug/fourplane")]
    binary: PathBuf,
    /// The program of Schemathesis
    #[arg(long, default_value = "target/venv/bin/schemathesis")]
    schemathesis: PathBuf,
    /// Requests an operation, beside those at the limits of each field
    #[arg(long, default_value_t = 10)]
    examples: u32,
}

/// Fails where an answer is not as it is described.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let schemathesis = options.schemathesis.canonicalize().with_context(|| {
        format!(
            "{}: python3 -m venv target/venv && target/venv/bin/pip install schemathesis",
            options.schemathesis.display()
        )
    })?;
    let server = Server::start(&options.binary)?;
    let mut tests = Command::new(schemathesis);
    tests.arg("run").arg(format!("http://{}/api/v1/openapi.json", server.address));
    tests.args(["--header", &format!("Authorization: Bearer {}", server.token)]);
    tests.args(LEFT_OUT.iter().flat_map(|path| ["--exclude-path", path]));
    // What is well-formed may still be refused: a team that is not there, a job that cannot start.
    tests.args(["--checks", "all", "--exclude-checks", "positive_data_acceptance"]);
    tests.args(["--phases", "examples,coverage,fuzzing", "--max-examples", &options.examples.to_string()]);
    // The same requests in each run.
    tests.args(["--seed", "1", "--request-timeout", "20", "--continue-on-failure", "--no-color"]);
    // It keeps what it saw where it is started.
    let passed = tests.current_dir(&server.dir).status().context("cannot start Schemathesis")?.success();
    let (passed, failed, word) = if passed { (1, 0, "ok") } else { (0, 1, "FAILED") };
    say(&format!("test result: {word}. {passed} passed; {failed} failed; 0 ignored"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A running server without rights.
struct Server {
    child: Child,
    dir: PathBuf,
    address: String,
    token: String,
}

impl Server {
    fn start(binary: &Path) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("fourplane-api-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        // Where nobody can start it, whoever may enter the folder that it was built in.
        let program = dir.join("fourplane");
        fs::copy(binary, &program).with_context(|| format!("{}: build it first", binary.display()))?;
        let is_root = output(Command::new("id").arg("-u"))? == "0\n";
        if is_root {
            fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
            chown(&dir, Some(NOBODY), Some(NOBODY))?;
        }
        let fourplane = |args: &[&str]| {
            let mut command = Command::new(&program);
            command.args(args).arg("--state").arg(dir.join("state")).current_dir(&dir);
            command.env("HOME", &dir).env_remove("XDG_RUNTIME_DIR");
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            command
        };
        let mut up = fourplane(&["up", "--json", "--cores", "1", "--listen", "127.0.0.1:0"]);
        let mut child = up.stdout(Stdio::piped()).spawn()?;
        let mut told = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut told)?;
        let mut server = Self { child, dir: dir.clone(), address: String::new(), token: String::new() };
        let told: Value = serde_json::from_str(&told).context("the server did not start")?;
        told["address"].as_str().context("up tells its address")?.clone_into(&mut server.address);
        output(&mut fourplane(&["token", "create", "schemathesis", "--admin"]))?
            .trim()
            .clone_into(&mut server.token);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        for pid in supervisors(&self.dir.join("state")) {
            Command::new("kill").args(["-KILL", &pid]).status().ok();
        }
        fs::remove_dir_all(&self.dir).ok();
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[expect(clippy::print_stdout, reason = "this is the tool's output")]
fn say(text: &str) {
    println!("{text}");
}
