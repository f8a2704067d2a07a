//! What is told, as JSON and in words.

use facts::notify::Occasion;
use ops::notify::{Delivery, Notice};
use serde::Serialize;

/// The JSON of a notice. Fields are only ever added.
#[derive(Serialize)]
struct Body<'a> {
    /// The same for each try: who has seen it may leave it.
    delivery: u64,
    event: &'static str,
    at: String,
    job: u64,
    name: &'a str,
    team: &'a str,
    submitted: String,
    outcome: Option<Outcome>,
    text: String,
    simulated: bool,
}

#[derive(Serialize)]
struct Outcome {
    kind: &'static str,
    exit_code: u8,
    text: String,
}

pub(crate) fn json(delivery: &Delivery) -> String {
    let notice = &delivery.notice;
    let outcome = notice.outcome.as_ref().map(|outcome| Outcome {
        kind: outcome.kind(),
        exit_code: outcome.exit_code(),
        text: outcome.to_string(),
    });
    let body = Body {
        delivery: delivery.id,
        event: notice.occasion.word(),
        at: time(notice.at),
        job: notice.job.0,
        name: &notice.name,
        team: &notice.team,
        submitted: time(notice.submitted),
        outcome,
        text: sentence(notice),
        simulated: notice.simulated,
    };
    serde_json::to_string(&body).expect("texts and numbers are JSON")
}

/// `job 12 (train) failed: exited with code 1`
pub(crate) fn sentence(notice: &Notice) -> String {
    let what = match notice.occasion {
        Occasion::Started => "started",
        Occasion::Completed => "completed",
        Occasion::Failed => "failed",
        Occasion::Cancelled => "was cancelled",
        Occasion::Preempted => "was stopped to make room",
        Occasion::Leaked => "left something behind",
    };
    let name: String = notice.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let outcome = notice.outcome.as_ref().filter(|_| notice.occasion == Occasion::Failed);
    let why = outcome.map_or_else(|| notice.detail.clone(), ToString::to_string);
    let why = if why.is_empty() { why } else { format!(": {why}") };
    let rehearsal = if notice.simulated { " (GPUs simulated)" } else { "" };
    format!("job {} ({name}) {what}{why}{rehearsal}", notice.job)
}

/// For people, some lines.
pub(crate) fn letter(notice: &Notice) -> String {
    let (team, submitted, at) = (&notice.team, time(notice.submitted), time(notice.at));
    let (job, sentence) = (notice.job, sentence(notice));
    format!(
        "{sentence}.\n\nteam       {team}\nsubmitted  {submitted}\nnow        {at}\n\n\
         More: fourplane jobs {job}\n      fourplane logs {job}\n"
    )
}

/// RFC 3339 in UTC, to the millisecond.
fn time(at: units::Timestamp) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or_default();
    format!("{at:.3}")
}
