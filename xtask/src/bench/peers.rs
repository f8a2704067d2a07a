//! The peers, each brought up for real: `HyperQueue`'s server and worker, and Slurm on loopback.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

const HYPERQUEUE: &str = "hyperqueue==0.27.0";

/// Runs a command to its end and returns what it printed.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Its server, with a worker in the same process unless it has no cores.
pub(super) struct HyperQueue {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl HyperQueue {
    pub(super) fn start(dir: &Path, cores: usize) -> Result<Self> {
        let python = dir.join("hq/bin/python");
        if !dir.join("hq/installed").exists() {
            output(Command::new("python3").args(["-m", "venv"]).arg(dir.join("hq")))?;
            output(Command::new(&python).args(["-m", "pip", "install", "--quiet", HYPERQUEUE]))?;
            std::fs::write(dir.join("hq/installed"), HYPERQUEUE)?;
        }
        let mut child = Command::new(python)
            .args(["-c", include_str!("hyperqueue.py")])
            .arg(dir)
            .arg(cores.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.join("hq.log"))?)
            .spawn()?;
        let commands = child.stdin.take().context("piped")?;
        let answers = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Self { child, commands, answers })
    }

    fn ask(&mut self, command: &str, count: usize) -> Result<Duration> {
        writeln!(self.commands, "{command} {count}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(Duration::from_secs_f64(answer.trim().parse().context("HyperQueue failed; see hq.log")?))
    }

    /// From handing over `count` tasks to the last one's end.
    pub(super) fn run(&mut self, count: usize) -> Result<Duration> {
        self.ask("run", count)
    }

    /// Handing over `count` tasks, which is not durable there.
    pub(super) fn submit(&mut self, count: usize) -> Result<Duration> {
        self.ask("submit", count)
    }
}

impl Drop for HyperQueue {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A one-node Slurm with accounting and slurmrestd (tests/slurmbed), its database durable.
pub(super) struct Slurm {
    base: PathBuf,
}

impl Slurm {
    pub(super) fn start() -> Result<Self> {
        // Its daemons drop to other users, who cannot enter root's folders.
        let slurm = Self { base: std::env::temp_dir().join("fourplane-bench-slurm") };
        slurm.bed("install")?;
        slurm.bed("up")?;
        Ok(slurm)
    }

    fn bed(&self, verb: &str) -> Result<()> {
        let mut command = Command::new("tests/slurmbed/slurmbed.sh");
        command.arg(verb).env("SB_BASE", &self.base).env("SB_NODES", "1").env("SB_DB_FLUSH", "1");
        // Daemons that outlive `up` must not hold our pipes.
        let log = std::fs::File::create(std::env::temp_dir().join("fourplane-bench-slurm.log"))?;
        let status = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).status()?;
        ensure!(status.success(), "slurmbed.sh {verb}: {status}; see the log in the temporary folder");
        Ok(())
    }

    /// A command that asks it.
    pub(super) fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.base.join("etc/slurm.conf"));
        command
    }

    /// slurmrestd's socket.
    pub(super) fn rest(&self) -> PathBuf {
        self.base.join("run/rest.sock")
    }

    /// From one `sbatch --array` to the last member's end. As many run at once as Slurm likes: a limit only
    /// slows it down.
    pub(super) fn run(&self, count: usize) -> Result<Duration> {
        let out = self.base.join("jobs/bench");
        std::fs::remove_dir_all(&out).ok();
        std::fs::create_dir_all(&out)?;
        let script = format!("echo done; echo x >{}/$SLURM_ARRAY_TASK_ID.scratch", out.display());
        let start = SystemTime::now();
        let job = output(
            self.client("sbatch")
                .args(["--parsable", "--ntasks=1", "--mem=100", "--time=5", "--wrap", &script])
                .arg(format!("--array=1-{count}"))
                .arg(format!("--output={}/%a.out", out.display())),
        )?;
        while !output(self.client("squeue").args(["--noheader", "--jobs", &job]))?.is_empty() {
            std::thread::sleep(Duration::from_millis(500));
        }
        let mut last = start;
        let mut lines = 0;
        for entry in std::fs::read_dir(&out)? {
            let meta = entry?.metadata()?;
            lines += usize::from(meta.len() == 5);
            last = last.max(meta.modified()?);
        }
        if lines != count {
            bail!("Slurm ran {lines} of {count} jobs");
        }
        Ok(last.duration_since(start)?)
    }

    /// Forgets all queued jobs.
    pub(super) fn clear(&self) -> Result<()> {
        output(self.client("scancel").args(["--user", "alice"]))?;
        while !output(self.client("squeue").args(["--noheader"]))?.is_empty() {
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.bed("down").ok();
    }
}
