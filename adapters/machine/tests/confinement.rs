//! What a job may not do, and what is left of it afterwards: nothing, or it is told.

use std::fs;

use facts::TaskExit;
use ops::ports::ReportBody;
use rustix::process::Signal;

use crate::world::{World, change, is_root, kill, skip, until};

#[test]
fn what_leaves_the_session_is_killed_all_the_same() {
    let mut world = World::new();
    let line = "sh -c 'echo $$; exec setsid sleep 60' & (setsid sh -c 'echo $$; exec sleep 60' &); sleep 0.2";
    let start = world.shell(1, line);
    world.start(&start);
    let (exit, freed) = world.ended(start.task);
    assert_eq!(exit, TaskExit::Exited(0));
    if freed.is_none() {
        world.freed(start.task);
    }
    let text = world.read("job-1.out");
    assert_eq!(text.lines().count(), 2, "{text}");
    for pid in text.lines() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        assert!(name != "sleep\n" || status.contains("State:\tZ"), "{pid} lives");
    }
}

#[test]
fn a_group_that_somebody_removed_is_made_again() {
    if !is_root("a_group_that_somebody_removed_is_made_again") {
        return;
    }
    let mut world = World::new();
    let run = |world: &mut World, attempt| world.run(&world.shell(attempt, "echo $FOURPLANE_SCRATCH"));
    assert_eq!(run(&mut world, 1), TaskExit::Exited(0));
    world.quiet();
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        drop(fs::remove_dir(hierarchy.path().join(&world.base).join("slot-0")));
    }
    let TaskExit::StartFailed(failure) = run(&mut world, 2) else { panic!("the group is not gone") };
    assert_eq!(failure.step, "join cgroup");
    assert_eq!(run(&mut world, 3), TaskExit::Exited(0));
    assert!(world.read("job-3.out").ends_with("slot-0\n"));
}

