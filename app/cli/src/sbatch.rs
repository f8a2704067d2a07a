//! `#SBATCH` lines of a script, read as flags of `run`.
//!
//! What each option means is from the manual of sbatch (Slurm 22.05 to 26.05). A script runs once,
//! as under sbatch, so tasks only say how many cores and devices it gets.

use units::GpuModel;

use crate::gpus::{Gpus, gpus};

/// What a script asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// Flags of `run` that say the same.
    pub(crate) flags: Vec<String>,
    /// What has no effect here, or none at all.
    pub(crate) notes: Vec<Note>,
}

/// Something said about one place of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The line, from 1.
    line: usize,
    /// The column, from 1, in characters.
    column: usize,
    /// How many characters it is about.
    width: usize,
    /// The line's text.
    source: String,
    /// What is said.
    message: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

impl Note {
    /// The message, and the place under it, for a script called `name`.
    pub(crate) fn render(&self, name: &str) -> String {
        let Self { line, column, width, source, message, .. } = self;
        let gutter = line.to_string().len();
        let text = format!("{message}\n{:gutter$}--> {name}:{line}:{column}", "");
        // Tabs are as wide in the line of carets as in the line above it.
        let blank = |c| if c == '\t' { c } else { ' ' };
        let before: String = source.chars().take(column - 1).map(blank).collect();
        text + &format!("\n{line} | {source}\n{:gutter$} | {before}{}", "", "^".repeat(*width))
    }
}

