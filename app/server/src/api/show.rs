//! Rows as JSON, with the names that people know.

use std::collections::BTreeSet;

use control::Why as Reason;
use control::{Resource, State};
use facts::event::{ReceiptV1, RightV1};
use ops::view::{AttemptRow, JobRow};
use units::{DeviceIndex, JobId, NodeId, SubjectId, Timestamp};

use super::reservations::name_of;
use crate::app::App;
use crate::wire::{
    self, Attempt, Device, Holder, Job, Leak, Members, Node, Readiness, Receipt, Task, Time, Why,
};

/// A job's row as JSON, as of the ledger time `now`.
pub(crate) fn show_job(app: &App, row: JobRow, now: Timestamp) -> Job {
    let request = row.request;
    Job {
        id: row.id.0,
        owner: app.people.name(request.owner),
        team: app.team_name(request.team),
        state: row.state,
        held: row.held,
        preemptible: row.preemptible,
        kind: (&request.kind).into(),
        priority: row.priority,
        tasks: request.tasks,
        cores: request.per_task.cores.0,
        memory_bytes: request.per_task.memory.0,
        gpus: request.per_task.gpus,
        gpu_model: request.gpu_model.map(|model| model.to_string()),
        simulated: app.config.rehearsal && request.per_task.gpus > 0,
        array: request.array.as_ref().map(Into::into),
        time_limit_ns: request.time_limit.map(|limit| limit.0),
        after: request.after.into_iter().map(Into::into).collect(),
        retry: (&request.retry).into(),
        stop: request.stop.into(),
        name: request.name,
        labels: request.labels.into(),
        submitted: row.submitted.into(),
        started: row.started.map(Time),
        ended: row.ended.map(Time),
        elapsed_ns: elapsed(row.started, row.ended, now),
        members: Members {
            waiting: row.members.waiting,
            running: row.members.running,
            succeeded: row.members.succeeded,
            failed: row.members.failed,
        },
        attempts: row.attempts,
        outcome: row.outcome.as_ref().map(Into::into),
        cancelled_by: row.cancelled_by.map(|subject| app.people.name(subject)),
        seq: row.seq.0,
    }
}

/// A duration is a difference of ledger times only: a client's clock may show another time.
fn elapsed(started: Option<Timestamp>, ended: Option<Timestamp>, now: Timestamp) -> Option<u64> {
    started.map(|started| ended.unwrap_or(now).since(started).0)
}

/// An attempt's row as JSON, as of the ledger time `now`.
pub(crate) fn show_attempt(app: &App, row: &AttemptRow, now: Timestamp) -> Attempt {
    let tasks = (0_u32..).zip(&row.tasks).map(|(rank, placement)| Task {
        rank,
        node: placement.node.0,
        devices: placement.devices.iter().map(|device| device.0).collect(),
        exit: row.exits.get(&rank).map(Into::into),
    });
    Attempt {
        id: row.id.0,
        index: row.index.0,
        number: row.number,
        tasks: tasks.collect(),
        decided: row.decided.into(),
        started: row.started.map(Time),
        ended: row.ended.map(Time),
        elapsed_ns: elapsed(row.started, row.ended, now),
        freed: row.freed.map(Time),
        stop: row.stop.map(|reason| wire::stop_word(reason).to_owned()),
        receipt: row.receipt.as_ref().map(|receipt| show_receipt(app, receipt)),
        readiness: row.health.clone().map(|health| Readiness {
            ready: health.healthy,
            since: health.since.into(),
            reason: health.reason,
        }),
        leaked: row.leaked.clone().map(|(since, reason)| Leak { since: since.into(), reason }),
        cpu_ns: row.cpu,
        memory_peak_bytes: row.memory_peak.map(|bytes| bytes.0),
        outcome: row.outcome.as_ref().map(Into::into),
    }
}

/// For whom an attempt was stopped.
pub(super) fn show_receipt(app: &App, receipt: &ReceiptV1) -> Receipt {
    let ReceiptV1 { job, team, right } = *receipt;
    let team = app.team_name(team);
    let (word, why) = match right {
        RightV1::Reclaim { part, quota, held } => {
            let part = control::Resource::from(part);
            let (held, quota) = (part.say(held), part.say(quota));
            ("reclaim", format!("its own team held {held} with a quota of {quota}"))
        }
        RightV1::Priority { above, below } => {
            ("priority", format!("that has priority {above}, this {below}"))
        }
    };
    let text = format!("it made room for job {job} of team {team}: {why}");
    Receipt { job: job.0, team, right: word.to_owned(), text }
}

