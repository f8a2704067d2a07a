//! Telling people: what a submission asks for, and what became of it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use control::identity::Role;
use facts::notify::Channel;
use ops::notify::{Delivery, Target, Watch};
use ops::ports::SideTable;
use units::{MailAddress, WebUrl};

use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::wire::{self, Error, Notify};

/// The most targets of one job.
const MOST: usize = 8;
/// The longest path of a program in bytes.
const PATH_MAX: usize = 4_096;

/// What a job's owner wants to be told of it.
pub(super) fn watches(app: &App, wanted: Vec<Notify>) -> Result<Vec<Watch>, ApiError> {
    if wanted.len() > MOST {
        return Err(ApiError::malformed("notify", format!("at most {MOST} are told of one job")));
    }
    wanted.into_iter().map(|one| watch(app, one)).collect()
}

fn watch(app: &App, Notify { on, to }: Notify) -> Result<Watch, ApiError> {
    if on.is_empty() {
        return Err(ApiError::malformed("notify.on", "it does not say when"));
    }
    let target = target(&to)?;
    if target.channel == Channel::Email && !app.sends_mail() {
        let message = "no mail is sent here: there is no mail server";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "no-mail-server", message)
            .hint("an administrator names one in the specification: `delivery: { relay: HOST:PORT }`")
            .at("notify.to"));
    }
    let mut when: Vec<_> = on.into_iter().map(Into::into).collect();
    when.sort_unstable();
    when.dedup();
    Ok(Watch { when, target })
}

fn target(to: &str) -> Result<Target, ApiError> {
    let wrong = |problem: String| ApiError::malformed("notify.to", problem);
    let (channel, to) = if to.starts_with("https://") || to.starts_with("http://") {
        to.parse::<WebUrl>().map_err(|error| wrong(error.to_string()))?;
        (Channel::Webhook, to)
    } else if to.starts_with('/') {
        if to.len() > PATH_MAX || to.chars().any(char::is_control) {
            return Err(wrong("no path of a program".to_owned()));
        }
        (Channel::Command, to)
    } else {
        let address = to.strip_prefix("mailto:").unwrap_or(to);
        let hint = "write https://..., an address of mail, or the absolute path of a program";
        address.parse::<MailAddress>().map_err(|error| wrong(error.to_string()).hint(hint))?;
        (Channel::Email, address)
    };
    Ok(Target { channel, to: to.to_owned() })
}

/// List what is or was told, newest first: of your own jobs, or all of it for an administrator.
///
/// What was told long ago is forgotten.
#[utoipa::path(get, path = "/api/v1/notifications",
    responses((status = 200, body = Vec<wire::Delivery>), (status = "4XX", body = Error)))]
pub(super) async fn notifications(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Vec<wire::Delivery>>, ApiError> {
    let handle = app.handle.clone();
    let rows = ask::aside(move || handle.side(SideTable::Delivery)).await?;
    let deliveries: Result<Vec<Delivery>, _> = rows.iter().map(|(_, value)| ask::decode_row(value)).collect();
    // Where a notification of the specification goes is not everybody's to know.
    let is_own = |one: &Delivery| one.owner == caller.who.subject && one.asked_by.is_none();
    let mut shown = deliveries?;
    shown.retain(|one| caller.who.role == Role::Admin || is_own(one));
    shown.sort_by_key(|one| std::cmp::Reverse(one.id));
    Ok(Json(shown.into_iter().map(Into::into).collect()))
}

impl From<Delivery> for wire::Delivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id,
            at: delivery.notice.at.into(),
            job: delivery.notice.job.0,
            event: delivery.notice.occasion.into(),
            kind: delivery.target.channel.into(),
            to: delivery.target.to,
            notification: delivery.asked_by,
            state: delivery.progress.into(),
            tries: delivery.tries,
            tried: delivery.tried.map(Into::into),
            said: delivery.said,
        }
    }
}
