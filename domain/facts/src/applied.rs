//! What an apply set up, as the log keeps it.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use units::{JobId, Nanos, TeamId};

use crate::event::{LimitsV1, PreemptionSetV1};
use crate::notify::{DeliverySetV1, NotificationV1};
use crate::outcome::ExitClass;

/// See [`crate::Event::Applied`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedV1 {
    /// The cluster that the specification is of.
    pub cluster: String,
    /// Everything the specification says that this server acts on: the next apply may change and
    /// remove these, and nothing else.
    pub resources: Vec<ResourceV1>,
}

/// One thing that a specification describes and a server has. Variants are only ever appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceV1 {
    /// A team and its quota.
    Team(TeamV1),
    /// When running jobs are stopped for others.
    Preemption(PreemptionSetV1),
    /// A class of urgency.
    Priority(PriorityV1),
    /// A class of urgency whose jobs may stop preemptible ones of their team.
    PreemptingPriority(PriorityV1),
    /// What happens to a failed job that does not say it itself.
    Retries(RetriesSetV1),
    /// Somebody who is told of jobs.
    Notification(NotificationV1),
    /// How what is told goes out.
    Delivery(DeliverySetV1),
}

/// See [`crate::Event::RetriesSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetriesSetV1 {
    /// Further attempts after the first, for the classes in `on`.
    pub max: u32,
    /// Which classes of end.
    pub on: SmallVec<[ExitClass; 8]>,
    /// Wait before the first retry; doubles each time.
    pub backoff: Nanos,
    /// The longest wait.
    pub backoff_max: Nanos,
}

/// A class of urgency: a priority that everybody may ask for by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityV1 {
    /// Its name.
    pub name: String,
    /// The priority of its jobs; higher starts earlier.
    pub value: i32,
}

/// See [`crate::Event::PriorityClassSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClassSetV2 {
    /// Its name.
    pub name: String,
    /// What it gives; none takes the class away. Jobs keep what they have.
    pub class: Option<ClassV1>,
}

/// What a class of urgency gives its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassV1 {
    /// Their priority.
    pub value: i32,
    /// Whether they may stop preemptible jobs of their team.
    pub preempts: bool,
}

impl From<PriorityClassSetV1> for PriorityClassSetV2 {
    fn from(old: PriorityClassSetV1) -> Self {
        Self { name: old.name, class: old.value.map(|value| ClassV1 { value, preempts: false }) }
    }
}

/// See [`crate::Event::PreemptsSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptsSetV1 {
    /// The job.
    pub job: JobId,
    /// Whether it may stop preemptible ones of its team.
    pub preempts: bool,
}

/// See [`crate::Event::PriorityClassSet`]: only read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClassSetV1 {
    /// Its name.
    pub name: String,
    /// The priority of its jobs; none takes the class away. Jobs keep the priority they have.
    pub value: Option<i32>,
}

/// A team, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamV1 {
    /// Its name.
    pub name: String,
    /// What it is promised to hold at once.
    pub quota: LimitsV1,
    /// What it may hold above that, of what others leave free.
    pub borrow: LimitsV1,
    /// What of its quota others may hold while it does not.
    pub lend: LimitsV1,
}

/// See [`crate::Event::TeamRemoved`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamRemovedV1 {
    /// The team.
    pub team: TeamId,
}
