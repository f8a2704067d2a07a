//! A server of its own for each test, and clients of it.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_fourplane");

/// A directory with a server's state and a place to work in.
pub(crate) struct World {
    dir: tempfile::TempDir,
    place: Place,
    flags: Vec<String>,
    server: Option<Child>,
    /// What `up` said.
    pub(crate) told: Value,
}

/// How a command ended and what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The paths of a world, and whose commands are run there.
#[derive(Clone)]
pub(crate) struct Place {
    dir: PathBuf,
    program: PathBuf,
}

impl Place {
    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(&self.program, args)
    }

    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.work()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FOURPLANE_") {
                command.env_remove(name);
            }
        }
        command.env("FOURPLANE_STATE", self.state()).env("TZ", "UTC").env_remove("SHELL");
        command
    }
}

impl World {
    /// A server that lets root submit and offers four cores.
    pub(crate) fn new() -> Self {
        Self::with(&["--allow-root", "--cores", "4"])
    }

    /// A server with these flags.
    pub(crate) fn with(flags: &[&str]) -> Self {
        Self::of(Path::new(PROGRAM), flags)
    }

    /// A server of another version of the program.
    pub(crate) fn of(program: &Path, flags: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("fourplane-cli-").tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        for open in ["work", "witness"].map(|name| dir.path().join(name)) {
            std::fs::create_dir(&open).unwrap();
            std::fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
        }
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        std::fs::copy("/proc/sys/kernel/random/boot_id", dir.path().join("boot_id")).unwrap();
        let place = Place { dir: dir.path().to_owned(), program: program.to_owned() };
        let mut world = Self { dir, place, flags, server: None, told: Value::Null };
        world.up();
        world
    }

    /// Other flags, for the next start.
    pub(crate) fn set_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    }

    /// Starts the server and waits until it answers.
    pub(crate) fn up(&mut self) {
        let mut command = self.command(&["up", "--json", "--listen", "127.0.0.1:0"]);
        command.env("FOURPLANE_WITNESS_DIR", self.dir.path().join("witness"));
        command.env("FOURPLANE_BOOT_ID_FILE", self.boot_id());
        command.args(&self.flags).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.server = Some(server);
        self.told = serde_json::from_str(&line).unwrap_or_else(|_| panic!("up said {line:?}"));
    }

    /// From now on, whatever is started is of this version.
    pub(crate) fn install(&mut self, program: &Path) {
        program.clone_into(&mut self.place.program);
    }

    /// Ends the server without a word.
    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Asks the server to stop, and tells its exit code.
    pub(crate) fn stop_server(&mut self) -> i32 {
        let mut server = self.server.take().unwrap();
        signal(&server, Signal::TERM);
        server.wait().unwrap().code().unwrap()
    }

    /// Where all of it is, for clients on threads of their own.
    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.place.state()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.place.work()
    }

    /// A command of this world, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.place.command(args)
    }

    /// The same with another copy of the program.
    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        self.place.command_of(program, args)
    }

    fn boot_id(&self) -> PathBuf {
        self.dir.path().join("boot_id")
    }

    /// What a restart of the machine does: every process is gone, and the boot id is another.
    pub(crate) fn restart_machine(&mut self) {
        self.end_everything();
        std::fs::copy("/proc/sys/kernel/random/uuid", self.boot_id()).unwrap();
    }

    /// The supervisor, if one answers. Its shims, which look like it, are not meant.
    pub(crate) fn supervisor(&self) -> Option<Pid> {
        let socket = UnixStream::connect(self.state().join("node/supervisor.sock")).ok()?;
        Some(rustix::net::sockopt::socket_peercred(socket).unwrap().pid)
    }

    /// The supervisor and its shims.
    fn processes(&self) -> Vec<Pid> {
        let wanted = format!("\0supervisor\0--dir\0{}/", self.dir.path().display());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| {
            let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry.file_name().to_str()?.parse().ok()?;
            command.contains(&wanted).then(|| Pid::from_raw(pid))?
        });
        pids.collect()
    }

    /// How many tasks have started, by the nonces that each left.
    pub(crate) fn witnesses(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("witness")).unwrap().count()
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        finish(self.command(args))
    }

    /// Submits a job in the background and tells its id.
    pub(crate) fn submit(&self, args: &[&str]) -> String {
        let ran = self.run(&[&["run", "--parsable"], args].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        ran.out.trim().to_owned()
    }

    /// Everything about a job.
    pub(crate) fn job(&self, id: &str) -> Value {
        let ran = self.run(&["jobs", id, "--json"]);
        let all: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        all[0].clone()
    }

    /// Waits until a job is in this state.
    pub(crate) fn until(&self, id: &str, state: &str) {
        eventually(&format!("job {id} is {state}"), || {
            let ran = self.run(&["jobs", id, "--json"]);
            ran.code == 0 && ran.out.contains(&format!("\"state\":\"{state}\""))
        });
    }

    /// What is in a file of the work directory.
    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end_everything();
    }
}

impl World {
    /// Leaves no process and no cgroup behind.
    fn end_everything(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.kill());
            drop(server.wait());
        }
        let mut groups = Vec::new();
        for process in self.processes() {
            groups.extend(group_of(&PathBuf::from(format!("/proc/{}", process.as_raw_pid()))));
            _ = kill_process(process, Signal::KILL);
        }
        groups.dedup();
        for group in &groups {
            remove_group(group);
        }
    }
}

/// The group of our own that a process is in: `fourplane-…`.
fn group_of(process: &Path) -> Option<String> {
    let listed = std::fs::read_to_string(process.join("cgroup")).ok()?;
    let own = listed.split(['/', '\n']).find(|part| part.starts_with("fourplane-"));
    own.map(str::to_owned)
}

fn remove_group(group: &str) {
    let hierarchies: Vec<PathBuf> = std::fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let tops = hierarchies.iter().map(|hierarchy| hierarchy.join(group));
    let bases: Vec<PathBuf> =
        tops.chain([Path::new("/sys/fs/cgroup").join(group)]).filter(|base| base.exists()).collect();
    for _ in 0..100 {
        for base in &bases {
            for slot in std::fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let members = std::fs::read_to_string(slot.join("cgroup.procs")).unwrap_or_default();
                for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                    _ = kill_process(pid, Signal::KILL);
                }
                drop(std::fs::remove_dir(slot));
            }
            drop(std::fs::remove_dir(base));
        }
        if bases.iter().all(|base| !base.exists()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command to its end.
pub(crate) fn finish(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    ran(&output)
}

pub(crate) fn ran(output: &std::process::Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Sends a signal to the server that told this, and tells its process.
pub(crate) fn signal_pid(told: &Value, signal: Signal) -> Pid {
    let pid = told["pid"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).unwrap();
    kill_process(pid, signal).unwrap();
    pid
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether this test cannot run for want of root.
pub(crate) fn skip_without_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "needs root");
    }
    !is_root
}

/// Says aloud that a test cannot run here, and writes it where CI counts.
pub(crate) fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    if let Some(path) = std::env::var_os("FOURPLANE_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
    std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED {line}").as_bytes()).unwrap();
}
