//! The operations under `/api/v1`, and the document that describes them.

mod access;
mod apply;
mod cluster;
mod events;
mod explain;
mod input;
mod jobs;
mod limits;
mod notify;
mod output;
mod reservations;
mod show;
mod submit;
mod usage;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::wire;

pub(crate) use explain::of_job as explain_job;
pub(crate) use show::{node_rows, show_attempt, show_job, show_why};
pub(crate) use usage::since_quarter_of as usage_since;

#[derive(OpenApi)]
#[openapi(info(
    title = "Fourplane",
    description = "Jobs on one machine. Over the Unix socket the kernel says who asks; over TCP send \
        `Authorization: Bearer TOKEN`. A refusal is always an `Error`: 400 malformed, 401 nobody, 403 not \
        allowed, 404 unknown, 409 not now, 413 too large, 422 can never run, 429 too much open, 503 stopping, 507 disk nearly full."
))]
struct Document;

/// Routes and their document.
pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(jobs::detail))
        .routes(routes!(jobs::why))
        .routes(routes!(jobs::wait))
        .routes(routes!(explain::preflight))
        .routes(routes!(jobs::hold))
        .routes(routes!(jobs::release))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::priority))
        .routes(routes!(jobs::preemptible))
        .routes(routes!(output::output))
        .routes(routes!(events::events))
        .routes(routes!(cluster::nodes))
        .routes(routes!(usage::usage))
        .routes(routes!(cluster::schedulable))
        .routes(routes!(cluster::teams, cluster::set_team))
        .routes(routes!(limits::preemption, limits::set_preemption))
        .routes(routes!(limits::priorities))
        .routes(routes!(notify::notifications))
        .routes(routes!(apply::plan))
        .routes(routes!(apply::apply))
        .routes(routes!(apply::drift))
        .routes(routes!(reservations::list, reservations::reserve))
        .routes(routes!(reservations::cancel))
        .routes(routes!(access::login_link))
        .routes(routes!(access::login))
        .routes(routes!(access::tokens, access::new_token))
        .routes(routes!(access::revoke_token))
        .routes(routes!(healthz))
        .routes(routes!(version))
        .routes(routes!(openapi))
}

/// The `OpenAPI` document, as JSON with a final newline.
pub fn openapi_json() -> String {
    let document = router().into_openapi();
    let text = document.to_pretty_json().expect("a document of plain values serialises");
    // The registered names of unsigned formats; utoipa's own have a hyphen.
    let mut text = text.replace("\"format\": \"u-int", "\"format\": \"uint");
    text.push('\n');
    text
}

/// Tell that the server answers.
#[utoipa::path(get, path = "/api/v1/healthz", responses((status = 200, body = String)))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Tell the version.
#[utoipa::path(get, path = "/api/v1/version",
    responses((status = 200, body = wire::Version), (status = "4XX", body = wire::Error)))]
async fn version(State(app): State<Arc<App>>) -> Json<wire::Version> {
    Json(wire::Version { version: app.config.version.clone(), api: "v1".to_owned() })
}

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", responses((status = 200, body = Object)))]
async fn openapi() -> impl IntoResponse {
    ([("content-type", "application/json")], openapi_json())
}
