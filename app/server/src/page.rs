//! The first page: jobs and devices, as plain HTML that keeps itself up to date.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};
use ops::view::{JobFilter, JobState};
use units::{Bytes, Nanos, Timestamp};

use crate::api::{node_rows, show_job};
use crate::app::App;
use crate::ask;
use crate::error::ApiError;
use crate::tokens::new_secret;
use crate::wire::{Job, Node, Time};

/// Jobs on the page: not over, and over.
const SHOWN: (usize, usize) = (100, 20);

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
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    nonce: String,
    message: String,
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
    let look = |state: &control::State, now| (node_rows(state), state.meta().cut, now);
    let (rows, cut, now) = ask::look(&app.handle, look).await?;
    let page = Index {
        nonce: new_secret(),
        version: app.config.version.clone(),
        nodes: rows.into_iter().map(|row| row.show(&app)).collect(),
        active: active.into_iter().map(|row| show_job(&app, row, now)).collect(),
        ended: ended.into_iter().map(|row| show_job(&app, row, now)).collect(),
        runs_as: Some(app.config.server_uid).filter(|uid| *uid != 0),
        cut: cut.filter(|(at, _)| now.since(*at) < CUT_SHOWN).map(|(_, limit)| limit),
        now,
    };
    Ok(html(&page, &page.nonce))
}

/// What a browser sees that has not signed in.
pub(crate) fn sign_in(error: &ApiError) -> Response {
    let page = SignIn { nonce: new_secret(), message: error.message().to_owned() };
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