#[test]
fn a_frozen_process_is_a_leaked_hold_until_it_is_thawed() {
    if !is_root("a_frozen_process_is_a_leaked_hold_until_it_is_thawed") {
        return;
    }
    let mut world = World::new();
    let Some(freezer) = Freezer::make() else {
        skip("a_frozen_process_is_a_leaked_hold_until_it_is_thawed", "no v1 freezer");
        return;
    };
    let start = world.shell(1, "sleep 60 & echo $! > pid; sleep 0.5");
    world.start(&start);
    let pid = until("the child is there", || {
        fs::read_to_string(world.path("pid")).ok()?.trim().parse::<i32>().ok()
    });
    freezer.set("cgroup.procs", &pid.to_string());
    freezer.set("freezer.state", "FROZEN");
    let (exit, freed) = world.ended(start.task);
    assert_eq!((exit, freed), (TaskExit::Exited(0), None));
    let reason = world.wait("the leak", |body| match body {
        ReportBody::Leaked { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.starts_with(&format!("process {pid} (")), "{reason}");
    assert!(reason.ends_with(") is frozen by its freezer cgroup"), "{reason}");
    // Its slot is not handed on.
    let other = world.shell(2, "echo $FOURPLANE_SCRATCH");
    assert_eq!(world.run(&other), TaskExit::Exited(0));
    assert!(world.read("job-2.out").ends_with("slot-1\n"));
    world.quiet();
    freezer.set("freezer.state", "THAWED");
    world.freed(start.task);
}

/// A v1 freezer cgroup; thawed and removed at the end, however the test ends.
struct Freezer(String);

impl Freezer {
    fn make() -> Option<Self> {
        let path = format!("/sys/fs/cgroup/freezer/fourplane-test-{}", std::process::id());
        fs::create_dir(&path).ok().map(|()| Self(path))
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(format!("{}/{file}", self.0), value).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // No panic here: it may run while a failed test unwinds, and an abort leaves processes.
        let _ = fs::write(format!("{}/freezer.state", self.0), "THAWED");
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn a_slot_is_handed_on_empty() {
    if !is_root("a_slot_is_handed_on_empty") {
        return;
    }
    let mut world = World::new();
    let line = "pwd; ls -A $FOURPLANE_SCRATCH; stat -c %u:%a $FOURPLANE_SCRATCH; cd $FOURPLANE_SCRATCH && \
                mkdir -p a/b && echo x > a/b/c && ln -s /etc d && chmod 0 a && chmod 500 .";
    for (attempt, uid) in [(1, 12_345), (2, 12_345), (3, 65_534)] {
        let mut start = world.shell(attempt, line);
        change(&mut start, |launch| launch.uid = uid);
        assert_eq!(world.run(&start), TaskExit::Exited(0));
        let expect = format!("{}\n{uid}:700\n", world.home.path().display());
        assert_eq!(world.read(&format!("job-{attempt}.out")), expect);
        world.erased(0);
    }
    let slots = fs::read_dir(world.state().join("scratch")).unwrap().count();
    assert_eq!(slots, 1, "one slot served all three");
    assert!(fs::exists("/etc/passwd").unwrap());
}

#[test]
fn a_job_that_leaves_many_files_holds_up_no_other() {
    let mut world = World::new();
    let line = "mkdir $FOURPLANE_SCRATCH/d && cd $FOURPLANE_SCRATCH/d && seq 50000 | xargs touch";
    let begun = "ls $FOURPLANE_SCRATCH | wc -l; echo $FOURPLANE_SCRATCH";
    let left = world.state().join("scratch/slot-0/d");
    assert_eq!(world.run(&world.shell(1, line)), TaskExit::Exited(0));
    assert_eq!(world.run(&world.shell(2, begun)), TaskExit::Exited(0));
    assert!(left.exists(), "erased before the next job ran");
    assert!(world.read("job-2.out").starts_with("0\n"));
    // A supervisor that starts meanwhile does not hand the slot on either, but does when it is erased.
    world.kill_supervisor();
    world.start_supervisor();
    world.hello(2);
    assert_eq!(world.run(&world.shell(3, begun)), TaskExit::Exited(0));
    assert!(left.exists(), "erased before the next job ran");
    assert!(world.read("job-3.out").starts_with("0\n"));
    world.erased(0);
    let other = world.shell(4, &format!("{begun}; sleep 60"));
    world.start(&other);
    world.running(other.task);
    assert_eq!(world.run(&world.shell(5, begun)), TaskExit::Exited(0));
    let slots = world.read("job-4.out") + &world.read("job-5.out");
    assert!(slots.matches("0\n/").count() == 2 && slots.contains("slot-0\n"), "{slots}");
}

#[test]
fn a_fork_storm_meets_its_limit() {
    if !is_root("a_fork_storm_meets_its_limit") {
        return;
    }
    let mut world = World::new();
    let storm = "import os, time\nn = 0\nwhile n < 500:\n  try:\n    pid = os.fork()\n  except OSError:\n    \
                 break\n  if pid == 0:\n    time.sleep(60)\n  n += 1\nprint(n)";
    let start = world.task(1, &["/usr/bin/python3", "-c", storm]);
    assert_eq!(world.run(&start), TaskExit::Exited(0));
    let started: u32 = world.read("job-1.out").trim().parse().unwrap();
    assert_eq!(started, 63);
    until("all are gone", || world.processes(0).is_empty().then_some(()));
}

#[test]
fn a_job_cannot_end_its_shim() {
    if !is_root("a_job_cannot_end_its_shim") {
        return;
    }
    let mut world = World::new();
    let start = world.shell(1, "kill -9 $PPID 2>/dev/null || echo refused; sleep 0.1; exit 6");
    assert_eq!(world.run(&start), TaskExit::Exited(6));
    assert_eq!(world.read("job-1.out"), "refused\n");
}

#[test]
fn devices_not_given_cannot_be_opened() {
    if !is_root("devices_not_given_cannot_be_opened") {
        return;
    }
    if !fourplane_machine::enforcement().1 {
        skip("devices_not_given_cannot_be_opened", "nothing here confines devices");
        return;
    }
    let devices = tempfile::tempdir().unwrap();
    fs::create_dir(devices.path().join("dri")).unwrap();
    // Stand-ins for GPUs that any machine has.
    for (name, minor) in [("nvidia0", 5), ("nvidia1", 7), ("dri/renderD128", 8)] {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let device = rustix::fs::makedev(1, minor);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            devices.path().join(name),
            rustix::fs::FileType::CharacterDevice,
            mode,
            device,
        );
        made.unwrap();
    }
    let mut world = World::with_env(&[("FOURPLANE_TEST_DEVICES", devices.path().to_str().unwrap())]);
    let line =
        "for d in zero full random urandom; do head -c 1 /dev/$d >/dev/null 2>&1 && echo $d; done; true";
    // What leads to no GPU is open to all, and what may lead to any to who has them all.
    for (attempt, given, expect) in
        [(1, vec![], "urandom"), (2, vec![1], "full urandom"), (3, vec![0, 1], "zero full random urandom")]
    {
        let mut start = world.shell(attempt, line);
        start.devices = given.into_iter().map(|index| (index, String::new())).collect();
        assert_eq!(world.run(&start), TaskExit::Exited(0));
        let text = world.read(&format!("job-{attempt}.out"));
        assert_eq!(text.lines().collect::<Vec<_>>().join(" "), expect);
    }
}

#[test]
fn a_kill_from_outside_is_a_plain_signal() {
    if !is_root("a_kill_from_outside_is_a_plain_signal") {
        return;
    }
    let mut world = World::new();
    let start = world.task(1, &["sleep", "60"]);
    world.start(&start);
    world.running(start.task);
    kill(world.processes(0)[0], Signal::KILL);
    assert_eq!(world.ended(start.task).0, TaskExit::Signalled(9));
}
