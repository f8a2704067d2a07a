//! One job in full.

use std::time::Duration;

use jiff::tz::TimeZone;
use server::wire::{Attempt, Health, Job, JobDetail, Kind, Readiness, Restart};
use units::{Bytes, Nanos};

use crate::commands::actions::reason;
use crate::output::{plain, table};
use crate::when;

/// A job, its attempts, and why it stands where it does.
pub(crate) fn text(detail: &JobDetail) -> String {
    let zone = when::zone();
    let mut lines = facts(&detail.job, &zone);
    lines.extend(service(detail, &zone));
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

/// ` (H100-SXM-80GB, simulated)`
fn gpu_kind(job: &Job) -> String {
    let words: Vec<&str> =
        job.gpu_model.as_deref().into_iter().chain(job.simulated.then_some("simulated")).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

fn facts(job: &Job, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let time = |time| format!("{} {}", when::local(time, zone), when::zone_name(zone));
    let limit = job.time_limit_ns.map_or_else(|| "unlimited".to_owned(), |limit| Nanos(limit).to_string());
    let gives_way = if job.preemptible { ", gives way to more urgent jobs of its team" } else { "" };
    let priority = format!("{}{gives_way}", job.priority);
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("name", plain(&job.name)),
        ("user", plain(&job.owner)),
        ("team", plain(&job.team)),
        ("state", job.state.word().to_owned()),
        (
            "each task",
            format!(
                "cores {}, memory {}, GPUs {}{}",
                job.cores,
                Bytes(job.memory_bytes),
                job.gpus,
                gpu_kind(job)
            ),
        ),
        ("tasks", job.tasks.to_string()),
        ("limit", limit),
        ("priority", priority),
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

/// What a service is to do, and whether it does it.
fn service(detail: &JobDetail, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let Kind::Service { port, health, restart } = &detail.job.kind else { return Vec::new() };
    let restart = match restart {
        Restart::Always => "always",
        Restart::OnFailure => "on-failure",
        Restart::Never => "never",
    };
    let port = port.map_or_else(|| "no port".to_owned(), |port| format!("port {port}"));
    let mut lines = vec![("service", format!("{port}, restart {restart}"))];
    if let Some(Health { http_path, every_ns, failures }) = health {
        let what = http_path.as_ref().map_or_else(|| "tcp".to_owned(), |path| format!("GET {}", plain(path)));
        let every = Duration::from_nanos(*every_ns);
        let check = format!("{what} every {every:?}, {failures} failures in a row stop it");
        lines.push(("health", check));
        let open = detail.tries.iter().rfind(|attempt| attempt.outcome.is_none());
        lines.extend(open.map(|attempt| ("ready", ready(attempt.readiness.as_ref(), zone))));
    }
    lines
}

fn ready(readiness: Option<&Readiness>, zone: &TimeZone) -> String {
    readiness.map_or_else(
        || "not yet: no check has passed".to_owned(),
        |Readiness { ready, since, reason }| {
            let word = if *ready { "yes" } else { "no" };
            let since = when::local(*since, zone);
            format!("{word}, since {since} {}: {}", when::zone_name(zone), plain(reason))
        },
    )
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
    let devices: Vec<String> =
        attempt.tasks.iter().flat_map(|task| &task.devices).map(ToString::to_string).collect();
    let end = match (&attempt.leaked, &attempt.outcome, &attempt.stop) {
        (Some(leak), ..) => format!("cannot be freed: {}", plain(&leak.reason)),
        (None, outcome, Some(stop)) if stop == "unhealthy" => {
            let reason = attempt.readiness.as_ref().map_or_else(String::new, |seen| plain(&seen.reason));
            let end = if outcome.is_some() { "unhealthy" } else { "stopping (unhealthy)" };
            format!("{end}: {reason}")
        }
        (None, Some(outcome), _) => {
            let receipt = attempt.receipt.as_ref().filter(|_| outcome.kind == "preempted");
            plain(receipt.map_or(&outcome.text, |receipt| &receipt.text))
        }
        (None, None, Some(stop)) => format!("stopping ({stop})"),
        (None, None, None) => dash(),
    };
    vec![
        member,
        attempt.number.to_string(),
        attempt.started.map_or_else(dash, |started| when::local(started, zone)),
        attempt.elapsed_ns.map_or_else(dash, |span| Nanos(span).to_string()),
        attempt
            .cpu_ns
            .map_or_else(dash, |cpu| format!("{}.{:03} s", cpu / 1_000_000_000, cpu / 1_000_000 % 1_000)),
        attempt.memory_peak_bytes.map_or_else(dash, |peak| Bytes(peak).to_string()),
        if devices.is_empty() { dash() } else { devices.join(",") },
        end,
    ]
}
