//! Every way to end is told apart.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use facts::{StartFailure, TaskExit};
use ops::ports::NodeCommand;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use units::{ArrayIndex, Bytes};

use crate::world::{GID, UID, World, change, is_root, kill, until};

#[test]
fn codes_and_signals() {
    let mut world = World::new();
    let lines = [
        ("exit 0", TaskExit::Exited(0)),
        ("exit 3", TaskExit::Exited(3)),
        ("kill -TERM $$", TaskExit::Signalled(15)),
        ("kill -KILL $$", TaskExit::Signalled(9)),
    ];
    for (attempt, (line, expect)) in (1..).zip(lines) {
        let start = world.shell(attempt, line);
        assert_eq!(world.run(&start), expect, "{line}");
    }
}

#[test]
fn out_of_memory_is_no_plain_kill() {
    if !is_root("out_of_memory_is_no_plain_kill") {
        return;
    }
    let mut world = World::new();
    let hog = "x = bytearray(512 << 20)";
    let start = world.task(1, &["/usr/bin/python3", "-c", hog]);
    assert_eq!(world.run(&start), TaskExit::OutOfMemory(9));
    // The next one in the same slot is judged by its own kills only.
    let start = world.shell(2, "kill -KILL $$");
    assert_eq!(world.run(&start), TaskExit::Signalled(9));
    // Who outlives the kill of a child ended as it says.
    let start = world.shell(3, &format!("/usr/bin/python3 -c '{hog}'; exit 0"));
    assert_eq!(world.run(&start), TaskExit::Exited(0));
}

#[test]
fn what_never_ran_says_why() {
    if !is_root("what_never_ran_says_why") {
        return;
    }
    let mut world = World::new();
    fs::create_dir(world.path("closed")).unwrap();
    fs::set_permissions(world.path("closed"), Permissions::from_mode(0o700)).unwrap();
    let closed = world.path("closed").to_str().unwrap().to_owned();
    let mut start = |argv: &[&str], cwd: Option<&str>, out: &str, step: &str, subject: &str, errno| {
        let mut start = world.task(world.seen.len() as u64 + 1, argv);
        change(&mut start, |launch| {
            launch.stdout = out.as_bytes().to_vec();
            if let Some(cwd) = cwd {
                launch.cwd = cwd.as_bytes().to_vec();
            }
        });
        let failure = StartFailure { step: step.to_owned(), subject: subject.to_owned(), errno };
        assert_eq!(world.run(&start), TaskExit::StartFailed(failure));
    };
    start(&["no-such-program"], None, "%j.out", "exec", "no-such-program", libc::ENOENT);
    start(&["/etc/passwd"], None, "%j.out", "exec", "/etc/passwd", libc::EACCES);
    start(&["true"], Some(&closed), "%j.out", "open working directory", &closed, libc::EACCES);
    let out = format!("{closed}/out");
    start(&["true"], None, &out, "open output", &out, libc::EACCES);
}

