//! Capacity kept for somebody: `reserve`, `reservations`, `unreserve`.

use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::users::{SOMEBODY, public_program};
use crate::world::{Ran, World, finish, skip_without_root};

#[test]
fn a_reservation_keeps_others_out_and_says_so() {
    if skip_without_root("a_reservation_keeps_others_out_and_says_so") {
        return;
    }
    let world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "4"]);
    let program = public_program(&world);
    let as_somebody = |args: &[&str]| -> Ran {
        let mut command = world.command_of(&program, args);
        command.uid(SOMEBODY).gid(SOMEBODY);
        finish(command)
    };
    let reserve =
        |more: &[&str]| world.run(&[&["reserve", "--gpus", "3", "--until", "now+2h"], more].concat());
    let stranger = reserve(&["--for", "user:12345"]);
    assert_eq!(stranger.code, 3, "{stranger:?}");
    assert!(
        stranger.err.contains("there is no user '12345' (in for)\nhint: somebody is known once"),
        "{stranger:?}"
    );
    assert_eq!(as_somebody(&["jobs"]).code, 0);
    let forbidden = as_somebody(&["reserve", "--gpus", "1", "--until", "now+2h"]);
    assert_eq!(forbidden.code, 3, "{forbidden:?}");
    assert!(forbidden.err.contains("only an administrator"), "{forbidden:?}");

    let runs = world.submit(&["--gpus", "2", "--", "sleep", "60"]);
    world.until(&runs, "running");
    let made = reserve(&["--for", "user:12345", "--reason", "course"]);
    assert_eq!((made.code, made.out.as_str()), (0, "1\n"), "{made:?}");
    assert!(made.err.contains("reserved for user:uid:12345: 3 GPUs, 3 cores, "), "{made:?}");
    assert!(made.err.contains("others hold 1 GPU of it now\n  held by job 1 of root"), "{made:?}");
    let table = world.run(&["reservations"]).out;
    assert!(table.contains("user:uid:12345") && table.contains("course"), "{table}");

    let waits = world.submit(&["--gpus", "1", "--time", "3h", "--", "true"]);
    let why = world.run(&["why", &waits]).out;
    assert!(why.contains("it would run into reservation 1 of user:uid:12345"), "{why}");
    assert!(why.contains("cancel reservation 1: fourplane unreserve 1"), "{why}");
    let own = as_somebody(&["run", "--gpus", "2", "--", "true"]);
    assert_eq!(own.code, 0, "{own:?}");

    let over = reserve(&[]);
    assert_eq!(over.code, 3, "{over:?}");
    assert!(over.err.contains("a node has at most 1 core"), "{over:?}");
    let past = reserve(&["--from", "2020-01-01"]);
    assert!(
        past.err.contains("the reservation begins in the past (in from)\nhint: leave it out"),
        "{past:?}"
    );

    assert_eq!(world.run(&["unreserve", "1"]).err, "cancelled: 1 reservation\n");
    assert_eq!(world.run(&["wait", &waits]).code, 0);
    let left: Value = serde_json::from_str(&world.run(&["reservations", "--json"]).out).unwrap();
    assert_eq!(left, Value::Array(Vec::new()));
    assert_eq!(world.run(&["unreserve", "1"]).code, 3);
}

#[test]
fn a_reservation_frees_itself_and_outlives_the_server() {
    let mut world = World::with(&["--allow-root", "--cores", "4"]);
    let made =
        world.run(&["reserve", "--cores", "4", "--until", "now+4s", "--for", "team:default", "--json"]);
    let made: Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(made["reservation"]["cores"], 4);
    world.kill_server();
    world.up();
    let listed: Value = serde_json::from_str(&world.run(&["reservations", "--json"]).out).unwrap();
    assert_eq!(listed[0]["until"], made["reservation"]["until"]);
    crate::world::eventually("the reservation is over", || {
        world.run(&["reservations", "--json"]).out == "[]\n"
    });
}
