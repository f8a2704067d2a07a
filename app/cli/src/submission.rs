//! From arguments and surroundings to a job.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use server::wire::{Health, Kind, Notify, RetryAsked, Stop, Submit, Text};
use units::Nanos;

use crate::cli::{Cli, Command};
use crate::failure::{Doing, Failure};
use crate::occasions::MailType;
use crate::output::Printer;
use crate::run_args::{ResourceArgs, RunArgs, ShellArgs};
use crate::sbatch;
use crate::values::{Limit, Memory, Probe};

/// What `--export=NONE` keeps: without these not even a shell starts sensibly.
const BASE_ENVIRONMENT: [&str; 5] = ["HOME", "LOGNAME", "PATH", "SHELL", "USER"];

/// The job that `run` asks for.
pub(crate) fn of_run(args: &RunArgs, printer: Printer) -> Result<Submit, Failure> {
    let (argv, script, program) = program(args)?;
    let mut submit = of_resources(&args.resources, printer)?;
    let kind = if args.service {
        let health = args.health.as_ref().map(|Probe(http_path)| Health {
            http_path: http_path.clone(),
            every_ns: args.health_every.0,
            failures: args.health_failures,
        });
        Kind::Service { port: args.port, health, restart: args.restart }
    } else {
        Kind::Batch
    };
    submit.retry = RetryAsked {
        max: args.retries,
        on: Some(args.retry_on.clone()).filter(|on| !on.is_empty()),
        requeue: args.no_requeue.then_some(false),
        ..RetryAsked::default()
    };
    submit.name = Some(args.resources.name.clone().unwrap_or(program));
    submit.kind = kind;
    if args.slurm_env {
        submit.env.extend(slurm_environment(args, &submit));
    }
    submit.argv = argv;
    submit.script = script;
    submit.tasks = args.tasks;
    submit.array.clone_from(&args.array);
    submit.after = args.dependency.iter().flat_map(|afters| afters.0.iter().copied()).collect();
    submit.hold = args.hold;
    submit.preemptible = args.preemptible;
    submit.notify = told(args, printer)?;
    submit.stop = Stop { signal: args.stop_signal, grace_ns: args.grace.0, warn: args.signal };
    submit.stdout = args.output.as_ref().map(|path| text(path.as_os_str()));
    submit.stderr = args.error.as_ref().map(|path| text(path.as_os_str()));
    submit.output_max_bytes = args.output_max.as_ref().map(|memory| said(memory, "--output-max", printer));
    Ok(submit)
}

/// Who is told of the job.
fn told(args: &RunArgs, printer: Printer) -> Result<Vec<Notify>, Failure> {
    let here = std::env::current_dir().doing(|| "cannot tell the working directory".to_owned())?;
    let whole = |one: &Notify| {
        // A program is found from where one is.
        let is_program = one.to.starts_with("./") || one.to.starts_with("../");
        let below = one.to.strip_prefix("./").unwrap_or(&one.to);
        let to = if is_program { here.join(below).to_string_lossy().into_owned() } else { one.to.clone() };
        Notify { on: one.on.clone(), to }
    };
    let mail = match (&args.mail_type, &args.mail_user) {
        (Some(MailType(on)), _) if on.is_empty() => None,
        (Some(MailType(on)), Some(to)) => Some(Notify { on: on.clone(), to: format!("mailto:{to}") }),
        (Some(_), None) => {
            let failure = Failure::usage("--mail-type does not say to whom");
            return Err(failure.hint("add --mail-user ADDRESS"));
        }
        (None, Some(_)) => {
            printer.warn("--mail-user without --mail-type: no mail is sent");
            None
        }
        (None, None) => None,
    };
    Ok(args.notify.iter().map(whole).chain(mail).collect())
}

