//! Detach, wait, hold, cancel, Ctrl-C.

use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::world::{World, eventually, ran, signal};

#[test]
fn a_detached_job_is_waited_for() {
    let world = World::new();
    let ran = world.run(&["run", "-d", "--", "sh", "-c", "echo late; exit 3"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n"));
    assert_eq!(world.run(&["wait", "1"]).code, 3);
    assert_eq!(world.run(&["logs", "1"]).out, "late\n");
    let other = world.submit(&["--", "sh", "-c", "exit 2"]);
    assert_eq!(world.run(&["wait", "1", &other]).code, 3);
    let sleeper = world.submit(&["--", "sleep", "60"]);
    let waited = world.run(&["wait", &sleeper, "--timeout", "100ms"]);
    assert_eq!(waited.code, 125);
    assert!(waited.err.contains("not all of the jobs were over"), "{waited:?}");
}

#[test]
fn a_held_job_starts_when_released() {
    let world = World::new();
    let id = world.submit(&["--hold", "--", "echo", "free"]);
    world.until(&id, "held");
    assert!(world.run(&["why", &id]).out.contains("holds it"));
    assert_eq!(world.run(&["release", &id]).err, "released: 1 job\n");
    assert_eq!(world.run(&["wait", &id]).code, 0);

    let id = world.submit(&["--hold", "--", "true"]);
    assert_eq!(world.run(&["priority", &id, "--", "-5"]).code, 0);
    assert_eq!(world.job(&id)["priority"], -5);
    assert_eq!(world.run(&["hold", &id, "99"]).code, 3);
}

#[test]
fn a_cancelled_job_says_so() {
    let world = World::new();
    let id = world.submit(&["--", "sleep", "60"]);
    world.until(&id, "running");
    assert_eq!(world.run(&["cancel", &id]).err, "cancelled: 1 job\n");
    let waited = world.run(&["wait", &id]);
    assert_eq!(waited.code, 143);
    assert!(waited.err.starts_with(&format!("job {id} was cancelled by ")), "{waited:?}");
    assert_eq!(world.job(&id)["state"], "cancelled");
    let again = world.run(&["cancel", &id]);
    assert_eq!(again.code, 3, "{again:?}");
}

/// An attached run whose job is running.
fn attached(world: &World) -> Child {
    let mut command = world.command(&["run", "--", "sh", "-c", "echo started; sleep 60"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the job is running", || {
        world.run(&["jobs", "-o", "state", "--no-headers"]).out == "running\n"
    });
    child
}

#[test]
fn ctrl_c_without_a_terminal_cancels() {
    for sent in [Signal::INT, Signal::TERM] {
        let world = World::new();
        let child = attached(&world);
        signal(&child, sent);
        let ended = ran(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, 143, "{sent:?}: {ended:?}");
        assert!(ended.err.contains("cancelling job 1"), "{ended:?}");
        assert_eq!(world.job("1")["state"], "cancelled");
    }
}

#[test]
fn a_hangup_leaves_the_job_running() {
    let world = World::new();
    let child = attached(&world);
    signal(&child, Signal::HUP);
    let ended = ran(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 129, "{ended:?}");
    assert!(ended.err.contains("fourplane wait 1"), "{ended:?}");
    assert_eq!(world.job("1")["state"], "running");
}

#[test]
fn one_key_is_one_job() {
    let world = World::new();
    let keyed = |command: &str| {
        world.run(&["run", "--parsable", "--wait", "--idempotency-key", "k1", "--", "sh", "-c", command])
    };
    assert_eq!(keyed("exit 4").out, "1\n");
    let again = keyed("exit 4");
    assert_eq!((again.code, again.out.as_str()), (4, "1\n"));
    let other = keyed("exit 5");
    assert_eq!(other.code, 3);
    assert!(other.err.contains("used for a different request"), "{other:?}");
}

#[test]
fn a_drained_node_finishes_what_it_has_and_takes_nothing_new() {
    let world = World::new();
    let before = world.submit(&["--", "sleep", "60"]);
    world.until(&before, "running");
    let drained = world.run(&["drain", "--reason", "disk swap"]);
    assert_eq!(drained.code, 0, "{drained:?}");
    assert!(drained.err.ends_with("takes no new work; what runs there goes on\n"), "{drained:?}");
    assert!(world.run(&["nodes"]).out.contains("drained: disk swap"));
    let after = world.submit(&["--", "true"]);
    let why = world.run(&["why", &after]).out;
    assert!(why.contains("takes no new work"), "{why}");
    assert_eq!(world.job(&before)["state"], "running");

    let wrong = world.run(&["resume", "elsewhere"]);
    assert_eq!(wrong.code, 3);
    assert!(wrong.err.contains("there is no node 'elsewhere'\nhint: the nodes are "), "{wrong:?}");
    assert_eq!(world.run(&["resume", "0"]).code, 0);
    assert_eq!(world.run(&["wait", &after]).code, 0);
}
