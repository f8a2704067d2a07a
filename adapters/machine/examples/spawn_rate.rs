//! How fast tasks go through the supervisor against bare spawn and wait of the same command,
//! in alternating rounds: `cargo run --release -p fourplane-machine --example spawn_rate`.
//! On: cgroup, exit journal, output file of the job's own, scratch file. Off: the server's log.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

use std::fmt::Write;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use facts::{LaunchSpec, Resources, TaskExit};
use fourplane_machine::{LocalNode, SupervisorConfig, remove_cgroups, supervisor_main};
use ops::ports::{Node, NodeCommand, NodeEvent, ReportBody, StartTask, TaskId};
use units::{AttemptId, Bytes, Cores, Epoch, JobId, MemberId, Rank, Seq};

const JOBS: u64 = 3_000;
const LINE: &str = "echo line; echo data > $FOURPLANE_SCRATCH/file";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == "supervisor") {
        return supervisor_main(SupervisorConfig::new(args.nth(1).unwrap_or_default().into()));
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("state");
    let mut supervisor = Command::new(std::env::current_exe().unwrap());
    let mut supervisor = supervisor.arg("supervisor").arg("--dir").arg(&dir).spawn().unwrap();
    while std::os::unix::net::UnixStream::connect(dir.join("supervisor.sock")).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (sender, events) = channel();
    let mut node = LocalNode::new(&dir, None, move |event| drop(sender.send(event)));
    node.hello(Epoch(1)).unwrap();
    let cwd = home.path().to_str().unwrap();
    let mut next = 1;
    for _ in 0..3 {
        let bare = bare(cwd);
        let mut line = format!("bare {bare:5.0}/s");
        for in_flight in [2, 8] {
            let rate = supervised(&mut node, &events, &mut next, in_flight, cwd);
            let ratio = rate / bare;
            write!(line, "   {in_flight} in flight {rate:5.0}/s = {ratio:.2}").unwrap();
        }
        println!("{line}");
    }
    supervisor.kill().and_then(|()| supervisor.wait()).and_then(|_| remove_cgroups(&dir)).unwrap();
    ExitCode::SUCCESS
}

fn rate(begin: Instant) -> f64 {
    f64::from(u32::try_from(JOBS).unwrap()) / begin.elapsed().as_secs_f64()
}

fn bare(cwd: &str) -> f64 {
    let output = std::fs::File::create(format!("{cwd}/bare.out")).unwrap();
    let begin = Instant::now();
    for _ in 0..JOBS {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LINE]).env_clear().env("FOURPLANE_SCRATCH", cwd).stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
        assert!(command.status().unwrap().success());
        // As the supervisor does; writing over a file would make ext4 flush it.
        std::fs::remove_file(format!("{cwd}/file")).unwrap();
    }
    rate(begin)
}

fn supervised(
    node: &mut LocalNode,
    events: &Receiver<NodeEvent>,
    next: &mut u64,
    in_flight: u64,
    cwd: &str,
) -> f64 {
    let launch = Arc::new(LaunchSpec {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: Vec::new(),
        argv: ["/bin/sh", "-c", LINE].map(|arg| arg.as_bytes().to_vec()).to_vec(),
        script: None,
        cwd: cwd.as_bytes().to_vec(),
        env: Vec::new(),
        umask: 0o022,
        stdout: b"job.out".to_vec(),
        stderr: None,
        output_max: None,
    });
    let begin = Instant::now();
    let end = *next + JOBS;
    let mut commands: Vec<NodeCommand> = (0..in_flight).map(|_| start(next, &launch)).collect();
    let mut open = in_flight;
    while open > 0 {
        if !commands.is_empty() {
            node.send(&commands).unwrap();
            commands.clear();
        }
        let first = events.recv().unwrap();
        for event in std::iter::once(first).chain(events.try_iter()) {
            let NodeEvent::Report(report) = event else { panic!("the supervisor is gone") };
            if let ReportBody::Ended { exit, .. } = report.body {
                assert_eq!(exit, TaskExit::Exited(0));
                open -= 1;
                if *next < end {
                    commands.push(start(next, &launch));
                    open += 1;
                }
            }
            commands.push(NodeCommand::Acknowledge(report.number));
        }
    }
    rate(begin)
}

fn start(next: &mut u64, launch: &Arc<LaunchSpec>) -> NodeCommand {
    let attempt = *next;
    *next += 1;
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&attempt.to_le_bytes());
    NodeCommand::Start(Box::new(StartTask {
        task: TaskId { attempt: AttemptId(attempt), rank: Rank(0) },
        decision: Seq(attempt),
        nonce,
        member: MemberId::sole(JobId(attempt)),
        is_array: false,
        name: "rate".to_owned(),
        number: 1,
        world_size: 1,
        rendezvous_port: 20_000,
        resources: Resources { cores: Cores(1), memory: Bytes(256 << 20), gpus: 0 },
        devices: Vec::new(),
        terminal: false,
        launch: Arc::clone(launch),
        idle: None,
        port: None,
    }))
}
