//! Servers that die, stop and come back.

use std::process::Stdio;

use rustix::process::Signal;

use crate::world::{World, eventually, finish, ran, signal_pid, skip, skip_without_root};

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

#[test]
fn a_restart_of_the_machine_is_told_and_the_job_runs_again() {
    if skip_without_root("restart of the machine") {
        return; // Without cgroups a job cannot be ended from outside.
    }
    let mut world = World::new();
    let script = "echo x >> tries; [ $(wc -l < tries) = 2 ] || sleep 600";
    let again = world.submit(&["--", "sh", "-c", script]);
    let once = world.submit(&["--no-requeue", "--", "sleep", "600"]);
    world.until(&again, "running");
    world.until(&once, "running");
    eventually("both have begun", || world.witnesses() == 2 && world.work().join("tries").exists());
    world.restart_machine();
    world.up();
    assert_eq!(world.run(&["wait", &again]).code, 0);
    let ends: Vec<String> = world.job(&again)["tries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["outcome"]["kind"].to_string())
        .collect();
    assert_eq!(ends, ["\"node-restart\"", "\"success\""]);
    let waited = world.run(&["wait", &once]);
    assert_eq!(waited.code, 125, "{waited:?}");
    assert_eq!(world.job(&once)["outcome"]["kind"], "node-restart");
    assert_eq!(world.witnesses(), 3);
}

/// A small file system that is unmounted at the end.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &std::path::Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256m", "small"]).arg(at);
        (finish(mount).code == 0).then(|| Self(at.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        unmount.arg("-l").arg(&self.0);
        finish(unmount);
    }
}

#[test]
fn a_full_disk_refuses_new_work_and_keeps_ends() {
    if skip_without_root("full disk") {
        return;
    }
    let mut world = World::new();
    assert_eq!(world.stop_server(), 0);
    let Some(_small) = Small::mount(&world.state()) else {
        skip("full disk", "a tmpfs cannot be mounted");
        return;
    };
    world.up();
    let running = world.submit(&["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 8"]);
    world.until(&running, "running");
    let ballast = world.state().join("ballast");
    let mut fill = std::process::Command::new("dd");
    fill.arg("if=/dev/zero").arg(format!("of={}", ballast.display())).arg("bs=1M");
    assert_ne!(finish(fill).code, 0, "the disk has an end");

    let refused = world.run(&["run", "-d", "--", "true"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("disk is nearly full"), "{refused:?}");
    std::fs::write(world.work().join("go"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    std::fs::remove_file(ballast).unwrap();
    let waited = world.run(&["wait", &running]);
    assert_eq!(waited.code, 8, "the end was kept while the disk was full: {waited:?}");
    eventually("work is accepted again", || world.run(&["run", "-d", "--", "true"]).code == 0);
    assert_eq!(world.stop_server(), 0);
}
