//! What to type instead of a command of Slurm or kubectl.

use crate::sbatch;
use crate::values::job_ref;

/// What is typed elsewhere, and what does the same here. Words in capitals stand for what was typed:
/// `IDS` jobs, `USER` the value of `-u`, `NODE` a node, `ALL` all that follows, `FLAGS` and `COMMAND`
/// its options and the rest, `FORM` the option `-o`.
const HABITS: [(&str, &str); 52] = [
    ("sbatch", "run --detach ALL"),
    ("srun", "run FLAGS -- COMMAND"),
    ("srun --pty", "shell FLAGS -- COMMAND"),
    ("salloc", "shell FLAGS"),
    ("squeue", "jobs --all -t queued,held,running"),
    ("squeue --me", "jobs"),
    ("squeue -u", "jobs --user USER"),
    ("squeue -j", "jobs IDS"),
    ("squeue --start", "why IDS"),
    ("scancel", "cancel IDS"),
    ("scancel -u", "cancel $(fourplane jobs --user USER --output name)"),
    ("sinfo", "nodes"),
    ("sacct", "jobs --all --since now-1d"),
    ("sacct -j", "jobs IDS"),
    ("seff", "jobs IDS"),
    ("sstat", "jobs IDS"),
    ("sprio", "why IDS"),
    ("sattach", "attach IDS"),
    ("scontrol show job", "jobs IDS"),
    ("scontrol show node", "nodes"),
    ("scontrol show reservation", "reservations"),
    ("scontrol hold", "hold IDS"),
    ("scontrol release", "release IDS"),
    ("scontrol update", "priority IDS N"),
    ("scontrol update nodename", "drain NODE"),
    ("get", "jobs FORM"),
    ("get jobs", "jobs FORM"),
    ("get job", "jobs IDS FORM"),
    ("get pods", "jobs FORM"),
    ("get pods -A", "jobs --all FORM"),
    ("get pod", "jobs IDS FORM"),
    ("get nodes", "nodes"),
    ("get node", "nodes"),
    ("get events", "jobs --watch"),
    ("describe", "why IDS"),
    ("describe node", "nodes"),
    ("delete", "cancel IDS"),
    ("create", "run --detach -- COMMAND"),
    ("exec", "shell -- COMMAND"),
    ("logs", "logs ALL"),
    ("wait", "wait IDS"),
    ("diff", "apply --dry-run ALL"),
    ("top", "nodes"),
    ("cordon", "drain NODE"),
    ("uncordon", "resume NODE"),
    ("port-forward", "run --service --port N -- COMMAND"),
    ("scale", "run --array 0-9 -- COMMAND"),
    ("config", "jobs --server URL"),
    ("auth", "token list"),
    ("cluster-info", "nodes"),
    ("apply", "apply ALL"),
    ("ps", "jobs"),
];

/// The commands that do what `words` would do elsewhere; none where they are nobody's habit.
///
/// `words` are the arguments without the program's name, with or without a leading `kubectl`.
pub(crate) fn instead_of(words: &[String]) -> Option<String> {
    let words = if words.first().is_some_and(|word| word == "kubectl") { &words[1..] } else { words };
    let words = with_terminal_first(words);
    let typed = words.join(" ");
    // `job/12` is `job 12`, and `nodename=n1` names a node.
    let typed = typed.replace(['/', '='], " ");
    let same =
        |habit: &str| typed.strip_prefix(habit).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let closest = HABITS.iter().filter(|(habit, _)| same(habit)).max_by_key(|(habit, _)| habit.len());
    let (habit, ours) = closest?;
    let typed = Typed {
        rest: words.get(habit.split(' ').count()..).unwrap_or_default(),
        parts: typed[habit.len()..].split_whitespace().collect(),
    };
    let filled = ours.split(' ').map(|word| typed.fill(word)).filter(|word| !word.is_empty());
    Some(format!("fourplane {}", filled.collect::<Vec<_>>().join(" ")))
}

