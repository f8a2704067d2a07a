//! Whether a request can ever be met, before it is accepted. Waiting is no reason to refuse.

use std::collections::BTreeMap;
use std::fmt;

use facts::event::PartV1;
use facts::{Event, IndexSet, JobRequest};
use units::{Bytes, GpuModel, JobId, NodeId, ReservationId, TeamId};

use crate::place;
use crate::rows::{Amount, Job};
use crate::state::State;

/// The most members of an array.
const MAX_MEMBERS: u64 = 1_000_000;
/// The most ranges that an array's indexes may be written as.
const MAX_RANGES: usize = 10_000;
/// The most tasks of a gang.
const MAX_TASKS: u32 = 10_000;
/// The most conditions on other jobs.
const MAX_DEPENDENCIES: usize = 1_000;

/// A thing that is scheduled and can run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// CPU cores.
    Cores,
    /// Main memory.
    Memory,
    /// Whole devices.
    Gpus,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cores, Self::Memory, Self::Gpus];

    /// The same in the log.
    pub fn part(self) -> PartV1 {
        match self {
            Self::Cores => PartV1::Cores,
            Self::Memory => PartV1::Memory,
            Self::Gpus => PartV1::Gpus,
        }
    }

    /// This part of an amount; memory in bytes.
    pub fn of(self, amount: Amount) -> u64 {
        match self {
            Self::Cores => amount.cores,
            Self::Memory => amount.memory,
            Self::Gpus => amount.gpus,
        }
    }

    /// An amount with this part replaced.
    pub fn with(self, amount: Amount, part: u64) -> Amount {
        match self {
            Self::Cores => Amount { cores: part, ..amount },
            Self::Memory => Amount { memory: part, ..amount },
            Self::Gpus => Amount { gpus: part, ..amount },
        }
    }

    /// A number of it, in words: `3 GPUs`.
    pub fn say(self, number: u64) -> String {
        match self {
            Self::Cores if number == 1 => "1 core".to_owned(),
            Self::Cores => format!("{number} cores"),
            Self::Memory => format!("{} of memory", Bytes(number)),
            Self::Gpus if number == 1 => "1 GPU".to_owned(),
            Self::Gpus => format!("{number} GPUs"),
        }
    }

    /// The first part of `need` that is not within `room`.
    pub(crate) fn lacking(need: Amount, room: Amount) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.of(need) > resource.of(room))
    }
}

impl From<PartV1> for Resource {
    fn from(part: PartV1) -> Self {
        match part {
            PartV1::Cores => Self::Cores,
            PartV1::Memory => Self::Memory,
            PartV1::Gpus => Self::Gpus,
        }
    }
}

