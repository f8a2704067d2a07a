//! Servers that die, stop and come back.

use std::process::Stdio;

use rustix::process::Signal;

use crate::world::{World, eventually, ran, signal_pid};

#[test]
fn an_attached_run_outlives_its_server() {
    for gently in [false, true] {
        let mut world = World::new();
        let script = "echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 6";
        let mut command = world.command(&["run", "--", "sh", "-c", script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        world.until("1", "running");
        if gently {
            assert_eq!(world.stop_server(), 0);
        } else {
            world.kill_server();
        }
        std::fs::write(world.work().join("go"), "").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        world.up();
        let ended = ran(&child.wait_with_output().unwrap());
        assert_eq!((ended.code, ended.out.as_str()), (6, "before\nafter\n"), "{gently}: {ended:?}");
        assert_eq!(world.told["new"], false);
    }
}

#[test]
fn a_stopped_server_leaves_jobs_running() {
    let mut world = World::new();
    let id = world.submit(&["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 8"]);
    world.until(&id, "running");
    assert_eq!(world.stop_server(), 0);
    assert_eq!(world.run(&["jobs"]).code, 125);
    let verified = world.run(&["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.out.starts_with("whole: "), "{verified:?}");
    std::fs::write(world.work().join("go"), "").unwrap();
    world.up();
    assert_eq!(world.run(&["wait", &id]).code, 8);
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let world = World::new();
    let second = world.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 125, "{second:?}");
    assert!(second.err.contains("in use by another fourplane server"), "{second:?}");
    let detached = world.run(&["up", "--detach", "--listen", "127.0.0.1:0"]);
    assert_eq!(detached.code, 125, "{detached:?}");
    assert!(detached.err.contains("in use by another fourplane server"), "{detached:?}");
    assert_eq!(world.run(&["run", "--", "true"]).code, 0);
}

#[test]
fn a_detached_server_answers_when_up_returns() {
    let mut world = World::new();
    assert_eq!(world.stop_server(), 0);
    let up = world.run(&["up", "--detach", "--json", "--allow-root", "--listen", "127.0.0.1:0"]);
    assert_eq!(up.code, 0, "{up:?}");
    let ran = world.run(&["run", "--", "echo", "hi"]);
    let pid = signal_pid(&serde_json::from_str(&up.out).unwrap(), Signal::TERM);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hi\n"), "{ran:?}");
    eventually("the server is gone", || rustix::process::test_kill_process(pid).is_err());
}