/// What the `#SBATCH` lines of a script say, as flags of `run`; says what in them has no effect.
pub(crate) fn batch_flags(cli: &Cli, printer: Printer) -> Result<Vec<String>, Failure> {
    let Command::Run(args) = &cli.command else { return Ok(Vec::new()) };
    // A script that cannot be read is told when it is submitted.
    let Some((path, text)) = args.script.first().and_then(|path| Some((path, std::fs::read(path).ok()?)))
    else {
        return Ok(Vec::new());
    };
    let name = path.to_string_lossy();
    let read = sbatch::read(&String::from_utf8_lossy(&text));
    let mistakes = match read {
        Ok(script) => {
            script.notes.iter().for_each(|note| printer.warn(&note.render(&name)));
            return Ok(script.flags);
        }
        Err(mistakes) => mistakes,
    };
    let mut failures = mistakes.into_iter().map(|note| {
        let failure = Failure::usage(note.render(&name));
        if let Some(hint) = note.hint { failure.hint(hint) } else { failure }
    });
    let first = failures.next().unwrap_or_else(|| Failure::usage("the script has mistakes"));
    Err(failures.fold(first, |before, failure| {
        printer.failure(&before);
        failure
    }))
}

/// The job that `shell` asks for.
pub(crate) fn of_shell(args: &ShellArgs, printer: Printer) -> Result<Submit, Failure> {
    let mut submit = of_resources(&args.resources, printer)?;
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| OsString::from("/bin/sh"));
    let login = [shell, OsString::from("-i")];
    let argv: &[OsString] = if args.command.is_empty() { &login } else { &args.command };
    submit.name = Some(args.resources.name.clone().unwrap_or_else(|| "shell".to_owned()));
    submit.argv = argv.iter().map(|word| text(word)).collect();
    submit.kind = Kind::Interactive { idle_limit_ns: args.idle.map(|idle| idle.0) };
    // Whoever sat at the terminal is gone.
    submit.retry.requeue = Some(false);
    Ok(submit)
}

/// What a submitter knows of the variables that Slurm sets; the supervisor adds the others.
fn slurm_environment(args: &RunArgs, submit: &Submit) -> Vec<Text> {
    let cores = u64::from(submit.cores);
    let tasks = args.slurm_tasks.max(u64::from(args.tasks));
    let mut pairs = vec![
        ("FOURPLANE_SLURM_ENV", "1".to_owned()),
        ("SLURM_CPUS_ON_NODE", (cores * u64::from(args.tasks)).to_string()),
        ("SLURM_CPUS_PER_TASK", (cores / args.slurm_tasks.max(1)).max(1).to_string()),
        ("SLURM_JOB_NAME", submit.name.clone().unwrap_or_default()),
        ("SLURM_JOB_NUM_NODES", "1".to_owned()),
        ("SLURM_NNODES", "1".to_owned()),
        ("SLURM_NPROCS", tasks.to_string()),
        ("SLURM_NTASKS", tasks.to_string()),
        ("SLURM_SUBMIT_DIR", String::from_utf8_lossy(&submit.cwd.0).into_owned()),
    ];
    let indexes = args.array.as_ref().and_then(|array| array.indexes.parse::<facts::IndexSet>().ok());
    if let Some((first, last)) = indexes.as_ref().and_then(|set| Some((set.first()?, set.last()?))) {
        pairs.push(("SLURM_ARRAY_TASK_COUNT", indexes.map_or(0, |set| set.len()).to_string()));
        pairs.extend([
            ("SLURM_ARRAY_TASK_MIN", first.to_string()),
            ("SLURM_ARRAY_TASK_MAX", last.to_string()),
        ]);
    }
    pairs.into_iter().map(|(name, value)| Text(format!("{name}={value}").into_bytes())).collect()
}

/// What both have in common.
fn of_resources(args: &ResourceArgs, printer: Printer) -> Result<Submit, Failure> {
    let here = std::env::current_dir().doing(|| "cannot tell the working directory".to_owned())?;
    let cwd = args.chdir.as_ref().map_or_else(|| here.clone(), |dir| here.join(dir));
    let limit = args.time.or(args.slurm_time);
    if let (Some(Limit(limit)), true) = (args.slurm_time, args.slurm_time.is_some()) {
        let read = limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
        printer.say(&format!("-t is read as Slurm does: {read} (D-HH:MM:SS)"));
    }
    Ok(Submit {
        cwd: text(cwd.as_os_str()),
        env: environment(&args.export, std::env::vars_os())?,
        umask: umask(),
        team: args.team.clone(),
        tasks: 1,
        cores: args.cores,
        memory_bytes: args.mem.as_ref().map(|memory| said(memory, "--mem", printer)),
        gpus: args.gpus.count,
        gpu_model: args.gpus.model.map(|model| model.to_string()),
        priority: args.priority.number,
        priority_class: args.priority.class.clone(),
        time_limit_ns: limit.and_then(|limit| limit.0).map(|Nanos(nanos)| nanos),
        labels: args.labels.iter().cloned().collect(),
        ..Submit::default()
    })
}

