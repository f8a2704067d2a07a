//! The supervisor is killed: no status is lost and nothing runs twice.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use facts::TaskExit;
use ops::ports::{NodeCommand, ReportBody};
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
