//! Specifications: what applying one would do, did, and what differs since.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// A specification to hold against the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// Its text, in YAML.
    pub spec: String,
}

/// What applying a specification would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// The cluster that the specification is of.
    pub cluster: String,
    /// The cluster that was applied here before, where that is another.
    pub replaces: Option<String>,
    /// The steps, in order; none if nothing differs.
    pub steps: Vec<PlanStep>,
    /// What is neither in the specification nor made by an apply, and stays as it is.
    pub left_alone: Vec<Thing>,
    /// What the specification says of the machine that is not so, in words.
    pub misfits: Vec<String>,
    /// Names this plan: `apply` carries out no other.
    pub plan: String,
    /// A specification that leads back to what there is now.
    pub way_back: String,
}

/// What is done about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanStep {
    /// What is done.
    pub action: Action,
    /// To what.
    #[serde(flatten)]
    pub thing: Thing,
    /// The fields that change.
    pub fields: Vec<FieldChange>,
    /// Who changed it since the last apply, where somebody did.
    pub changed: Option<Changed>,
    /// Why this cannot be done now, and so nothing of the plan.
    pub blocked: Option<String>,
}

/// What is done about one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is made.
    Create,
    /// It becomes something else.
    Change,
    /// It goes.
    Delete,
    /// It was made by hand, and is as the specification says: from now on an apply owns it.
    Adopt,
    /// It was changed by hand to what the specification says now.
    Accept,
    /// The specification no longer names it, and nothing of it differs: no apply owns it any more.
    Release,
}

/// A thing that specifications describe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Thing {
    /// What kind of thing: `team`, `preemption`, `priority`.
    pub kind: String,
    /// Its name among its kind; empty where there is only one.
    pub name: String,
}

/// A field of a thing; `null` where the thing is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Its name.
    pub field: String,
    /// What it is, in words.
    pub before: Option<String>,
    /// What it will be.
    pub after: Option<String>,
}

/// Who changed something, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// A login name, or `uid:N`, or `subject:N` once erased; `the server` for itself.
    pub by: String,
    /// When.
    pub at: Time,
    /// The event in the log.
    pub seq: u64,
}

/// A plan that somebody agreed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// The specification's text, in YAML.
    pub spec: String,
    /// The plan, by its name. If something was changed since it was made, it is refused.
    pub plan: String,
    /// The cluster that this one takes the place of, where another was applied before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// A class of urgency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriorityClass {
    /// Its name.
    pub name: String,
    /// The priority of its jobs; higher starts earlier.
    pub value: i32,
    /// Whether its jobs may stop less urgent, preemptible ones of their team.
    pub preempts: bool,
}

/// What differs from what was last applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drift {
    /// The cluster that was applied; `null` if nothing was.
    pub cluster: Option<String>,
    /// Who applied it and when.
    pub applied: Option<Changed>,
    /// What is not as it was left.
    pub drifted: Vec<Drifted>,
}

/// A thing that is not as the last apply left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drifted {
    /// Which.
    #[serde(flatten)]
    pub thing: Thing,
    /// The fields that differ: as applied, and as they are. All of them, where it is gone.
    pub fields: Vec<FieldChange>,
    /// Who changed it last.
    pub changed: Option<Changed>,
}
