//! The page of one job: where it stands, why, and what it tried.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use control::identity::{Action, Resource};
use jiff::tz::TimeZone;
use ops::view::JobRow;
use units::{Bytes, Nanos};

use super::html;
use crate::api::{explain_job, show_attempt, show_job};
use crate::app::{App, Caller};
use crate::error::ApiError;
use crate::tokens::new_secret;
use crate::wire::{Attempt, Explanation, Job, Time};

/// Attempts on the page, the newest first.
const SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "job.html")]
struct Page {
    nonce: String,
    job: Job,
    /// None where it is over.
    told: Option<Explanation>,
    tries: Vec<Attempt>,
    /// Whether whoever looks may end it.
    may_cancel: bool,
    zone: TimeZone,
}

impl Page {
    /// An instant in the server's zone.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
    fn at(&self, time: &Time) -> String {
        let instant = jiff::Timestamp::from_nanosecond(i128::from(time.0.0)).unwrap_or_default();
        instant.to_zoned_datetime(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }

    /// What each of its tasks gets.
    fn needs(&self) -> String {
        let many = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let job = &self.job;
        let tasks = if job.tasks > 1 { format!("{} tasks, each ", job.tasks) } else { String::new() };
        let gpus = if job.gpus > 0 { format!(", {}", many(job.gpus.into(), "GPU")) } else { String::new() };
        format!("{tasks}{}, {}{gpus}", many(job.cores.into(), "core"), Bytes(job.memory_bytes))
    }

    fn span(ns: Option<&u64>) -> String {
        ns.map_or_else(|| "—".to_owned(), |ns| Nanos(*ns).to_string())
    }
}

/// The page.
pub(crate) async fn job(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(row): Extension<Arc<JobRow>>,
) -> Result<Response, ApiError> {
    let id = row.id;
    let mut tries = app.view(move |view| view.attempts(id)).await?;
    tries.reverse();
    tries.truncate(SHOWN);
    let is_over = row.state.is_over();
    let told = if is_over { None } else { Some(explain_job(&app, id, None).await?) };
    let may_cancel = !is_over && caller.may(Action::Control, Resource::Of(row.request.owner)).is_ok();
    let now = app.now().await?;
    let page = Page {
        nonce: new_secret(),
        job: show_job(&app, Arc::unwrap_or_clone(row), now),
        told,
        tries: tries.iter().map(|row| show_attempt(&app, row, now)).collect(),
        may_cancel,
        zone: TimeZone::system(),
    };
    Ok(html(&page, &page.nonce))
}
