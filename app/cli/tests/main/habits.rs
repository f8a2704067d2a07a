//! What people type who come from Slurm or from Kubernetes: it works, or it is answered with what to
//! type, and that works.

use std::path::Path;
use std::process::Command;

use crate::world::{PROGRAM, Ran, World, finish};

/// What is typed after `fourplane`, and what it is answered with; nothing where it works as it is.
const SLURM: [(&str, &str); 20] = [
    ("sbatch train.sh", "run --detach train.sh"),
    ("sbatch --gpus=h100:1 -t 30 train.sh", "run --detach --gpus=h100:1 -t 30 train.sh"),
    ("run --detach train.sh", ""),
    ("srun hostname", "run -- hostname"),
    ("srun -n 2 --mem 64M sh -c 'echo $RANK'", "run -n 2 --mem 64M -- sh -c 'echo $RANK'"),
    ("srun --gpus 1 --pty sh", "shell --gpus 1 -- sh"),
    ("salloc --gpus=1", "shell --gpus=1"),
    ("squeue", "jobs --all -t queued,held,running"),
    ("squeue -u root", "jobs --user root"),
    ("squeue --me", "jobs"),
    ("squeue -j 1", "jobs 1"),
    ("squeue --start -j 2", "why 2"),
    ("scontrol show job 1", "jobs 1"),
    ("scontrol release 2", "release 2"),
    ("scontrol update nodename=NODE state=drain", "drain NODE"),
    ("sinfo -N -l", "nodes"),
    ("sacct", "jobs --all --since now-1d"),
    ("seff 1", "jobs 1"),
    ("scancel 3", "cancel 3"),
    ("scancel -u root", "cancel $(fourplane jobs --user root --output name)"),
];

const KUBERNETES: [(&str, &str); 20] = [
    ("kubectl get pods", "jobs"),
    ("kubectl get pods -A", "jobs --all"),
    ("get pod 1 -o yaml", "jobs 1 -o yaml"),
    ("kubectl get jobs -o json", "jobs -o json"),
    ("kubectl get nodes", "nodes"),
    ("kubectl describe job/2", "why 2"),
    ("kubectl describe node NODE", "nodes"),
    ("kubectl logs -f job/1", "logs -f job/1"),
    ("logs -f job/1", ""),
    ("kubectl wait job/1", "wait 1"),
    ("kubectl exec -it job/1 -- true", "shell -- true"),
    ("kubectl create -- true", "run --detach -- true"),
    ("kubectl delete job/3", "cancel 3"),
    ("kubectl diff -f cluster.yaml", "apply --dry-run -f cluster.yaml"),
    ("apply --dry-run -f cluster.yaml", ""),
    ("explain teams.quota", ""),
    ("kubectl top nodes", "nodes"),
    ("kubectl cordon NODE", "drain NODE"),
    ("kubectl uncordon NODE", "resume NODE"),
    ("kubectl cluster-info", "nodes"),
];

/// Runs what a shell would be given.
fn typed(world: &World, line: &str) -> Ran {
    let dir = Path::new(PROGRAM).parent().unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let plain = world.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(world.work()).env("PATH", path).stdin(std::process::Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    finish(command)
}

fn check_all(habits: &[(&str, &str)]) {
    for (line, answer) in habits {
        let world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "2:h100"]);
        std::fs::write(world.work().join("train.sh"), "#!/bin/sh\necho trained\n").unwrap();
        std::fs::write(world.work().join("cluster.yaml"), "fourplane: 1\ncluster: aurora\n").unwrap();
        world.run(&["run", "--wait", "--mem", "64MiB", "--", "true"]);
        world.submit(&["--hold", "--mem", "64MiB", "--", "true"]);
        world.submit(&["--mem", "64MiB", "--", "sleep", "60"]);
        let node = world.run(&["nodes"]).out.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let [line, answer] = [line, answer].map(|text| text.replace("NODE", &node));
        let ran = typed(&world, &format!("fourplane {line}"));
        let told = ran.err.lines().find_map(|text| text.strip_prefix("hint: type: "));
        assert_eq!(
            told.unwrap_or_default(),
            if answer.is_empty() { answer.clone() } else { format!("fourplane {answer}") },
            "{line}: {ran:?}"
        );
        let ran = if answer.is_empty() { ran } else { typed(&world, told.unwrap()) };
        // A dry run tells with 1 that something differs.
        assert!(ran.code == 0 || (ran.code == 1 && line.contains("cluster.yaml")), "{line}: {ran:?}");
    }
}

#[test]
fn whoever_comes_from_slurm_is_understood() {
    check_all(&SLURM);
}

#[test]
fn whoever_comes_from_kubernetes_is_understood() {
    check_all(&KUBERNETES);
}