#[test]
fn a_job_is_its_user() {
    if !is_root("a_job_is_its_user") {
        return;
    }
    let mut world = World::new();
    let mut start = world.shell(5, "id -u; id -g; id -G; umask; touch made; cat; pwd");
    change(&mut start, |launch| launch.umask = 0o027);
    assert_eq!(world.run(&start), TaskExit::Exited(0));
    let home = world.home.path().display().to_string();
    assert_eq!(world.read("job-5.out"), format!("{UID}\n{GID}\n{GID} 34567\n0027\n{home}\n"));
    for name in ["made", "job-5.out"] {
        let meta = fs::metadata(world.path(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (UID, GID, 0o640), "{name}");
    }
}

#[test]
fn a_job_does_not_inherit_its_supervisor_s_limits() {
    let mut world = World::new();
    let pid = Pid::from_raw(world.supervisor());
    // Soft ones: not everywhere may hard ones be raised again.
    for (resource, odd) in [
        (Resource::Nofile, 77),
        (Resource::Core, 1 << 20),
        (Resource::Stack, 1 << 20),
        (Resource::Memlock, 4_096),
    ] {
        let maximum = getrlimit(resource).maximum;
        prlimit(pid, resource, Rlimit { current: Some(odd), maximum }).unwrap();
    }
    let start = world
        .shell(1, "ulimit -n; ulimit -c; ulimit -s; ulimit -l; ulimit -H -l; ulimit -n 1500 && ulimit -n");
    assert_eq!(world.run(&start), TaskExit::Exited(0));
    let text = world.read("job-1.out");
    let lines: Vec<&str> = text.lines().collect();
    let ["1024", "0", "8192", locked, most_locked, "1500"] = lines[..] else { panic!("{text}") };
    assert_eq!(locked, most_locked);
}

#[test]
fn a_job_is_told_who_it_is() {
    let mut world = World::new();
    let mut start = world.task(6, &["env"]);
    (start.is_array, start.member.index, start.number, start.world_size) = (true, ArrayIndex(4), 2, 8);
    start.devices = vec![(1, "GPU-a".to_owned()), (3, "GPU-b".to_owned())];
    change(&mut start, |launch| {
        launch.env.extend([b"FOURPLANE_TOKEN=s3cret".to_vec(), b"RANK=99".to_vec(), b"MINE=1".to_vec()]);
    });
    assert_eq!(world.run(&start), TaskExit::Exited(0));
    let text = world.read("job-6_4.out");
    assert!(text.starts_with("--- fourplane: attempt 2 ---\n"), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    for line in [
        "MINE=1",
        "FOURPLANE_JOB_ID=6",
        "FOURPLANE_ARRAY_INDEX=4",
        "FOURPLANE_ATTEMPT=2",
        "RANK=0",
        "WORLD_SIZE=8",
        "MASTER_PORT=20000",
        "CUDA_VISIBLE_DEVICES=1,3",
    ] {
        assert!(lines.contains(&line), "{line} in {text}");
    }
    assert!(!text.contains("s3cret") && !text.contains("RANK=99"), "{text}");
}

#[test]
fn scripts_and_output_files() {
    let mut world = World::new();
    let mut start = world.task(7, &["/bin/sh", "-", "word"]);
    start.name = "n".repeat(10_000);
    change(&mut start, |launch| {
        launch.script = Some(b"echo out $1\necho err >&2\n".to_vec());
        launch.stderr = Some(b"%j.err".to_vec());
    });
    assert_eq!(world.run(&start), TaskExit::Exited(0));
    let long =
        fs::read_dir(world.home.path()).unwrap().flatten().find(|entry| entry.file_name().len() == 255);
    let text = fs::read_to_string(long.expect("a name of 255 bytes").path()).unwrap();
    assert!(text.contains("cut to 255 bytes") && text.ends_with("out word\n"), "{text}");
    assert_eq!(world.read("7.err"), "err\n");
}

#[test]
fn output_stops_at_its_limit() {
    let mut world = World::new();
    let mut start = world.shell(8, "head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2; exit 4");
    change(&mut start, |launch| {
        launch.output_max = Some(Bytes(100_000));
        launch.stderr = Some(b"%j.err".to_vec());
    });
    assert_eq!(world.run(&start), TaskExit::Exited(4));
    let text = world.read("job-8.out");
    assert_eq!(text.matches("output limit reached").count(), 1);
    assert_eq!(text.matches('x').count(), 100_000);
    assert_eq!(world.read("8.err"), "end\n");
}

#[test]
fn stop_warns_then_kills() {
    let mut world = World::new();
    let polite = world.shell(1, "trap 'echo warned; exit 5' TERM; while :; do sleep 0.01; done");
    let deaf = world.shell(2, "trap '' TERM; while :; do sleep 0.01; done");
    for (start, grace, expect) in [(polite, 10_000, TaskExit::Exited(5)), (deaf, 200, TaskExit::Signalled(9))]
    {
        world.start(&start);
        world.running(start.task);
        world.send(NodeCommand::Stop { task: start.task, signal: 15, grace: grace * 1_000_000 });
        assert_eq!(world.ended(start.task).0, expect);
    }
    assert_eq!(world.read("job-1.out").lines().last(), Some("warned"));
}

#[test]
fn a_signal_that_comes_early_is_kept() {
    let mut world = World::new();
    let start = world.task(1, &["sleep", "30"]);
    world.start(&start);
    world.send(NodeCommand::Signal { task: start.task, signal: 10 });
    assert_eq!(world.ended(start.task).0, TaskExit::Signalled(10));
}

#[test]
fn a_killed_shim_leaves_the_outcome_unknown() {
    if !is_root("a_killed_shim_leaves_the_outcome_unknown") {
        return;
    }
    let mut world = World::new();
    let start = world.task(1, &["sleep", "30"]);
    world.start(&start);
    world.running(start.task);
    kill(world.shim(0), Signal::KILL);
    assert_eq!(world.ended(start.task).0, TaskExit::Unknown);
    until("the job is gone too", || world.processes(0).is_empty().then_some(()));
}