/// What an option of sbatch means here.
#[derive(Clone, Copy)]
enum Meaning {
    /// The value of this flag.
    Value(&'static str),
    /// This flag.
    Switch(&'static str),
    /// Counts towards the amounts; see [`Amounts`].
    Amount(fn(&mut Amounts, &str) -> Result<(), String>),
    /// Has no effect on one machine.
    OneMachine,
    /// Has no effect here, for this reason.
    Moot(&'static str),
    /// Would change what the job does, and is not supported.
    Refused(&'static str),
}

use Meaning::{Amount, Moot, OneMachine, Refused, Switch, Value};

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    No,
    Yes,
    /// Only as `--option=VALUE`.
    Maybe,
}

use Takes::{Maybe, No, Yes};

const TERMINAL: &str = "it only matters to sbatch's own output";

/// Long name, short name, whether it has a value, and what it means.
const OPTIONS: [(&str, char, Takes, Meaning); 80] = [
    ("account", 'A', Yes, Value("--team")),
    ("acctg-freq", ' ', Yes, OneMachine),
    ("array", 'a', Yes, Value("--array")),
    ("batch", ' ', Yes, OneMachine),
    ("begin", 'b', Yes, Refused("a start time is not supported yet; hold the job and release it then")),
    ("chdir", 'D', Yes, Value("--chdir")),
    ("clusters", 'M', Yes, OneMachine),
    ("comment", ' ', Yes, Moot("write --label comment=... to keep it")),
    ("constraint", 'C', Yes, OneMachine),
    ("contiguous", ' ', No, OneMachine),
    ("core-spec", 'S', Yes, OneMachine),
    ("cores-per-socket", ' ', Yes, OneMachine),
    ("cpu-freq", ' ', Yes, OneMachine),
    ("cpus-per-gpu", ' ', Yes, Amount(|a, v| set(&mut a.cores_per_gpu, v))),
    ("cpus-per-task", 'c', Yes, Amount(|a, v| set(&mut a.cores_per_task, v))),
    ("deadline", ' ', Yes, Refused("a deadline is not supported yet; --time bounds how long it runs")),
    ("delay-boot", ' ', Yes, OneMachine),
    ("dependency", 'd', Yes, Value("--dependency")),
    ("distribution", 'm', Yes, OneMachine),
    ("error", 'e', Yes, Value("--error")),
    ("exclude", 'x', Yes, OneMachine),
    ("exclusive", ' ', Maybe, Moot("ask for all cores with --cpus-per-task to have the machine alone")),
    ("export", ' ', Yes, Value("--export")),
    ("export-file", ' ', Yes, Refused("an environment file is not supported; source it in the script")),
    ("extra-node-info", 'B', Yes, OneMachine),
    ("get-user-env", ' ', Maybe, Moot("the environment is the one in which you submit; see --export")),
    ("gpu-bind", ' ', Yes, OneMachine),
    ("gpu-freq", ' ', Yes, Refused("GPU clocks are not set for a job")),
    ("gpus", 'G', Yes, Amount(|a, v| a.set_gpus(|a| &mut a.gpus, v))),
    ("gpus-per-node", ' ', Yes, Amount(|a, v| a.set_gpus(|a| &mut a.gpus_per_node, v))),
    ("gpus-per-socket", ' ', Yes, OneMachine),
    ("gpus-per-task", ' ', Yes, Amount(|a, v| a.set_gpus(|a| &mut a.gpus_per_task, v))),
    ("gres", ' ', Yes, Amount(gres)),
    ("gres-flags", ' ', Yes, OneMachine),
    ("hint", ' ', Yes, OneMachine),
    ("hold", 'H', No, Switch("--hold")),
    ("ignore-pbs", ' ', No, Moot("PBS lines are never read")),
    ("input", 'i', Yes, Refused("standard input is /dev/null; redirect it in the script")),
    ("job-name", 'J', Yes, Value("--name")),
    ("kill-on-invalid-dep", ' ', Yes, Moot("such a job always ends")),
    ("licenses", 'L', Yes, Refused("licences are not counted")),
    ("mail-type", ' ', Yes, Value("--mail-type")),
    ("mail-user", ' ', Yes, Value("--mail-user")),
    ("mem", ' ', Yes, Amount(|a, v| memory(&mut a.memory, v))),
    ("mem-bind", ' ', Yes, OneMachine),
    ("mem-per-cpu", ' ', Yes, Amount(|a, v| memory(&mut a.memory_per_core, v))),
    ("mem-per-gpu", ' ', Yes, Amount(|a, v| memory(&mut a.memory_per_gpu, v))),
    ("mincpus", ' ', Yes, OneMachine),
    ("nice", ' ', Maybe, Moot("write --priority -N to stand back")),
    ("no-kill", 'k', Maybe, OneMachine),
    ("no-requeue", ' ', No, Switch("--no-requeue")),
    ("nodefile", 'F', Yes, OneMachine),
    ("nodelist", 'w', Yes, OneMachine),
    ("nodes", 'N', Yes, Amount(nodes)),
    ("ntasks", 'n', Yes, Amount(|a, v| set(&mut a.tasks, v))),
    ("ntasks-per-core", ' ', Yes, OneMachine),
    ("ntasks-per-gpu", ' ', Yes, OneMachine),
    ("ntasks-per-node", ' ', Yes, Amount(|a, v| set(&mut a.tasks_per_node, v))),
    ("ntasks-per-socket", ' ', Yes, OneMachine),
    ("open-mode", ' ', Yes, Amount(open_mode)),
    ("output", 'o', Yes, Value("--output")),
    ("overcommit", 'O', No, OneMachine),
    ("oversubscribe", 's', No, OneMachine),
    ("parsable", ' ', No, Switch("--parsable")),
    ("partition", 'p', Yes, OneMachine),
    ("priority", ' ', Yes, Moot("priorities of Slurm are on another scale; write --priority after `run`")),
    ("profile", ' ', Yes, OneMachine),
    ("propagate", ' ', Maybe, Moot("limits are the machine's own")),
    ("qos", 'q', Yes, OneMachine),
    ("quiet", 'Q', No, Moot(TERMINAL)),
    ("requeue", ' ', No, Moot("a job is put back in the queue unless --no-requeue is given")),
    ("reservation", ' ', Yes, OneMachine),
    ("signal", ' ', Yes, Value("--signal")),
    ("switches", ' ', Yes, OneMachine),
    ("threads-per-core", ' ', Yes, OneMachine),
    ("time", 't', Yes, Value("-t")),
    ("tmp", ' ', Yes, OneMachine),
    ("verbose", 'v', No, Moot(TERMINAL)),
    ("wait", 'W', No, Switch("--wait")),
    ("wrap", ' ', Yes, Refused("a script cannot wrap another command")),
];

/// Counts that only together say what the script gets.
#[derive(Default)]
struct Amounts {
    tasks: Option<u64>,
    tasks_per_node: Option<u64>,
    cores_per_task: Option<u64>,
    cores_per_gpu: Option<u64>,
    gpus: Option<u64>,
    gpus_per_node: Option<u64>,
    gpus_per_task: Option<u64>,
    /// The model of the GPUs, by its canonical name.
    gpu_model: Option<GpuModel>,
    /// MiB, as the three below.
    memory: Option<u64>,
    memory_per_core: Option<u64>,
    memory_per_gpu: Option<u64>,
}

impl Amounts {
    /// A number of GPUs, perhaps of a model. All that a job asks for are of one.
    fn set_gpus(&mut self, count: fn(&mut Self) -> &mut Option<u64>, value: &str) -> Result<(), String> {
        let Gpus { count: number, model } = gpus(value)?;
        if let (Some(model), Some(other)) = (model, self.gpu_model.filter(|known| Some(*known) != model)) {
            return Err(format!("it asks for GPUs of model {model} and of {other}; a job has one model"));
        }
        self.gpu_model = self.gpu_model.or(model);
        *count(self) = Some(number.into());
        Ok(())
    }

    /// What one machine gives for all tasks together, as flags of `run`.
    fn flags(&self) -> Vec<String> {
        let tasks = self.tasks.or(self.tasks_per_node).unwrap_or(1);
        let gpus =
            self.gpus.or(self.gpus_per_node).or(self.gpus_per_task.map(|each| each.saturating_mul(tasks)));
        let by_gpu = |each: u64| each.saturating_mul(gpus.unwrap_or(0));
        let by_task = self.cores_per_task.unwrap_or(1).saturating_mul(tasks);
        let cores = self.cores_per_gpu.map_or(by_task, |each| by_gpu(each).max(by_task));
        let memory = self
            .memory
            .or(self.memory_per_core.map(|each| each.saturating_mul(cores)))
            .or(self.memory_per_gpu.map(by_gpu));
        let said = [
            Some("--slurm-env".to_owned()),
            (tasks > 1).then(|| format!("--slurm-tasks={tasks}")),
            (cores > 1).then(|| format!("--cores={cores}")),
            gpus.map(|gpus| match self.gpu_model.filter(|_| gpus > 0) {
                Some(model) => format!("--gpus={model}:{gpus}"),
                None => format!("--gpus={gpus}"),
            }),
            memory.map(|mebibytes| format!("--mem={mebibytes}MiB")),
        ];
        said.into_iter().flatten().collect()
    }
}

fn set(count: &mut Option<u64>, value: &str) -> Result<(), String> {
    let wrong = || format!("'{value}' is no count above zero");
    *count = Some(value.parse().ok().filter(|&count| count > 0).ok_or_else(wrong)?);
    Ok(())
}

/// `gpu:2`, among others that one machine does not have.
fn gres(amounts: &mut Amounts, value: &str) -> Result<(), String> {
    for one in value.split(',') {
        match one.strip_prefix("gpu:").or((one == "gpu").then_some("1")) {
            Some(gpus) => amounts.set_gpus(|amounts| &mut amounts.gpus_per_node, gpus)?,
            None => return Err(format!("there is no resource '{one}' here, only gpu")),
        }
    }
    Ok(())
}

/// A bare number is MiB and suffixes are binary, as Slurm reads them.
fn memory(mebibytes: &mut Option<u64>, value: &str) -> Result<(), String> {
    let wrong = || format!("'{value}' is no amount of memory; write for example 64G or 512M");
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    if number == 0 {
        return Err("all memory of the machine cannot be asked for; write an amount".to_owned());
    }
    let number = match value[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KB" => Some(number.div_ceil(1_024)),
        "" | "M" | "MB" => Some(number),
        "G" | "GB" => number.checked_mul(1_024),
        "T" | "TB" => number.checked_mul(1_024 * 1_024),
        _ => None,
    };
    *mebibytes = Some(number.ok_or_else(wrong)?);
    Ok(())
}

/// One, or a range that begins with one.
fn nodes(_: &mut Amounts, value: &str) -> Result<(), String> {
    let least = value.split_once('-').map_or(value, |(least, _)| least);
    match least.parse::<u64>() {
        Ok(1) => Ok(()),
        Ok(least) => Err(format!("it asks for {least} nodes, this is one machine")),
        Err(_) => Err(format!("'{value}' is no number of nodes")),
    }
}

fn open_mode(_: &mut Amounts, value: &str) -> Result<(), String> {
    match value {
        "append" => Ok(()),
        "truncate" => Err("output is always appended; remove the file in the script".to_owned()),
        _ => Err(format!("'{value}' is no way to open a file; sbatch has append and truncate")),
    }
}

/// A word of a line, without its quotes, and where it begins and ends, in characters from 0.
struct Word {
    text: String,
    from: usize,
    until: usize,
}

/// Splits as a shell does, up to a comment.
fn words(line: &str, skip: usize) -> Vec<Word> {
    let mut words = Vec::new();
    let mut chars = line.chars().enumerate().skip(skip).peekable();
    while let Some(&(from, c)) = chars.peek() {
        if c.is_whitespace() {
            chars.next();
            continue;
        }
        if c == '#' {
            break;
        }
        let (mut text, mut quote, mut until) = (String::new(), None, from);
        while let Some(&(at, c)) = chars.peek() {
            if quote.is_none() && c.is_whitespace() {
                break;
            }
            chars.next();
            until = at + 1;
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (None | Some('"'), '\\') => text.extend(chars.next().map(|(_, c)| c)),
                (_, c) => text.push(c),
            }
        }
        words.push(Word { text, from, until });
    }
    words
}

const PREFIX: &str = "#SBATCH";

/// Reads all `#SBATCH` lines before the first command; the error is every mistake in them.
pub(crate) fn read(script: &str) -> Result<Script, Vec<Note>> {
    let mut reader = Reader::default();
    let (mut in_head, mut is_batch) = (true, false);
    for (index, source) in script.lines().enumerate() {
        let marked = source.starts_with(PREFIX);
        if marked && in_head {
            is_batch = true;
            reader.line(index + 1, source);
        } else if marked {
            let note = "this is not read: sbatch, too, stops at the first command".to_owned();
            let all = Word { text: String::new(), from: 0, until: source.trim_end().chars().count() };
            reader.script.notes.push(note_at(index + 1, source, &all, note));
        }
        in_head &= source.trim_start().is_empty() || source.trim_start().starts_with('#');
    }
    if !reader.mistakes.is_empty() {
        return Err(reader.mistakes);
    }
    if is_batch {
        reader.script.flags.extend(reader.amounts.flags());
    }
    Ok(reader.script)
}

fn note_at(line: usize, source: &str, word: &Word, message: String) -> Note {
    let width = word.until - word.from;
    Note { line, column: word.from + 1, width, source: source.to_owned(), message, hint: None }
}

#[derive(Default)]
struct Reader {
    script: Script,
    mistakes: Vec<Note>,
    amounts: Amounts,
}

impl Reader {
    fn line(&mut self, line: usize, source: &str) {
        let mut words = words(source, PREFIX.len()).into_iter().peekable();
        while let Some(word) = words.next() {
            let Some((option, inline)) = find(&word.text) else {
                let mut note = note_at(line, source, &word, format!("sbatch has no option '{}'", word.text));
                note.hint = nearest(&word.text).map(|name| format!("did you mean --{name}?"));
                self.mistakes.push(note);
                continue;
            };
            let value = match (option.2, inline) {
                (Yes, None) => words.next_if(|next| !next.text.starts_with("--")).map(|next| next.text),
                (_, inline) => inline,
            };
            let (name, takes) = (option.0, option.2);
            let said = match (takes, value) {
                (Yes, None) => Err(format!("--{name} needs a value")),
                (No, Some(value)) => Err(format!("--{name} takes no value, '{value}' was given")),
                (_, value) => self.take(option.3, &value.unwrap_or_default()),
            };
            match said {
                Ok(None) => {}
                Ok(Some(note)) => {
                    let note = note_at(line, source, &word, format!("--{name} has no effect here: {note}"));
                    self.script.notes.push(note);
                }
                Err(mistake) => self.mistakes.push(note_at(line, source, &word, mistake)),
            }
        }
    }

    /// Takes one option; may have a note about it.
    fn take(&mut self, meaning: Meaning, value: &str) -> Result<Option<&'static str>, String> {
        match meaning {
            // In one word: a value may look like a flag.
            Value(flag) => self.script.flags.push(format!("{flag}={value}")),
            Switch(flag) => self.script.flags.push(flag.to_owned()),
            Amount(take) => take(&mut self.amounts, value)?,
            OneMachine => return Ok(Some("this is one machine")),
            Moot(why) => return Ok(Some(why)),
            Refused(why) => return Err(why.to_owned()),
        }
        Ok(None)
    }
}

type Known = (&'static str, char, Takes, Meaning);

/// Whether a word is an option of sbatch, which srun has as well, whose value is the next word.
pub(crate) fn takes_next(word: &str) -> bool {
    find(word).is_some_and(|((_, _, takes, _), value)| takes == Yes && value.is_none())
}

/// The option that a word names, and the value within the word.
fn find(word: &str) -> Option<(Known, Option<String>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let known = OPTIONS.iter().find(|option| option.0 == name)?;
        return Some((*known, value.map(str::to_owned)));
    }
    let mut rest = word.strip_prefix('-')?.chars();
    let letter = rest.next().filter(|&letter| letter != ' ')?;
    let known = OPTIONS.iter().find(|option| option.1 == letter)?;
    let value = rest.as_str();
    Some((*known, (!value.is_empty()).then(|| value.strip_prefix('=').unwrap_or(value).to_owned())))
}

/// The option that is spelt most alike.
fn nearest(word: &str) -> Option<&'static str> {
    let name = word.trim_start_matches('-').split('=').next()?;
    let alike = |option: &Known| (strsim::damerau_levenshtein(option.0, name), option.0);
    OPTIONS.iter().map(alike).filter(|(distance, _)| *distance <= 2).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(lines: &str, expect: &[&str]) {
        let script = read(&format!("#!/bin/bash\n{lines}\npython train.py\n")).unwrap();
        let flags: Vec<_> = script.flags.iter().filter(|flag| *flag != "--slurm-env").collect();
        assert_eq!(flags, expect);
    }

