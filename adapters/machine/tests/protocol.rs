//! What passes over the socket: once, in order, and only from the newest server.

use std::os::unix::fs::PermissionsExt;

use facts::TaskExit;
use ops::ports::{Node, NodeCommand, NodeError};
use units::Epoch;

use crate::world::World;

#[test]
fn a_repeated_start_runs_once() {
    let mut world = World::new();
    let start = world.shell(1, "echo ran");
    world.start(&start);
    world.start(&start);
    assert_eq!(world.ended(start.task).0, TaskExit::Exited(0));
    world.start(&start);
    world.quiet();
    let number = world.seen.last().unwrap().number;
    world.send(NodeCommand::Acknowledge(number));
    world.start(&start);
    world.quiet();
    assert_eq!(world.read("job-1.out"), "ran\n");
}

#[test]
fn reports_are_numbered_and_repeated_until_acknowledged() {
    let mut world = World::new();
    for attempt in 1..=3 {
        let start = world.shell(attempt, "exit 0");
        assert_eq!(world.run(&start), TaskExit::Exited(0));
    }
    let numbers: Vec<u64> = world.seen.iter().map(|report| report.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    world.send(NodeCommand::Acknowledge(2));
    world.seen.clear();
    let known = world.hello(1);
    assert_eq!(known.len(), 1);
    assert_eq!(world.ended(known[0]).0, TaskExit::Exited(0));
    assert_eq!(world.seen[0].number, 3);
    world.kill_supervisor();
    world.start_supervisor();
    world.seen.clear();
    assert_eq!(world.hello(1), known);
    world.freed(known[0]);
    assert!(world.seen[0].number > 3, "numbers go on over a restart");
    let last = world.seen.last().unwrap().number;
    world.send(NodeCommand::Acknowledge(last));
    assert_eq!(world.hello(1), []);
    world.quiet();
}

#[test]
fn a_lower_epoch_is_refused() {
    let mut world = World::new();
    world.hello(5);
    world.kill_supervisor();
    world.start_supervisor();
    let dir = world.state();
    let mut old = fourplane_machine::LocalNode::new(&dir, None, |_| {});
    assert!(matches!(old.hello(Epoch(4)), Err(NodeError::Superseded(Epoch(5)))));
    assert!(old.send(&[NodeCommand::Acknowledge(1)]).is_err());
    old.hello(Epoch(5)).unwrap();
}

#[test]
fn only_its_owner_reaches_the_socket() {
    let world = World::new();
    let mode = std::fs::metadata(world.state().join("supervisor.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
