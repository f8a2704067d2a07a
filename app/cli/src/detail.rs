//! One job in full.

use jiff::tz::TimeZone;
use server::wire::{Attempt, Job, JobDetail};
use units::{Bytes, Nanos};

use crate::commands::actions::reason;
use crate::output::{plain, table};
use crate::when;

/// A job, its attempts, and why it stands where it does.
pub(crate) fn text(detail: &JobDetail) -> String {
    let zone = TimeZone::system();
    let mut lines = facts(&detail.job, &zone);
    if let Some(why) = &detail.why {
        lines.push(("why", reason(why).trim_end().replace('\n', "\n            ")));
    }
    let mut text = String::new();
    text.extend(lines.iter().map(|(name, value)| format!("{name:<12}{value}\n")));
    if !detail.tries.is_empty() {
        text.push('\n');
        text.push_str(&attempts(detail, &zone));
    }
    text
}

fn facts(job: &Job, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let time = |time| format!("{} {}", when::local(time, zone), when::zone_name(zone));
    let limit = job.time_limit_ns.map_or_else(|| "unlimited".to_owned(), |limit| Nanos(limit).to_string());
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("name", plain(&job.name)),
        ("user", plain(&job.owner)),
        ("team", plain(&job.team)),
        ("state", job.state.word().to_owned()),
        ("each task", format!("cores {}, memory {}, GPUs {}", job.cores, Bytes(job.memory_bytes), job.gpus)),
        ("tasks", job.tasks.to_string()),
        ("limit", limit),
        ("priority", job.priority.to_string()),
        ("submitted", time(job.submitted)),
    ];
    lines.extend(job.started.map(|started| ("started", time(started))));
    lines.extend(job.ended.map(|ended| ("ended", time(ended))));
    if let Some(array) = &job.array {
        let members = job.members;
        lines.push((
            "members",
            format!(
                "{}: {} waiting, {} running, {} succeeded, {} failed",
                array.indexes, members.waiting, members.running, members.succeeded, members.failed
            ),
        ));
    }
    lines.extend(job.labels.iter().map(|(key, value)| ("label", plain(&format!("{key}={value}")))));
    lines.extend(
        job.outcome.as_ref().map(|outcome| {
            ("outcome", format!("{} (exit code {})", plain(&outcome.text), outcome.exit_code))
        }),
    );
    lines.extend(job.cancelled_by.as_ref().map(|by| ("cancelled", format!("by {}", plain(by)))));
    lines
}

fn attempts(detail: &JobDetail, zone: &TimeZone) -> String {
    let rows: Vec<Vec<String>> =
        detail.tries.iter().map(|attempt| attempt_row(attempt, &detail.job, zone)).collect();
    let started = format!("STARTED ({})", when::zone_name(zone));
    table(&["MEMBER", "TRY", &started, "TIME", "CPU", "MEMORY", "GPUS", "END"], &rows, true)
}

fn attempt_row(attempt: &Attempt, job: &Job, zone: &TimeZone) -> Vec<String> {
    let dash = || "-".to_owned();
    let member =
        if job.array.is_some() { format!("{}_{}", job.id, attempt.index) } else { job.id.to_string() };
    let elapsed =
        attempt.started.map(|started| when::between(started, attempt.ended.unwrap_or_else(when::now)));
    let devices: Vec<String> =
        attempt.tasks.iter().flat_map(|task| &task.devices).map(ToString::to_string).collect();
    let end = match (&attempt.leaked, &attempt.outcome, &attempt.stop) {
        (Some(leak), ..) => format!("cannot be freed: {}", plain(&leak.reason)),
        (None, Some(outcome), _) => plain(&outcome.text),
        (None, None, Some(stop)) => format!("stopping ({stop})"),
        (None, None, None) => dash(),
    };
    vec![
        member,
        attempt.number.to_string(),
        attempt.started.map_or_else(dash, |started| when::local(started, zone)),
        elapsed.map_or_else(dash, |span| span.to_string()),
        attempt
            .cpu_ns
            .map_or_else(dash, |cpu| format!("{}.{:03} s", cpu / 1_000_000_000, cpu / 1_000_000 % 1_000)),
        attempt.memory_peak_bytes.map_or_else(dash, |peak| Bytes(peak).to_string()),
        if devices.is_empty() { dash() } else { devices.join(",") },
        end,
    ]
}
