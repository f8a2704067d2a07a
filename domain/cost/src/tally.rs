//! Sums kept as the log grows: how long devices and cores were in each state, by the quarter of
//! an hour, in memory that does not grow with the jobs.

use std::collections::BTreeMap;

use facts::event::{NodeDeclaredV1, StartedV1};
use facts::{Envelope, Event};
use serde::{Deserialize, Serialize};
use units::{Cores, Nanos, NodeId, Timestamp};

use crate::occupancy::{Holder, Occupancy};

/// A quarter of an hour: the beginning of a day in any zone is the beginning of one.
pub const QUARTER: Nanos = Nanos::from_secs(900);

/// Devices and cores, or the time of them in nanoseconds. As a change it may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Of whole devices.
    pub devices: i64,
    /// Of cores.
    pub cores: i64,
}

/// What an amount is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Entry {
    /// What there was, counted by itself.
    Capacity,
    /// Where it went.
    State(Occupancy),
}

impl Entry {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::Capacity,
        Self::State(Occupancy::Free),
        Self::State(Occupancy::Drained),
        Self::State(Occupancy::Starting),
        Self::State(Occupancy::Running),
        Self::State(Occupancy::Unproven),
        Self::State(Occupancy::Leaked),
    ];

    /// The word that programs see.
    pub fn word(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::State(Occupancy::Free) => "free",
            Self::State(Occupancy::Drained) => "drained",
            Self::State(Occupancy::Starting) => "starting",
            Self::State(Occupancy::Running) => "running",
            Self::State(Occupancy::Unproven) => "unproven",
            Self::State(Occupancy::Leaked) => "leaked",
        }
    }
}

/// Sums over a window.
pub type Sums = BTreeMap<Entry, Amounts>;

/// By the start of the quarter.
pub type Quarters = BTreeMap<(Timestamp, Entry), Amounts>;

/// What each unit does now, and since when that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Up to when all is counted; none before the first event.
    counted: Option<Timestamp>,
    nodes: BTreeMap<NodeId, Idle>,
    now: Sums,
    holds: BTreeMap<Holder, Hold>,
}

/// A node's units that nobody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Idle {
    capacity: Amounts,
    drained: bool,
    amounts: Amounts,
}

/// What one task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hold {
    node: NodeId,
    amounts: Amounts,
    state: Occupancy,
    since: Timestamp,
}

impl Tally {
    /// Takes the next event of the log and adds what it tells to `to`. `cores` are those of each
    /// task where the event starts an attempt.
    pub fn apply(&mut self, envelope: &Envelope, cores: Cores, to: &mut Quarters) {
        let now = envelope.ledger_time;
        self.count(now, to);
        match &envelope.event {
            Event::NodeDeclared(body) => self.declare(body),
            Event::NodeSchedulable(body) => self.set_drained(body.node, !body.schedulable),
            Event::Started(body) => self.start(body, cores, now),
            Event::TaskRunning(body) => {
                self.turn((body.attempt, body.rank), Occupancy::Running, body.at, to);
            }
            Event::TaskEnded(body) => {
                let holder = (body.attempt, body.rank);
                if let Some(started) = body.started {
                    self.turn(holder, Occupancy::Running, started, to);
                }
                self.turn(holder, Occupancy::Unproven, body.ended, to);
                if let Some(freed) = body.freed {
                    self.free(holder, freed, to);
                }
            }
            Event::HoldLeaked(body) => {
                self.turn((body.attempt, body.rank), Occupancy::Leaked, body.since, to);
            }
            Event::TaskFreed(body) => self.free((body.attempt, body.rank), body.at, to),
            _ => {}
        }
    }

    /// Counts on to `now`, which no event told yet.
    pub fn count(&mut self, now: Timestamp, to: &mut Quarters) {
        let from = self.counted.unwrap_or(now);
        self.counted = Some(from.max(now));
        for (&entry, &amounts) in &self.now {
            add(to, entry, amounts, from, now);
        }
    }

    fn declare(&mut self, body: &NodeDeclaredV1) {
        let count = |much: usize| i64::try_from(much).unwrap_or(i64::MAX);
        let capacity = Amounts { devices: count(body.devices.len()), cores: i64::from(body.cores.0) };
        let node = self.nodes.entry(body.node).or_default();
        let more = capacity - node.capacity;
        node.capacity = capacity;
        self.change(Entry::Capacity, more);
        self.give_back(body.node, more);
    }

