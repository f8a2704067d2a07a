//! `apply` and `drift`: the server against a specification.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::Serialize;
use server::wire::{Action, Apply, Changed, Done, Drift, FieldChange, Plan, PlanStep, Specification, Thing};
use spec::Colour;

use crate::cli::{ApplyArgs, Common};
use crate::client::{CallError, Client};
use crate::commands::run::random_key;
use crate::commands::spec::usable;
use crate::failure::{Doing, Failure};
use crate::output::{Printer, plain};
use crate::when;

/// Something differs, or was not agreed to.
const DIFFERS: u8 = 1;
/// How long a server that is being replaced is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";

/// What `apply --json` tells.
#[derive(Serialize)]
struct Report<'a> {
    plan: &'a Plan,
    done: Option<&'a Done>,
    rollback: Option<&'a Path>,
}

/// Makes the server as a specification says.
pub(crate) async fn apply(common: &Common, printer: Printer, args: &ApplyArgs) -> Result<u8, Failure> {
    let spec = usable(printer, &args.file, "fourplane apply -f FILE")?;
    let mut client = Client::new(common)?;
    let plan: Plan = client.post("/plan", &Specification { spec: spec.clone() }).await?;
    let idle = plan.steps.is_empty() && plan.replaces.is_none();
    if !printer.is_json() {
        printer.data(shown(&plan, printer.data_colour(), &when::zone()).as_bytes());
    }
    if args.dry_run || idle {
        let report = Report { plan: &plan, done: None, rollback: None };
        if printer.is_json() {
            printer.json(&report);
        }
        return Ok(if idle { 0 } else { DIFFERS });
    }
    possible(&plan, args.replace.as_deref())?;
    if !args.yes && !is_agreed_to()? {
        printer.say("nothing was changed");
        return Ok(DIFFERS);
    }
    let rollback = rollback_path(&args.file, &plan);
    let done = carry_out(client, spec, &plan, args.replace.clone(), &rollback).await?;
    if printer.is_json() {
        printer.json(&Report { plan: &plan, done: Some(&done), rollback: Some(&rollback) });
    } else {
        printer.say(&format!("applied: {} (event {})", counted(&plan.steps), done.seq));
        printer.say(&format!("to go back: fourplane apply -f {}", rollback.display()));
    }
    Ok(0)
}

/// Whether the server lets the plan be carried out.
fn possible(plan: &Plan, replace: Option<&str>) -> Result<(), Failure> {
    if let Some(last) = plan.replaces.as_deref().filter(|last| replace != Some(last)) {
        let message =
            format!("cluster {last} was applied here, and this specification is of {}", plan.cluster);
        return Err(Failure::usage(message)
            .hint(format!("if it is meant to take its place: fourplane apply --replace {last} -f FILE")));
    }
    let blocked = plan.steps.iter().find_map(|step| step.blocked.as_ref());
    blocked.map_or(Ok(()), |why| Err(Failure::usage(format!("{}; nothing was changed", plain(why)))))
}

/// Writes down the way back, then carries out the plan.
async fn carry_out(
    client: Client,
    spec: String,
    plan: &Plan,
    replaces: Option<String>,
    rollback: &Path,
) -> Result<Done, Failure> {
    write_rollback(rollback, plan)?;
    let body = Apply { spec, plan: plan.plan.clone(), replaces };
    let answer = client.patient(PATIENCE).post_once("/apply", &body, &random_key()?).await;
    answer.map_err(|error| {
        if matches!(error, CallError::Refused(..)) {
            // Nothing was changed, so there is nothing to go back to.
            drop(std::fs::remove_file(rollback));
            return Failure::from(error);
        }
        Failure::from(error).hint("all of it was done or nothing; `fourplane apply --dry-run` tells which")
    })
}

/// Applies a specification to a server that has just started, without asking. The way back is kept in
/// `state`. Tells what was done.
pub(crate) async fn at_start(
    client: &Client,
    printer: Printer,
    file: &Path,
    spec: String,
    state: &Path,
) -> Result<String, Failure> {
    let plan: Plan = client.another().post("/plan", &Specification { spec: spec.clone() }).await?;
    for misfit in &plan.misfits {
        printer.warn(&plain(misfit));
    }
    // A server that did not start could not be told what is in the way.
    if let Err(failure) = possible(&plan, None) {
        printer.failure(&failure);
        return Ok("not applied".to_owned());
    }
    if plan.steps.is_empty() {
        return Ok("nothing to do".to_owned());
    }
    let rollback = state.join(rollback_path(file, &plan).file_name().unwrap_or_default());
    carry_out(client.another(), spec, &plan, None, &rollback).await?;
    Ok(format!("{} (to go back: fourplane apply -f {})", counted(&plan.steps), rollback.display()))
}

/// Tells what differs from what was last applied: 1 when something does.
pub(crate) async fn drift(common: &Common, printer: Printer) -> Result<u8, Failure> {
    let drift: Drift = Client::new(common)?.get("/drift").await?;
    if printer.is_json() {
        printer.json(&drift);
    } else {
        printer.data(drifted(&drift, printer.data_colour(), &when::zone()).as_bytes());
    }
    Ok(if drift.drifted.is_empty() { 0 } else { DIFFERS })
}

