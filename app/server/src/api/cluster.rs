//! Nodes and teams.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use facts::event::LimitsV1;
use ops::api::Command;
use units::{Bytes, NodeId};

use super::input::Input;
use super::show::node_rows;
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::wire::{Done, Error, Node, Schedulable, SetTeam, Team};

/// List nodes, their devices and who holds them.
#[utoipa::path(get, path = "/api/v1/nodes",
    responses((status = 200, body = Vec<Node>), (status = "4XX", body = Error)))]
pub(super) async fn nodes(State(app): State<Arc<App>>) -> Result<Json<Vec<Node>>, ApiError> {
    let rows = ask::look(&app.handle, |state, _| node_rows(state)).await?;
    Ok(Json(rows.into_iter().map(|row| row.show(&app)).collect()))
}

/// Let a node have new work, or not. What runs there goes on.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/schedulable", params(("id" = u32, Path)),
    request_body = Schedulable, responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn schedulable(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Input(Schedulable { schedulable, reason }): Input<Schedulable>,
) -> Result<Json<Done>, ApiError> {
    let node = id.parse().map_err(|_| ApiError::not_found(format!("there is no node {id}")))?;
    let node = NodeId(node);
    app.done(&caller, Command::SetSchedulable { node, schedulable, reason }).await.map(Json)
}

/// List teams, their quotas and what they hold.
#[utoipa::path(get, path = "/api/v1/teams",
    responses((status = 200, body = Vec<Team>), (status = "4XX", body = Error)))]
pub(super) async fn teams(State(app): State<Arc<App>>) -> Result<Json<Vec<Team>>, ApiError> {
    let limit = |most: u64| (most != u64::MAX).then_some(most);
    let teams = ask::look(&app.handle, move |state, _| {
        let teams = state.teams().filter(|(_, team)| !team.removed).map(|(id, team)| {
            let used = state.used_by(id);
            Team {
                id: id.0,
                name: team.name.clone(),
                max_cores: limit(team.quota.cores),
                max_memory_bytes: limit(team.quota.memory),
                max_gpus: limit(team.quota.gpus),
                borrow_cores: limit(team.borrow.cores),
                borrow_memory_bytes: limit(team.borrow.memory),
                borrow_gpus: limit(team.borrow.gpus),
                lend_cores: limit(team.lend.cores),
                lend_memory_bytes: limit(team.lend.memory),
                lend_gpus: limit(team.lend.gpus),
                cores_held: used.cores,
                memory_held_bytes: used.memory,
                gpus_held: used.gpus,
            }
        });
        teams.collect()
    });
    teams.await.map(Json)
}

/// Make a team, or change the team of that name.
#[utoipa::path(post, path = "/api/v1/teams", request_body = SetTeam,
    responses((status = 200, body = Done), (status = "4XX", body = Error)))]
pub(super) async fn set_team(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Input(set): Input<SetTeam>,
) -> Result<Json<Done>, ApiError> {
    let is_name = !set.name.is_empty() && set.name.len() <= 64 && !set.name.contains(',');
    if !is_name {
        return Err(ApiError::malformed("name", "a team's name has 1 to 64 bytes and no comma"));
    }
    app.refresh().await?;
    let command = Command::SetTeam {
        team: app.team_called(&set.name),
        name: set.name,
        quota: limits(set.max_cores, set.max_memory_bytes, set.max_gpus),
        borrow: limits(set.borrow_cores, set.borrow_memory_bytes, set.borrow_gpus),
        lend: limits(set.lend_cores, set.lend_memory_bytes, set.lend_gpus),
    };
    let done = app.done(&caller, command).await?;
    app.refresh().await?;
    Ok(Json(done))
}

fn limits(cores: Option<u32>, memory: Option<u64>, gpus: Option<u32>) -> LimitsV1 {
    LimitsV1 { cores, memory: memory.map(Bytes), gpus }
}
