//! Occupancy: a fold of the log into intervals, each device and core in exactly one state at
//! any time (decision D9). What the time was good for is classified later, from these.

use std::collections::BTreeMap;

use facts::event::{NodeDeclaredV1, PlacementV1, StartedV1};
use facts::{Envelope, Event};
use serde::{Deserialize, Serialize};
use units::{AttemptId, DeviceIndex, JobId, NodeId, Rank, Timestamp};

/// What is conserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// One device.
    Device(NodeId, DeviceIndex),
    /// One core. Tasks are given counts of cores, not certain ones: which index a task has here
    /// says nothing about where it ran.
    Core(NodeId, u32),
}

/// What a unit is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Occupancy {
    /// Nobody's.
    Free,
    /// Nobody's, and not to be had.
    Drained,
    /// Given to a task whose process does not run yet.
    Starting,
    /// Given to a task whose process runs.
    Running,
    /// The process is gone; that all is free is not proven yet.
    Unproven,
    /// Something that should be gone still lives.
    Leaked,
}

/// Whose a unit is.
pub type Holder = (AttemptId, Rank);

/// A stretch of time of one unit in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// What.
    pub unit: Unit,
    /// In which state.
    pub state: Occupancy,
    /// Whose.
    pub holder: Option<Holder>,
    /// From when.
    pub from: Timestamp,
    /// Until when, exclusive.
    pub until: Timestamp,
}

/// A stretch of time in which a unit existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What.
    pub unit: Unit,
    /// From when.
    pub from: Timestamp,
    /// Until when, exclusive.
    pub until: Timestamp,
}

/// What one task holds.
#[derive(Clone, Debug)]
struct Hold {
    units: Vec<Unit>,
    state: Occupancy,
    since: Timestamp,
}

/// Folds events into intervals.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    cores_per_task: BTreeMap<JobId, u32>,
    drained: BTreeMap<NodeId, bool>,
    /// Since when each unit exists.
    present: BTreeMap<Unit, Timestamp>,
    /// Since when each unit that nobody holds is so, and in which state.
    idle: BTreeMap<Unit, (Occupancy, Timestamp)>,
    holds: BTreeMap<Holder, Hold>,
    intervals: Vec<Interval>,
    capacity: Vec<Capacity>,
}

impl Meter {
    /// Takes the next event of the log.
    pub fn apply(&mut self, envelope: &Envelope) {
        let now = envelope.ledger_time;
        match &envelope.event {
            Event::NodeDeclared(body) => self.declare(body, now),
            Event::NodeSchedulable(body) => self.set_drained(body.node, !body.schedulable, now),
            Event::Submitted(body) => {
                self.cores_per_task.insert(body.job, body.request.per_task.cores.0);
            }
            Event::Started(body) => self.start(body, now),
            Event::TaskRunning(body) => self.turn((body.attempt, body.rank), Occupancy::Running, body.at),
            Event::TaskEnded(body) => {
                let holder = (body.attempt, body.rank);
                if let Some(started) = body.started {
                    self.turn(holder, Occupancy::Running, started);
                }
                self.turn(holder, Occupancy::Unproven, body.ended);
                if let Some(freed) = body.freed {
                    self.free(holder, freed);
                }
            }
            Event::HoldLeaked(body) => self.turn((body.attempt, body.rank), Occupancy::Leaked, body.since),
            Event::TaskFreed(body) => self.free((body.attempt, body.rank), body.at),
            _ => {}
        }
    }

    /// All intervals and all capacity up to `now`; what is still open is cut there.
    pub fn close(mut self, now: Timestamp) -> (Vec<Interval>, Vec<Capacity>) {
        for unit in self.idle.keys().copied().collect::<Vec<_>>() {
            self.end_idle(unit, now);
        }
        for (holder, hold) in std::mem::take(&mut self.holds) {
            self.intervals.extend(hold.until(holder, now));
        }
        for unit in self.present.keys().copied().collect::<Vec<_>>() {
            self.end_capacity(unit, now);
        }
        self.intervals.retain(|interval| interval.from < interval.until);
        (self.intervals, self.capacity)
    }

