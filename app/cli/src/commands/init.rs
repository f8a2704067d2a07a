//! `init`: a first specification, from what this machine has.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use facts::inventory::Inventory;
use units::Bytes;

use crate::cli::InitArgs;
use crate::commands::inventory::of_this_machine;
use crate::failure::{Doing, Failure};
use crate::offer;
use crate::output::Printer;

/// The longest name of a specification.
const LONGEST_NAME: usize = 63;

/// What the file says beside the machine.
struct Wishes {
    cluster: String,
    teams: Vec<Team>,
}

/// A team and what it is promised, as typed.
struct Team {
    name: String,
    promised: String,
    borrow: String,
}

/// What there is of the machine that is written down.
struct Machine {
    cores: u32,
    memory: Bytes,
    /// The model and the number of its GPUs, where they are of one known model.
    gpus: Option<(String, usize)>,
    /// Why GPUs that are there are not written down.
    unsaid: Option<String>,
}

/// Writes a specification of this machine.
pub(crate) fn run(printer: Printer, state: &Path, args: &InitArgs) -> Result<u8, Failure> {
    let to_output = args.file.as_os_str() == "-";
    if !to_output && args.file.exists() {
        let message = format!("{} is there already; it was not touched", args.file.display());
        return Err(Failure::usage(message).hint("name another file: fourplane init FILE"));
    }
    let found = of_this_machine(state)?;
    let offered = offer::offer(&found, None, None)?;
    let machine = machine(&found, offered.node.cores.0, Bytes(offered.node.memory.0 + offered.reserve.0));
    let mut wishes = Wishes { cluster: name_from(&offered.node.name), teams: Vec::new() };
    if args.ask {
        ask(&mut wishes, machine.gpus.is_some())?;
    }
    let text = specification(&machine, &wishes);
    if to_output {
        printer.data(text.as_bytes());
        return Ok(0);
    }
    let file = args.file.display();
    std::fs::write(&args.file, text).doing(|| format!("cannot write {file}"))?;
    if printer.is_json() {
        printer.json(&serde_json::json!({ "file": args.file }));
    } else {
        printer.say(&format!("wrote {file}; look at it, then: fourplane apply -f {file} --dry-run"));
    }
    Ok(0)
}

fn machine(found: &Inventory, cores: u32, memory: Bytes) -> Machine {
    let mut models: Vec<_> = found.gpus.iter().map(|gpu| gpu.canonical.value()).collect();
    models.sort();
    models.dedup();
    let (gpus, unsaid) = match models.as_slice() {
        [] => (None, None),
        [Some(model)] => (Some(((*model).clone(), found.gpus.len())), None),
        [None] => (None, Some("the model of the GPUs here has no canonical name")),
        _ => (None, Some("the GPUs here are of several models, and a pool is of one")),
    };
    Machine { cores, memory: Bytes(memory.0 >> 20 << 20), gpus, unsaid: unsaid.map(str::to_owned) }
}

/// A host's name as a name of specifications.
fn name_from(host: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let first = host.split('.').next().unwrap_or_default();
    let name: String = first.chars().map(plain).take(LONGEST_NAME).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "here".to_owned() } else { name.to_owned() }
}

fn specification(machine: &Machine, wishes: &Wishes) -> String {
    let mut text = format!(
        "# What this machine is, and who may use how much of it.\n\
         # `fourplane check` finds mistakes, `fourplane explain FIELD` tells what a field is for,\n\
         # `fourplane apply` makes the server so.\n\
         fourplane: 1\n\
         cluster: \"{}\"\n\n\
         compute:\n  pools:\n    # This machine, as it was found.\n    - name: here\n      engine: machine\n      nodes: 1\n      shape:\n",
        wishes.cluster
    );
    let shape = [
        machine.unsaid.as_ref().map(|why| format!("# gpus: {why}")),
        machine.gpus.as_ref().map(|(model, _)| format!("gpu: {model}")),
        machine.gpus.as_ref().map(|(_, count)| format!("gpus: {count}")),
        Some(format!("cpus: {}", machine.cores)),
        Some(format!("ram: {} MiB", machine.memory.0 >> 20)),
    ];
    let lines = shape.into_iter().flatten().map(|line| format!("        {line}\n"));
    text.extend(lines);
    text.push_str(
        "\nengines:\n  - { name: machine, kind: local }\n\n\
         # What each team is promised (quota), may take of what others leave (borrow) and lets others\n\
         # take (lend). Jobs that name no team are of the team default.\nteams:\n",
    );
    let part = if machine.gpus.is_some() { ("gpus", "borrow") } else { ("cores", "borrow_cores") };
    for Team { name, promised, borrow } in &wishes.teams {
        let said = [(part.0, promised), (part.1, borrow)].into_iter().filter(|(_, value)| !value.is_empty());
        let quota: Vec<String> = said.map(|(field, value)| format!("{field}: {value}")).collect();
        writeln!(text, "  - {{ name: \"{name}\", quota: {{ {} }} }}", quota.join(", "))
            .expect("a string takes all text");
    }
    text.push_str("  - { name: default }\n");
    if wishes.teams.is_empty() {
        let half = machine.gpus.as_ref().map_or(machine.cores as usize, |(_, count)| *count) / 2;
        writeln!(text, "  # - {{ name: research, quota: {{ {}: {half}, {}: {half} }} }}", part.0, part.1)
            .expect("a string takes all text");
    }
    text.push_str(
        "\n# When running jobs are stopped for others.\n\
         # policy: { preemption: { reclaim: borrowed-first, protect: 30 min } }\n",
    );
    text
}

