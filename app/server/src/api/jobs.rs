//! Jobs: lists, details, waits and control.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use control::identity::{Action, Resource};
use ops::api::Command;
use ops::view::{JobFilter, JobRow, JobState};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use units::{ArrayIndex, JobId};
use utoipa::{IntoParams, ToSchema};

use super::explain;
use super::input::{Input, Params};
use super::show::{show_attempt, show_job, show_why};
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::wire::{
    Cancel, Done, Error, Explanation, Job, JobDetail, JobList, Preemptible, Priority, Time, Waited, Why,
};

/// Jobs in an answer unless it says otherwise, and at most.
const LIMIT: (usize, usize) = (200, 10_000);
/// Jobs read at a time for a stream.
const PAGE: usize = 500;
/// The longest wait of one request in seconds, and the usual one.
const WAIT: (u64, u64) = (3_600, 60);
/// States of jobs that are not over.
pub(super) const ACTIVE: [JobState; 3] = [JobState::Queued, JobState::Held, JobState::Running];
const STATES: [JobState; 6] = [
    JobState::Queued,
    JobState::Held,
    JobState::Running,
    JobState::Completed,
    JobState::Failed,
    JobState::Cancelled,
];

/// Which jobs to list.
#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Only these states, separated by commas. Without it and without `all`: those not over.
    state: Option<String>,
    /// Jobs in any state.
    #[serde(default)]
    all: bool,
    /// Only these people's, separated by commas: login names, uids or `me`.
    user: Option<String>,
    /// Only these teams', separated by commas.
    team: Option<String>,
    /// Only those submitted, running or ended at or after this time (RFC 3339).
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Time>,
    /// Only those with these labels: `key=value`, separated by commas.
    label: Option<String>,
    /// Only those with a lower id than this.
    before: Option<u64>,
    /// At most so many; 200 if absent. A stream has no limit if absent.
    limit: Option<usize>,
}

impl ListParams {
    fn filter(&self, app: &App, caller: &Caller) -> Result<JobFilter, ApiError> {
        let owners = each(self.user.as_deref(), |user| {
            let found = if user == "me" { Some(caller.who.subject) } else { app.people.find(user) };
            found.ok_or_else(|| ApiError::malformed("user", format!("nobody here is called '{user}'")))
        })?;
        let teams = each(self.team.as_deref(), |team| {
            app.team_called(team)
                .ok_or_else(|| ApiError::malformed("team", format!("there is no team '{team}'")))
        })?;
        let states = each(self.state.as_deref(), |word| {
            STATES.into_iter().find(|state| state.word() == word).ok_or_else(|| {
                let words = STATES.map(JobState::word).join(", ");
                ApiError::malformed("state", format!("'{word}' is no state; they are {words}"))
            })
        })?;
        let states = if states.is_empty() && !self.all { ACTIVE.to_vec() } else { states };
        let labels = each(self.label.as_deref(), |pair| {
            let wrong = || ApiError::malformed("label", format!("'{pair}' is not key=value"));
            pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(wrong)
        })?;
        Ok(JobFilter {
            owners,
            teams,
            states,
            since: self.since.map(|since| since.0),
            labels: labels.into_iter().collect::<BTreeMap<_, _>>(),
            before: self.before.map(JobId),
            limit: self.limit.unwrap_or(LIMIT.0).min(LIMIT.1),
        })
    }
}

/// Reads a list with commas.
fn each<T>(list: Option<&str>, read: impl Fn(&str) -> Result<T, ApiError>) -> Result<Vec<T>, ApiError> {
    let words = list.into_iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty());
    words.map(read).collect()
}

/// List jobs, newest first.
///
/// With `Accept: application/x-ndjson` one job a line, streamed.
#[utoipa::path(get, path = "/api/v1/jobs", params(ListParams),
    responses((status = 200, body = JobList), (status = "4XX", body = Error)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let filter = params.filter(&app, &caller)?;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("application/x-ndjson") {
        return Ok(stream(app, filter, params.limit.unwrap_or(usize::MAX)));
    }
    let limit = filter.limit;
    let rows = app.view(move |view| view.jobs(&filter)).await?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|row| row.id.0);
    let now = app.now().await?;
    let jobs = rows.into_iter().map(|row| show_job(&app, row, now)).collect();
    Ok(Json(JobList { jobs, next }).into_response())
}

/// Jobs as lines; a slow reader slows the reading of pages.
fn stream(app: Arc<App>, mut filter: JobFilter, mut left: usize) -> Response {
    let (lines, body) = mpsc::channel::<Result<Bytes, ApiError>>(2);
    tokio::spawn(async move {
        while left > 0 {
            filter.limit = left.min(PAGE);
            let page = filter.clone();
            let read = async {
                let rows = app.view(move |view| view.jobs(&page)).await?;
                Ok::<_, ApiError>((rows, app.now().await?))
            };
            let (rows, now) = match read.await {
                Ok(read) => read,
                // The answer has begun: breaking it off is the only way to say so.
                Err(error) => return drop(lines.send(Err(error)).await),
            };
            let Some(last) = rows.last().map(|row| row.id) else { return };
            let is_last = rows.len() < filter.limit;
            left -= rows.len();
            filter.before = Some(last);
            let mut text = Vec::new();
            for row in rows {
                serde_json::to_writer(&mut text, &show_job(&app, row, now)).expect("plain values serialise");
                text.push(b'\n');
            }
            if lines.send(Ok(text.into())).await.is_err() || is_last {
                return;
            }
        }
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(ReceiverStream::new(body))).into_response()
}

/// Tell all about a job.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", params(("id" = u64, Path)),
    responses((status = 200, body = JobDetail), (status = "4XX", body = Error)))]