    fn mistakes(lines: &str) -> Vec<String> {
        let notes = read(&format!("#!/bin/bash\n{lines}\n")).expect_err("a mistake");
        notes.into_iter().map(|note| format!("{}{:?}", note.message, note.hint)).collect()
    }

    #[test]
    fn usual_scripts() {
        check("#SBATCH --job-name=train\n#SBATCH -o out/%x.%j", &["--name=train", "--output=out/%x.%j"]);
        check("#SBATCH -J train --time=30 # half an hour", &["--name=train", "-t=30"]);
        check("#SBATCH -a0-9%2\n\n# a comment\n#SBATCH --hold", &["--array=0-9%2", "--hold"]);
        check("#SBATCH --job-name=\"two words\" -D '/a b'", &["--name=two words", "--chdir=/a b"]);
        check("#SBATCH --job-name=--hold", &["--name=--hold"]);
        check("##SBATCH --hold\n# SBATCH --hold", &[]);
        check("#SBATCH --export=ALL,SEED=1", &["--export=ALL,SEED=1"]);
    }

    #[test]
    fn tasks_are_cores_of_one_run() {
        check("#SBATCH --ntasks=4 --cpus-per-task 2", &["--slurm-tasks=4", "--cores=8"]);
        check("#SBATCH -N1 --ntasks-per-node=4", &["--slurm-tasks=4", "--cores=4"]);
        check("#SBATCH --nodes=1-4 -c 3", &["--cores=3"]);
        check("#SBATCH --gres=gpu:2 --cpus-per-gpu=4", &["--cores=8", "--gpus=2"]);
        check("#SBATCH -n 2 --gpus-per-task=1", &["--slurm-tasks=2", "--cores=2", "--gpus=2"]);
        check("#SBATCH --gres gpu", &["--gpus=1"]);
        check("#SBATCH --gpus=h100:2", &["--gpus=H100-SXM-80GB:2"]);
        check(
            "#SBATCH -n 2 --gpus-per-task=h100:1",
            &["--slurm-tasks=2", "--cores=2", "--gpus=H100-SXM-80GB:2"],
        );
        check("#SBATCH --gres=gpu:a100-sxm-80gb:4", &["--gpus=A100-SXM-80GB:4"]);
    }