/// A scheduler's reason as JSON.
pub(crate) fn show_why(app: &App, reason: &Reason) -> Why {
    let until = match reason {
        Reason::Running { until, .. } => *until,
        Reason::RetryWait(at) => Some(*at),
        Reason::Resources { free_at, .. } | Reason::Reserved { free_at, .. } => *free_at,
        Reason::Behind { starts_at, .. } => *starts_at,
        Reason::RoomIsMade { by, .. } => *by,
        _ => None,
    };
    let holders = match reason {
        Reason::Resources { holders, .. } | Reason::RoomIsMade { holders, .. } => holders.as_slice(),
        _ => &[],
    };
    let holders = holders.iter().map(|holder| show_holder(app, holder)).collect();
    let (code, text, hint) = words(app, reason);
    Why { code: code.to_owned(), text, hint: hint.map(str::to_owned), until: until.map(Time), holders }
}

/// An instant for people, who read no fractions of a second.
fn in_seconds(at: Timestamp) -> Time {
    Time(Timestamp(at.0 - at.0.rem_euclid(1_000_000_000)))
}

/// Who holds something, as JSON.
pub(super) fn show_holder(app: &App, holder: &control::Holder) -> Holder {
    Holder {
        job: holder.member.job.0,
        owner: app.people.name(holder.owner),
        since: holder.since.into(),
        until: holder.expected_end.map(Time),
    }
}

/// Code, text and hint.
fn words(app: &App, reason: &Reason) -> (&'static str, String, Option<&'static str>) {
    let plain = |code, text: &str| (code, text.to_owned(), None);
    match reason {
        Reason::Unknown => plain("unknown", "nothing is known of it any more"),
        Reason::Ended { .. } => plain("ended", "it is over"),
        Reason::Running { .. } => plain("running", "it runs"),
        Reason::Stopping { receipt: Some(receipt), held: false, .. } => {
            ("stopping", format!("it was told to stop: {}", show_receipt(app, receipt).text), None)
        }
        Reason::Stopping { reason, held: false, .. } => {
            ("stopping", format!("it was told to stop ({})", wire::stop_word(*reason)), None)
        }
        Reason::Stopping { held: true, .. } | Reason::Freeing { leaked: false, .. } => {
            plain("freeing", "it has ended; what it held is not proven free yet")
        }
        Reason::Freeing { leaked: true, .. } => (
            "leaked",
            "it has ended, but something of it lives on and holds its cores, memory and devices".to_owned(),
            Some("end the processes that the job's `leaked` names, or restart the machine"),
        ),
        Reason::Ending => plain("ending", "it is about to be ended"),
        Reason::Held => ("held", "somebody holds it".to_owned(), Some("release it")),
        Reason::DependencyPending(jobs) => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            ("dependency", format!("it waits for job {}", jobs.join(", ")), None)
        }
        Reason::ArrayLimit { limit } => {
            ("array-limit", format!("{limit} members of its array run, as many as may"), None)
        }
        Reason::RetryWait(_) => plain("back-off", "it ended and waits for its next try"),
        Reason::RoomIsMade { holders, .. } => {
            let jobs: BTreeSet<JobId> = holders.iter().map(|holder| holder.member.job).collect();
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            let told = match jobs.as_slice() {
                [job] => format!("job {job} was told to stop"),
                jobs => format!("jobs {} were told to stop", jobs.join(", ")),
            };
            ("room-is-made", format!("room is made for it: {told}"), None)
        }
        Reason::NotLent { team, resource, free, kept, need } => (
            "not-lent",
            format!(
                "it needs {}, which team {} would borrow; {} are free, and other teams keep {} of their quotas",
                resource.say(*need),
                app.team_name(*team),
                resource.say(*free),
                resource.say(*kept)
            ),
            Some("wait for a job of the team to end, or ask for less"),
        ),
        Reason::QuotaOfTeam { team, resource, limit, used, need } => (
            "quota",
            format!(
                "it needs {}; team {} holds {} of its {}",
                resource.say(*need),
                app.team_name(*team),
                resource.say(*used),
                resource.say(*limit)
            ),
            Some("wait for the team's other jobs, or have an administrator raise its quota"),
        ),
        Reason::HeldOutside { gpus } => (
            "outside",
            format!("processes that were not started here hold {}", Resource::Gpus.say(*gpus)),
            Some("see who they are: fourplane inventory; it starts once they are gone"),
        ),
        Reason::NodesDrained(_) => (
            "drained",
            "it would fit on a node that takes no new work".to_owned(),
            Some("an administrator gives it work again: fourplane resume"),
        ),
        Reason::NoNode => (
            "no-node",
            "no node is large enough any more".to_owned(),
            Some("cancel it and submit it with less a task"),
        ),
        Reason::Resources { missing, model, .. } => {
            let of_model = model.map_or_else(String::new, |model| format!(" of model {model}"));
            let say = |(what, much): &(Resource, u64)| match what {
                Resource::Gpus => what.say(*much) + &of_model,
                _ => what.say(*much),
            };
            let missing: Vec<String> = missing.iter().map(say).collect();
            let text = match missing.as_slice() {
                [] => "no one node has all it needs free".to_owned(),
                missing => format!("it lacks {}", missing.join(", ")),
            };
            ("resources", text, None)
        }
        Reason::Reserved { reservation, holder, from, until, .. } => (
            "reserved",
            format!(
                "it would run into reservation {reservation} of {}, from {} until {}",
                name_of(app, *holder),
                in_seconds(*from),
                in_seconds(*until)
            ),
            Some("give it a time limit that ends before the reservation begins, or wait for its end"),
        ),
        Reason::Behind { head, .. } => (
            "behind",
            format!("it fits, but would delay job {head} at the head of the queue"),
            Some("give it a time limit that ends before the head starts"),
        ),
        Reason::Next => plain("next", "it fits and is about to start"),
        Reason::NotExamined { limit } => {
            let text = format!("it fits, but a pass looks at {limit} jobs and did not come to it");
            ("not-examined", text, Some("wait until jobs ahead of it have started or are cancelled"))
        }
    }
}

