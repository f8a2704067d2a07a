//! A terminal is served by its shim, recorded, and found again after everything else died.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use facts::TaskExit;

use crate::world::{World, until};

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_le_bytes();
    [&[kind], &length[..], body].concat()
}

fn read_until(stream: &mut UnixStream, text: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(text) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{text:?} not in {:?}", String::from_utf8_lossy(&seen));
        seen.extend(&buffer[..count]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn a_terminal_outlives_the_supervisor() {
    let mut world = World::new();
    let mut start = world.task(1, &["/bin/sh"]);
    start.terminal = true;
    world.start(&start);
    let socket = world.state().join("tty/1-0.sock");
    let mut first = until("the terminal listens", || UnixStream::connect(&socket).ok());
    first.write_all(&frame(1, &[50, 0, 132, 0])).unwrap();
    first.write_all(&frame(0, b"stty size; echo fi''rst\n")).unwrap();
    assert!(read_until(&mut first, "first").contains("50 132"));
    drop(first);
    world.kill_supervisor();
    let mut second = UnixStream::connect(&socket).unwrap();
    read_until(&mut second, "50 132");
    second.write_all(&frame(0, b"exit 3\n")).unwrap();
    world.start_supervisor();
    world.hello(2);
    assert_eq!(world.ended(start.task).0, TaskExit::Exited(3));
    assert!(world.read("job-1.out").contains("first"));
    assert!(!socket.exists());
}
