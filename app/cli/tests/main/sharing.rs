//! Teams that borrow and lend, as their people see it.

use crate::world::World;

const TEAMS: &str = "fourplane: 1
cluster: aurora
teams:
  - { name: research, quota: { gpus: 5, borrow: 3 } }
  - { name: speech, quota: { gpus: 3 } }
";

/// Counts on from where it was stopped. It lets go of its GPUs when the file `go` is there.
const TRAINING: &str = r#"#!/bin/sh
step=$(cat "step-$FOURPLANE_JOB_ID" 2>/dev/null || echo 0)
[ "$step" = 0 ] || echo "on from a checkpoint"
trap 'until [ -e go ]; do sleep 0.02; done; echo "$step" > "step-$FOURPLANE_JOB_ID"; exit 0' TERM
while :; do step=$((step + 1)); sleep 0.02; done
"#;

fn last_line(world: &World, args: &[&str]) -> String {
    world.run(args).out.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn what_was_lent_comes_back_and_the_borrower_goes_on_later() {
    let world = World::with(&["--allow-root", "--cores", "8", "--simulate-gpus", "8"]);
    std::fs::write(world.work().join("fourplane.yaml"), TEAMS).unwrap();
    std::fs::write(world.work().join("train.sh"), TRAINING).unwrap();
    assert_eq!(world.run(&["apply", "--yes"]).code, 0);
    let train = ["--team", "research", "--gpus", "2", "--mem", "1GiB", "--grace", "60s", "train.sh"];
    let jobs: Vec<String> = (0..4).map(|_| world.submit(&train)).collect();
    for job in &jobs {
        world.until(job, "running");
    }
    let owner = world.submit(&["--team", "speech", "--gpus", "2", "--", "sleep", "60"]);

    let table = "\
TEAM      OF      HELD   QUOTA      BORROWED  MAY BORROW  LENDS
default   cores   0      unlimited  0         -           -
research  cores   4      unlimited  0         -           -
research  memory  4 GiB  unlimited  0 B       -           -
research  GPUs    8      5          3         3           all it does not hold
speech    GPUs    0      3          0         0           all it does not hold
";
    assert_eq!(world.run(&["teams"]).out, table);
    let why = world.run(&["why", &owner]).out;
    assert!(why.starts_with("room is made for it: job 4 was told to stop\n"), "{why}");
    let why = world.run(&["why", &jobs[3]]).out;
    let receipt = "it made room for job 5 of team speech: its own team held 8 GPUs with a quota of 5 GPUs";
    assert_eq!(why, format!("it was told to stop: {receipt}\n"));

    std::fs::write(world.work().join("go"), "").unwrap();
    world.until(&owner, "running");
    world.until(&jobs[3], "queued");
    let why = world.run(&["why", &jobs[3]]).out;
    assert!(why.contains(&format!("\nput back: {receipt}\n")), "{why}");
    let end = last_line(&world, &["jobs", &jobs[3]]);
    assert!(end.ends_with(receipt), "{end}");

    assert_eq!(world.run(&["cancel", &owner]).code, 0);
    world.until(&jobs[3], "running");
    crate::world::eventually("it goes on", || {
        world.run(&["logs", &jobs[3]]).out.contains("on from a checkpoint\n")
    });
    assert_eq!(world.job(&jobs[3])["attempts"], 2);
}

#[test]
fn the_preemptible_give_way_to_the_urgent_of_their_team() {
    let world = World::with(&["--allow-root", "--cores", "2"]);
    let policy = "fourplane: 1\ncluster: aurora\npriorities: [{ name: high, value: 100 }]\n\
                  policy: { preemption: { preempts_from: 100 } }\n";
    std::fs::write(world.work().join("fourplane.yaml"), policy).unwrap();
    let applied = world.run(&["apply", "--yes"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let firm = world.submit(&["--", "sleep", "60"]);
    let gentle = world.submit(&["--preemptible", "--", "sleep", "60"]);
    world.until(&firm, "running");
    world.until(&gentle, "running");
    let shown = world.run(&["jobs", &gentle]).out;
    assert!(shown.contains("priority    0, gives way to more urgent jobs of its team\n"), "{shown}");
    let urgent = world.submit(&["--priority", "high", "--", "true"]);
    world.until(&urgent, "completed");
    world.until(&gentle, "running");
    assert_eq!((&world.job(&firm)["attempts"], &world.job(&gentle)["attempts"]), (&1.into(), &2.into()));
}
