//! Other users of the machine: their jobs run with their rights, and nobody else's.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::world::{Ran, World, finish, signal_pid, skip_without_root};

/// A user who is in no file of the system.
pub(crate) const SOMEBODY: u32 = 12_345;

/// A copy of the program where any user can run it. Another process makes it: a file that this
/// one had open for writing could be busy in a child that another test just forked.
pub(crate) fn public_program(world: &World) -> PathBuf {
    let copy = world.work().join("fourplane");
    let mut install = std::process::Command::new("install");
    install.args(["-m", "755", env!("CARGO_BIN_EXE_fourplane")]).arg(&copy);
    assert_eq!(finish(install).code, 0);
    copy
}

#[test]
fn a_job_runs_as_the_user_who_asks() {
    if skip_without_root("a_job_runs_as_the_user_who_asks") {
        return;
    }
    let world = World::with(&["--cores", "4"]);
    let program = public_program(&world);
    let as_somebody = |args: &[&str]| -> Ran {
        let mut command = world.command_of(&program, args);
        command.uid(SOMEBODY).gid(SOMEBODY);
        finish(command)
    };
    let script = "id -u; touch mine; echo x > \"$FOURPLANE_SCRATCH/x\" && echo scratch";
    let ran = as_somebody(&["run", "--", "sh", "-c", script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "12345\nscratch\n"), "{ran:?}");
    for file in ["mine", "sh-1.out"] {
        assert_eq!(std::fs::metadata(world.work().join(file)).unwrap().uid(), SOMEBODY, "{file}");
    }
    assert_eq!(as_somebody(&["jobs", "-a", "-o", "id,user", "--no-headers"]).out, "1  uid:12345\n");

    // As in a shell, a directory of PATH that one may not search hides no program.
    let closed = world.work().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = world.command_of(&program, &["run", "--", "no-such-program"]);
    command.uid(SOMEBODY).gid(SOMEBODY).env("PATH", format!("{}:/usr/bin:/bin", closed.display()));
    assert_eq!(finish(command).code, 127);

    // Its state is root's alone.
    assert_eq!(as_somebody(&["audit", "verify"]).code, 3);
    let own = as_somebody(&["run", "-d", "--", "sleep", "60"]);
    let as_nobody = |args: &[&str]| {
        let mut command = world.command_of(&program, args);
        command.uid(SOMEBODY + 1).gid(SOMEBODY + 1);
        finish(command)
    };
    for args in [["cancel", own.out.trim()], ["logs", "1"]] {
        let refused = as_nobody(&args);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.err.contains("belongs to another user"), "{refused:?}");
    }
    assert_eq!(as_somebody(&["cancel", own.out.trim()]).code, 0);
}

#[test]
fn root_is_refused_unless_allowed() {
    if skip_without_root("root_is_refused_unless_allowed") {
        return;
    }
    let world = World::with(&[]);
    let refused = world.run(&["run", "--", "true"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("hint: ") && refused.err.contains("--allow-root"), "{refused:?}");
    assert_eq!(world.run(&["jobs", "-a", "--no-headers"]).out, "");
}

#[test]
fn an_ordinary_user_can_start_a_server() {
    if skip_without_root("an_ordinary_user_can_start_a_server") {
        return;
    }
    let world = World::with(&[]);
    let program = public_program(&world);
    let as_somebody = |args: &[&str]| -> Ran {
        let mut command = world.command_of(&program, args);
        command.uid(SOMEBODY).gid(SOMEBODY).env_remove("XDG_RUNTIME_DIR");
        command.env("FOURPLANE_STATE", world.work().join("own"));
        finish(command)
    };
    let up = as_somebody(&["up", "--detach", "--json", "--listen", "127.0.0.1:0"]);
    assert_eq!(up.code, 0, "{up:?}");
    let ran = as_somebody(&["run", "--", "sh", "-c", "id -u; exit 4"]);
    signal_pid(&serde_json::from_str(&up.out).unwrap(), Signal::TERM);
    assert_eq!((ran.code, ran.out.as_str()), (4, "12345\n"), "{ran:?}");
}
