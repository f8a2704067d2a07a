//! GPUs asked for by model.

use crate::world::World;

/// Two models on one machine.
fn mixed() -> World {
    World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "2:h100,1:a100-sxm4-40gb"])
}

#[test]
fn a_job_gets_gpus_of_the_model_it_asks_for() {
    let world = mixed();
    let gpu = |asked: &str| {
        let id = world.submit(&[
            "--gpus",
            asked,
            "--mem",
            "64MiB",
            "--",
            "sh",
            "-c",
            "echo $CUDA_VISIBLE_DEVICES; sleep 60",
        ]);
        world.until(&id, "running");
        id
    };
    let h100 = gpu("h100:1");
    let a100 = gpu("gpu:nvidia-a100-sxm4-40gb:1");
    assert_eq!(world.job(&a100)["gpu_model"], "A100-SXM-40GB");
    assert!(world.run(&["jobs", &h100]).out.contains("GPUs 1 (H100-SXM-80GB, simulated)"));
    let waiter = world.submit(&["--gpus", "A100-SXM-40GB", "--mem", "64MiB", "--", "true"]);
    assert_eq!(
        world.run(&["why", &waiter]).out,
        format!(
            "it lacks 1 GPU of model A100-SXM-40GB
  held by job {a100} of root, without a time limit
first in the queue
nothing tells when it starts: no time limit ends what is in the way
it would start at once, if you
  take GPUs of any model: fourplane cancel {waiter}, and run it with --gpus 1
  end job {a100}: fourplane cancel {a100}
"
        )
    );
    let last = gpu("1");
    let listed = world.run(&["jobs", "-o", "id,gpu_model", "--sort", "id", "--no-headers"]).out;
    assert_eq!(
        listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>(),
        [
            format!("{h100} H100-SXM-80GB"),
            format!("{a100} A100-SXM-40GB"),
            format!("{waiter} A100-SXM-40GB"),
            format!("{last} -"),
        ]
    );
    let given = [&h100, &a100, &last].map(|id| world.run(&["logs", id]).out);
    assert_eq!(given, ["0\n", "2\n", "1\n"]);
}

#[test]
fn a_model_that_can_never_be_had_is_refused_with_those_that_can() {
    let world = mixed();
    let check = |args: &[&str], expect: &[&str]| {
        for dry in [&[][..], &["--dry-run"]] {
            let ran = world.run(&[&["run", "-d"], dry, args, &["--", "true"]].concat());
            assert_eq!(ran.code, 3, "{ran:?}");
            assert!(expect.iter().all(|part| ran.err.contains(part)), "{ran:?}");
        }
    };
    check(
        &["--gpus", "b200:1"],
        &[
            "it asks for GPUs of model B200-SXM-180GB, and there are 1 A100-SXM-40GB, 2 H100-SXM-80GB",
            "hint: ask for a model that is there, or for GPUs of any model",
        ],
    );
    check(
        &["--gpus", "h100:3"],
        &["3 GPUs) of model H100-SXM-80GB, more than", "a task may have at most 4 cores, ", ", 2 GPUs"],
    );
}

#[test]
fn a_script_names_the_model_as_slurm_does() {
    let world = mixed();
    for line in ["--gpus=h100:2", "--gres=gpu:h100:2", "-n 2 --gpus-per-task=h100:1"] {
        let script = format!("#!/bin/sh\n#SBATCH {line} --mem=64M\necho $CUDA_VISIBLE_DEVICES\n");
        std::fs::write(world.work().join("train.sh"), script).unwrap();
        let ran = world.run(&["run", "--wait", "--parsable", "train.sh"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        let job = world.job(ran.out.trim());
        assert_eq!((&job["gpus"], &job["gpu_model"]), (&2.into(), &"H100-SXM-80GB".into()), "{line}");
        assert_eq!(world.run(&["logs", ran.out.trim()]).out, "0,1\n", "{line}");
    }
}
