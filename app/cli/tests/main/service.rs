//! A real server of files as a service: ready, started again, stopped when it fails its check.

use std::net::TcpListener;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::{World, eventually};

const PYTHON: &str = "/usr/bin/python3";

/// A port that nothing listens on.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// Serves the work directory on its port, and checks that `file` is there.
fn serve(world: &World, port: &str, file: &str, restart: &str) -> String {
    std::fs::write(world.work().join(file), "fine").unwrap();
    let health = format!("/{file}");
    let flags = ["--service", "--port", port, "--health", &health, "--health-every", "200ms"];
    let more = ["--health-failures", "2", "--restart", restart, "--grace", "5s", "--output", "out"];
    let server = format!("echo $$ > pid; exec {PYTHON} -m http.server --bind 127.0.0.1 $PORT");
    world.submit(&[&flags[..], &more, &["--", "/bin/sh", "-c", &server]].concat())
}

/// What the last attempt's check says, once there is an attempt of this number.
fn readiness(world: &World, id: &str, number: u64) -> Value {
    let job = world.job(id);
    let last = job["tries"].as_array().unwrap().last().cloned().unwrap_or_default();
    if last["number"] == number { last["readiness"].clone() } else { Value::Null }
}

fn until_ready(world: &World, id: &str, number: u64) {
    eventually(&format!("attempt {number} is ready"), || readiness(world, id, number)["ready"] == true);
}

#[test]
fn a_service_becomes_ready_and_comes_back_until_it_is_cancelled() {
    let mut world = World::new();
    let port = free_port();
    let id = serve(&world, &port, "up", "on-failure");
    until_ready(&world, &id, 1);
    let seen = format!("GET /up on port {port} answered 200");
    assert_eq!(readiness(&world, &id, 1)["reason"], seen.as_str());
    let shown = world.run(&["jobs", &id]).out;
    assert!(shown.contains(&format!("service     port {port}, restart on-failure\n")), "{shown}");
    assert!(shown.contains("health      GET /up every 200ms, 2 failures in a row stop it\n"), "{shown}");
    assert!(shown.contains("ready       yes, since ") && shown.contains(&seen), "{shown}");

    let pid = Pid::from_raw(world.file("pid").trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("it waits before it comes back", || world.job(&id)["why"]["code"] == "back-off");
    until_ready(&world, &id, 2);
    assert_eq!(world.job(&id)["tries"][0]["outcome"]["kind"], "signal");

    // What was ready stays so over a new server, and is checked on.
    world.kill_server();
    world.up();
    assert_eq!(readiness(&world, &id, 2)["ready"], true);
    std::fs::remove_file(world.work().join("up")).unwrap();
    eventually("it is stopped", || world.job(&id)["tries"][1]["stop"] == "unhealthy");

    assert_eq!(world.run(&["cancel", &id]).code, 0);
    world.until(&id, "cancelled");
    assert!(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err(), "it still answers");
}

#[test]
fn a_service_that_fails_its_check_is_stopped_and_started_again() {
    let world = World::new();
    let port = free_port();
    let id = serve(&world, &port, "up", "always");
    until_ready(&world, &id, 1);
    std::fs::remove_file(world.work().join("up")).unwrap();
    eventually("it is started again", || world.job(&id)["tries"].as_array().unwrap().len() == 2);
    let first = &world.job(&id)["tries"][0];
    assert_eq!((&first["stop"], &first["readiness"]["ready"]), (&"unhealthy".into(), &false.into()));
    let shown = world.run(&["jobs", &id]).out;
    assert!(shown.contains(&format!("unhealthy: GET /up on port {port} answered 404")), "{shown}");
    // One that has not been ready yet is given time.
    world.until(&id, "running");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(world.job(&id)["tries"].as_array().unwrap().len(), 2);
    assert!(world.run(&["jobs", &id]).out.contains("ready       not yet: no check has passed\n"));
    std::fs::write(world.work().join("up"), "fine").unwrap();
    until_ready(&world, &id, 2);
    assert_eq!(world.run(&["cancel", &id]).code, 0);
    assert_eq!(world.run(&["wait", &id]).code, 143);
}

#[test]
fn a_service_without_restart_ends_when_it_is_unhealthy() {
    let world = World::new();
    let port = free_port();
    let id = serve(&world, &port, "up", "never");
    until_ready(&world, &id, 1);
    std::fs::remove_file(world.work().join("up")).unwrap();
    world.until(&id, "failed");
    assert_eq!(world.job(&id)["attempts"], 1);
}

#[test]
fn a_shell_that_nobody_uses_ends() {
    let world = World::new();
    let ran = world.run(&["shell", "--mem", "64MiB", "--idle", "1s", "--", "/bin/sh", "-c", "sleep 60"]);
    assert_eq!(ran.code, 124, "{ran:?}");
    assert!(ran.err.contains("reached its idle limit"), "{ran:?}");
    assert_eq!(world.job("1")["outcome"]["kind"], "idle-limit");
}

#[test]
fn flags_of_services_belong_together() {
    let world = World::new();
    let check = |args: &[&str], said: &str| {
        let ran = world.run(&[&["run"], args, &["--", "true"]].concat());
        assert_eq!(ran.code, 3, "{args:?}: {ran:?}");
        assert!(ran.err.contains(said), "{args:?}: {ran:?}");
    };
    check(&["--port", "80"], "--service");
    check(&["--service", "--health", "tcp"], "--port");
    check(&["--service", "--port", "80", "--health", "healthz"], "such as /healthz");
    check(&["--service", "--port", "80", "--health-every", "1s"], "--health");
    check(&["--service", "--port", "80", "--health", "tcp", "--health-failures", "0"], "at least one");
    check(&["--service", "--restart", "sometimes"], "on-failure");
    check(&["--restart", "always"], "--service");
}
