//! `apply` and `drift`, as a user drives them.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use crate::terminal::Desk;
use crate::world::{Ran, World, ran};

const FIRST: &str = "fourplane: 1
cluster: aurora
teams:
  - { name: research, quota: { gpus: 4, borrow: 2 } }
  - { name: speech, quota: { cores: 2, memory: 8 GiB } }
policy: { preemption: { protect: 2 h } }
";

const SECOND: &str = "fourplane: 1
cluster: aurora
teams:
  - { name: research, quota: { gpus: 8, borrow: 2 } }
";

fn write(world: &World, text: &str) {
    std::fs::write(world.work().join("fourplane.yaml"), text).unwrap();
}

/// The files that lead back, by name.
fn rollbacks(world: &World) -> Vec<String> {
    let names = std::fs::read_dir(world.work()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.contains("rollback"));
    names.sort();
    names
}

/// Makes or changes a team past any specification.
fn set_team(world: &World, team: &Value) {
    let socket = world.told["socket"].as_str().unwrap();
    let body = team.to_string();
    let request = format!(
        "POST /api/v1/teams HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn expect(ran: &Ran, code: i32, out: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (code, out), "{ran:?}");
}

#[test]
fn a_specification_is_applied_changed_and_taken_back() {
    let world = World::new();
    write(&world, FIRST);
    let plan = "create team research\n  + gpus: 4\n  + borrow: 2\n\
                create team speech\n  + cores: 2\n  + memory: 8 GiB\n\
                change preemption\n  ~ protect: 0 s -> 2 h\n\
                aurora: 2 create, 1 change\n";
    expect(&world.run(&["apply", "--dry-run"]), 1, plan);
    assert_eq!(rollbacks(&world), Vec::<String>::new(), "looking changes nothing");
    let unasked = world.run(&["apply"]);
    expect(&unasked, 3, plan);
    assert!(unasked.err.contains("no terminal on which to ask; nothing was changed"), "{unasked:?}");

    let done = world.run(&["apply", "--yes"]);
    expect(&done, 0, plan);
    let [first] = rollbacks(&world).try_into().unwrap();
    assert!(done.err.starts_with("applied: 2 create, 1 change (event "), "{done:?}");
    assert!(done.err.ends_with(&format!("to go back: fourplane apply -f {first}\n")), "{done:?}");
    expect(&world.run(&["apply"]), 0, "aurora: nothing to do\n");
    expect(&world.run(&["apply", "--dry-run"]), 0, "aurora: nothing to do\n");

    write(&world, SECOND);
    let plan = "change team research\n  ~ gpus: 4 -> 8\n\
                change preemption\n  ~ protect: 2 h -> 0 s\n\
                delete team speech\n  - cores: 2\n  - memory: 8 GiB\n\
                aurora: 2 change, 1 delete\n";
    expect(&world.run(&["apply", "--dry-run"]), 1, plan);
    let json = world.run(&["apply", "--yes", "--json"]);
    let told: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&told["plan"]["steps"][0]["name"], json.code), (&json!("research"), 0));
    let second = told["rollback"].as_str().unwrap();
    let back = world.run(&["apply", "--yes", "-f", second]);
    let forward = world.run(&["apply", "--dry-run"]);
    assert_eq!(back.code, 0, "{back:?}");
    expect(&forward, 1, plan);
    write(&world, FIRST);
    expect(&world.run(&["apply", "--dry-run"]), 0, "aurora: nothing to do\n");
    let back = world.run(&["apply", "--yes", "-f", &first]);
    assert!(back.out.contains("delete team research\n"), "{back:?}");
}

#[test]
fn drift_is_told_with_who_and_when() {
    let world = World::new();
    expect(&world.run(&["drift"]), 0, "nothing was applied yet\n");
    write(&world, FIRST);
    assert_eq!(world.run(&["apply", "--yes"]).code, 0);
    let same = world.run(&["drift"]);
    assert_eq!(same.code, 0);
    assert!(same.out.starts_with("aurora: nothing differs from what "), "{same:?}");

    set_team(&world, &json!({ "name": "research", "max_gpus": 1, "borrow_gpus": 2 }));
    set_team(&world, &json!({ "name": "manual" }));
    let drift = world.run(&["drift"]);
    assert_eq!(drift.code, 1);
    assert!(drift.out.starts_with("team research, changed by "), "{drift:?}");
    assert!(drift.out.contains(" UTC\n  ~ gpus: 4 -> 1\naurora: 1 thing differs from what "), "{drift:?}");
    let told: Value = serde_json::from_str(&world.run(&["drift", "--json"]).out).unwrap();
    assert_eq!(told["drifted"][0]["name"], "research");

    let mended = world.run(&["apply", "--yes"]);
    assert!(mended.out.starts_with("change team research, changed by "), "{mended:?}");
    assert!(mended.out.contains("left alone team manual: no apply made it"), "{mended:?}");
    assert_eq!(world.run(&["drift"]).code, 0);
}