    fn set_drained(&mut self, id: NodeId, drained: bool) {
        let node = self.nodes.entry(id).or_default();
        let (amounts, was) = (node.amounts, node.state());
        node.drained = drained;
        let is = node.state();
        self.change(Entry::State(was), -amounts);
        self.change(Entry::State(is), amounts);
    }

    fn start(&mut self, body: &StartedV1, cores: Cores, now: Timestamp) {
        for (rank, placement) in (0_u32..).zip(&body.tasks) {
            let devices = i64::try_from(placement.devices.len()).unwrap_or(i64::MAX);
            let amounts = Amounts { devices, cores: i64::from(cores.0) };
            self.give_back(placement.node, -amounts);
            self.change(Entry::State(Occupancy::Starting), amounts);
            let hold = Hold { node: placement.node, amounts, state: Occupancy::Starting, since: now };
            self.holds.insert((body.attempt, units::Rank(rank)), hold);
        }
    }

    fn turn(&mut self, holder: Holder, state: Occupancy, at: Timestamp, to: &mut Quarters) {
        let Some(hold) = self.holds.get_mut(&holder).filter(|hold| hold.state < state) else { return };
        let Hold { amounts, state: was, .. } = *hold;
        let at = at.max(hold.since);
        (hold.state, hold.since) = (state, at);
        self.change(Entry::State(was), -amounts);
        self.change(Entry::State(state), amounts);
        self.correct(was, state, amounts, at, to);
    }

    fn free(&mut self, holder: Holder, at: Timestamp, to: &mut Quarters) {
        let Some(Hold { node, amounts, state: was, since }) = self.holds.remove(&holder) else { return };
        self.change(Entry::State(was), -amounts);
        let is = self.give_back(node, amounts);
        self.correct(was, is, amounts, at.max(since), to);
    }

    /// What was counted as `was` since `at` had been `is` for as long; or the other way round,
    /// where `at` is still to come.
    fn correct(&self, was: Occupancy, is: Occupancy, amounts: Amounts, at: Timestamp, to: &mut Quarters) {
        let Some(counted) = self.counted else { return };
        let (from, until, amounts) =
            if at < counted { (at, counted, amounts) } else { (counted, at, -amounts) };
        add(to, Entry::State(was), -amounts, from, until);
        add(to, Entry::State(is), amounts, from, until);
    }

    /// Gives a node's units to nobody (or takes them, where negative), and tells in which state
    /// those are.
    fn give_back(&mut self, id: NodeId, amounts: Amounts) -> Occupancy {
        let node = self.nodes.entry(id).or_default();
        node.amounts = node.amounts + amounts;
        let state = node.state();
        self.change(Entry::State(state), amounts);
        state
    }

    fn change(&mut self, entry: Entry, more: Amounts) {
        let amounts = self.now.entry(entry).or_default();
        *amounts = *amounts + more;
    }
}

impl Idle {
    fn state(&self) -> Occupancy {
        if self.drained { Occupancy::Drained } else { Occupancy::Free }
    }
}

/// Adds the time of `amounts` in `[from, until)`, quarter by quarter.
fn add(to: &mut Quarters, entry: Entry, amounts: Amounts, from: Timestamp, until: Timestamp) {
    if amounts == Amounts::default() {
        return;
    }
    let mut from = from;
    while from < until {
        let start = Timestamp(from.0 - from.0.rem_euclid(QUARTER.0.cast_signed()));
        let end = until.min(start + QUARTER);
        let time = end.since(from).0.cast_signed();
        let sum = to.entry((start, entry)).or_default();
        *sum = *sum + Amounts { devices: amounts.devices * time, cores: amounts.cores * time };
        from = end;
    }
}

impl std::ops::Add for Amounts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { devices: self.devices + other.devices, cores: self.cores + other.cores }
    }
}

impl std::ops::Sub for Amounts {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl std::ops::Neg for Amounts {
    type Output = Self;
    fn neg(self) -> Self {
        Self { devices: -self.devices, cores: -self.cores }
    }
}