/// Why something is refused, with whatever would make it possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// Nothing to run.
    #[error("a job needs at least one task")]
    NoTasks,
    /// A task without a core.
    #[error("a task needs at least one core")]
    NoCores,
    /// An array without members.
    #[error("an array needs at least one index")]
    NoMembers,
    /// An array none of whose members may run.
    #[error("an array with at most 0 members at once never runs; the limit is 1 or more")]
    ArrayLimitZero,
    /// More than one request may ask for.
    #[error("{asked} {what} are more than the {most} that a job may have")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        asked: u64,
        /// The limit, which is fourplane's own.
        most: u64,
    },
    /// No such team.
    #[error("there is no team {0}")]
    UnknownTeam(TeamId),
    /// A dependency on a job that is not known, or ended more than a day ago.
    #[error("it waits for job {0}, which is not known; jobs are known until a day after their end")]
    UnknownDependency(JobId),
    /// More than the team may ever hold at once.
    #[error(
        "it asks for {}, team {name} may hold {} at once{} (it holds {} now); \
         {fits} of its {tasks} tasks would fit",
        .resource.say(*.asked), .resource.say(*.limit), borrowed(*.resource, *.borrow), .resource.say(*.used)
    )]
    OverQuota {
        /// Whose quota.
        team: TeamId,
        /// Its name.
        name: String,
        /// Of what.
        resource: Resource,
        /// The limit: its quota and what it may borrow.
        limit: u64,
        /// What of that it may borrow.
        borrow: u64,
        /// What the team holds now.
        used: u64,
        /// What one attempt asks for.
        asked: u64,
        /// Tasks asked for.
        tasks: u32,
        /// Tasks that the whole quota would allow.
        fits: u64,
    },
    /// More than the nodes have, even when nothing runs.
    #[error(
        "it asks for {tasks} x ({per_task}){}, more than the nodes have even when nothing else runs; \
         {fits} such task{} would fit, and a task may have at most {largest}",
        of_model(*.model), if *.fits == 1 { "" } else { "s" }
    )]
    OverCapacity {
        /// Tasks asked for.
        tasks: u32,
        /// What each asks for.
        per_task: Amount,
        /// The model that its GPUs must be of.
        model: Option<GpuModel>,
        /// Tasks of that size that would fit.
        fits: u64,
        /// The most of each thing on any one node, of GPUs of such.
        largest: Amount,
    },
    /// No node has a GPU of the model.
    #[error("it asks for GPUs of model {model}, and there are {}", .there.join(", "))]
    NoSuchModel {
        /// The model.
        model: GpuModel,
        /// What there is, in words: `8 H100-SXM-80GB`.
        there: Vec<String>,
    },
    /// A model, and no GPU.
    #[error("it asks for 0 GPUs of model {0}; ask for at least one, or for no model")]
    NoGpus(GpuModel),
    /// No such job, or it ended more than a day ago.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// No such node.
    #[error("there is no node {0}")]
    NoSuchNode(NodeId),
    /// Nothing can be done to it any more.
    #[error("job {0} has ended")]
    JobEnded(JobId),
    /// Indexes that the array does not have.
    #[error("job {job} has no members {members}")]
    NoSuchMembers {
        /// The job.
        job: JobId,
        /// Those that it does not have.
        members: IndexSet,
    },
    /// A team whose jobs are not over cannot go.
    #[error("team {name} has {jobs} job{} that {} not over", if *.jobs == 1 { "" } else { "s" }, if *.jobs == 1 { "is" } else { "are" })]
    TeamInUse {
        /// Its name.
        name: String,
        /// How many.
        jobs: usize,
    },
    /// A reservation of nothing.
    #[error("a reservation needs some cores, memory or GPUs")]
    NothingReserved,
    /// A reservation that should have begun.
    #[error("the reservation begins in the past")]
    ReservedInPast,
    /// A reservation that ends before it begins.
    #[error("the reservation ends before it begins")]
    ReservationEndsFirst,
    /// More than any node has beside what is reserved already.
    #[error("{asked} cannot be reserved then: beside other reservations, a node has at most {fits}")]
    OverReserved {
        /// What was asked for.
        asked: Amount,
        /// What the node with the most has throughout the window.
        fits: Amount,
    },
    /// No such reservation, or it is over.
    #[error("there is no reservation {0}")]
    NoSuchReservation(ReservationId),
    /// Nothing that can be asked for, as the state is.
    #[error("this cannot be asked for now")]
    Inconsistent,
}

/// `, 2 GPUs of that borrowed`
fn borrowed(resource: Resource, borrow: u64) -> String {
    if borrow == 0 { String::new() } else { format!(", {} of that borrowed", resource.say(borrow)) }
}

/// ` of model H100-SXM-80GB`
fn of_model(model: Option<GpuModel>) -> String {
    model.map_or_else(String::new, |model| format!(" of model {model}"))
}

/// `4 cores, 16 GiB of memory, 1 GPU`
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = Resource::ALL.into_iter().filter(|resource| resource.of(*self) > 0);
        let words: Vec<String> = parts.map(|resource| resource.say(resource.of(*self))).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

/// Whether `request` could ever run, with the teams and nodes as they are. Drained nodes
/// count: they come back.
pub fn admit(state: &State, request: &JobRequest) -> Result<(), Denial> {
    within_own_limits(request)?;
    for dependency in &request.after {
        state.job(dependency.job).ok_or(Denial::UnknownDependency(dependency.job))?;
    }
    within_quota(state, request)?;
    within_capacity(state, request)
}

/// Whether somebody may ask for `event`, of those that calls lead to beside a submission.
pub fn admit_action(state: &State, event: &Event) -> Result<(), Denial> {
    match event {
        Event::Held(e) => open_job(state, e.job).map(drop),
        Event::Released(e) => open_job(state, e.job).map(drop),
        Event::PrioritySet(e) => open_job(state, e.job).map(drop),
        Event::CancelRequested(e) => {
            let job = open_job(state, e.job)?;
            let asked = e.members.clone().unwrap_or_default();
            let strangers = asked.difference(&job.request.members());
            if strangers.is_empty() {
                Ok(())
            } else {
                Err(Denial::NoSuchMembers { job: e.job, members: strangers })
            }
        }
        Event::NodeSchedulable(e) => state.node(e.node).map(drop).ok_or(Denial::NoSuchNode(e.node)),
        Event::PreemptibleSet(e) => open_job(state, e.job).map(drop),
        Event::PreemptsSet(e) => open_job(state, e.job).map(drop),
        Event::TeamSet(_)
        | Event::PreemptionSet(_)
        | Event::Applied(_)
        | Event::PriorityClassSet(_)
        | Event::RetriesSet(_)
        | Event::NotificationSet(_)
        | Event::DeliverySet(_)
        | Event::ReservationSet(_) => Ok(()),
        Event::TeamRemoved(e) => unused_team(state, e.team),
        Event::ReservationCancelled(e) => {
            let known = state.reservation(e.reservation);
            known.map(drop).ok_or(Denial::NoSuchReservation(e.reservation))
        }
        _ => Err(Denial::Inconsistent),
    }
}