/// `srun --pty`, wherever among the options it stands.
fn with_terminal_first(words: &[String]) -> Vec<String> {
    let (is_terminal, mut words): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word == "--pty");
    let at = words.len().min(1);
    words.splice(at..at, is_terminal);
    words
}

/// What follows the words of a habit.
struct Typed<'a> {
    /// Word by word.
    rest: &'a [String],
    /// The same in pieces, so that `job/12` and `nodename=n1` are two words each.
    parts: Vec<&'a str>,
}

impl Typed<'_> {
    /// What a word of ours stands for; itself where nothing was typed for it.
    fn fill(&self, word: &str) -> String {
        let ids = || self.parts.iter().copied().filter(|part| job_ref(part).is_ok()).collect::<Vec<_>>();
        let operand = || self.parts.iter().find(|part| !part.starts_with('-')).copied();
        let form = || self.rest.iter().position(|word| word == "-o").and_then(|at| self.rest.get(at..at + 2));
        let known = |text: String| if text.is_empty() { word.to_owned() } else { text };
        match word {
            "IDS" => known(ids().join(" ")),
            // The habit ends with the option, so what follows is its value.
            "USER" | "NODE" => known(operand().unwrap_or_default().to_owned()),
            "ALL" => known(shell(self.rest)),
            "FLAGS" => shell(self.split().0),
            "COMMAND" => known(shell(self.split().1)),
            "FORM" => shell(form().unwrap_or_default()),
            _ => word.to_owned(),
        }
    }

    /// The options that come first, and the command behind them.
    fn split(&self) -> (&[String], &[String]) {
        if let Some(at) = self.rest.iter().position(|word| word == "--") {
            return (&self.rest[..at], &self.rest[at + 1..]);
        }
        let mut at = 0;
        while let Some(word) = self.rest.get(at).filter(|word| word.starts_with('-')) {
            at += if sbatch::takes_next(word) { 2 } else { 1 };
        }
        self.rest.split_at(at.min(self.rest.len()))
    }
}

/// Words as a shell reads them back.
fn shell(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=:,./%@+".contains(c);
    let quoted = words.iter().map(|word| match word.as_str() {
        word if !word.is_empty() && word.chars().all(is_plain) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_longest_habit_wins_and_takes_what_was_typed_along() {
        let check = |typed: &[&str], expect: Option<&str>| {
            let words: Vec<String> = typed.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(instead_of(&words).as_deref(), expect, "{typed:?}");
        };
        check(&["squeue"], Some("fourplane jobs --all -t queued,held,running"));
        check(&["squeue", "-u", "alice"], Some("fourplane jobs --user alice"));
        check(&["kubectl", "get", "pods", "-n", "ml"], Some("fourplane jobs"));
        check(&["describe", "job/12"], Some("fourplane why 12"));
        check(&["describe"], Some("fourplane why IDS"));
        check(&["scancel", "12", "13_[0-4]"], Some("fourplane cancel 12 13_[0-4]"));
        check(
            &["srun", "-n", "2", "sh", "-c", "echo it's"],
            Some(r"fourplane run -n 2 -- sh -c 'echo it'\''s'"),
        );
        check(&["sbatch", "a dir/x.sh"], Some("fourplane run --detach 'a dir/x.sh'"));
        check(&["srun", "--gpus", "1", "--pty", "bash"], Some("fourplane shell --gpus 1 -- bash"));
        check(&["kubectl"], None);
        check(&["topping"], None);
    }

    #[test]
    fn what_is_told_can_be_typed() {
        for (habit, ours) in HABITS {
            let command = ours.replace("$(fourplane jobs --user USER --output name)", "1");
            let words = command.split(' ').filter(|word| !["FLAGS", "FORM"].contains(word));
            let file = |word| if ours.starts_with("apply") { "-fx" } else { word };
            let words = words.map(|word| match word {
                "IDS" | "N" => "1",
                "ALL" => file("1"),
                word => word,
            });
            let typed: Vec<&str> = std::iter::once("fourplane").chain(words).collect();
            assert!(Cli::try_parse_from(&typed).is_ok(), "{habit}: {typed:?}");
        }
    }
}
