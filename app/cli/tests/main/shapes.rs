//! Arrays, gangs, dependencies.

use crate::world::World;

#[test]
fn an_array_runs_every_member() {
    let world = World::new();
    let id = world.submit(&[
        "--array",
        "0-5:2,7%2",
        "-o",
        "%A.%a",
        "--",
        "sh",
        "-c",
        "echo $FOURPLANE_ARRAY_INDEX; exit $FOURPLANE_ARRAY_INDEX",
    ]);
    assert_eq!(world.run(&["wait", &id]).code, 7);
    let outputs: String = [0, 2, 4, 7].iter().map(|index| world.file(&format!("{id}.{index}"))).collect();
    assert_eq!(outputs, "0\n2\n4\n7\n");
    assert_eq!(world.run(&["logs", &format!("{id}_4")]).out, "4\n");
    assert_eq!(world.job(&id)["members"]["failed"], 3);
    let listed = world.run(&["jobs", "-a", "-o", "id,members", "--no-headers"]).out;
    assert_eq!(listed, format!("{id}_[0,2,4,7]  0/0/1/3\n"));
}

#[test]
fn members_are_cancelled_one_by_one() {
    let world = World::new();
    let id =
        world.submit(&["--array", "0-1", "--", "sh", "-c", "test $FOURPLANE_ARRAY_INDEX = 0 || sleep 60"]);
    assert_eq!(world.run(&["cancel", &format!("{id}_1")]).code, 0);
    assert_eq!(world.run(&["wait", &id]).code, 143);
    assert_eq!(world.job(&id)["members"]["succeeded"], 1);
}

#[test]
fn a_gang_starts_together() {
    let world = World::new();
    // The one that fails lets the others finish first: a mate's failure stops a gang.
    let script = "echo $RANK/$WORLD_SIZE; test $RANK = 2 || exit 0; \
                  while [ ! -s rank0 ] || [ ! -s rank1 ]; do sleep 0.05; done; exit 2";
    let id = world.submit(&["-n", "3", "--mem", "64MiB", "-o", "rank%t", "--", "sh", "-c", script]);
    assert_eq!(world.run(&["wait", &id]).code, 2);
    let outputs: String = (0..3).map(|rank| world.file(&format!("rank{rank}"))).collect();
    assert_eq!(outputs, "0/3\n1/3\n2/3\n");
    let refused = world.run(&["run", "-n", "5", "--", "true"]);
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("hint: ask for at most 4 tasks"), "{refused:?}");
}

#[test]
fn a_job_waits_for_what_it_depends_on() {
    let world = World::new();
    let first = world.submit(&["--hold", "--", "sh", "-c", "exit 1"]);
    let good = world.submit(&["--dependency", &format!("afterok:{first}"), "--", "true"]);
    let bad = world.submit(&["--dependency", &format!("afternotok:{first}"), "--", "true"]);
    assert_eq!(world.job(&bad)["state"], "queued");
    assert!(world.run(&["why", &bad]).out.contains(&first));
    world.run(&["release", &first]);
    assert_eq!(world.run(&["wait", &bad]).code, 0);
    let doomed = world.run(&["wait", &good]);
    assert_eq!(doomed.code, 125, "{doomed:?}");
    assert!(doomed.err.contains("did not end as asked"), "{doomed:?}");
    assert_eq!(world.run(&["run", "--dependency", "afterok:99", "--", "true"]).code, 3);
}

#[test]
fn a_second_job_waits_for_the_first_ones_simulated_gpu() {
    let world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "1"]);
    let holder = world.submit(&["--gpus", "1", "--mem", "64MiB", "--", "sleep", "60"]);
    world.until(&holder, "running");
    let waiter =
        world.submit(&["--gpus", "1", "--mem", "64MiB", "--", "sh", "-c", "echo gpu $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(
        world.run(&["why", &waiter]).out,
        format!(
            "it lacks 1 GPU
  held by job {holder} of root, without a time limit
first in the queue
nothing tells when it starts: no time limit ends what is in the way
it would start at once, if you
  end job {holder}: fourplane cancel {holder}
"
        )
    );
    let tried = world.run(&["run", "--dry-run", "--gpus", "1", "--mem", "64MiB", "--", "true"]);
    assert!(tried.out.contains("1 job is ahead of it"), "{tried:?}");
    let tried = world.run(&["run", "--dry-run", "--mem", "64MiB", "--json", "--", "true"]);
    let tried: serde_json::Value = serde_json::from_str(&tried.out).unwrap();
    assert_eq!((&tried["why"]["code"], tried["remedies"].as_array().unwrap().len()), (&"next".into(), 0));
    let nodes = world.run(&["nodes"]).out;
    assert_eq!(world.job(&holder)["simulated"], true);
    assert!(world.run(&["jobs"]).out.contains("1 simulated"), "the list taints it");
    assert!(world.run(&["jobs", &holder]).out.contains("GPUs 1 (simulated)"), "so does the job");
    assert!(nodes.contains("(simulated)") && nodes.contains(&format!("job {holder} of")), "{nodes}");
    world.run(&["cancel", &holder]);
    assert_eq!(world.run(&["wait", &waiter]).code, 0);
    assert_eq!(world.run(&["logs", &waiter]).out, "gpu 0\n");
}