fn open_job(state: &State, id: JobId) -> Result<&Job, Denial> {
    let job = state.job(id).ok_or(Denial::NoSuchJob(id))?;
    if job.ended.is_some() { Err(Denial::JobEnded(id)) } else { Ok(job) }
}

/// A team whose jobs are all over.
fn unused_team(state: &State, id: TeamId) -> Result<(), Denial> {
    let team = state.team(id).ok_or(Denial::UnknownTeam(id))?;
    let jobs = state.jobs().filter(|(_, job)| job.request.team == id && job.ended.is_none());
    match jobs.count() {
        0 => Ok(()),
        jobs => Err(Denial::TeamInUse { name: team.name.clone(), jobs }),
    }
}

fn within_own_limits(request: &JobRequest) -> Result<(), Denial> {
    if request.tasks == 0 {
        return Err(Denial::NoTasks);
    }
    if request.per_task.cores.0 == 0 {
        return Err(Denial::NoCores);
    }
    if let Some(model) = request.gpu_model.filter(|_| request.per_task.gpus == 0) {
        return Err(Denial::NoGpus(model));
    }
    let mut counts = vec![
        ("tasks", u64::from(request.tasks), u64::from(MAX_TASKS)),
        ("dependencies", request.after.len() as u64, MAX_DEPENDENCIES as u64),
    ];
    if let Some(array) = &request.array {
        if array.indexes.is_empty() {
            return Err(Denial::NoMembers);
        }
        if array.max_running == Some(0) {
            return Err(Denial::ArrayLimitZero);
        }
        counts.push(("array members", array.indexes.len(), MAX_MEMBERS));
        counts.push(("array index ranges", array.indexes.ranges().len() as u64, MAX_RANGES as u64));
    }
    let over = counts.into_iter().find(|(_, asked, most)| asked > most);
    over.map_or(Ok(()), |(what, asked, most)| Err(Denial::TooMany { what, asked, most }))
}

fn within_quota(state: &State, request: &JobRequest) -> Result<(), Denial> {
    let team = state.team(request.team).filter(|team| !team.removed);
    let team = team.ok_or(Denial::UnknownTeam(request.team))?;
    let asked = Amount::of_attempt(request);
    let Some(resource) = Resource::lacking(asked, team.limit()) else { return Ok(()) };
    Err(Denial::OverQuota {
        team: request.team,
        name: team.name.clone(),
        resource,
        limit: resource.of(team.limit()),
        borrow: resource.of(team.borrow),
        used: resource.of(state.used_by(request.team)),
        asked: resource.of(asked),
        tasks: request.tasks,
        fits: place::tasks_within(team.limit(), Amount::of(&request.per_task)),
    })
}

fn within_capacity(state: &State, request: &JobRequest) -> Result<(), Denial> {
    let rooms = place::whole_rooms(state, true);
    if place::spread(&rooms, request).is_some() {
        return Ok(());
    }
    if let Some(model) = request.gpu_model.filter(|_| place::usable(&rooms, request).gpus == 0) {
        return Err(Denial::NoSuchModel { model, there: models(state) });
    }
    let per_task = Amount::of(&request.per_task);
    let largest = rooms.iter().fold(Amount::default(), |most, room| most.max(room.usable(request)));
    let fits = place::most_tasks(&rooms, request);
    Err(Denial::OverCapacity { tasks: request.tasks, per_task, model: request.gpu_model, fits, largest })
}

/// The GPUs of all nodes by model, as nodes name them; `none` if there are none.
fn models(state: &State) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for device in state.nodes().flat_map(|(_, node)| node.devices.iter()) {
        *counts.entry(&device.model).or_default() += 1;
    }
    if counts.is_empty() {
        return vec!["none".to_owned()];
    }
    counts.into_iter().map(|(model, count)| format!("{count} {model}")).collect()
}
