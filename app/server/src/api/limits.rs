//! What is limited beside quotas: when running jobs are stopped for others, and classes of urgency.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use facts::applied::ClassV1;
use ops::api::Command;

use super::input::Input;
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::wire::{Done, Error, Preemption, PriorityClass};

/// Tell when running jobs are stopped for others.
#[utoipa::path(get, path = "/api/v1/preemption",
    responses((status = 200, body = Preemption), (status = "4XX", body = Error)))]
pub(super) async fn preemption(State(app): State<Arc<App>>) -> Result<Json<Preemption>, ApiError> {
    let rules = ask::look(&app.handle, |state, _| state.meta().preemption).await?;
    Ok(Json(rules.into()))
}

/// Say when running jobs are stopped for others. What is absent is as if nothing had been said.
#[utoipa::path(post, path = "/api/v1/preemption", request_body = Preemption,
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn set_preemption(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Input(rules): Input<Preemption>,
) -> Result<Json<Done>, ApiError> {
    app.done(&caller, Command::SetPreemption(rules.into())).await.map(Json)
}

/// List the classes of urgency that jobs may ask for by name.
#[utoipa::path(get, path = "/api/v1/priorities",
    responses((status = 200, body = Vec<PriorityClass>), (status = "4XX", body = Error)))]
pub(super) async fn priorities(State(app): State<Arc<App>>) -> Result<Json<Vec<PriorityClass>>, ApiError> {
    let classes = ask::look(&app.handle, |state, _| {
        let classes = state.priority_classes();
        let show = |(name, class): (&str, ClassV1)| PriorityClass {
            name: name.to_owned(),
            value: class.value,
            preempts: class.preempts,
        };
        classes.map(show).collect()
    });
    classes.await.map(Json)
}