#[test]
fn what_cannot_be_applied_changes_nothing_and_says_why() {
    let world = World::new();
    write(&world, FIRST);
    assert_eq!(world.run(&["apply", "--yes"]).code, 0);
    let held = world.submit(&["--hold", "--team", "speech", "--", "true"]);
    write(&world, SECOND);
    let files = rollbacks(&world);
    let refused = world.run(&["apply", "--yes"]);
    assert_eq!(refused.code, 3);
    let why = "  cannot be done now: team speech has 1 job that is not over\n";
    assert!(refused.out.contains(why) && refused.err.contains("; nothing was changed"), "{refused:?}");
    assert_eq!(rollbacks(&world), files);
    assert_eq!(world.run(&["cancel", &held]).code, 0);

    write(&world, "fourplane: 1\ncluster: Aurora\n");
    let wrong = world.run(&["apply"]);
    assert_eq!(wrong.code, 3);
    assert!(wrong.err.contains("error[FP1013]: 'Aurora' is no name"), "{wrong:?}");
    write(&world, &SECOND.replace("aurora", "borealis"));
    let other = world.run(&["apply", "--yes"]);
    assert_eq!(other.code, 3);
    assert!(
        other
            .err
            .contains("hint: if it is meant to take its place: fourplane apply --replace aurora -f FILE\n"),
        "{other:?}"
    );
    assert_eq!(world.run(&["apply", "--yes", "--replace", "aurora"]).code, 0);
    assert!(world.run(&["drift"]).out.starts_with("borealis: nothing differs"));
}

#[test]
fn an_apply_outlives_the_server() {
    let mut world = World::new();
    write(&world, FIRST);
    assert_eq!(world.run(&["apply", "--yes"]).code, 0);
    world.kill_server();
    world.up();
    expect(&world.run(&["apply"]), 0, "aurora: nothing to do\n");
    assert_eq!(world.run(&["drift"]).code, 0);
}

/// Rounds of the drill; each kills the server a little later in an apply.
const ROUNDS: u32 = 40;

/// A specification of many things, all of which the other one changes, makes or removes.
fn many(first: u32, gpus: u32) -> String {
    let mut text =
        format!("fourplane: 1\ncluster: aurora\npolicy: {{ preemption: {{ protect: {gpus} h }} }}\nteams:\n");
    for team in first..first + 20 {
        writeln!(text, "  - {{ name: team-{team}, quota: {{ gpus: {gpus} }} }}").unwrap();
    }
    text.push_str("priorities:\n");
    for class in first..first + 10 {
        writeln!(text, "  - {{ name: class-{class}, value: {gpus} }}").unwrap();
    }
    text
}

/// Which of the two the server is like: all of it, or it is a mixture.
fn standing(world: &World, files: [&str; 2]) -> usize {
    let codes = files.map(|file| world.run(&["apply", "--dry-run", "-f", file]).code);
    match codes {
        [0, 1] => 0,
        [1, 0] => 1,
        _ => {
            panic!("half of an apply: {codes:?}, {}", world.run(&["apply", "--dry-run", "-f", files[0]]).out)
        }
    }
}

