//! Capacity kept for somebody: the bodies of the events about it.

use serde::{Deserialize, Serialize};
use units::{NodeId, ReservationId, SubjectId, TeamId, Timestamp};

use crate::job::Resources;

/// See [`crate::Event::ReservationSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSetV1 {
    /// The id it got, new.
    pub reservation: ReservationId,
    /// Where the capacity is.
    pub node: NodeId,
    /// How much of it is kept.
    pub amount: Resources,
    /// From when, in ledger time.
    pub from: Timestamp,
    /// The instant after the last, in ledger time.
    pub until: Timestamp,
    /// Whose jobs may use it.
    pub holder: HolderV1,
    /// Why, in the words of who asked.
    pub reason: String,
}

/// Whose jobs may use what is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HolderV1 {
    /// One person's.
    User(SubjectId),
    /// A team's.
    Team(TeamId),
}

/// See [`crate::Event::ReservationCancelled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationCancelledV1 {
    /// The reservation.
    pub reservation: ReservationId,
}
