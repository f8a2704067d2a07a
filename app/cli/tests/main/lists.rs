//! The forms that lists are written in.

use crate::world::World;

/// A machine on which one job was killed, one waits, and one runs on GPUs.
fn busy() -> World {
    let world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "2:h100"]);
    let killed = world.submit(&["-J", "killed", "--mem", "64MiB", "--", "sh", "-c", "kill -KILL $$"]);
    world.until(&killed, "failed");
    let trains = ["-J", "train", "--gpus", "h100:2", "--mem", "1GiB", "--time", "2h", "--", "sleep", "60"];
    world.until(&world.submit(&trains), "running");
    world.submit(&["-J", "a|b", "--hold", "--mem", "64MiB", "--", "true"]);
    world
}

#[test]
fn jobs_are_exported_as_sacct_does() {
    let world = busy();
    let sacct = |args: &[&str]| world.run(&[&["jobs", "-a", "--sort", "id", "-P"], args].concat());
    assert_eq!(
        sacct(&["--format", "JobID,JobName,state,ExitCode,AllocTRES,ReqTRES,ReqMem,Timelimit,TimelimitRaw,AllocCPUS"]).out,
        "JobID|JobName|State|ExitCode|AllocTRES|ReqTRES|ReqMem|Timelimit|TimelimitRaw|AllocCPUS
1|killed|FAILED|0:9|cpu=1,mem=64M|cpu=1,mem=64M|64M|UNLIMITED|UNLIMITED|1
2|train|RUNNING|0:0|cpu=1,gres/gpu=2,gres/gpu:h100-sxm-80gb=2,mem=1G|cpu=1,gres/gpu=2,gres/gpu:h100-sxm-80gb=2,mem=1G|1G|02:00:00|120|1
3|a|b|PENDING|0:0||cpu=1,mem=64M|64M|UNLIMITED|UNLIMITED|0
"
    );
    assert_eq!(
        sacct(&["-n"]).out.lines().next(),
        Some("1|killed|default|1|FAILED|0:9"),
        "sacct's usual fields, without a header"
    );
    let times = sacct(&["-n", "--format=Submit,Start,End,ElapsedRaw"]).out;
    let last: Vec<&str> = times.lines().last().unwrap().split('|').collect();
    assert_eq!((last[0].len(), &last[1..]), (19, &["Unknown", "Unknown", "0"][..]), "{times}");
    assert_eq!(
        world.run(&["jobs", "1", "-P", "--format", "JobIDRaw,State"]).out,
        "JobIDRaw|State\n1|FAILED\n"
    );
    let table = world.run(&["jobs", "-a", "--sort", "id", "--format", "JobID,State"]).out;
    assert_eq!(table, "JobID  State\n1      FAILED\n2      RUNNING\n3      PENDING\n");

    let unknown = sacct(&["--format", "JobID,Elapsd"]);
    assert_eq!(unknown.code, 3);
    let expect = "error: there is no field 'Elapsd' of sacct here\nhint: did you mean Elapsed?\nhint: the fields are Account, ";
    assert!(unknown.err.starts_with(expect), "{unknown:?}");
}

#[test]
fn lists_are_written_in_every_form() {
    let world = busy();
    let list = |form: &str| world.run(&["jobs", "-a", "--sort", "id", "-o", form]).out;
    let json: Vec<serde_json::Value> = serde_json::from_str(&list("json")).unwrap();
    assert_eq!(json.iter().map(|job| job["id"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    let yaml = list("yaml");
    assert_eq!(yaml.matches("\n  name: ").count(), 3, "{yaml}");
    assert!(yaml.contains("\n  gpu_model: \"H100-SXM-80GB\"\n"), "{yaml}");
    assert!(list("csv").starts_with("id,name,user,team,state,"));
    assert!(list("wide").starts_with("JOB  NAME"));
    assert_eq!(list("name"), "1\n2\n3\n");
    assert!(world.run(&["jobs", "2", "-o", "yaml"]).out.contains("\n  tries:\n    - "), "one job");
    let unknown = world.run(&["jobs", "-o", "id,stat"]);
    assert!(
        unknown.err.starts_with("error: there is no field 'stat'\nhint: did you mean state?\n"),
        "{unknown:?}"
    );
}