#[test]
fn an_apply_that_is_killed_was_done_or_was_not() {
    let mut world = World::new();
    let files = ["one.yaml", "two.yaml"];
    std::fs::write(world.work().join(files[0]), many(0, 1)).unwrap();
    std::fs::write(world.work().join(files[1]), many(10, 2)).unwrap();
    assert_eq!(world.run(&["apply", "--yes", "-f", files[0]]).code, 0);
    let start = Instant::now();
    assert_eq!(world.run(&["apply", "--yes", "-f", files[1]]).code, 0);
    let whole = start.elapsed();

    let (mut now, mut done) = (1, 0);
    for round in 0..=ROUNDS {
        let target = 1 - now;
        let mut command = world.command(&["apply", "--yes", "-f", files[target]]);
        let mut client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // In the last round the apply comes to its end first.
        if round == ROUNDS {
            assert!(client.wait().unwrap().success());
        } else {
            std::thread::sleep(whole * round / ROUNDS);
        }
        world.kill_server();
        // Every other client is killed too; one that lives asks the next server again.
        let lives = round % 2 == 0;
        if !lives {
            client.kill().unwrap();
            client.wait().unwrap();
        }
        world.up();
        let told = lives.then(|| ran(&client.wait_with_output().unwrap()));
        now = standing(&world, files);
        assert_eq!(world.run(&["drift"]).code, 0, "round {round}: what is there was applied");
        if let Some(told) = told {
            assert!(matches!(told.code, 0 | 125), "round {round}: {told:?}");
            assert_eq!(told.code == 0, now == target, "round {round}: {told:?}");
        }
        done += usize::from(now == target);
        if now != target {
            assert_eq!(world.run(&["apply", "--yes", "-f", files[target]]).code, 0);
            now = standing(&world, files);
            assert_eq!(now, target, "round {round}");
        }
    }
    assert!((1..=ROUNDS as usize).contains(&done), "it was killed before and after: {done}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn on_a_terminal_it_asks() {
    let world = World::new();
    write(&world, FIRST);
    for (answer, code) in [("\n", 1), ("n\n", 1), ("y\n", 0)] {
        let mut desk = Desk::open(&world, &["apply"]);
        desk.see("aurora: 2 create, 1 change");
        desk.see("\u{1b}[1;32mcreate\u{1b}[0m team research");
        desk.type_in(answer);
        assert_eq!(desk.end(), code, "{answer:?}");
    }
    expect(&world.run(&["apply"]), 0, "aurora: nothing to do\n");
}

#[test]
fn a_server_starts_with_its_specification() {
    let mut world = World::new();
    write(&world, FIRST);
    let flags = ["--allow-root", "--cores", "4", "--spec", "fourplane.yaml"];
    world.set_flags(&flags);
    let start = |world: &mut World| {
        world.kill_server();
        world.up();
        world.told["spec"].as_str().unwrap().to_owned()
    };
    assert!(start(&mut world).starts_with("fourplane.yaml: 2 create, 1 change (to go back: "));
    assert_eq!(start(&mut world), "fourplane.yaml: nothing to do");
    expect(&world.run(&["apply"]), 0, "aurora: nothing to do\n");
    assert_eq!(rollbacks(&world), Vec::<String>::new(), "the way back is with the server's state");

    let held = world.submit(&["--hold", "--team", "speech", "--", "true"]);
    write(&world, SECOND);
    assert_eq!(start(&mut world), "fourplane.yaml: not applied", "and the server is there to be asked");
    assert_eq!(world.run(&["cancel", &held]).code, 0);
    assert!(start(&mut world).starts_with("fourplane.yaml: 2 change, 1 delete"));
}

#[test]
fn a_first_specification_is_of_this_machine() {
    let world = World::new();
    let wrote = world.run(&["init"]);
    assert_eq!(wrote.code, 0, "{wrote:?}");
    assert!(wrote.err.starts_with("wrote fourplane.yaml; look at it, then: "), "{wrote:?}");
    expect(&world.run(&["check"]), 0, "fourplane.yaml: nothing found\n");
    expect(&world.run(&["init", "-"]), 0, &world.file("fourplane.yaml"));
    let again = world.run(&["init"]);
    assert!(again.code == 3 && again.err.contains("is there already; it was not touched"), "{again:?}");

    // The file is of the whole machine, and this server offers part of it.
    let text = world.file("fourplane.yaml");
    let (before, after) = text.split_once("cpus: ").unwrap();
    let (_, after) = after.split_once('\n').unwrap();
    write(&world, &format!("{before}cpus: 999\n{after}"));
    let planned = world.run(&["apply", "--dry-run"]);
    assert!(planned.out.starts_with("warning: pool here has 999 cores a node here, and "), "{planned:?}");

    let mut desk = Desk::open(&world, &["init", "--ask", "asked.yaml"]);
    for answer in ["aurora\n", "No Name\n", "research, speech\n", "1\n", "\n", "\n"] {
        desk.type_in(answer);
    }
    assert_eq!(desk.end(), 0);
    expect(&world.run(&["check", "asked.yaml"]), 0, "asked.yaml: nothing found\n");
    let asked = world.file("asked.yaml");
    assert!(asked.contains("cluster: \"aurora\"") && asked.contains("name: \"speech\""), "{asked}");
}

#[test]
fn a_class_of_urgency_is_asked_for_by_its_name() {
    let world = World::new();
    let none = world.run(&["run", "-d", "--priority", "high", "--", "true"]);
    assert!(none.code == 3 && none.err.contains("there is no priority called high"), "{none:?}");
    write(&world, "fourplane: 1\ncluster: aurora\npriorities: [{ name: high, value: 100 }]\n");
    expect(&world.run(&["check"]), 0, "fourplane.yaml: nothing found\n");
    let applied = world.run(&["apply", "--yes"]);
    expect(&applied, 0, "create priority high\n  + value: 100\naurora: 1 create\n");
    let job = world.submit(&["--hold", "--priority", "high", "--", "true"]);
    assert_eq!(world.job(&job)["priority"], 100);
    let other = world.run(&["run", "-d", "--priority", "low", "--", "true"]);
    assert!(other.code == 3 && other.err.contains("hint: the classes are high\n"), "{other:?}");
    write(&world, "fourplane: 1\ncluster: aurora\n");
    expect(&world.run(&["apply", "--yes"]), 0, "delete priority high\n  - value: 100\naurora: 1 delete\n");
    assert_eq!(world.job(&job)["priority"], 100, "a job keeps what it has");
    assert_eq!(world.run(&["run", "--priority", "high", "--", "true"]).code, 3);
}

#[test]
fn a_class_that_preempts_stops_less_urgent_jobs_of_its_team() {
    let world = World::new();
    write(
        &world,
        "fourplane: 1\ncluster: aurora\npriorities: [{ name: high, value: 100, preempts: true }]\n",
    );
    let plan = "create priority high\n  + value: 100\n  + preempts: true\naurora: 1 create\n";
    expect(&world.run(&["apply", "--yes"]), 0, plan);
    let gentle = world.submit(&["--cores", "4", "--preemptible", "--", "sleep", "600"]);
    world.until(&gentle, "running");
    let usual = world.submit(&["--cores", "4", "--", "true"]);
    let urgent = world.submit(&["--cores", "4", "--priority", "high", "--", "sleep", "600"]);
    world.until(&urgent, "running");
    world.until(&gentle, "queued");
    world.until(&usual, "queued");
    assert_eq!(world.run(&["cancel", &urgent, &gentle]).code, 0);
    assert_eq!(world.run(&["wait", &usual]).code, 0);
}

#[test]
fn a_failed_job_is_tried_again_as_the_specification_says() {
    let mut world = World::new();
    let retries = "retries: { most: 1, classes: [failure], backoff: 10 ms, longest_backoff: 10 ms }";
    write(&world, &format!("fourplane: 1\ncluster: aurora\n{retries}\n"));
    expect(&world.run(&["check"]), 0, "fourplane.yaml: nothing found\n");
    let plan = "change retries\n  ~ most: 0 -> 1\n  ~ classes: failure, out-of-memory, unknown -> failure\n  \
                ~ backoff: 1 s -> 10 ms\n  ~ longest_backoff: 5 min -> 10 ms\naurora: 1 change\n";
    expect(&world.run(&["apply", "--yes"]), 0, plan);
    let tries = |world: &World, flags: &[&str]| {
        let id = world.submit(&[flags, &["--", "false"]].concat());
        assert_eq!(world.run(&["wait", &id]).code, 1);
        world.job(&id)["tries"].as_array().unwrap().len()
    };
    assert_eq!(tries(&world, &[]), 2);
    assert_eq!(tries(&world, &["--retries", "0"]), 1, "what a job says itself comes first");
    assert_eq!(tries(&world, &["--retry-on", "time-limit"]), 1);
    world.kill_server();
    world.up();
    assert_eq!(tries(&world, &[]), 2);
    write(&world, "fourplane: 1\ncluster: aurora\n");
    assert_eq!(world.run(&["apply", "--yes"]).code, 0);
    assert_eq!(tries(&world, &[]), 1);
}
