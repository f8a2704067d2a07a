//! What reservations leave to a job, now and at every later instant of its run.
//!
//! Outsiders must leave free what its holder's jobs do not use of a reservation. That changes for
//! the worse only when a reservation begins, so these instants are looked at, and the start.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use facts::JobRequest;
use units::{AttemptId, NodeId, ReservationId, SubjectId, TeamId, Timestamp};

use crate::place::{self, Room, Spread};
use crate::reservation::Reservation;
use crate::rows::Amount;
use crate::state::State;

/// Something that is held, or will be, for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    /// None where it is only expected.
    attempt: Option<AttemptId>,
    node: NodeId,
    amount: Amount,
    owner: SubjectId,
    team: TeamId,
    from: Timestamp,
    /// The instant after the last.
    until: Timestamp,
}

/// A reservation that is open, and what of it its holder's jobs do not use.
struct Kept<'a> {
    id: ReservationId,
    row: &'a Reservation,
    unused: Amount,
}

impl Hold {
    fn lasts(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

/// Reservations that are not over, and who holds what until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calendar {
    capacity: Vec<(NodeId, Amount)>,
    windows: Vec<(ReservationId, Reservation)>,
    holds: Vec<Hold>,
    /// Attempts that are supposed to be gone, and when they are at the latest.
    gone: BTreeMap<AttemptId, Timestamp>,
}

impl Calendar {
    /// As of now. Where nothing is reserved it is empty, and costs nothing.
    pub(crate) fn of(state: &State, now: Timestamp) -> Self {
        // What is overdue is held now, whatever was expected.
        Self::holding(state, now, Timestamp(now.0.saturating_add(1)))
    }

    /// As it is expected to be: what is overdue is free at once.
    pub(crate) fn expected(state: &State, now: Timestamp) -> Self {
        Self::holding(state, now, Timestamp(i64::MIN))
    }

    fn holding(state: &State, now: Timestamp, least: Timestamp) -> Self {
        let windows = state.reservations().filter(|(_, row)| row.until > now);
        let windows: Vec<_> = windows.map(|(id, row)| (id, row.clone())).collect();
        if windows.is_empty() {
            return Self { windows, ..Self::default() };
        }
        let capacity = state.nodes().map(|(id, node)| (id, node.capacity)).collect();
        let mut holds = Vec::new();
        for (id, attempt) in state.attempts() {
            let Some(job) = state.job(attempt.member.job) else { continue };
            let until = attempt.expected_end().max(least);
            holds.extend(state.tasks_of(id).filter(|(_, task)| task.freed.is_none()).map(|(_, task)| Hold {
                attempt: Some(id),
                node: task.node,
                amount: task.amount,
                owner: job.request.owner,
                team: job.request.team,
                from: now,
                until,
            }));
        }
        Self { capacity, windows, holds, gone: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// As if an attempt were gone, by `at` at the latest.
    pub(crate) fn leaves(&mut self, id: AttemptId, at: Timestamp) {
        self.gone.insert(id, at);
    }

    /// The same undone.
    pub(crate) fn stays(&mut self, id: AttemptId) {
        self.gone.remove(&id);
    }

    /// What of `rooms` a job may have that starts at `from` and ends at `until`.
    pub(crate) fn allowed<'a>(
        &self,
        rooms: &'a [Room],
        request: &JobRequest,
        from: Timestamp,
        until: Timestamp,
    ) -> Cow<'a, [Room]> {
        if self.is_empty() {
            return Cow::Borrowed(rooms);
        }
        let mut allowed = rooms.to_vec();
        let begins = self.windows.iter().map(|(_, row)| row.from).filter(|at| from < *at && *at < until);
        for at in std::iter::once(from).chain(begins) {
            for room in &mut allowed {
                room.caps(self.left(room.node, at, request));
            }
        }
        Cow::Owned(allowed)
    }

    /// Where in `rooms` a job fits that starts at `from`.
    pub(crate) fn spread(&self, rooms: &[Room], request: &JobRequest, from: Timestamp) -> Option<Spread> {
        place::spread(&self.allowed(rooms, request, from, end(request, from)), request)
    }

    /// Where in `rooms` a job fits from the moment at which all that leaves is gone, whenever that
    /// is. Where nothing leaves, what begins later is not looked at.
    pub(crate) fn spread_after(
        &self,
        rooms: &[Room],
        request: &JobRequest,
        now: Timestamp,
    ) -> Option<Spread> {
        let until = self.gone.values().max().map_or(now, |late| end(request, *late));
        place::spread(&self.allowed(rooms, request, now, until), request)
    }

    /// Where in `rooms` a job fits now within what is kept for it.
    pub(crate) fn spread_within(
        &self,
        rooms: &[Room],
        request: &JobRequest,
        now: Timestamp,
    ) -> Option<Spread> {
        if !self.is_open(now) {
            return None;
        }
        let mut own = self.allowed(rooms, request, now, end(request, now)).into_owned();
        for room in &mut own {
            let (_, kept) = self.usage(room.node, now);
            let kept = kept.iter().filter(|kept| kept.row.is_of(request.owner, request.team));
            room.caps(kept.fold(Amount::default(), |sum, kept| sum.plus(kept.unused)));
        }
        place::spread(&own, request)
    }

    /// Whether anything is kept for anybody now.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.windows.iter().any(|(_, row)| row.is_open(now))
    }

    /// What is left of a node to a job at one instant.
    fn left(&self, node: NodeId, at: Timestamp, request: &JobRequest) -> Amount {
        let (held, kept) = self.usage(node, at);
        let others = kept.iter().filter(|kept| !kept.row.is_of(request.owner, request.team));
        self.capacity(node).less(others.fold(held, |sum, kept| sum.plus(kept.unused)))
    }

