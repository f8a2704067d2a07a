//! What a machine has, and GPUs that it only rehearses with.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::World;

fn fourplane(args: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fourplane"));
    command.args(args).stdin(Stdio::null()).env("TZ", "UTC").output().unwrap()
}

#[test]
fn this_machine_is_shown_without_a_server() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    let told = fourplane(&["inventory", "--json", "--state", state]);
    assert!(told.status.success());
    let json: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["memory"]["source"], "/proc/meminfo");
    assert!(json["cpu"]["threads"]["value"].as_u64().unwrap() > 0);
    let text = fourplane(&["inventory", "--state", state]);
    assert!(String::from_utf8(text.stdout).unwrap().starts_with("host      "));
}

#[test]
fn a_copy_of_another_machines_files_is_shown() {
    let root = tempfile::tempdir().unwrap();
    let card = root.path().join("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0");
    std::fs::create_dir_all(&card).unwrap();
    for (file, text) in [("vendor", "0x10de\n"), ("device", "0x2330\n"), ("class", "0x030200\n")] {
        std::fs::write(card.join(file), text).unwrap();
    }
    let bus = root.path().join("sys/bus/pci/devices");
    std::fs::create_dir_all(&bus).unwrap();
    std::os::unix::fs::symlink(
        "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
        bus.join("0000:01:00.0"),
    )
    .unwrap();
    let told = fourplane(&["inventory", "--root", root.path().to_str().unwrap()]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("0    0000:01:00.0  PCI 10de:2330  not seen"), "{text}");
    assert!(text.contains("unusable: its identity is not known: /proc/driver/nvidia"), "{text}");
    let lost = fourplane(&["inventory", "--root", "/nowhere"]);
    assert_eq!(lost.status.code(), Some(125));
}

#[test]
fn rehearsals_and_real_work_do_not_share_a_history() {
    let mut world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "2:h100"]);
    assert_eq!(world.told["simulated"], true);
    let nodes = world.run(&["nodes"]).out;
    assert!(nodes.contains("H100-SXM-80GB (simulated)"), "{nodes}");
    let job = world.submit(&["--gpus", "1", "--mem", "64MiB", "--", "true"]);
    assert_eq!(world.run(&["wait", &job]).code, 0);
    world.stop_server();
    // Without GPUs it is still a rehearsal's history.
    world.set_flags(&["--allow-root", "--cores", "4"]);
    world.up();
    assert_eq!(world.job(&job)["simulated"], true);
    world.stop_server();
    std::fs::write(world.state().join("gpus"), "real").unwrap();
    let refused = world.run(&["up", "--listen", "127.0.0.1:0", "--simulate-gpus", "2"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("choose another --state"), "{refused:?}");
    assert_eq!(world.run(&["up", "--simulate-gpus", "8:gtx"]).code, 3);
    assert_eq!(world.run(&["up", "--simulate-gpus", "0"]).code, 3);
    std::fs::write(world.state().join("gpus"), "simulated").unwrap();
    world.up();
}