/// Asks on the terminal what no inventory tells.
fn ask(wishes: &mut Wishes, has_gpus: bool) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("there is no terminal on which to ask").hint("leave out --ask"));
    }
    wishes.cluster = question("name of the cluster", &wishes.cluster, is_name)?;
    let names = question("teams, with commas between them", "", |text| list(text).all(is_name))?;
    let thing = if has_gpus { "GPUs" } else { "cores" };
    let is_count = |text: &str| text.is_empty() || text.parse::<u32>().is_ok_and(|count| count <= 1_000_000);
    for name in list(&names).filter(|name| *name != "default") {
        let promised = question(&format!("{thing} that {name} is promised; all if empty"), "", is_count)?;
        let borrow = if promised.is_empty() {
            String::new()
        } else {
            question(&format!("{thing} that {name} may take of what others leave"), "0", is_count)?
        };
        if !wishes.teams.iter().any(|team| team.name == name) {
            wishes.teams.push(Team { name: name.to_owned(), promised, borrow });
        }
    }
    Ok(())
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn is_name(text: &str) -> bool {
    text == name_from(text)
}

/// Asks until the answer can be used; an empty one is `usual`.
fn question(what: &str, usual: &str, is_right: impl Fn(&str) -> bool) -> Result<String, Failure> {
    let mut error = std::io::stderr().lock();
    loop {
        let default = if usual.is_empty() { String::new() } else { format!(" [{usual}]") };
        let asked = error.write_all(format!("{what}{default}: ").as_bytes()).and_then(|()| error.flush());
        asked.doing(|| "cannot ask".to_owned())?;
        let mut answer = String::new();
        let read =
            std::io::stdin().lock().read_line(&mut answer).doing(|| "cannot read the answer".to_owned())?;
        if read == 0 {
            return Err(Failure::usage("the questions were not answered; nothing was written"));
        }
        let answer = if answer.trim().is_empty() { usual } else { answer.trim() };
        if is_right(answer) {
            return Ok(answer.to_owned());
        }
        let words = "lower-case letters, digits and hyphens for a name, digits for a number";
        let told = error
            .write_all(format!("'{}' cannot be used: {words}\n", crate::output::plain(answer)).as_bytes());
        told.doing(|| "cannot ask".to_owned())?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_become_names() {
        let check = |host: &str, expect: &str| assert_eq!(name_from(host), expect, "{host}");
        check("gpu001.example.org", "gpu001");
        check("GPU_1", "gpu-1");
        check("-", "here");
        check("", "here");
    }

    proptest! {
        #[test]
        fn what_is_written_has_no_finding(
            host in "\\PC{0,80}", cores in 1_u32..1_000, memory in 1_u64..1 << 42,
            gpus in prop::option::of(1_usize..17), teams in prop::collection::btree_set("[a-z]{1,8}", 0..3),
        ) {
            let model = units::GpuModel::all().next().unwrap().name().to_owned();
            let gpus = gpus.map(|count| (model, count));
            let memory = Bytes((memory >> 20).max(1) << 20);
            let machine = Machine { cores, memory, gpus, unsaid: None };
            let teams = teams.into_iter().map(|name| {
                Team { name, promised: "0".to_owned(), borrow: "0".to_owned() }
            });
            let wishes = Wishes { cluster: name_from(&host), teams: teams.filter(|team| team.name != "default").collect() };
            let text = specification(&machine, &wishes);
            let checked = spec::check(text.as_bytes());
            prop_assert_eq!(&checked.findings, &[], "{}", text);
            let cluster = checked.cluster.unwrap();
            let shape = &cluster.compute.unwrap().pools[0].shape;
            prop_assert_eq!((shape.cpus.0, shape.ram), (cores, memory));
        }
    }
}
