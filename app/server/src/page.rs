//! Pages for people: jobs and devices, as plain HTML that keeps itself up to date.

mod day;
mod job;

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};
use ops::view::{JobFilter, JobState};
use units::{Bytes, JobId, Nanos, Timestamp};

use crate::api::{node_rows, show_job, show_why};
use crate::app::App;
use crate::ask;
use crate::error::ApiError;
use crate::tokens::new_secret;
use crate::wire::{Job, Node, Time};

use day::Day;
pub(crate) use job::job;

/// Jobs on the page: not over, and over.
const SHOWN: (usize, usize) = (100, 20);

/// Waiting jobs whose reason is shown: each is worked out anew.
const REASONS: usize = 20;
/// Characters of a name: more than a column shows.
const TEXT: usize = 80;
/// How long the page says that a pass was cut short.
const CUT_SHOWN: Nanos = Nanos::from_secs(3_600);

#[derive(Template)]
#[template(path = "index.html")]
struct Index {
    nonce: String,
    version: String,
    nodes: Vec<Node>,
    /// What the units did today; none before there was a job.
    day: Option<Day>,
    /// Reasons of waiting jobs.
    reasons: BTreeMap<u64, String>,
    active: Vec<Job>,
    ended: Vec<Job>,
    runs_as: Option<u32>,
    /// How many jobs a pass looked at, where that was not all within the last hour.
    cut: Option<u32>,
    now: Timestamp,
}

impl Index {
    /// How long ago, in words.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
    fn ago(&self, time: &Time) -> String {
        self.now.since(time.0).to_string()
    }

    /// Since when a job runs or waits, in words.
    fn since(&self, job: &Job) -> String {
        self.ago(&job.started.unwrap_or(job.submitted))
    }

    /// The beginning of what users may make as long as they like.
    fn short(text: &str) -> String {
        let mut rest = text.chars();
        let mut start: String = rest.by_ref().take(TEXT).collect();
        if rest.next().is_some() {
            start.push('…');
        }
        start
    }

    /// How long a job ran or has run.
    fn ran(job: &Job) -> String {
        job.elapsed_ns.map_or_else(|| "—".to_owned(), |ns| Nanos(ns).to_string())
    }

    /// Why it waits, or how it ended if that was not well.
    fn reason(&self, job: &Job) -> String {
        let outcome = job.outcome.as_ref().filter(|_| job.state == JobState::Failed);
        let outcome = outcome.map(|outcome| Self::short(&outcome.text));
        outcome.or_else(|| self.reasons.get(&job.id).cloned()).unwrap_or_default()
    }

    /// Devices that their job left in a state in which nobody can use them, and drained nodes.
    fn needs_attention(&self) -> Vec<(String, String)> {
        let leaked = self.nodes.iter().flat_map(|node| &node.devices).filter(|device| device.leaked);
        let leaked = leaked.filter_map(|device| {
            let holder = device.holder.as_ref()?;
            let (index, job, since) = (device.index, holder.job, self.ago(&holder.since));
            let text =
                format!("GPU {index} is lost for {since}: job {job} ended and something of it lives on");
            Some((text, format!("fourplane why {job}")))
        });
        let drained = self.nodes.iter().filter(|node| !node.schedulable).map(|node| {
            let because = if node.reason.is_empty() { String::new() } else { format!(": {}", node.reason) };
            (format!("{} takes no new work{because}", node.name), format!("fourplane resume {}", node.name))
        });
        leaked.chain(drained).collect()
    }
}

#[derive(Template)]
#[template(path = "refused.html")]
struct Refused {
    nonce: String,
    message: String,
    /// Whether it is not known who asks.
    unknown: bool,
}

/// The page.
pub(crate) async fn index(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let over = [JobState::Completed, JobState::Failed, JobState::Cancelled];
    let (active, ended) = app
        .view(move |view| {
            let list = |states: &[JobState], limit| {
                view.jobs(&JobFilter { states: states.to_vec(), limit, ..JobFilter::default() })
            };
            let active = list(&[JobState::Running, JobState::Queued, JobState::Held], SHOWN.0)?;
            Ok((active, list(&over, SHOWN.1)?))
        })
        .await?;
    let waiting: Vec<JobId> =
        active.iter().filter(|row| row.state != JobState::Running).take(REASONS).map(|row| row.id).collect();
    let reasons = ask::suppose(&app.handle, move |state, now, policy| {
        let why = |id: JobId| (id, control::why(state, id, None, now, policy));
        waiting.into_iter().map(why).collect::<Vec<_>>()
    });
    let reasons = reasons.await?.into_iter().map(|(id, why)| (id.0, show_why(&app, &why).text)).collect();
    let has_jobs = !(active.is_empty() && ended.is_empty());
    let day = if has_jobs { Some(Day::today(&app).await?) } else { None };
    let look = |state: &control::State, now| (node_rows(state), state.meta().cut, now);
    let (rows, cut, now) = ask::look(&app.handle, look).await?;
    let page = Index {
        nonce: new_secret(),
        version: app.config.version.clone(),
        day,
        reasons,
        nodes: rows.into_iter().map(|row| row.show(&app)).collect(),
        active: active.into_iter().map(|row| show_job(&app, row, now)).collect(),
        ended: ended.into_iter().map(|row| show_job(&app, row, now)).collect(),
        runs_as: Some(app.config.server_uid).filter(|uid| *uid != 0),
        cut: cut.filter(|(at, _)| now.since(*at) < CUT_SHOWN).map(|(_, limit)| limit),
        now,
    };
    Ok(html(&page, &page.nonce))
}

/// What a browser sees that may not see a page, or asks for one that is not there.
pub(crate) fn refused(error: &ApiError) -> Response {
    let unknown = error.status() == StatusCode::UNAUTHORIZED;
    let page = Refused { nonce: new_secret(), message: error.message().to_owned(), unknown };
    let mut response = html(&page, &page.nonce);
    *response.status_mut() = error.status();
    response
}

fn html(page: &impl Template, nonce: &str) -> Response {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy.as_str()),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    let body = page.render().expect("templates of plain values render");
    (headers, body).into_response()
}
