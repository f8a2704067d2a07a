//! The supervisor is killed: no status is lost and nothing runs twice.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use facts::TaskExit;
use ops::ports::{NodeCommand, ReportBody, TaskId};
use rustix::process::Signal;

use crate::world::{World, is_root, kill, until};

#[test]
fn statuses_survive_the_supervisor() {
    let mut world = World::new();
    let short = world.shell(1, "sleep 0.3; exit 7");
    let long = world.shell(2, "sleep 1.2; exit 8");
    world.start(&short);
    world.start(&long);
    world.running(long.task);
    world.kill_supervisor();
    std::thread::sleep(Duration::from_millis(500));
    world.start_supervisor();
    assert_eq!(world.hello(2), [short.task, long.task]);
    assert_eq!(world.ended(short.task).0, TaskExit::Exited(7));
    world.start(&long);
    assert_eq!(world.ended(long.task).0, TaskExit::Exited(8));
    world.freed(long.task);
}

#[test]
fn nothing_is_lost_or_run_twice_whenever_it_dies() {
    let witness = tempfile::tempdir().unwrap();
    fs::set_permissions(witness.path(), Permissions::from_mode(0o777)).unwrap();
    let mut world = World::with_env(&[("FOURPLANE_WITNESS_DIR", witness.path().to_str().unwrap())]);
    let mut attempt = 0;
    for round in 0..6 {
        let starts: Vec<_> = (0..8)
            .map(|_| {
                attempt += 1;
                world.shell(attempt, &format!("sleep 0.0{}; exit 9", attempt % 10))
            })
            .collect();
        for start in &starts {
            world.start(start);
        }
        std::thread::sleep(Duration::from_millis(round * 4));
        world.kill_supervisor();
        world.start_supervisor();
        world.hello(2);
        let mark = world.seen.len();
        for start in &starts {
            world.start(start);
        }
        for start in &starts {
            let known = world.seen[mark..].iter().find_map(|report| match &report.body {
                ReportBody::Ended { task, exit, .. } if *task == start.task => Some(exit.clone()),
                _ => None,
            });
            let exit = known.unwrap_or_else(|| world.ended(start.task).0);
            assert_eq!(exit, TaskExit::Exited(9), "round {round}");
        }
        let last = world.seen.last().unwrap().number;
        world.send(NodeCommand::Acknowledge(last));
    }
    assert_eq!(fs::read_dir(witness.path()).unwrap().count() as u64, attempt);
}

#[test]
fn a_shim_that_vanished_with_its_supervisor_leaves_unknown() {
    if !is_root("a_shim_that_vanished_with_its_supervisor_leaves_unknown") {
        return;
    }
    let mut world = World::new();
    let start = world.task(1, &["sleep", "60"]);
    world.start(&start);
    world.running(start.task);
    let shim = world.shim(0);
    world.kill_supervisor();
    kill(shim, Signal::KILL);
    world.start_supervisor();
    world.hello(2);
    assert_eq!(world.ended(start.task).0, TaskExit::Unknown);
    world.freed(start.task);
    assert!(world.processes(0).is_empty());
}

#[test]
fn another_boot_id_is_a_node_restart() {
    let boot = tempfile::NamedTempFile::new().unwrap();
    fs::write(boot.path(), "11111111-1111-1111-1111-111111111111\n").unwrap();
    let mut world = World::with_env(&[("FOURPLANE_BOOT_ID_FILE", boot.path().to_str().unwrap())]);
    let done = world.shell(1, "exit 3");
    assert_eq!(world.run(&done), TaskExit::Exited(3));
    let start = world.shell(2, "sleep 1");
    world.start(&start);
    world.running(start.task);
    world.kill_supervisor();
    fs::write(boot.path(), "22222222-2222-2222-2222-222222222222\n").unwrap();
    // A restart ends every process; here the job has to be waited for.
    until("the job is gone", || world.processes(1).is_empty().then_some(()));
    world.start_supervisor();
    world.hello(2);
    assert_eq!(world.ended(done.task).0, TaskExit::Exited(3));
    assert_eq!(world.ended(start.task).0, TaskExit::NodeRestart);
    world.freed(start.task);
}

