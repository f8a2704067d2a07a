//! An upgrade with jobs running: yesterday's program, built from a commit of the past by
//! `./dev test`, and today's on the same state.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use rustix::process::{Signal, kill_process};

use crate::world::{PROGRAM, World, eventually, finish, skip};

/// Yesterday's program, if it was built.
fn yesterday(test: &str) -> Option<PathBuf> {
    let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
    let program = target.join("yesterday/debug/fourplane");
    if program.exists() {
        return Some(program);
    }
    skip(test, "there is no program of an earlier commit; ./dev test builds it");
    None
}

/// Submits a job that runs until there is a file of its name, and then exits with `code`.
fn gated(world: &World, name: &str, code: u8, flags: &[&str]) -> String {
    let script = format!("echo $$ > {name}.pid; until [ -e {name} ]; do sleep 0.02; done; exit {code}");
    world.submit(&[flags, &["-o", "/dev/null", "-J", name, "--", "/bin/sh", "-c", &script]].concat())
}

fn open_gate(world: &World, name: &str) {
    std::fs::write(world.work().join(name), "").unwrap();
}

fn end(world: &World, id: &str) -> i32 {
    world.run(&["wait", id, "--timeout", "20s"]).code
}

/// Yesterday's server, told to stop or killed, and today's in its place.
fn upgrade(stop: fn(&mut World)) {
    let Some(old) = yesterday("upgrade") else { return };
    let mut world = World::of(&old, &["--allow-root", "--cores", "8"]);
    let done = ["0", "7"].map(|code| world.submit(&["--", "/bin/sh", "-c", &format!("exit {code}")]));
    assert_eq!(done.each_ref().map(|id| end(&world, id)), [0, 7]);
    let running = gated(&world, "running", 5, &[]);
    let orphan = gated(&world, "orphan", 6, &[]);
    let unseen = gated(&world, "unseen", 3, &[]);
    let array = gated(&world, "array", 2, &["--array", "0-3%2"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let serve = format!("exec /usr/bin/python3 -m http.server --bind 127.0.0.1 {port}");
    let flags = ["--service", "--port", &port.to_string(), "--health", "tcp"];
    let service = world.submit(&[&flags[..], &["-o", "/dev/null", "--", "/bin/sh", "-c", &serve]].concat());
    let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    eventually("the service answers", answers);
    let waiting = gated(&world, "waiting", 4, &["--dependency", &format!("afterany:{running}")]);
    let supervisor = world.supervisor();

    stop(&mut world);
    open_gate(&world, "unseen");
    world.install(Path::new(PROGRAM));
    world.up();

    assert_eq!(world.supervisor(), supervisor, "the supervisor outlives the upgrade");
    assert_eq!(done.each_ref().map(|id| end(&world, id)), [0, 7]);
    assert_eq!(world.job(&done[1])["outcome"]["exit_code"], 7);
    assert_eq!(end(&world, &unseen), 3);
    assert_eq!(
        [&running, &orphan, &array, &service].map(|id| world.job(id)["state"].clone()),
        ["running"; 4]
    );
    eventually("today's health check", || world.job(&service)["tries"][0]["readiness"]["ready"] == true);

    // New work goes to the supervisor of yesterday.
    let ran = world.run(&["run", "--", "/bin/sh", "-c", "echo new; exit 9"]);
    assert_eq!((ran.code, ran.out.as_str()), (9, "new\n"), "{}", ran.err);
    let several = world.submit(&["--array", "0-2", "-o", "/dev/null", "--", "/bin/sh", "-c", "exit 8"]);
    assert_eq!(end(&world, &several), 8, "starts that leave together");
    open_gate(&world, "running");
    open_gate(&world, "array");
    assert_eq!([&running, &array].map(|id| end(&world, id)), [5, 2]);
    assert_eq!(world.run(&["cancel", &service]).code, 0);
    world.until(&service, "cancelled");
    assert!(!answers(), "the service is gone");

    // A supervisor of today finds what yesterday's had started.
    kill_process(supervisor.unwrap(), Signal::KILL).unwrap();
    eventually("another supervisor", || world.supervisor().is_some_and(|new| Some(new) != supervisor));
    open_gate(&world, "orphan");
    open_gate(&world, "waiting");
    assert_eq!([&orphan, &waiting].map(|id| end(&world, id)), [6, 4]);
    assert_eq!(world.run(&["run", "--", "true"]).code, 0);
    assert_eq!(world.witnesses(), 16, "each task started once");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);

    refuses_to_go_back(&mut world, &old);
}

/// Yesterday's server leaves a state alone that today's has had.
fn refuses_to_go_back(world: &mut World, old: &Path) {
    assert_eq!(world.stop_server(), 0);
    let head = world.run(&["audit", "verify"]);
    let ran = finish(world.command_of(old, &["up", "--listen", "127.0.0.1:0"]));
    assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
    assert!(ran.err.contains("was written by a newer version of fourplane"), "{ran:?}");
    assert!(ran.err.contains("hint: use the newer fourplane"), "{ran:?}");
    assert_eq!(world.run(&["audit", "verify"]), head);
    world.up();
    assert_eq!(world.run(&["run", "--", "true"]).code, 0);
}

#[test]
fn jobs_go_on_through_an_upgrade() {
    upgrade(|world| assert_eq!(world.stop_server(), 0));
}

#[test]
fn jobs_go_on_through_a_crash_that_ends_in_an_upgrade() {
    upgrade(World::kill_server);
}