/// An amount whose reading is told where two habits differ.
fn said(memory: &Memory, flag: &str, printer: Printer) -> u64 {
    if !memory.text.ends_with("iB") {
        printer.say(&format!("{flag} {} is read as {}", memory.text, memory.bytes));
    }
    memory.bytes.0
}

/// Arguments, the script's text where it is one, and a name.
fn program(args: &RunArgs) -> Result<(Vec<Text>, Option<Text>, String), Failure> {
    let words = |words: &[OsString]| words.iter().map(|word| text(word)).collect::<Vec<_>>();
    match (args.script.split_first(), args.command.split_first()) {
        (None, None) => Err(Failure::usage("nothing to run")
            .hint("give a command after --, for example: fourplane run -- python3 train.py")),
        (None, Some((program, _))) => Ok((words(&args.command), None, base_name(program))),
        (Some((script, rest)), _) => {
            let bytes = std::fs::read(script).map_err(|error| {
                Failure::usage(format!("cannot read the script '{}': {error}", script.to_string_lossy()))
                    .hint(format!(
                        "a command goes after --: fourplane run -- {}",
                        args.script.join(OsStr::new(" ")).to_string_lossy()
                    ))
            })?;
            if !bytes.starts_with(b"#!") {
                return Err(Failure::usage(format!(
                    "the script '{}' does not begin with #!",
                    script.to_string_lossy()
                ))
                .hint("let its first line be #!/bin/sh, or run it as a command after --"));
            }
            let mut argv = words(rest);
            argv.extend(words(&args.command));
            Ok((argv, Some(Text(bytes)), base_name(script)))
        }
    }
}

fn base_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

/// Bytes as the wire has them.
fn text(word: &OsStr) -> Text {
    Text(word.as_bytes().to_vec())
}

/// What `export` chooses of `all`: `ALL`, `NONE`, or a list of names and `NAME=VALUE`.
fn environment(export: &str, all: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<Text>, Failure> {
    let words: Vec<&str> = export.split(',').filter(|word| !word.is_empty()).collect();
    let everything = words.contains(&"ALL");
    let named = |name: &OsStr| everything || words.iter().any(|word| OsStr::new(word) == name);
    let base = |name: &OsStr| BASE_ENVIRONMENT.iter().any(|kept| OsStr::new(kept) == name);
    let set: Vec<&str> = words.iter().copied().filter(|word| word.contains('=')).collect();
    let overridden = |name: &OsStr| {
        set.iter().any(|word| word.split_once('=').is_some_and(|(set, _)| OsStr::new(set) == name))
    };
    if words.is_empty() || (words.contains(&"NONE") && words.len() > 1) {
        return Err(Failure::usage(format!("--export={export} says nothing clear"))
            .hint("write ALL, NONE, or names such as PATH,HOME or ALL,SEED=1"));
    }
    let mut env: Vec<Text> = all
        .filter(|(name, _)| (named(name) || base(name)) && !overridden(name))
        .map(|(mut variable, value)| {
            variable.push("=");
            variable.push(value);
            Text(variable.into_vec())
        })
        .collect();
    env.extend(set.into_iter().map(Text::from));
    Ok(env)
}

/// This process's file creation mask, which only `/proc` tells without changing it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    field.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_what_was_asked_for() {
        let check = |export: &str, expect: Option<&[&str]>| {
            let all = [("PATH", "/bin"), ("SEED", "7"), ("VENV", "/v")];
            let all = all.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            let chosen = environment(export, all).ok();
            let expect = expect.map(|words| words.iter().map(|word| Text::from(*word)).collect::<Vec<_>>());
            assert!(chosen == expect, "{export}");
        };
        check("ALL", Some(&["PATH=/bin", "SEED=7", "VENV=/v"]));
        check("NONE", Some(&["PATH=/bin"]));
        check("SEED", Some(&["PATH=/bin", "SEED=7"]));
        check("ALL,SEED=8", Some(&["PATH=/bin", "VENV=/v", "SEED=8"]));
        check("", None);
        check("NONE,SEED", None);
    }
}
