//! What a specification says against what a server has: the plan of an apply, and drift.
//!
//! A thing that an apply set up is owned: the next one may change and remove it. Whatever else there
//! is stays as it is, unless the specification names it.

mod desired;
mod machine;
mod plan;
mod resource;

use facts::Hash32;
use facts::applied::ResourceV1;
use serde::{Deserialize, Serialize};
use units::{Seq, Timestamp};

pub use desired::{as_specification, desired};
pub use machine::misfits;
pub use plan::{Action, Field, FieldChange, Plan, Step, Thing, changes, plan};
pub use resource::{Key, event, observed};

use crate::admit::{Denial, admit_action};
use crate::state::State;

/// The last apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The cluster that its specification is of.
    pub cluster: String,
    /// What it set up.
    pub resources: Vec<ResourceV1>,
    /// Who did it and when.
    pub change: Change,
}

/// Who changed something, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The event.
    pub seq: Seq,
    /// Its ledger time.
    pub at: Timestamp,
    /// Who caused it.
    pub by: facts::Actor,
}

/// A thing that is not as the last apply left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Which.
    pub key: Key,
    /// What the last apply made it.
    pub applied: ResourceV1,
    /// What it is; none where it is gone.
    pub observed: Option<ResourceV1>,
    /// Who changed it last.
    pub change: Option<Change>,
}

/// The steps from what a server has to `desired`.
pub fn plan_of(state: &State, desired: &[ResourceV1]) -> Plan<ResourceV1> {
    plan(desired, &observed(state), owned(state))
}

/// What the last apply set up.
pub fn owned(state: &State) -> &[ResourceV1] {
    state.applied().map_or(&[], |applied| &applied.resources)
}

/// A specification that leads back to what there is, once `plan` was carried out: of all that is
/// owned, and all that the plan touches.
pub fn way_back(state: &State, cluster: &str, plan: &Plan<ResourceV1>) -> String {
    let touched = |key: &Key| {
        let keys = plan.steps.iter().filter_map(|step| step.before.as_ref()).map(Thing::key);
        owned(state).iter().map(Thing::key).chain(keys).any(|one| one == *key)
    };
    let kept: Vec<_> = observed(state).into_iter().filter(|thing| touched(&thing.key())).collect();
    as_specification(cluster, &kept)
}

/// Whether every step of a plan may be taken.
pub fn admit(state: &State, plan: &Plan<ResourceV1>) -> Result<(), Denial> {
    plan.steps.iter().try_for_each(|step| admit_step(state, step))
}

/// Whether a step may be taken.
pub fn admit_step(state: &State, step: &Step<ResourceV1>) -> Result<(), Denial> {
    event(state, step).map_or(Ok(()), |event| admit_action(state, &event))
}

/// What is not as the last apply left it.
pub fn drift(state: &State) -> Vec<Drift> {
    let now = observed(state);
    let standing = |key: &Key| now.iter().find(|thing| thing.key() == *key).cloned();
    let each = owned(state).iter().map(|applied| {
        let key = applied.key();
        let (observed, change) = (standing(&key), state.change_of(&key));
        Drift { key, applied: applied.clone(), observed, change }
    });
    each.filter(|drift| drift.observed.as_ref() != Some(&drift.applied)).collect()
}

impl Plan<ResourceV1> {
    /// The same for the same steps only, whatever is left alone.
    pub fn digest(&self) -> Hash32 {
        let steps: Vec<_> =
            self.steps.iter().map(|step| (&step.before, &step.after, &step.last, step.desired)).collect();
        let bytes = postcard::to_stdvec(&steps).expect("a growing buffer takes every step");
        Hash32(*blake3::hash(&bytes).as_bytes())
    }
}