    #[test]
    fn memory_is_binary_and_mebibytes() {
        check("#SBATCH --mem=64G", &["--mem=65536MiB"]);
        check("#SBATCH --mem=2000", &["--mem=2000MiB"]);
        check("#SBATCH --mem-per-cpu=1500M -c 4", &["--cores=4", "--mem=6000MiB"]);
        check("#SBATCH --mem-per-gpu=1T -G 2", &["--gpus=2", "--mem=2097152MiB"]);
        check("#SBATCH --mem=1K", &["--mem=1MiB"]);
    }

    #[test]
    fn mistakes_are_all_told() {
        assert_eq!(
            mistakes("#SBATCH --ntask=4 --mem=lots\n#SBATCH --time\n#SBATCH --hold=no -N 16 --gpus=a100:8"),
            [
                "sbatch has no option '--ntask=4'Some(\"did you mean --ntasks?\")",
                "'lots' is no amount of memory; write for example 64G or 512MNone",
                "--time needs a valueNone",
                "--hold takes no value, 'no' was givenNone",
                "it asks for 16 nodes, this is one machineNone",
                "'a100' may be A100-SXM-40GB, A100-SXM-80GB, A100-PCIE-40GB, A100-PCIE-80GBNone",
            ]
        );
        assert_eq!(mistakes("#SBATCH gpu").len(), 1);
        assert_eq!(mistakes("#SBATCH --mem=99999999999999999999G").len(), 1);
        assert_eq!(mistakes("#SBATCH --mem=18446744073709551615T").len(), 1);
    }