    fn declare(&mut self, body: &NodeDeclaredV1, now: Timestamp) {
        let devices =
            (0_u16..).take(body.devices.len()).map(|index| Unit::Device(body.node, DeviceIndex(index)));
        let cores = (0..body.cores.0).map(|index| Unit::Core(body.node, index));
        let wanted: Vec<Unit> = devices.chain(cores).collect();
        let gone: Vec<Unit> = self
            .present
            .keys()
            .copied()
            .filter(|unit| node_of(*unit) == body.node && !wanted.contains(unit))
            .collect();
        for unit in gone {
            self.end_capacity(unit, now);
            self.end_idle(unit, now);
        }
        for unit in wanted {
            if let std::collections::btree_map::Entry::Vacant(entry) = self.present.entry(unit) {
                entry.insert(now);
                let held = self.holds.values().any(|hold| hold.units.contains(&unit));
                if !held {
                    self.begin_idle(unit, now);
                }
            }
        }
    }

    fn set_drained(&mut self, node: NodeId, drained: bool, now: Timestamp) {
        self.drained.insert(node, drained);
        let idle: Vec<Unit> = self.idle.keys().copied().filter(|unit| node_of(*unit) == node).collect();
        for unit in idle {
            self.end_idle(unit, now);
            self.begin_idle(unit, now);
        }
    }

    fn start(&mut self, body: &StartedV1, now: Timestamp) {
        let cores = self.cores_per_task.get(&body.job).copied().unwrap_or(0);
        for (rank, placement) in (0_u32..).zip(&body.tasks) {
            let units = self.units_for(placement, cores);
            for &unit in &units {
                self.end_idle(unit, now);
            }
            let hold = Hold { units, state: Occupancy::Starting, since: now };
            self.holds.insert((body.attempt, Rank(rank)), hold);
        }
    }

    /// The devices placed, and as many cores: idle ones first, and beyond what there is the
    /// lowest, so that giving out too much shows as a residue.
    fn units_for(&self, placement: &PlacementV1, cores: u32) -> Vec<Unit> {
        let node = placement.node;
        let all = || (0..u32::MAX).map(|index| Unit::Core(node, index));
        let from = Unit::Core(node, 0);
        let idle = self.idle.range(from..=Unit::Core(node, u32::MAX)).map(|(unit, _)| *unit);
        let devices = placement.devices.iter().map(|device| Unit::Device(node, *device));
        devices.chain(idle.chain(all()).take(cores as usize)).collect()
    }

    fn turn(&mut self, holder: Holder, state: Occupancy, at: Timestamp) {
        let Some(hold) = self.holds.get_mut(&holder).filter(|hold| hold.state < state) else { return };
        let at = at.max(hold.since);
        self.intervals.extend(hold.until(holder, at));
        (hold.state, hold.since) = (state, at);
    }

    fn free(&mut self, holder: Holder, at: Timestamp) {
        let Some(hold) = self.holds.remove(&holder) else { return };
        let at = at.max(hold.since);
        self.intervals.extend(hold.until(holder, at));
        for unit in hold.units {
            if self.present.contains_key(&unit) {
                self.begin_idle(unit, at);
            }
        }
    }

    fn begin_idle(&mut self, unit: Unit, at: Timestamp) {
        let drained = self.drained.get(&node_of(unit)).copied().unwrap_or(false);
        self.idle.insert(unit, (if drained { Occupancy::Drained } else { Occupancy::Free }, at));
    }

    fn end_idle(&mut self, unit: Unit, at: Timestamp) {
        if let Some((state, from)) = self.idle.remove(&unit) {
            self.intervals.push(Interval { unit, state, holder: None, from, until: at.max(from) });
        }
    }

    fn end_capacity(&mut self, unit: Unit, at: Timestamp) {
        if let Some(from) = self.present.remove(&unit) {
            self.capacity.push(Capacity { unit, from, until: at.max(from) });
        }
    }
}

impl Hold {
    fn until(&self, holder: Holder, until: Timestamp) -> impl Iterator<Item = Interval> + use<> {
        let (state, from) = (self.state, self.since);
        let until = until.max(from);
        self.units.clone().into_iter().map(move |unit| Interval {
            unit,
            state,
            holder: Some(holder),
            from,
            until,
        })
    }
}

/// The node a unit belongs to.
fn node_of(unit: Unit) -> NodeId {
    match unit {
        Unit::Device(node, _) | Unit::Core(node, _) => node,
    }
}