/// A node, its owner names still ids: made on the writer's thread, which does no look-ups.
pub(crate) struct NodeRow {
    node: Node,
    holders: Vec<(usize, SubjectId)>,
}

impl NodeRow {
    /// With names.
    pub(crate) fn show(mut self, app: &App) -> Node {
        for (index, owner) in self.holders {
            if let Some(holder) = self.node.devices.get_mut(index).and_then(|device| device.holder.as_mut()) {
                holder.owner = app.people.name(owner);
            }
        }
        self.node
    }
}

/// All nodes and who holds their devices.
pub(crate) fn node_rows(state: &State) -> Vec<NodeRow> {
    state.nodes().map(|(id, node)| node_row(state, id, node)).collect()
}

fn node_row(state: &State, id: NodeId, node: &control::Node) -> NodeRow {
    let used = state.used_on(id);
    let mut holders = Vec::new();
    let devices = node.devices.iter().enumerate().map(|(at, device)| {
        let index = u16::try_from(at).unwrap_or(u16::MAX);
        let held = holder_of(state, id, DeviceIndex(index));
        holders.extend(held.as_ref().map(|(_, owner, _)| (at, *owner)));
        let leaked = held.as_ref().is_some_and(|(.., leaked)| *leaked);
        Device {
            index,
            key: device.key.clone(),
            model: device.model.clone(),
            memory_bytes: device.memory.0,
            simulated: device.simulated,
            holder: held.map(|(holder, ..)| holder),
            leaked,
            outside: node.outside.contains(&DeviceIndex(index)),
        }
    });
    let devices = devices.collect();
    let node = Node {
        id: id.0,
        name: node.name.clone(),
        schedulable: node.schedulable,
        reason: node.reason.clone(),
        cores: node.capacity.cores,
        cores_held: used.cores,
        memory_bytes: node.capacity.memory,
        memory_held_bytes: used.memory,
        devices,
    };
    NodeRow { node, holders }
}

/// The attempt that holds a device, whose it is, and whether it is leaked.
fn holder_of(state: &State, node: NodeId, device: DeviceIndex) -> Option<(Holder, SubjectId, bool)> {
    if !state.is_device_held(node, device) {
        return None;
    }
    state.attempts().find_map(|(id, attempt)| {
        let mut tasks = state.tasks_of(id).map(|(_, task)| task);
        let task =
            tasks.find(|task| task.freed.is_none() && task.node == node && task.devices.contains(&device))?;
        let owner = state.job(attempt.member.job)?.request.owner;
        let until = Some(attempt.expected_end()).filter(|end| *end != Timestamp::MAX).map(Time);
        let holder =
            Holder { job: attempt.member.job.0, owner: String::new(), since: attempt.started.into(), until };
        Some((holder, owner, task.leaked.is_some()))
    })
}