    #[test]
    fn what_has_no_effect_is_shown_in_its_place() {
        let script = read("#!/bin/sh\n#SBATCH\t-c 2 --partition=gpu\ndate\n#SBATCH --hold\n").unwrap();
        let shown: Vec<String> = script.notes.iter().map(|note| note.render("train.sh")).collect();
        assert_eq!(
            shown,
            [
                "--partition has no effect here: this is one machine\n \
                 --> train.sh:2:14\n2 | #SBATCH\t-c 2 --partition=gpu\n  |        \t     ^^^^^^^^^^^^^^^",
                "this is not read: sbatch, too, stops at the first command\n \
                 --> train.sh:4:1\n4 | #SBATCH --hold\n  | ^^^^^^^^^^^^^^",
            ]
        );
    }

    #[test]
    fn options_are_in_order_and_named_once() {
        assert!(OPTIONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let shorts: Vec<char> = OPTIONS.iter().map(|option| option.1).filter(|&c| c != ' ').collect();
        let mut once = shorts.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), shorts.len());
    }

    proptest! {
        #[test]
        fn no_script_makes_it_panic(lines in prop::collection::vec("(#SBATCH)?[ -~\t\u{e9}]{0,40}", 0..6)) {
            for note in read(&lines.join("\n")).map_or_else(|mistakes| mistakes, |script| script.notes) {
                note.render("s");
            }
        }
    }
}
