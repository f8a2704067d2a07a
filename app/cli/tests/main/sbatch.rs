//! Scripts written for sbatch.

use crate::world::World;

const SCRIPT: &str = "#!/bin/sh
#SBATCH --job-name=train --output=%x-%j.log
#SBATCH --ntasks=2 --mem=64M --time=30 --partition=gpu
echo trained with $1, $SLURM_JOB_NAME $SLURM_NTASKS/$SLURM_CPUS_PER_TASK in $SLURM_JOB_ID
#SBATCH --hold
";

#[test]
fn a_script_runs_with_what_its_lines_ask_for() {
    let world = World::new();
    std::fs::write(world.work().join("train.sh"), SCRIPT).unwrap();
    let ran = world.run(&["run", "--parsable", "--wait", "train.sh", "care"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let id = ran.out.trim();
    assert_eq!(world.file(&format!("train-{id}.log")), format!("trained with care, train 2/1 in {id}\n"));
    let job = world.job(id);
    assert_eq!(
        [&job["tasks"], &job["cores"], &job["memory_bytes"], &job["time_limit_ns"]],
        [1, 2, 64 << 20, 1_800_000_000_000_u64],
        "{job}"
    );
    assert_eq!(
        ran.err,
        "warning: --partition has no effect here: this is one machine
 --> train.sh:3:40
3 | #SBATCH --ntasks=2 --mem=64M --time=30 --partition=gpu
  |                                        ^^^^^^^^^^^^^^^
warning: this is not read: sbatch, too, stops at the first command
 --> train.sh:5:1
5 | #SBATCH --hold
  | ^^^^^^^^^^^^^^
-t is read as Slurm does: 00:30:00 (D-HH:MM:SS)
"
    );

    let script = "#!/bin/sh\n#SBATCH --array=3-4 -o%a\necho $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_MAX\n";
    std::fs::write(world.work().join("sweep.sh"), script).unwrap();
    assert_eq!(world.run(&["run", "--wait", "sweep.sh"]).code, 0);
    assert_eq!(world.file("3") + &world.file("4"), "3 4\n4 4\n");
    world.run(&["run", "--wait", "-o", "plain", "--", "env"]);
    assert!(!world.file("plain").contains("SLURM_"), "only for those who ask");

    let typed = world.run(&["run", "--parsable", "--wait", "--time", "1h", "-J", "mine", "train.sh"]);
    let job = world.job(typed.out.trim());
    assert_eq!(job["name"], "mine");
    assert_eq!(job["time_limit_ns"], 3_600_000_000_000_u64);
}

#[test]
fn all_mistakes_are_shown_and_nothing_is_submitted() {
    let world = World::new();
    let script = "#!/bin/sh\n#SBATCH --nodes=16\n#SBATCH --job-nam=x\n";
    std::fs::write(world.work().join("train.sh"), script).unwrap();
    let ran = world.run(&["run", "train.sh"]);
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.err,
        "error: it asks for 16 nodes, this is one machine
 --> train.sh:2:9
2 | #SBATCH --nodes=16
  |         ^^^^^^^^^^
error: sbatch has no option '--job-nam=x'
 --> train.sh:3:9
3 | #SBATCH --job-nam=x
  |         ^^^^^^^^^^^
hint: did you mean --job-name?
"
    );
    assert_eq!(world.run(&["jobs", "-a", "--no-headers"]).out, "");
}

#[test]
fn a_command_of_slurm_or_kubectl_tells_what_to_type() {
    let world = World::new();
    let ran = world.run(&["kubectl", "describe", "job/12"]);
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.err,
        "error: 'kubectl describe job/12' is not a command of fourplane\nhint: type: fourplane why 12\n"
    );
}
