//! Typed ids: the type says what the number names.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A job, as users see it: a short integer that is never reused.
    JobId(u64)
}
id! {
    /// A member of an array job. A job that is no array has the one index 0.
    ArrayIndex(u32)
}
id! {
    /// One try of one member of a job, over the whole life of a log.
    AttemptId(u64)
}
id! {
    /// A task's place in its gang, from 0.
    Rank(u32)
}
id! {
    /// The position of an event in the log, from 1; 0 means "before the first".
    Seq(u64)
}
id! {
    /// Which start of the server this is, from 1. A supervisor refuses a lower one.
    Epoch(u64)
}
id! {
    /// A node known to the scheduler.
    NodeId(u32)
}
id! {
    /// A device's position on its node. The device's identity is its `DeviceKey` in the facts.
    DeviceIndex(u16)
}
id! {
    /// A team: who quotas and budgets are kept for.
    TeamId(u32)
}
id! {
    /// A reservation: a short integer that is never reused.
    ReservationId(u64)
}
id! {
    /// A person, opaque. Names and uids are kept apart, where they can be erased.
    SubjectId(u64)
}

impl Seq {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One schedulable member of a job: the job itself, or one index of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The job.
    pub job: JobId,
    /// The array index; 0 where the job is no array.
    pub index: ArrayIndex,
}

impl MemberId {
    /// The only member of a job that is no array.
    pub fn sole(job: JobId) -> Self {
        Self { job, index: ArrayIndex(0) }
    }
}
