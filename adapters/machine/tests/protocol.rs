//! What passes over the socket: once, in order, and only from the newest server.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use facts::{LaunchSpec, Resources, TaskExit};
use fourplane_machine::LocalNode;
use ops::ports::{IdleLimit, Node, NodeCommand, NodeError, NodeHello, TaskId};
use units::{Epoch, MemberId, Seq};

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
    // On a busy machine a job lasts long enough to be told as running first.
    let last = numbers.len() as u64;
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
    world.send(NodeCommand::Acknowledge(last - 1));
    world.seen.clear();
    let known = world.hello(1);
    assert_eq!(known.len(), 1);
    assert_eq!(world.ended(known[0]).0, TaskExit::Exited(0));
    assert_eq!(world.seen[0].number, last);
    world.kill_supervisor();
    world.start_supervisor();
    world.seen.clear();
    assert_eq!(world.hello(1), known);
    world.freed(known[0]);
    assert!(world.seen[0].number > last, "numbers go on over a restart");
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

/// The fields of a start, as version 1 reads them.
type StartV1 = (
    TaskId,
    Seq,
    [u8; 16],
    MemberId,
    bool,
    String,
    u32,
    u32,
    u16,
    Resources,
    Vec<(u16, String)>,
    bool,
    LaunchSpec,
);

fn read_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

#[test]
fn a_supervisor_of_version_1_reads_new_starts() {
    let world = World::new();
    let starts = [1, 2].map(|attempt| {
        let mut start = world.shell(attempt, "true");
        start.idle = Some(IdleLimit { after: 1 << 40, grace: 1 << 40 });
        start.port = Some(8_080);
        start
    });
    let listener = UnixListener::bind(world.path("supervisor.sock")).unwrap();
    let mut node = LocalNode::new(world.home.path(), None, |_| ());
    let commands = starts.clone().map(|start| NodeCommand::Start(Box::new(start)));
    let server = std::thread::spawn(move || {
        node.hello(Epoch(1)).unwrap();
        node.send(&commands).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    read_frame(&mut stream);
    let hello = (0_u8, 1_u16, NodeHello { boot_id: [0; 16], tasks: Vec::new() });
    let hello = postcard::to_stdvec(&hello).unwrap();
    stream.write_all(&u32::try_from(hello.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(&hello).unwrap();
    for start in starts {
        // Both enums by their variants' numbers: commands, of which each is a start.
        let (kind, commands): (u8, Vec<(u8, StartV1)>) =
            postcard::from_bytes(&read_frame(&mut stream)).unwrap();
        assert_eq!((kind, commands.len(), commands[0].0), (1, 1, 0));
        assert_eq!((commands[0].1.0, &commands[0].1.12), (start.task, &*start.launch));
    }
    server.join().unwrap();
}
