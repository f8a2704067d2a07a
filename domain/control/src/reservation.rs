//! Reservations: capacity of a node that is kept for one person's or one team's jobs, for some time.
//!
//! Nothing is stopped at its start. It frees itself: from its end on no decision heeds it, and the
//! next event takes it out of the state.

use facts::Resources;
use facts::reservation::{HolderV1, ReservationCancelledV1, ReservationSetV1};
use serde::{Deserialize, Serialize};
use units::{NodeId, ReservationId, SubjectId, TeamId, Timestamp};

use crate::admit::Denial;
use crate::apply::Misfit;
use crate::calendar::Calendar;
use crate::explain::{Holder, holder};
use crate::rows::{Amount, Meta, Node, Row};
use crate::state::State;

/// Capacity that is kept for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Where.
    pub node: NodeId,
    /// How much.
    pub amount: Amount,
    /// From when, in ledger time.
    pub from: Timestamp,
    /// The instant after the last, in ledger time.
    pub until: Timestamp,
    /// Whose jobs may use it.
    pub holder: HolderV1,
    /// Why, in the words of who asked.
    pub reason: String,
}

impl Reservation {
    /// Whether jobs of this owner and team may use it.
    pub(crate) fn is_of(&self, owner: SubjectId, team: TeamId) -> bool {
        match self.holder {
            HolderV1::User(user) => user == owner,
            HolderV1::Team(holder) => holder == team,
        }
    }

    /// Whether it keeps others out at this instant.
    pub(crate) fn is_open(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

impl From<&ReservationSetV1> for Reservation {
    fn from(e: &ReservationSetV1) -> Self {
        Self {
            node: e.node,
            amount: Amount::of(&e.amount),
            from: e.from,
            until: e.until,
            holder: e.holder,
            reason: e.reason.clone(),
        }
    }
}

/// What somebody wants to be reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How much, all on one node.
    pub amount: Resources,
    /// From when; none is from now on.
    pub from: Option<Timestamp>,
    /// The instant after the last.
    pub until: Timestamp,
    /// Whose jobs may use it.
    pub holder: HolderV1,
    /// Why.
    pub reason: String,
}

/// Where a wish can be met, as the event that meets it: on the first node that has the room.
///
/// Refused with what would fit: of what nodes have, whatever runs there, only what is reserved
/// already counts.
pub fn reserve(state: &State, wish: Wish, now: Timestamp) -> Result<ReservationSetV1, Denial> {
    let Wish { amount, from, until, holder, reason } = wish;
    let from = from.unwrap_or(now);
    if Amount::of(&amount) == Amount::default() {
        return Err(Denial::NothingReserved);
    }
    if from < now {
        return Err(Denial::ReservedInPast);
    }
    if until <= from {
        return Err(Denial::ReservationEndsFirst);
    }
    if let HolderV1::Team(team) = holder {
        state.team(team).ok_or(Denial::UnknownTeam(team))?;
    }
    let room = |(id, node): (NodeId, &Node)| (id, node.capacity.less(most_reserved(state, id, from, until)));
    let rooms: Vec<(NodeId, Amount)> = state.nodes().map(room).collect();
    let asked = Amount::of(&amount);
    if let Some((node, _)) = rooms.iter().find(|(_, room)| asked.fits(*room)) {
        let reservation = state.next_reservation_id();
        return Ok(ReservationSetV1 { reservation, node: *node, amount, from, until, holder, reason });
    }
    let roomiest =
        rooms.iter().map(|(_, room)| *room).max_by_key(|room| (room.gpus, room.cores, room.memory));
    let fits = roomiest.unwrap_or_default();
    Err(Denial::OverReserved { asked, fits })
}

/// The most of each part that is reserved on a node at any instant of a window.
fn most_reserved(state: &State, node: NodeId, from: Timestamp, until: Timestamp) -> Amount {
    let meets = |row: &&Reservation| row.node == node && row.from < until && from < row.until;
    let rows: Vec<&Reservation> = state.reservations().map(|(_, row)| row).filter(meets).collect();
    // The sum grows at a start only.
    let starts = rows.iter().map(|row| row.from.max(from));
    let at = |start: Timestamp| {
        let open = rows.iter().filter(|row| row.is_open(start));
        open.fold(Amount::default(), |sum, row| sum.plus(row.amount))
    };
    starts.map(at).fold(Amount::default(), Amount::max)
}

/// How a reservation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What of it its holder's jobs use now.
    pub used: Amount,
    /// What of it others hold at its start, or now if it has begun, by their time limits.
    pub taken: Amount,
    /// Those others; empty where nothing is taken.
    pub holders: Vec<Holder>,
}

/// How a reservation stands; none if it is not known, or over.
pub fn standing(state: &State, id: ReservationId, now: Timestamp) -> Option<Standing> {
    let (used, taken, attempts) = Calendar::of(state, now).standing(id, now)?;
    let holders = attempts.into_iter().filter_map(|attempt| holder(state, attempt)).collect();
    Some(Standing { used, taken, holders })
}

impl State {
    pub(crate) fn reservation_set(&mut self, e: &ReservationSetV1) -> Result<(), Misfit> {
        let meta = self.meta();
        if e.reservation <= meta.last_reservation {
            return Err(Misfit::ReservationIdUsed(e.reservation));
        }
        self.node(e.node).ok_or(Misfit::UnknownNode(e.node))?;
        self.put(Row::Meta(Meta { last_reservation: e.reservation, ..meta }));
        self.put(Row::Reservation(e.reservation, Some(e.into())));
        Ok(())
    }

    pub(crate) fn reservation_cancelled(&mut self, e: ReservationCancelledV1) -> Result<(), Misfit> {
        self.reservation(e.reservation).ok_or(Misfit::UnknownReservation(e.reservation))?;
        self.put(Row::Reservation(e.reservation, None));
        Ok(())
    }

    pub(crate) fn forget_reservations(&mut self, at: Timestamp) {
        let over = self.reservations().filter(|(_, row)| row.until <= at).map(|(id, _)| id);
        for id in over.collect::<Vec<_>>() {
            self.put(Row::Reservation(id, None));
        }
    }
}
