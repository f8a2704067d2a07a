//! A slot's shim serves one job after another, and nothing goes from one to the next.

use std::fs;

use facts::TaskExit;
use ops::ports::{NodeCommand, ReportBody};
use rustix::process::Signal;

use crate::world::{GID, UID, World, change, is_root, kill, parent, until};

/// Everything of a process that its parent could leave to it, one a line. A shell that waits blocks
/// signals, so the last line becomes the program that reads them. To list its descriptors takes one.
const PROBE: &str = "echo $PPID; id -u; id -G; umask; ulimit -c; pwd; \
     cut -d' ' -f6 /proc/$$/stat | sed s/^$$\\$/leader/; \
     cd /proc/$$/fd; echo *; env | grep -c SECRET; \
     exec grep -E '^(SigBlk|SigIgn|NoNewPrivs):' /proc/self/status";

#[test]
fn a_shim_leaves_nothing_of_a_job_to_the_next() {
    if !is_root("a_shim_leaves_nothing_of_a_job_to_the_next") {
        return;
    }
    let mut world = World::new();
    let probe = |world: &mut World, attempt| {
        let start = world.shell(attempt, PROBE);
        assert_eq!(world.run(&start), TaskExit::Exited(0));
        world.read(&format!("job-{attempt}.out"))
    };
    let clean = probe(&mut world, 1);
    assert!(clean.contains("\nleader\n0 1 2 3\n0\nSigBlk:\t0000000000000000\n"), "{clean}");

    let mut other = world.shell(2, "exec 7>left; trap '' USR1; ulimit -c 0; umask 0; kill -KILL $$");
    change(&mut other, |launch| {
        (launch.uid, launch.gid, launch.groups, launch.umask) = (UID + 1, GID + 1, vec![4, 5, 6], 0o077);
        (launch.cwd, launch.script) = (b"/tmp".to_vec(), Some(b"exit 3".to_vec()));
        launch.stdout = b"/dev/null".to_vec();
        launch.env.push(b"SECRET=1".to_vec());
    });
    assert_eq!(world.run(&other), TaskExit::Signalled(9));
    let mut limited = world.shell(3, "echo much");
    change(&mut limited, |launch| launch.output_max = Some(units::Bytes(1)));
    assert_eq!(world.run(&limited), TaskExit::Exited(0));
    let failed = world.task(4, &["no-such-program"]);
    assert!(matches!(world.run(&failed), TaskExit::StartFailed(_)));

    assert_eq!(probe(&mut world, 5), clean, "the same shim, and nothing else differs");
}

#[test]
fn each_job_is_told_its_own_processor_time() {
    let mut world = World::new();
    let mut cpu = |attempt, line| {
        let start = world.shell(attempt, line);
        world.start(&start);
        world.wait("an end", |body| match body {
            ReportBody::Ended { task, cpu, .. } if *task == start.task => *cpu,
            _ => None,
        })
    };
    let long = cpu(1, "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done");
    let short = cpu(2, "exit 0");
    assert!(short * 2 < long, "{short} ns and {long} ns");
}

#[test]
fn a_shim_that_was_killed_while_it_waited_is_replaced() {
    if !is_root("a_shim_that_was_killed_while_it_waited_is_replaced") {
        return;
    }
    let mut world = World::new();
    let shim = |world: &mut World, attempt| {
        assert_eq!(world.run(&world.shell(attempt, "echo $PPID")), TaskExit::Exited(0));
        world.read(&format!("job-{attempt}.out")).trim().parse::<i32>().unwrap()
    };
    let first = shim(&mut world, 1);
    kill(first, Signal::KILL);
    until("it is gone", || (!fs::exists(format!("/proc/{first}")).unwrap()).then_some(()));
    assert_ne!(shim(&mut world, 2), first);
}

#[test]
fn shims_that_wait_end_with_their_supervisor_and_the_others_after_their_task() {
    if !is_root("shims_that_wait_end_with_their_supervisor_and_the_others_after_their_task") {
        return;
    }
    let mut world = World::new();
    let long = world.task(1, &["sleep", "60"]);
    world.start(&long);
    world.running(long.task);
    let (busy, short) = (world.shim(0), world.shell(2, "echo $PPID"));
    assert_eq!(world.run(&short), TaskExit::Exited(0));
    let waiting: i32 = world.read("job-2.out").trim().parse().unwrap();
    assert_ne!(parent(waiting), 1, "it is there still");
    let gone = |pid: i32| move || (!fs::exists(format!("/proc/{pid}")).unwrap_or(true)).then_some(());
    world.kill_supervisor();
    until("the one that waits is gone", gone(waiting));
    world.start_supervisor();
    world.hello(2);
    world.send(NodeCommand::Stop { task: long.task, signal: 9, grace: 0 });
    assert_eq!(world.ended(long.task).0, TaskExit::Signalled(9));
    world.freed(long.task);
    until("the other is gone", gone(busy));
    // Both slots are there again.
    assert_eq!(world.run(&world.shell(3, "echo $FOURPLANE_SCRATCH")), TaskExit::Exited(0));
    assert_eq!(fs::read_dir(world.state().join("scratch")).unwrap().count(), 2);
}
