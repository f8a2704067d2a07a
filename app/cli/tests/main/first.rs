//! The first minutes: a run, its exit code, its output.

use std::os::unix::fs::PermissionsExt;

use crate::world::{PROGRAM, Ran, World, finish};

#[test]
fn a_first_run_just_works() {
    let world = World::new();
    let ran = world.run(&["run", "--", "echo", "hi"]);
    let path = world.work().join("echo-1.out");
    let expect = Ran { code: 0, out: "hi\n".to_owned(), err: format!("job 1: tail -f {}\n", path.display()) };
    assert_eq!(ran, expect);
    assert_eq!(world.file("echo-1.out"), "hi\n");

    let listed = world.run(&["jobs", "--all", "-o", "id,name,state,exit"]);
    assert_eq!(listed.out, "JOB  NAME  STATE      EXIT\n1    echo  completed  0\n");
    assert_eq!(world.run(&["jobs", "--no-headers"]).out, "");
    assert_eq!(world.run(&["jobs", "-a", "-o", "csv"]).out.lines().count(), 2);
}

#[test]
fn the_jobs_exit_code_is_returned() {
    let world = World::new();
    let check = |args: &[&str], code: i32, said: &str| {
        let ran = world.run(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(said), "{args:?}: {ran:?}");
    };
    let sh = |script| ["run", "--", "/bin/sh", "-c", script];
    std::fs::write(world.work().join("plain"), "no program").unwrap();
    check(&sh("exit 0"), 0, "");
    check(&sh("exit 7"), 7, "");
    check(&sh("kill -TERM $$"), 143, "");
    check(&["run", "--", "no-such-program"], 127, "no-such-program");
    check(&["run", "--", "./plain"], 126, "plain");
    check(&["run", "--chdir", "/no/such/place", "--", "true"], 125, "/no/such/place");
    check(&["run", "--time", "1s", "--grace", "1s", "--", "sleep", "60"], 124, "time limit");
    check(&["run", "--retries", "1", "--", "/bin/sh", "-c", "echo again; exit 9"], 9, "");
    assert_eq!(world.job("8")["tries"].as_array().unwrap().len(), 2);
}

#[test]
fn wrong_usage_is_3_and_a_server_that_is_away_125() {
    let world = World::new();
    let check = |args: &[&str], code: i32, said: &str| {
        let ran = world.run(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(said), "{args:?}: {ran:?}");
        assert_eq!(ran.out, "", "{args:?}");
    };
    check(&["run"], 3, "nothing to run");
    check(&["run", "--no-such-flag", "--", "true"], 3, "--no-such-flag");
    check(&["run", "--time", "30", "--", "true"], 3, "'30' has no unit");
    check(&["run", "echo", "hi"], 3, "fourplane run -- echo hi");
    check(&["run", "--gpus", "8:h100", "--", "true"], 3, "h100");
    check(&["jobs", "x"], 3, "'x' is no job id");
    check(&["jobs", "99"], 3, "there is no job 99");
    check(&["jobs", "-o", "nope"], 3, "there is no field 'nope'");
    check(&["run", "--gpus", "1", "--", "true"], 3, "hint: ");
    check(&["run", "--team", "nope", "--", "true"], 3, "nope");
    check(&["--server", "http://127.0.0.1:1", "jobs"], 125, "does not answer");
    let mut elsewhere = world.command(&["run", "--", "true"]);
    elsewhere.env("FOURPLANE_STATE", world.work().join("nothing-here"));
    let ran = finish(elsewhere);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("hint: start one with: fourplane up"), "{ran:?}");
    assert_eq!(world.run(&["--help"]).code, 0);
    assert_eq!(world.run(&["--version"]).out, format!("fourplane {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn output_goes_where_it_is_told() {
    let world = World::new();
    let split =
        ["run", "-o", "%x.%j.o", "-e", "%x.%j.e", "-J", "two", "--", "sh", "-c", "echo out; echo err >&2"];
    let ran = world.run(&split);
    assert_eq!((ran.code, ran.out.as_str()), (0, "out\n"));
    assert!(ran.err.ends_with("two.1.o\nerr\n"), "{ran:?}");
    assert_eq!((world.file("two.1.o"), world.file("two.1.e")), ("out\n".to_owned(), "err\n".to_owned()));
    assert_eq!(world.run(&["logs", "1"]).out, "out\n");
    assert_eq!(world.run(&["logs", "1", "--stderr"]).err, "err\n");
    assert_eq!(world.run(&["logs", "1", "--tail", "2B"]).out, "t\n");

    let parsed = |args: &[&str]| serde_json::from_str::<serde_json::Value>(&world.run(args).out).unwrap();
    assert_eq!(parsed(&["jobs", "-a", "--json"])[0]["name"], "two");
    assert_eq!(parsed(&["nodes", "--json"])[0]["cores"], 4);
    assert_eq!(parsed(&["why", "1", "--json"])["why"]["code"].as_str().map(str::is_empty), Some(false));
}

#[test]
fn a_script_runs_by_its_first_line_with_the_users_environment() {
    let world = World::new();
    let script = world.work().join("job.sh");
    std::fs::write(&script, "#!/bin/sh\necho \"$1 $SEED $(basename \"$PWD\") $FOURPLANE_JOB_ID\"\numask\n")
        .unwrap();
    let mut command = world.command(&["run", "job.sh", "one"]);
    command.env("SEED", "7");
    let ran = finish(command);
    assert_eq!((ran.code, ran.out.as_str()), (0, "one 7 work 1\n0022\n"), "{}", ran.err);

    let mut bare = world.command(&["run", "--export=NONE", "job.sh", "one"]);
    bare.env("SEED", "7");
    assert_eq!(finish(bare).out, "one  work 2\n0022\n");

    std::fs::write(&script, "echo no first line\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = world.run(&["run", "job.sh"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("does not begin with #!"), "{ran:?}");
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = std::process::Command::new(PROGRAM).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).contains("simulate-gpus"), "{shell}");
    }
    run(&["man", dir.path().to_str().unwrap()]);
    let page = std::fs::read_to_string(dir.path().join("fourplane-report-usage.1")).unwrap();
    assert!(page.contains("since"), "{page}");
    let pages: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|page| page.unwrap().file_name()).collect();
    assert!(pages.iter().any(|page| page == "fourplane.1"), "{pages:?}");
    assert!(!pages.iter().any(|page| page == "fourplane-supervisor.1"), "hidden commands have none");
}
