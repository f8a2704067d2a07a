//! Specifications: plan, apply, drift.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use control::govern::{self, Change, Key, Step, Thing as _};
use facts::Actor;
use facts::applied::ResourceV1;
use ops::api::Command;
use spec::{Cluster, Severity};

use super::input::{Input, Raw};
use super::submit::idem_key;
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::tokens::hex;
use crate::wire::{
    Action, Apply, Changed, Done, Drift, Drifted, Error, FieldChange, Plan, PlanStep, Specification, Thing,
};

/// Tell what applying a specification would do.
#[utoipa::path(post, path = "/api/v1/plan", request_body = Specification,
    responses((status = 200, body = Plan), (status = "4XX", body = Error)))]
pub(super) async fn plan(
    State(app): State<Arc<App>>,
    Input(Specification { spec }): Input<Specification>,
) -> Result<Json<Plan>, ApiError> {
    let spec = read(spec).await?;
    let cluster = spec.cluster.to_string();
    let said = cluster.clone();
    let look = ask::look(&app.handle, move |state, _| {
        let plan = govern::plan_of(state, &govern::desired(&spec));
        let steps: Vec<_> = plan.steps.iter().map(|step| Seen::of(state, step)).collect();
        let way_back = govern::way_back(state, &said, &plan);
        let replaces = state.applied().map(|last| last.cluster.clone()).filter(|last| *last != said);
        (plan, steps, way_back, replaces, govern::misfits(state, &spec))
    });
    let (plan, steps, way_back, replaces, misfits) = look.await?;
    Ok(Json(Plan {
        cluster,
        replaces,
        steps: steps.into_iter().map(|seen| seen.show(&app)).collect(),
        left_alone: plan.alone.iter().map(|thing| thing.key().into()).collect(),
        misfits,
        plan: plan.digest().to_string(),
        way_back,
    }))
}

/// Apply a specification: all of the plan is done, or nothing.
///
/// With the header `Idempotency-Key`, sending the same request again does it once.
#[utoipa::path(post, path = "/api/v1/apply", request_body = Apply,
    params(("Idempotency-Key" = Option<String>, Header, description = "Any text, at most 255 bytes")),
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn apply(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Raw<Apply>,
) -> Result<Json<Done>, ApiError> {
    let idem = idem_key(caller.who.subject, &headers, &body.0)?;
    let Apply { spec, plan, replaces } = body.read()?;
    let plan = plan.parse().map_err(|_| ApiError::malformed("plan", "no plan is called so"))?;
    let spec = read(spec).await?;
    let (cluster, resources) = (spec.cluster.to_string(), govern::desired(&spec));
    let last = ask::look(&app.handle, |state, _| state.applied().map(|last| last.cluster.clone())).await?;
    if let Some(last) = last.filter(|last| *last != cluster && replaces.as_ref() != Some(last)) {
        let message = format!("cluster {last} was applied here, and this specification is of {cluster}");
        return Err(ApiError::new(StatusCode::CONFLICT, "other-cluster", message)
            .hint(format!("if it is meant to take its place, say so: --replace {last}"))
            .at("replaces"));
    }
    let ack = app.call(&caller, Command::Apply { cluster, resources, plan }, idem).await?;
    app.refresh().await?;
    Ok(Json(Done { seq: ack.head.seq.0, hash: hex(&ack.head.hash.0) }))
}

/// Tell what differs from what was last applied, and who changed it.
#[utoipa::path(get, path = "/api/v1/drift",
    responses((status = 200, body = Drift), (status = "4XX", body = Error)))]
pub(super) async fn drift(State(app): State<Arc<App>>) -> Result<Json<Drift>, ApiError> {
    let look = ask::look(&app.handle, |state, _| (state.applied().cloned(), govern::drift(state)));
    let (last, found) = look.await?;
    let drifted = found.into_iter().map(|drift| Drifted {
        fields: fields(govern::changes(Some(&drift.applied), drift.observed.as_ref())),
        thing: drift.key.into(),
        changed: drift.change.map(|change| changed(&app, change)),
    });
    Ok(Json(Drift {
        drifted: drifted.collect(),
        applied: last.as_ref().map(|last| changed(&app, last.change)),
        cluster: last.map(|last| last.cluster),
    }))
}

/// What a specification says.
async fn read(text: String) -> Result<Cluster, ApiError> {
    ask::aside(move || {
        let checked = spec::check(text.as_bytes());
        let findings = &checked.findings;
        checked.cluster.ok_or_else(|| {
            let first = findings.iter().find(|finding| finding.severity == Severity::Error);
            let first = first.map_or_else(String::new, |finding| {
                format!("line {}: {}", finding.span.start.line, finding.message)
            });
            let message = format!("the specification cannot be used: {first}");
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "specification", message)
                .hint("`fourplane check` tells all that is wrong with it")
                .at("spec")
        })
    })
    .await
}

/// A step, with what the state tells of it.
struct Seen {
    step: Step<ResourceV1>,
    change: Option<Change>,
    blocked: Option<String>,
}

impl Seen {
    fn of(state: &control::State, step: &Step<ResourceV1>) -> Self {
        let key = step.thing().map(ResourceV1::key).filter(|_| step.is_drifted());
        Self {
            step: step.clone(),
            change: key.and_then(|key| state.change_of(&key)),
            blocked: govern::admit_step(state, step).err().map(|denial| denial.to_string()),
        }
    }

    fn show(self, app: &App) -> PlanStep {
        let key = self.step.thing().map(ResourceV1::key).expect("a step is about something");
        PlanStep {
            action: self.step.action().into(),
            thing: key.into(),
            fields: fields(self.step.changes()),
            changed: self.change.map(|change| changed(app, change)),
            blocked: self.blocked,
        }
    }
}

fn fields(changes: Vec<govern::FieldChange>) -> Vec<FieldChange> {
    let show = |change: govern::FieldChange| FieldChange {
        field: change.field.to_owned(),
        before: change.before,
        after: change.after,
    };
    changes.into_iter().map(show).collect()
}

fn changed(app: &App, change: Change) -> Changed {
    let by = match change.by {
        Actor::Subject(subject) => app.people.name(subject),
        Actor::Server | Actor::Node(_) => "the server".to_owned(),
    };
    Changed { by, at: change.at.into(), seq: change.seq.0 }
}

impl From<Key> for Thing {
    fn from(key: Key) -> Self {
        Self { kind: key.kind().to_owned(), name: key.name().to_owned() }
    }
}

impl From<govern::Action> for Action {
    fn from(action: govern::Action) -> Self {
        match action {
            govern::Action::Create => Self::Create,
            govern::Action::Change => Self::Change,
            govern::Action::Delete => Self::Delete,
            govern::Action::Adopt => Self::Adopt,
            govern::Action::Accept => Self::Accept,
            govern::Action::Release => Self::Release,
        }
    }
}
