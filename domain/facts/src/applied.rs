//! What an apply set up, as the log keeps it.

use serde::{Deserialize, Serialize};
use units::TeamId;

use crate::event::{LimitsV1, PreemptionSetV1};

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