pub(super) async fn detail(
    State(app): State<Arc<App>>,
    Extension(row): Extension<Arc<JobRow>>,
) -> Result<Json<JobDetail>, ApiError> {
    let id = row.id;
    let tries = app.view(move |view| view.attempts(id)).await?;
    let why = if row.state.is_over() { None } else { Some(reason(&app, id).await?) };
    let now = app.now().await?;
    let job = show_job(&app, Arc::unwrap_or_clone(row), now);
    Ok(Json(JobDetail { job, tries: tries.iter().map(|row| show_attempt(&app, row, now)).collect(), why }))
}

/// Which member is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhyParams {
    /// A member of an array; the next to start if absent.
    index: Option<u32>,
}

/// Tell why a job stands where it does, and what would start it.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", params(("id" = u64, Path), WhyParams),
    responses((status = 200, body = Explanation), (status = "4XX", body = Error)))]
pub(super) async fn why(
    State(app): State<Arc<App>>,
    Extension(row): Extension<Arc<JobRow>>,
    Params(params): Params<WhyParams>,
) -> Result<Json<Explanation>, ApiError> {
    explain::of_job(&app, row.id, params.index.map(ArrayIndex)).await.map(Json)
}

async fn reason(app: &App, id: JobId) -> Result<Why, ApiError> {
    let reason =
        ask::suppose(&app.handle, move |state, now, policy| control::why(state, id, None, now, policy));
    Ok(show_why(app, &reason.await?))
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitParams {
    /// Seconds after which it answers anyway; 60 if absent, at most 3600.
    timeout: Option<u64>,
}

/// Wait until a job is over.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/wait", params(("id" = u64, Path), WaitParams),
    responses((status = 200, body = Waited), (status = "4XX", body = Error)))]
pub(super) async fn wait(
    State(app): State<Arc<App>>,
    Extension(row): Extension<Arc<JobRow>>,
    Params(params): Params<WaitParams>,
) -> Result<Json<Waited>, ApiError> {
    let timeout = Duration::from_secs(params.timeout.unwrap_or(WAIT.1).min(WAIT.0));
    let deadline = tokio::time::Instant::now() + timeout;
    let id = row.id;
    let mut row = Arc::unwrap_or_clone(row);
    if !row.state.is_over() {
        // Watched before it is read again: no change falls between the two.
        let mut watch = app.changes.watch(id);
        loop {
            row = app.job(id).await?;
            if row.state.is_over() {
                break;
            }
            tokio::select! {
                () = watch.changed() => {}
                () = tokio::time::sleep_until(deadline) => break,
                () = app.closed() => return Err(ApiError::stopping()),
            }
        }
    }
    let now = app.now().await?;
    Ok(Json(Waited { over: row.state.is_over(), job: show_job(&app, row, now) }))
}

/// Keep a job from starting.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/hold", params(("id" = u64, Path)),
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn hold(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(row): Extension<Arc<JobRow>>,
) -> Result<Json<Done>, ApiError> {
    app.done(&caller, Command::Hold(row.id)).await.map(Json)
}

/// Let a held job start.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", params(("id" = u64, Path)),
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(row): Extension<Arc<JobRow>>,
) -> Result<Json<Done>, ApiError> {
    app.done(&caller, Command::Release(row.id)).await.map(Json)
}

/// End a job, or members of it.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", params(("id" = u64, Path)), request_body = Option<Cancel>,
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(row): Extension<Arc<JobRow>>,
    Input(cancel): Input<Option<Cancel>>,
) -> Result<Json<Done>, ApiError> {
    let wrong = |error: facts::IndexSetError| ApiError::malformed("indexes", error.to_string());
    let members =
        cancel.and_then(|cancel| cancel.indexes).map(|indexes| indexes.parse().map_err(wrong)).transpose()?;
    app.done(&caller, Command::Cancel { job: row.id, members }).await.map(Json)
}

/// Change a job's place in the queue.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/priority", params(("id" = u64, Path)), request_body = Priority,
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn priority(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(row): Extension<Arc<JobRow>>,
    Input(Priority { priority }): Input<Priority>,
) -> Result<Json<Done>, ApiError> {
    if priority > 0 {
        caller.may(Action::Favour, Resource::Of(row.request.owner)).map_err(|error| error.at("priority"))?;
    }
    app.done(&caller, Command::SetPriority(row.id, priority)).await.map(Json)
}

/// Let a job be stopped for more urgent ones of its team, or not.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/preemptible", params(("id" = u64, Path)),
    request_body = Preemptible, responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn preemptible(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(row): Extension<Arc<JobRow>>,
    Input(Preemptible { preemptible }): Input<Preemptible>,
) -> Result<Json<Done>, ApiError> {
    app.done(&caller, Command::SetPreemptible(row.id, preemptible)).await.map(Json)
}

/// Jobs that are not over, newest first, for a listener that lost track.
pub(super) async fn active(app: &Arc<App>, limit: usize) -> Result<Vec<Job>, ApiError> {
    let filter = JobFilter { states: ACTIVE.to_vec(), limit, ..JobFilter::default() };
    let rows = app.view(move |view| view.jobs(&filter)).await?;
    let now = app.now().await?;
    Ok(rows.into_iter().map(|row| show_job(app, row, now)).collect())
}
