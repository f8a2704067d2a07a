//! A terminal is served by its shim, recorded, and found again after everything else died.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use facts::TaskExit;
use ops::ports::{IdleLimit, StartTask};

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

/// A terminal that runs `line` and is ended when nobody uses it for so long as [`LIMIT`].
fn idle_shell(world: &World, line: &str, grace: Duration) -> StartTask {
    let mut start = world.task(1, &["/bin/sh", "-c", line]);
    start.terminal = true;
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap();
    start.idle = Some(IdleLimit { after: nanos(LIMIT), grace: nanos(grace) });
    start
}

const LIMIT: Duration = Duration::from_millis(1_500);

#[test]
fn a_terminal_that_nobody_uses_is_hung_up_then_killed() {
    for (trap, grace, expect) in [
        // Asked first, it can put its house in order.
        ("trap 'echo bye; exit 0' HUP", Duration::from_secs(20), "bye"),
        ("trap '' HUP", Duration::from_millis(200), ""),
    ] {
        let mut world = World::new();
        let start = idle_shell(&world, &format!("{trap}; sleep 60 & wait; sleep 60"), grace);
        let begin = Instant::now();
        assert_eq!(world.run(&start), TaskExit::IdleLimit, "{trap}");
        assert!(begin.elapsed() > LIMIT && begin.elapsed() < Duration::from_secs(10), "{trap}");
        assert_eq!(world.read("job-1.out").trim(), expect);
    }
}

#[test]
fn use_puts_the_idle_limit_off() {
    let mut world = World::new();
    let start = idle_shell(&world, "for i in 1 2 3 4; do sleep 0.5; echo $i; done; cat", LIMIT);
    let begin = Instant::now();
    world.start(&start);
    let socket = world.state().join("tty/1-0.sock");
    let mut typist = until("the terminal listens", || UnixStream::connect(&socket).ok());
    // What it shows counts as use, and then what is typed.
    read_until(&mut typist, "4\r\n");
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        typist.write_all(&frame(0, b"x")).unwrap();
    }
    assert_eq!(world.ended(start.task).0, TaskExit::IdleLimit);
    assert!(begin.elapsed() > Duration::from_secs(4) + LIMIT);
}

#[test]
fn the_reason_is_kept_while_no_supervisor_lives() {
    let mut world = World::new();
    let start = idle_shell(&world, "sleep 60", LIMIT);
    world.start(&start);
    world.running(start.task);
    let socket = world.state().join("tty/1-0.sock");
    world.kill_supervisor();
    until("the shim has ended", || (!socket.exists()).then_some(()));
    world.start_supervisor();
    world.hello(2);
    assert_eq!(world.ended(start.task).0, TaskExit::IdleLimit);
}
