//! Why a job waits, when it is expected to start, and what would start it: all of it tried on the
//! writer's own state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use control::{Forecast, Remedy as Change, Resource, Why as Reason};
use units::{ArrayIndex, JobId, MemberId, Nanos, NodeId};

use super::input::Raw;
use super::show::{show_receipt, show_why};
use super::submit::{Prepared, prepare};
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::wire::{Error, Explanation, Remedy, Start, Submit, Time};

/// Tell what would become of a job, without submitting it.
#[utoipa::path(post, path = "/api/v1/preflight", request_body = Submit,
    responses((status = 200, body = Explanation), (status = "4XX", body = Error)))]
pub(super) async fn preflight(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Raw<Submit>,
) -> Result<Json<Explanation>, ApiError> {
    let Prepared { request, .. } = prepare(&app, &caller, body.read()?).await?;
    let tried = ask::suppose(&app.handle, move |state, now, policy| {
        let tried = control::preflight(state, &request, now, policy)?;
        let names = Names::of(state, &tried.remedies);
        Ok::<_, control::Denial>((tried, names))
    });
    let (tried, names) = tried.await?.map_err(ops::api::Refusal::from)?;
    let words = Words { app: &app, job: None, names };
    Ok(Json(Explanation {
        why: show_why(&app, &tried.why),
        ahead: tried.ahead.map(|ahead| ahead as u64),
        start: Some(start(tried.forecast)),
        preempted: None,
        remedies: tried.remedies.iter().map(|change| words.remedy(change)).collect(),
    }))
}

/// All there is to say of one that is known.
pub(crate) async fn of_job(app: &App, id: JobId, index: Option<ArrayIndex>) -> Result<Explanation, ApiError> {
    let told = ask::suppose(&app.handle, move |state, now, policy| {
        let why = control::why(state, id, index, now, policy);
        let waits = state.job(id).is_some_and(|job| !job.pending.is_empty() || job.retrying > 0);
        let forecast = waits.then(|| control::forecast(state, id, now, policy));
        // Where room is being made, nobody needs to do anything.
        let stuck = waits && !matches!(why, Reason::RoomIsMade { .. });
        let remedies = if stuck { control::remedies(state, id, now, policy) } else { Vec::new() };
        let names = Names::of(state, &remedies);
        let retry = match index {
            Some(index) => state.retry(MemberId { job: id, index }),
            None => state.retries_of(id).next().map(|(_, retry)| retry),
        };
        let receipt = retry.and_then(|retry| retry.receipt);
        (why, state.jobs_ahead(id), forecast, receipt, remedies, names)
    });
    let (why, ahead, forecast, receipt, remedies, names) = told.await?;
    let words = Words { app, job: Some(id), names };
    Ok(Explanation {
        why: show_why(app, &why),
        ahead: ahead.map(|ahead| ahead as u64),
        start: forecast.map(start),
        preempted: receipt.map(|receipt| show_receipt(app, &receipt)),
        remedies: remedies.iter().map(|change| words.remedy(change)).collect(),
    })
}

fn start(forecast: Forecast) -> Start {
    match forecast {
        Forecast::At(at) => Start { at: Some(Time(at)), after: None },
        Forecast::After(at) => Start { at: None, after: Some(Time(at)) },
        Forecast::Unforeseen => Start { at: None, after: None },
    }
}

/// What users call the things that changes are about.
struct Names {
    nodes: BTreeMap<NodeId, String>,
    members: BTreeMap<MemberId, String>,
}

impl Names {
    fn of(state: &control::State, changes: &[Change]) -> Self {
        let ends = changes.iter().filter_map(|change| match change {
            Change::End(members) => Some(members),
            _ => None,
        });
        let name = |member: &MemberId| {
            let is_array = state.job(member.job).is_some_and(|job| job.request.array.is_some());
            let name =
                if is_array { format!("{}_{}", member.job, member.index) } else { member.job.to_string() };
            (*member, name)
        };
        Self {
            nodes: state.nodes().map(|(id, node)| (id, node.name.clone())).collect(),
            members: ends.flatten().map(name).collect(),
        }
    }
}

/// Says changes as users do.
struct Words<'a> {
    app: &'a App,
    /// None where it is not submitted yet.
    job: Option<JobId>,
    names: Names,
}

impl Words<'_> {
    fn remedy(&self, change: &Change) -> Remedy {
        let (code, text, command) = match change {
            Change::Release => ("release", "release it".to_owned(), self.command("release", "")),
            Change::Resume(node) => {
                let name = &self.names.nodes[node];
                ("resume", format!("let {name} have new work"), Some(format!("fourplane resume {name}")))
            }
            Change::Unreserve(id) => {
                ("unreserve", format!("cancel reservation {id}"), Some(format!("fourplane unreserve {id}")))
            }
            Change::Quota { team, resource, to } => {
                let team = self.app.team_name(*team);
                ("quota", format!("raise the quota of team {team} to {}", resource.say(*to)), None)
            }
            Change::Priority(to) => {
                let command = self.command("priority", &format!(" {to}"));
                let flag = || Some(format!("--priority {to}"));
                ("priority", format!("give it priority {to}"), command.or_else(flag))
            }
            Change::Tasks(tasks) => {
                ("tasks", format!("ask for {tasks} tasks"), Some(self.flag("tasks", tasks)))
            }
            Change::PerTask(Resource::Gpus, to) => {
                ("gpus", format!("ask for {} a task", Resource::Gpus.say(*to)), Some(self.flag("gpus", to)))
            }
            Change::PerTask(Resource::Cores, to) => (
                "cores",
                format!("ask for {} a task", Resource::Cores.say(*to)),
                Some(self.flag("cores", to)),
            ),
            Change::PerTask(Resource::Memory, to) => {
                let said = Resource::Memory.say(*to);
                (
                    "memory",
                    format!("ask for {said} a task"),
                    Some(self.flag("mem", format!("{}MiB", to >> 20))),
                )
            }
            Change::AnyModel(gpus) => {
                ("any-model", "take GPUs of any model".to_owned(), Some(self.flag("gpus", gpus)))
            }
            Change::TimeLimit(Nanos(to)) => {
                let minutes = to / 60_000_000_000;
                let text = format!("limit it to {minutes} min, so that it is over before others start");
                ("time-limit", text, Some(self.flag("time", format!("{minutes}m"))))
            }
            Change::End(members) => {
                let names: Vec<&str> =
                    members.iter().map(|member| self.names.members[member].as_str()).collect();
                let text = format!("end job {}", names.join(", "));
                ("end", text, Some(format!("fourplane cancel {}", names.join(" "))))
            }
        };
        Remedy { code: code.to_owned(), text, command }
    }

    fn command(&self, verb: &str, rest: &str) -> Option<String> {
        self.job.map(|job| format!("fourplane {verb} {job}{rest}"))
    }

    /// A job that was submitted must be cancelled first.
    fn flag(&self, name: &str, value: impl std::fmt::Display) -> String {
        let flag = format!("--{name} {value}");
        self.command("cancel", &format!(", and run it with {flag}")).unwrap_or(flag)
    }
}
