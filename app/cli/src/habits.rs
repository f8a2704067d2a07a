//! What to type instead of a command of Slurm or kubectl.

/// What is typed elsewhere, and what does the same here.
const HABITS: [(&str, &str); 47] = [
    ("sbatch", "run --detach SCRIPT"),
    ("srun", "run -- COMMAND"),
    ("srun --pty", "shell"),
    ("salloc", "shell"),
    ("squeue", "jobs --all -t queued,held,running"),
    ("squeue --me", "jobs"),
    ("squeue -u", "jobs --user NAME"),
    ("squeue -j", "jobs ID"),
    ("squeue --start", "why ID"),
    ("scancel", "cancel ID"),
    ("scancel -u", "cancel $(fourplane jobs --output name)"),
    ("sinfo", "nodes"),
    ("sacct", "jobs --all --since now-1d"),
    ("sacct -j", "jobs ID"),
    ("seff", "jobs ID"),
    ("sstat", "jobs ID"),
    ("sprio", "why ID"),
    ("sattach", "attach ID"),
    ("scontrol show job", "jobs ID"),
    ("scontrol show node", "nodes"),
    ("scontrol hold", "hold ID"),
    ("scontrol release", "release ID"),
    ("scontrol update", "priority ID N"),
    ("scontrol update nodename", "drain NODE"),
    ("get", "jobs"),
    ("get jobs", "jobs"),
    ("get job", "jobs ID"),
    ("get pods", "jobs"),
    ("get pod", "jobs ID"),
    ("get nodes", "nodes"),
    ("get node", "nodes"),
    ("get events", "jobs --watch"),
    ("describe", "why ID"),
    ("describe node", "nodes"),
    ("delete", "cancel ID"),
    ("create", "run --detach -- COMMAND"),
    ("exec", "shell -- COMMAND"),
    ("top", "nodes"),
    ("cordon", "drain NODE"),
    ("uncordon", "resume NODE"),
    ("port-forward", "run --service --port N -- COMMAND"),
    ("scale", "run --array 0-9 -- COMMAND"),
    ("config", "jobs --server URL"),
    ("auth", "token list"),
    ("cluster-info", "nodes"),
    ("apply", "apply -f FILE"),
    ("ps", "jobs"),
];

/// The commands that do what `words` would do elsewhere; none where they are nobody's habit.
///
/// `words` are the arguments without the program's name, with or without a leading `kubectl`.
pub(crate) fn instead_of(words: &[String]) -> Option<String> {
    let words = if words.first().is_some_and(|word| word == "kubectl") { &words[1..] } else { words };
    let typed = words.join(" ");
    // `job/12` is `job 12`, and `nodename=n1` names a node.
    let typed = typed.replace(['/', '='], " ");
    let same =
        |habit: &str| typed.strip_prefix(habit).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let closest = HABITS.iter().filter(|(habit, _)| same(habit)).max_by_key(|(habit, _)| habit.len());
    closest.map(|(_, ours)| format!("fourplane {ours}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_longest_habit_wins() {
        let check = |typed: &str, expect: Option<&str>| {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            assert_eq!(instead_of(&words).as_deref(), expect, "{typed}");
        };
        check("squeue", Some("fourplane jobs --all -t queued,held,running"));
        check("squeue -u alice", Some("fourplane jobs --user NAME"));
        check("kubectl get pods -A", Some("fourplane jobs"));
        check("describe job/12", Some("fourplane why ID"));
        check("kubectl", None);
        check("topping", None);
    }

    #[test]
    fn what_is_told_can_be_typed() {
        for (habit, ours) in HABITS {
            let command = ours.replace("$(fourplane jobs --output name)", "1");
            let words = command.split(' ').map(|word| if word == "ID" || word == "N" { "1" } else { word });
            let typed: Vec<&str> = std::iter::once("fourplane").chain(words).collect();
            assert!(Cli::try_parse_from(&typed).is_ok(), "{habit}: {typed:?}");
        }
    }
}