/// The ends seen so far.
fn ends(world: &World) -> impl Iterator<Item = (TaskId, &TaskExit)> {
    world.seen.iter().filter_map(|report| match &report.body {
        ReportBody::Ended { task, exit, .. } => Some((*task, exit)),
        _ => None,
    })
}

#[test]
fn an_end_that_came_with_the_machine_s_is_a_node_restart() {
    if !is_root("an_end_that_came_with_the_machine_s_is_a_node_restart") {
        return;
    }
    // A job may end in any way when it is told to; one that nobody told ended by itself.
    let lines =
        ["sleep 60", "trap 'exit 0' TERM; sleep 60 & wait", "until [ -e over ]; do sleep 0.01; done; exit 3"];
    let restart = || TaskExit::NodeRestart;
    let after = [(1, restart()), (2, restart()), (3, TaskExit::Exited(3))];
    // Without a restart, the one in no doubt is told first.
    let without = [(3, TaskExit::Exited(3)), (1, TaskExit::Signalled(15)), (2, TaskExit::Exited(0))];
    for (restarts, expect) in [(true, after), (false, without)] {
        let boot = tempfile::NamedTempFile::new().unwrap();
        fs::write(boot.path(), "11111111-1111-1111-1111-111111111111\n").unwrap();
        let mut world = World::with_env(&[("FOURPLANE_BOOT_ID_FILE", boot.path().to_str().unwrap())]);
        let starts = [0, 1, 2].map(|index| world.shell(index as u64 + 1, lines[index]));
        for start in &starts {
            world.start(start);
            world.running(start.task);
        }
        world.end_supervisor();
        fs::write(world.path("over"), "").unwrap();
        for slot in 0..2 {
            kill(world.shim(slot), Signal::TERM);
            world.processes(slot).into_iter().for_each(|pid| kill(pid, Signal::TERM));
        }
        for slot in 0..3 {
            until("the job is gone", || world.processes(slot).is_empty().then_some(()));
        }
        if restarts {
            fs::write(boot.path(), "22222222-2222-2222-2222-222222222222\n").unwrap();
        }
        world.start_supervisor();
        world.hello(2);
        while ends(&world).count() < 3 {
            world.wait("an end", |body| matches!(body, ReportBody::Ended { .. }).then_some(()));
        }
        let mut seen: Vec<_> = ends(&world).map(|(task, exit)| (task.attempt.0, exit.clone())).collect();
        seen[1..].sort_by_key(|(attempt, _)| *attempt);
        assert_eq!(seen, expect);
    }
}

#[test]
fn a_server_that_stops_with_the_machine_hears_of_no_end() {
    if !is_root("a_server_that_stops_with_the_machine_hears_of_no_end") {
        return;
    }
    let mut world = World::new();
    let told = world.task(1, &["sleep", "60"]);
    world.start(&told);
    world.running(told.task);
    kill(world.shim(0), Signal::TERM);
    world.processes(0).into_iter().for_each(|pid| kill(pid, Signal::TERM));
    until("the job is gone", || world.processes(0).is_empty().then_some(()));
    // Others go on meanwhile.
    assert_eq!(world.run(&world.shell(2, "exit 4")), TaskExit::Exited(4));
    assert_eq!(ends(&world).count(), 1);
    // The machine did not go down.
    assert_eq!(world.ended(told.task).0, TaskExit::Signalled(15));
}

#[test]
fn it_is_started_once_and_outlives_its_starter() {
    let world = World::new();
    let dir = world.state();
    let exe = std::path::Path::new(env!("CARGO_BIN_EXE_test-supervisor"));
    fourplane_machine::ensure_supervisor(exe, &dir).unwrap();
    assert!(!dir.join("supervisor.log").exists(), "one was there already");
    let second = std::process::Command::new(exe).arg("supervisor").arg("--dir").arg(&dir).output().unwrap();
    assert_eq!(second.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&second.stderr).contains("has a supervisor already"));
}