    fn capacity(&self, node: NodeId) -> Amount {
        let known = self.capacity.iter().find(|(id, _)| *id == node);
        known.map_or(Amount::default(), |(_, capacity)| *capacity)
    }

    /// What is held on a node at one instant, and what is kept of it. What is held counts for one
    /// reservation only, the oldest that it may use.
    fn usage(&self, node: NodeId, at: Timestamp) -> (Amount, Vec<Kept<'_>>) {
        let open = self.windows.iter().filter(|(_, row)| row.node == node && row.is_open(at));
        let mut kept: Vec<_> = open.map(|(id, row)| Kept { id: *id, row, unused: row.amount }).collect();
        let mut held = Amount::default();
        let stays = |hold: &&Hold| hold.attempt.is_none_or(|id| !self.gone.contains_key(&id));
        let here = self.holds.iter().filter(|hold| hold.node == node && hold.lasts(at));
        for hold in here.filter(stays) {
            held = held.plus(hold.amount);
            let mut left = hold.amount;
            for kept in kept.iter_mut().filter(|kept| kept.row.is_of(hold.owner, hold.team)) {
                let used = left.min(kept.unused);
                (left, kept.unused) = (left.less(used), kept.unused.less(used));
            }
        }
        (held, kept)
    }

    /// Reserves the earliest place, as [`place::reserve`] does where nothing is kept for others.
    /// Reservations end, so that there always is one.
    pub(crate) fn reserve(
        self,
        state: &State,
        request: &JobRequest,
        now: Timestamp,
    ) -> Option<place::Reservation> {
        let releases = &state.index().releases;
        let ends = releases.iter().map(|(end, _)| *end).chain(self.windows.iter().map(|(_, row)| row.until));
        let ends: BTreeSet<Timestamp> = ends.collect();
        // What is overdue is free at any moment. The look ahead is from when it was due, so that it does
        // not move with the time now.
        let overdue = ends.range(..=now).next_back();
        let later = ends.range((Bound::Excluded(now), Bound::Unbounded));
        let mut releases = releases.iter().peekable();
        let (mut rooms, mut after) = (place::free_rooms(state), Vec::new());
        for due in overdue.into_iter().chain(later) {
            while let Some((_, id)) = releases.next_if(|(end, _)| end <= due) {
                place::give_back(&mut rooms, state, *id);
                after.push(*id);
            }
            let at = now.max(*due);
            let allowed = self.allowed(&rooms, request, at, end(request, *due));
            if let Some(spread) = place::spread(&allowed, request) {
                let (window, spare) = (place::window(at, now), place::less(rooms, &spread, request));
                let calendar = self.holds_too(&spread, request, at);
                return Some(place::Reservation { at, window, spare, after, calendar });
            }
        }
        None
    }

    /// As if an attempt of `request` started at `at`.
    pub(crate) fn holds_too(mut self, spread: &Spread, request: &JobRequest, at: Timestamp) -> Self {
        let (task, until) = (Amount::of(&request.per_task), end(request, at));
        let JobRequest { owner, team, .. } = *request;
        self.holds.extend(spread.iter().map(|(node, tasks)| {
            let (node, amount) = (*node, task.times(*tasks));
            Hold { attempt: None, node, amount, owner, team, from: at, until }
        }));
        self
    }

    /// The reservation that keeps a job from starting now, which fits in `rooms` otherwise: one without
    /// which it starts, else the oldest that it would run into.
    pub(crate) fn in_the_way(
        &self,
        rooms: &[Room],
        request: &JobRequest,
        now: Timestamp,
    ) -> Option<(ReservationId, &Reservation)> {
        if self.is_empty() || self.spread(rooms, request, now).is_some() {
            return None;
        }
        let until = end(request, now);
        let is_met = |row: &Reservation| row.from < until && !row.is_of(request.owner, request.team);
        let met: Vec<_> = self.windows.iter().filter(|(_, row)| is_met(row)).collect();
        let alone = met.iter().find(|(id, _)| {
            let mut without = self.clone();
            without.windows.retain(|(other, _)| other != id);
            without.spread(rooms, request, now).is_some()
        });
        alone.or(met.first()).map(|(id, row)| (*id, row))
    }

    /// What of a reservation its holder's jobs use now, what others take of it once it has begun, and
    /// the attempts that do.
    pub(crate) fn standing(
        &self,
        id: ReservationId,
        now: Timestamp,
    ) -> Option<(Amount, Amount, BTreeSet<AttemptId>)> {
        let (_, row) = self.windows.iter().find(|(known, _)| *known == id)?;
        let begins = row.from.max(now);
        let (held, kept) = self.usage(row.node, begins);
        let own = kept.iter().find(|kept| kept.id == id)?.unused;
        let sum = kept.iter().fold(held, |sum, kept| sum.plus(kept.unused));
        let taken = sum.less(self.capacity(row.node)).min(own);
        let (_, kept) = self.usage(row.node, now);
        let used = kept.iter().find(|kept| kept.id == id).map(|kept| row.amount.less(kept.unused));
        let others = self.holds.iter().filter(|hold| {
            taken != Amount::default()
                && hold.node == row.node
                && hold.lasts(begins)
                && !row.is_of(hold.owner, hold.team)
        });
        Some((used.unwrap_or_default(), taken, others.filter_map(|hold| hold.attempt).collect()))
    }
}

/// When a job that starts at `from` is over at the latest; [`Timestamp::MAX`] is never.
pub(crate) fn end(request: &JobRequest, from: Timestamp) -> Timestamp {
    request.time_limit.map_or(Timestamp::MAX, |limit| from + limit)
}
