//! What a list of jobs can show of each.

use jiff::tz::TimeZone;
use server::wire::{Job, Time};
use units::{Bytes, Nanos};

use crate::output::plain;
use crate::when;

/// What a list shows unless told otherwise.
pub(crate) const USUAL: &str = "id,name,user,state,cores,gpus,elapsed,submitted";

/// What `-o wide` shows.
pub(crate) const WIDE: &str = "id,name,user,team,state,exit,tasks,cores,memory,gpus,members,priority,attempts,elapsed,limit,submitted,started,ended,labels";

/// One field.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    /// As in `-o` and `--sort`.
    pub(crate) name: &'static str,
    header: &'static str,
    is_time: bool,
    /// Its text for one job.
    pub(crate) show: fn(&Job, &TimeZone) -> String,
}

impl Field {
    /// The column's header; times name their zone.
    pub(crate) fn header(&self, zone: &str) -> String {
        if self.is_time { format!("{} ({zone})", self.header) } else { self.header.to_owned() }
    }
}

const fn field(name: &'static str, header: &'static str, show: fn(&Job, &TimeZone) -> String) -> Field {
    Field { name, header, is_time: false, show }
}

const fn time(name: &'static str, header: &'static str, show: fn(&Job, &TimeZone) -> String) -> Field {
    Field { name, header, is_time: true, show }
}

const FIELDS: &[Field] = &[
    field("id", "JOB", |job, _| id(job)),
    field("name", "NAME", |job, _| plain(&job.name)),
    field("user", "USER", |job, _| plain(&job.owner)),
    field("team", "TEAM", |job, _| plain(&job.team)),
    field("state", "STATE", |job, _| job.state.word().to_owned()),
    field("exit", "EXIT", |job, _| {
        or_dash(job.outcome.as_ref().map(|outcome| outcome.exit_code.to_string()))
    }),
    field("tasks", "TASKS", |job, _| job.tasks.to_string()),
    field("cores", "CORES", |job, _| (u64::from(job.tasks) * u64::from(job.cores)).to_string()),
    field("memory", "MEMORY", |job, _| {
        Bytes(job.memory_bytes.saturating_mul(u64::from(job.tasks))).to_string()
    }),
    field("gpus", "GPUS", |job, _| {
        let gpus = u64::from(job.tasks) * u64::from(job.gpus);
        if job.simulated { format!("{gpus} simulated") } else { gpus.to_string() }
    }),
    field("gpu_model", "GPU MODEL", |job, _| or_dash(job.gpu_model.clone())),
    field("members", "MEMBERS", |job, _| members(job)),
    field("priority", "PRIO", |job, _| job.priority.to_string()),
    field("attempts", "TRIES", |job, _| job.attempts.to_string()),
    field("elapsed", "TIME", |job, _| or_dash(elapsed(job).map(|span| span.to_string()))),
    field("limit", "LIMIT", |job, _| {
        job.time_limit_ns.map_or_else(|| "UNLIMITED".to_owned(), |limit| Nanos(limit).to_string())
    }),
    time("submitted", "SUBMITTED", |job, zone| when::local(job.submitted, zone)),
    time("started", "STARTED", |job, zone| or_dash(job.started.map(|time| when::local(time, zone)))),
    time("ended", "ENDED", |job, zone| or_dash(job.ended.map(|time| when::local(time, zone)))),
    field("labels", "LABELS", |job, _| {
        let labels: Vec<String> = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        or_dash((!labels.is_empty()).then(|| plain(&labels.join(","))))
    }),
];

/// The field called `name`.
pub(crate) fn find(name: &str) -> Option<Field> {
    FIELDS.iter().find(|field| field.name == name).copied()
}

/// All names, for messages.
pub(crate) fn names() -> String {
    FIELDS.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
}

/// What jobs are ordered by: numbers and times as such, else the text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A number; what is absent comes first.
    Number(Option<i128>),
    /// A text.
    Text(String),
}

/// What a job is ordered by.
pub(crate) type SortKey = Box<dyn Fn(&Job) -> Key>;

/// How to order by the field called `name`.
pub(crate) fn sort_key(name: &str) -> Option<SortKey> {
    let field = find(name)?;
    let at = |time: Option<Time>| time.map(|time| i128::from(time.0.0));
    let number: fn(&Job) -> Option<i128> = match field.name {
        "id" => |job| Some(i128::from(job.id)),
        "exit" => |job| job.outcome.as_ref().map(|outcome| i128::from(outcome.exit_code)),
        "tasks" => |job| Some(i128::from(job.tasks)),
        "cores" => |job| Some(i128::from(job.tasks) * i128::from(job.cores)),
        "memory" => |job| Some(i128::from(job.tasks) * i128::from(job.memory_bytes)),
        "gpus" => |job| Some(i128::from(job.tasks) * i128::from(job.gpus)),
        "priority" => |job| Some(i128::from(job.priority)),
        "attempts" => |job| Some(i128::from(job.attempts)),
        "elapsed" => |job| elapsed(job).map(|span| i128::from(span.0)),
        "limit" => |job| Some(job.time_limit_ns.map_or(i128::MAX, i128::from)),
        "submitted" => |job| Some(i128::from(job.submitted.0.0)),
        "started" | "ended" => {
            let started = field.name == "started";
            return Some(Box::new(move |job| Key::Number(at(if started { job.started } else { job.ended }))));
        }
        _ => {
            let zone = TimeZone::UTC;
            return Some(Box::new(move |job| Key::Text((field.show)(job, &zone))));
        }
    };
    Some(Box::new(move |job| Key::Number(number(job))))
}

/// The id, with the members of an array.
fn id(job: &Job) -> String {
    match &job.array {
        Some(array) => format!("{}_[{}]", job.id, array.indexes),
        None => job.id.to_string(),
    }
}

fn members(job: &Job) -> String {
    let members = job.members;
    format!("{}/{}/{}/{}", members.waiting, members.running, members.succeeded, members.failed)
}

/// How long it runs or ran.
fn elapsed(job: &Job) -> Option<Nanos> {
    job.elapsed_ns.map(Nanos)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_field_exists() {
        for name in USUAL.split(',').chain(WIDE.split(',')) {
            assert!(find(name).is_some() && sort_key(name).is_some(), "{name}");
        }
        assert!(find("nope").is_none());
    }
}