/// Asks on the terminal.
fn is_agreed_to() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("there is no terminal on which to ask; nothing was changed")
            .hint("agree beforehand with --yes, or look with --dry-run"));
    }
    let mut error = std::io::stderr().lock();
    let asked = error.write_all(b"apply this? [y/N] ").and_then(|()| error.flush());
    asked.doing(|| "cannot ask".to_owned())?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).doing(|| "cannot read the answer".to_owned())?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Where the way back is kept: beside the specification.
fn rollback_path(file: &Path, plan: &Plan) -> PathBuf {
    let stem = file.file_stem().filter(|stem| *stem != "-");
    let stem = stem.map_or("fourplane".into(), |stem| stem.to_string_lossy());
    let short = plan.plan.get(..8).unwrap_or(&plan.plan);
    file.with_file_name(format!("{stem}.rollback-{short}.yaml"))
}

fn write_rollback(path: &Path, plan: &Plan) -> Result<(), Failure> {
    let back =
        format!("# What there was before an apply. To go back: fourplane apply -f {}\n", path.display());
    std::fs::write(path, back + &plan.way_back)
        .doing(|| format!("cannot write {}", path.display()))
        .map_err(|failure| failure.hint("nothing was changed; the way back is written before anything is"))
}

/// A plan in words.
fn shown(plan: &Plan, colour: Colour, zone: &TimeZone) -> String {
    let other = plan.replaces.iter().map(|last| format!("cluster {last} was applied here before"));
    let warned = other.chain(plan.misfits.iter().cloned());
    let warnings = warned.map(|text| format!("{}: {}\n", colour.paint(YELLOW, "warning"), plain(&text)));
    let steps = plan.steps.iter().map(|step| step_text(step, colour, zone));
    let alone = plan.left_alone.iter().map(|thing| {
        format!("left alone {}: no apply made it; to adopt it, write it into the file\n", named(thing))
    });
    let counts = if plan.steps.is_empty() { "nothing to do".to_owned() } else { counted(&plan.steps) };
    let sum = format!("{}: {counts}\n", plan.cluster);
    warnings.chain(steps).chain(alone).chain([sum]).collect()
}

fn step_text(step: &PlanStep, colour: Colour, zone: &TimeZone) -> String {
    let (word, paint) = match step.action {
        Action::Create => ("create", GREEN),
        Action::Change => ("change", YELLOW),
        Action::Delete => ("delete", RED),
        Action::Adopt => ("adopt", GREEN),
        Action::Accept => ("accept", YELLOW),
        Action::Release => ("release", YELLOW),
    };
    let by = step.changed.as_ref().map_or_else(String::new, |changed| format!(", {}", by(changed, zone)));
    let mut text = format!("{} {}{by}\n", colour.paint(paint, word), named(&step.thing));
    text.extend(step.fields.iter().map(|field| field_text(field, colour)));
    text.extend(step.blocked.iter().map(|why| format!("  cannot be done now: {}\n", plain(why))));
    text
}

fn field_text(field: &FieldChange, colour: Colour) -> String {
    let FieldChange { field, before, after } = field;
    match (before, after) {
        (Some(before), Some(after)) => {
            format!("  {} {field}: {before} -> {after}\n", colour.paint(YELLOW, "~"))
        }
        (None, Some(after)) => format!("  {} {field}: {after}\n", colour.paint(GREEN, "+")),
        (Some(before), None) => format!("  {} {field}: {before}\n", colour.paint(RED, "-")),
        (None, None) => String::new(),
    }
}

/// `1 to create, 2 to change`
fn counted(steps: &[PlanStep]) -> String {
    let words = [
        (Action::Create, "create"),
        (Action::Change, "change"),
        (Action::Delete, "delete"),
        (Action::Adopt, "adopt"),
        (Action::Accept, "accept"),
        (Action::Release, "release"),
    ];
    let count = |action| steps.iter().filter(|step| step.action == action).count();
    let counts =
        words.into_iter().map(|(action, word)| (count(action), word)).filter(|(count, _)| *count > 0);
    counts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// Drift in words.
fn drifted(drift: &Drift, colour: Colour, zone: &TimeZone) -> String {
    let (Some(cluster), Some(applied)) = (&drift.cluster, &drift.applied) else {
        return "nothing was applied yet\n".to_owned();
    };
    let each = drift.drifted.iter().map(|one| {
        let by = one.changed.as_ref().map_or_else(String::new, |changed| format!(", {}", by(changed, zone)));
        let fields: String = one.fields.iter().map(|field| field_text(field, colour)).collect();
        format!("{}{by}\n{fields}", named(&one.thing))
    });
    let text: String = each.collect();
    let what = match drift.drifted.len() {
        0 => "nothing differs".to_owned(),
        1 => "1 thing differs".to_owned(),
        count => format!("{count} things differ"),
    };
    let when = when::local(applied.at, zone);
    let zone = when::zone_name(zone);
    text + &format!("{cluster}: {what} from what {} applied at {when} {zone}\n", plain(&applied.by))
}

fn by(changed: &Changed, zone: &TimeZone) -> String {
    let (at, zone) = (when::local(changed.at, zone), when::zone_name(zone));
    format!("changed by {} at {at} {zone}", plain(&changed.by))
}

/// `team research`
fn named(thing: &Thing) -> String {
    let Thing { kind, name } = thing;
    if name.is_empty() { kind.clone() } else { format!("{kind} {}", plain(name)) }
}
