//! Opening a log: snapshot, replay, and the events that a start itself leaves.

use std::sync::mpsc::sync_channel;

use control::{Policy, State};
use facts::event::{DeviceV1, LimitsV1, NodeDeclaredV1, ServerStartedV1, TeamSetV2};
use facts::{Envelope, Event, Hash32, decode};
use units::{Bytes, Cores, Epoch, Seq, TeamId, Timestamp};

use super::{Core, Draft, LOCAL, Origin, dispatch::LaunchCache, notify::Outbox};
use crate::clock::LedgerClock;
use crate::ports::{ClockReading, Head, LogStore, StoreError};

/// What this machine offers to jobs, as the inventory found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Host name.
    pub name: String,
    /// Cores for jobs, the reserve already taken off.
    pub cores: Cores,
    /// Memory for jobs, the reserve already taken off.
    pub memory: Bytes,
    /// Devices.
    pub devices: Vec<DeviceV1>,
}

/// Everything a start is given.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The program's version.
    pub version: String,
    /// The kernel's boot id.
    pub boot_id: [u8; 16],
    /// Fresh random bytes, from which this epoch's nonces are derived.
    pub entropy: [u8; 32],
    /// The clocks now.
    pub reading: ClockReading,
    /// This machine.
    pub node: NodeFacts,
    /// The policy in force.
    pub policy: Policy,
}

impl<S: LogStore> Core<S> {
    /// Opens the log and records the start. Fails on a log that cannot be trusted.
    pub fn open(store: S, opening: Opening) -> Result<Self, StoreError> {
        let (state, from) = restore(&store)?;
        let before = state.meta();
        let same_boot = before.epoch > Epoch(0) && before.boot_id == opening.boot_id;
        let clock = LedgerClock::start(opening.reading, before.clock, same_boot.then_some(before.anchor));
        let outbox = Outbox::load(&store, &state)?;
        let mut core = Self {
            next_lapse: Self::first_lapse(&store)?,
            store,
            state,
            policy: opening.policy,
            wall: Timestamp(opening.reading.wall),
            epoch: Epoch(before.epoch.0 + 1),
            warned: clock.now(),
            clock,
            launches: LaunchCache::default(),
            outbox,
            last_snapshot: from,
        };
        core.record_start(opening)?;
        Ok(core)
    }

    fn record_start(&mut self, opening: Opening) -> Result<(), StoreError> {
        let mut draft = Draft::default();
        let started = ServerStartedV1 {
            epoch: self.epoch,
            boot_id: opening.boot_id,
            anchor: self.clock.anchor(),
            version: opening.version,
            nonce_seed: Hash32(opening.entropy),
        };
        self.record(Event::ServerStarted(started), Origin::SERVER, &mut draft);
        if self.state.teams().next().is_none() {
            let team = TeamSetV2 {
                team: TeamId(0),
                name: "default".to_owned(),
                quota: LimitsV1::UNLIMITED,
                borrow: LimitsV1::NOTHING,
                lend: LimitsV1::UNLIMITED,
            };
            self.record(Event::TeamSet(team), Origin::SERVER, &mut draft);
        }
        self.declare(opening.node, opening.boot_id, &mut draft);
        draft.batch.events = draft.events.iter().map(facts::encode).collect();
        self.store.append(&draft.batch)?;
        self.state.forget_undo();
        Ok(())
    }

    /// Declares the node if anything but its boot changed. The boot id of a known node moves
    /// only with the supervisor's greeting, which settles what the restart ended.
    fn declare(&mut self, facts: NodeFacts, boot_id: [u8; 16], draft: &mut Draft) {
        let known = self.state.node(LOCAL);
        let same = known.is_some_and(|node| {
            node.name == facts.name
                && node.capacity.cores == u64::from(facts.cores.0)
                && node.capacity.memory == facts.memory.0
                && *node.devices == facts.devices
        });
        if same {
            return;
        }
        let boot_id = known.map_or(boot_id, |node| node.boot_id);
        let body = NodeDeclaredV1 {
            node: LOCAL,
            name: facts.name,
            boot_id,
            cores: facts.cores,
            memory: facts.memory,
            devices: facts.devices,
        };
        self.record(Event::NodeDeclared(body), Origin::SERVER, draft);
    }

    /// Moves the node's boot id on.
    pub(super) fn declare_boot(&mut self, boot_id: [u8; 16], draft: &mut Draft) {
        let Some(node) = self.state.node(LOCAL) else { return };
        let body = NodeDeclaredV1 {
            node: LOCAL,
            name: node.name.clone(),
            boot_id,
            cores: Cores(u32::try_from(node.capacity.cores).unwrap_or(u32::MAX)),
            memory: Bytes(node.capacity.memory),
            devices: node.devices.to_vec(),
        };
        self.record(Event::NodeDeclared(body), Origin::SERVER, draft);
    }
}

/// Events that one thread of a replay hands to the other at once, and how many such batches wait.
const BATCH: usize = 256;
const BATCHES_AHEAD: usize = 16;

/// The state as of the log's end, and the place of the snapshot it was made from.
fn restore(store: &impl LogStore) -> Result<(State, Seq), StoreError> {
    let (state, from) = match store.snapshot()? {
        Some(snapshot) => match State::from_snapshot(&snapshot.state) {
            Ok(state) => (state, snapshot.head),
            // Written by another version: the log itself is the history.
            Err(_) => (State::new(), Head::default()),
        },
        None => (State::new(), Head::default()),
    };
    Ok((replay(store, state, from)?, from.seq))
}

/// The state as of the log's end, from what it was at `from`. Checks the chain of hashes.
///
/// One thread reads, checks and decodes, another applies: it takes as long as the slower.
pub fn replay(store: &impl LogStore, mut state: State, from: Head) -> Result<State, StoreError> {
    let damaged =
        |seq: Seq, what: String| StoreError::Damaged { path: "the event log".to_owned(), seq, what };
    std::thread::scope(|scope| {
        let (batches, to_apply) = sync_channel::<Vec<Envelope>>(BATCHES_AHEAD);
        let apply = scope.spawn(move || {
            for envelope in to_apply.into_iter().flatten() {
                state.apply(&envelope).map_err(|error| damaged(error.seq, error.misfit.to_string()))?;
                state.forget_undo();
            }
            Ok(state)
        });
        let mut batch = Vec::with_capacity(BATCH);
        let scanned = store.scan(from, &mut |seq, bytes| {
            batch.push(decode(bytes).map_err(|error| damaged(seq, error.to_string()))?);
            if batch.len() == BATCH {
                // Nobody receives where an event did not apply; that error is the one to tell.
                drop(batches.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))));
            }
            Ok(())
        });
        drop(batches.send(batch));
        drop(batches);
        let state = apply.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let state = state?;
        scanned.map(|_| state)
    })
}
