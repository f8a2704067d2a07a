//! Capacity that is kept for somebody.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use control::{Standing, Wish};
use facts::Resources;
use facts::reservation::HolderV1;
use ops::api::Command;
use units::{Bytes, Cores, ReservationId, Timestamp};

use super::input::Input;
use super::show::show_holder;
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::wire::{Error, Reservation, Reserve, Reserved};

/// List reservations that are not over, and who still holds what of them.
#[utoipa::path(get, path = "/api/v1/reservations",
    responses((status = 200, body = Vec<Reservation>), (status = "4XX", body = Error)))]
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Vec<Reservation>>, ApiError> {
    let rows = ask::look(&app.handle, |state, now| {
        let all = state.reservations();
        all.filter_map(|(id, _)| Row::of(state, id, now)).collect::<Vec<_>>()
    });
    Ok(Json(rows.await?.into_iter().map(|row| row.show(&app)).collect()))
}

/// Keep capacity for somebody, for some time. What runs there goes on.
#[utoipa::path(post, path = "/api/v1/reservations", request_body = Reserve,
    responses((status = 201, body = Reserved), (status = "4XX", body = Error)))]
pub(super) async fn reserve(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Input(asked): Input<Reserve>,
) -> Result<(StatusCode, Json<Reserved>), ApiError> {
    let holder = match &asked.holder {
        None => HolderV1::User(caller.who.subject),
        Some(named) => holder_called(&app, named)?,
    };
    let share = ask::look(&app.handle, |state, _| {
        let most = state.nodes().map(|(_, node)| node.capacity).max_by_key(|capacity| capacity.gpus);
        most.unwrap_or_default()
    });
    let share = share.await?;
    let cores = asked.cores.unwrap_or_else(|| {
        let cores = share.cores * u64::from(asked.gpus) / share.gpus.max(1);
        u32::try_from(cores).unwrap_or(u32::MAX)
    });
    let memory = asked.memory_bytes.unwrap_or_else(|| app.memory_share(cores));
    let wish = Wish {
        amount: Resources { cores: Cores(cores), memory: Bytes(memory), gpus: asked.gpus },
        from: asked.from.map(|from| from.0),
        until: asked.until.0,
        holder,
        reason: asked.reason,
    };
    let ack = app.call(&caller, Command::Reserve(Box::new(wish)), None).await?;
    let row = match ack.reservation {
        Some(id) => ask::look(&app.handle, move |state, now| Row::of(state, id, now)).await?,
        None => None,
    };
    let row = row.ok_or_else(|| ApiError::not_found("the reservation is over already"))?;
    let (seq, hash) = (ack.head.seq.0, crate::tokens::hex(&ack.head.hash.0));
    Ok((StatusCode::CREATED, Json(Reserved { reservation: row.show(&app), seq, hash })))
}

/// Keep it no longer.
#[utoipa::path(delete, path = "/api/v1/reservations/{id}", params(("id" = u64, Path)),
    responses((status = 204, description = "It is no more"), (status = "4XX", body = Error)))]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let reservation = id.parse().map_err(|_| ApiError::not_found(format!("there is no reservation {id}")))?;
    app.call(&caller, Command::Unreserve(ReservationId(reservation)), None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A user or a team by name.
fn holder_called(app: &App, named: &str) -> Result<HolderV1, ApiError> {
    let nobody = |what: &str, name: &str| ApiError::malformed("for", format!("there is no {what} '{name}'"));
    let user = |name: &str| app.people.find(name).map(HolderV1::User);
    let team = |name: &str| app.team_called(name).map(HolderV1::Team);
    match named.split_once(':') {
        Some(("user", name)) => user(name).ok_or_else(|| {
            nobody("user", name).hint("somebody is known once they have used this server; or name a team")
        }),
        Some(("team", name)) => team(name).ok_or_else(|| nobody("team", name)),
        _ => match (user(named), team(named)) {
            (Some(_), Some(_)) => {
                Err(ApiError::malformed("for", format!("there is a user and a team called '{named}'"))
                    .hint(format!("write user:{named} or team:{named}")))
            }
            (Some(holder), None) | (None, Some(holder)) => Ok(holder),
            (None, None) => Err(nobody("user or team", named)),
        },
    }
}

/// What a holder is called.
pub(super) fn name_of(app: &App, holder: HolderV1) -> String {
    match holder {
        HolderV1::User(user) => format!("user:{}", app.people.name(user)),
        HolderV1::Team(team) => format!("team:{}", app.team_name(team)),
    }
}

/// A reservation, its names still ids.
struct Row {
    id: ReservationId,
    what: control::Reservation,
    node: String,
    active: bool,
    standing: Standing,
}

impl Row {
    fn of(state: &control::State, id: ReservationId, now: Timestamp) -> Option<Self> {
        let standing = control::standing(state, id, now)?;
        let what = state.reservation(id)?.clone();
        let node = state.node(what.node).map_or_else(String::new, |node| node.name.clone());
        Some(Self { id, active: what.from <= now, what, node, standing })
    }

    fn show(self, app: &App) -> Reservation {
        let Self { id, what, node, active, standing } = self;
        Reservation {
            id: id.0,
            node,
            gpus: what.amount.gpus,
            cores: what.amount.cores,
            memory_bytes: what.amount.memory,
            from: what.from.into(),
            until: what.until.into(),
            holder: name_of(app, what.holder),
            reason: what.reason,
            active,
            gpus_used: standing.used.gpus,
            cores_used: standing.used.cores,
            gpus_taken: standing.taken.gpus,
            cores_taken: standing.taken.cores,
            memory_taken_bytes: standing.taken.memory,
            holders: standing.holders.iter().map(|holder| show_holder(app, holder)).collect(),
        }
    }
}
