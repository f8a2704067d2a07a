//! The single writer's logic, without its threads: inputs in, one commit, answers and commands
//! out (decisions D1 and D5). The deterministic simulation drives this very struct.

mod calls;
mod dispatch;
mod health;
mod keys;
mod node;
mod notify;
mod open;

use std::collections::BTreeSet;

use control::{Policy, State, decide};
use facts::{Actor, Envelope, Event, Hash32, Source, encode};
use units::{DeviceIndex, Epoch, JobId, NodeId, Seq, Timestamp};

use crate::api::{Ack, Call, Refusal, Reply, Trial};
use crate::clock::LedgerClock;
use crate::health::HealthReport;
use crate::notify::{Parcel, Tried};
use crate::ports::{
    Batch, ClockReading, Head, LogStore, NodeCommand, NodeHello, NodeReport, Snapshot, StoreError,
};

pub use open::{NodeFacts, Opening, replay};

/// A snapshot of the state is kept every so many events.
const SNAPSHOT_EVERY: u64 = 100_000;

/// The one node that the embedded engine serves.
pub const LOCAL: NodeId = NodeId(0);

/// Something that the writer is told.
pub enum Input {
    /// A request.
    Call(Call),
    /// A node's report.
    Report(NodeReport),
    /// A node's greeting after a connection was made.
    Hello(NodeHello),
    /// What the checks of a service amount to.
    Health(HealthReport),
    /// What came of telling somebody.
    Tried(Tried),
    /// All devices of the node that are held from outside.
    Outside(BTreeSet<DeviceIndex>),
}

/// What one turn led to. Nothing here may be acted on unless `turn` returned it: by then it is
/// durable.
#[derive(Default)]
pub struct Turn {
    /// Answers to calls.
    pub replies: Vec<(Reply, Result<Ack, Refusal>)>,
    /// For the node, in order.
    pub commands: Vec<NodeCommand>,
    /// What was committed, and the head after it.
    pub committed: Vec<Envelope>,
    /// What is to be told to whom.
    pub parcels: Vec<Parcel>,
}

/// State, log and clock of one server.
pub struct Core<S> {
    store: S,
    state: State,
    policy: Policy,
    clock: LedgerClock,
    wall: Timestamp,
    epoch: Epoch,
    warned: Timestamp,
    launches: dispatch::LaunchCache,
    outbox: notify::Outbox,
    last_snapshot: Seq,
    next_lapse: Timestamp,
}

/// Events and side effects of the turn in the making.
#[derive(Default)]
struct Draft {
    batch: Batch,
    events: Vec<Envelope>,
    answers: Vec<(Reply, Result<Ack, Refusal>)>,
    commands: Vec<NodeCommand>,
    outbox: notify::OutboxDraft,
}

impl<S: LogStore> Core<S> {
    /// The state, for looking.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The log's head.
    pub fn head(&self) -> Head {
        self.store.head()
    }

    /// The store, for reading side tables at start.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// This server's epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Ledger time of the last turn.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Supposes things between two turns, and undoes them.
    pub fn suppose(&mut self, trial: Trial) {
        let mark = self.state.mark();
        trial(&mut self.state, self.clock.now(), &self.policy);
        self.state.rollback(mark);
    }

    /// When the next turn is due even if nothing comes in.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let lapse = (self.next_lapse < Timestamp::MAX).then_some(self.next_lapse);
        self.state.next_wake(self.clock.now()).into_iter().chain(lapse).min()
    }

    /// Takes all inputs, decides until nothing is left to decide, commits once.
    ///
    /// An error means that the log can no longer be written for a reason other than space; the
    /// state is as before and every call has been answered.
    pub fn turn(&mut self, inputs: Vec<Input>, reading: ClockReading) -> (Turn, Option<StoreError>) {
        let mark = self.state.mark();
        let mut draft = Draft::default();
        self.read_clock(reading, &mut draft);
        let low = self.store.low_space();
        let over = node::tasks_over(&inputs);
        for input in inputs {
            match input {
                Input::Call(call) => self.take_call(call, low, &mut draft),
                Input::Report(report) if node::is_outdated(&report, &over) => {
                    Self::acknowledge(report.number, &mut draft);
                }
                Input::Report(report) => self.take_report(report, &mut draft),
                Input::Hello(hello) => self.take_hello(&hello, &mut draft),
                Input::Health(report) => self.take_health(report, &mut draft),
                Input::Tried(tried) => self.take_tried(&tried, &mut draft),
                Input::Outside(devices) => self.take_outside(devices, &mut draft),
            }
        }
        self.decide_all(&mut draft);
        self.forget_keys(low, &mut draft);
        if draft.batch_is_empty() {
            self.state.forget_undo();
            self.warn(&mut draft);
            return (draft.finish(), None);
        }
        draft.batch.events = draft.events.iter().map(encode).collect();
        match self.store.append(&draft.batch) {
            Ok(head) => {
                self.state.forget_undo();
                self.look_ahead(&draft.batch);
                self.dispatch(&mut draft);
                self.warn(&mut draft);
                self.snapshot_if_due(head);
                let parcels = self.hand_over(&mut draft);
                (Turn { parcels, ..draft.commit(head) }, None)
            }
            Err(error) => {
                self.state.rollback(mark);
                (draft.fail(&error), Some(error))
            }
        }
    }

    fn read_clock(&mut self, reading: ClockReading, draft: &mut Draft) {
        let stepped = self.clock.advance(reading);
        self.wall = Timestamp(reading.wall);
        if let Some(body) = stepped {
            self.record(Event::ClockStepped(body), Origin::SERVER, draft);
        }
    }

    /// Asks for decisions until there is none: each sees the last.
    fn decide_all(&mut self, draft: &mut Draft) {
        while let Some(event) = decide(&self.state, self.clock.now(), &self.policy) {
            if !self.record(event, Origin::DECISION, draft) {
                break;
            }
        }
    }

    /// Wraps an event, applies it and puts it into the draft. False if the state refused it,
    /// which can only come from outside: a report about what the log does not know.
    fn record(&mut self, event: Event, origin: Origin, draft: &mut Draft) -> bool {
        let seq = Seq(self.store.head().seq.0 + draft.events.len() as u64 + 1);
        let envelope = Envelope {
            seq,
            ledger_time: self.clock.now(),
            wall_time: self.wall,
            source: origin.source,
            source_time: origin.source_time,
            actor: origin.actor,
            cause: None,
            idem_key: origin.idem_key,
            event,
        };
        let job = self.job_of_news(&envelope.event);
        if self.state.apply(&envelope).is_err() {
            return false;
        }
        if let Some(job) = job {
            self.note_end(job, draft);
            if self.is_anybody_told(draft) {
                self.tell(&envelope.event, job, draft);
            }
        }
        draft.events.push(envelope);
        true
    }

    /// The job of an event that may end it, or that somebody may want to be told of.
    fn job_of_news(&self, event: &Event) -> Option<JobId> {
        let of_attempt = |id| self.state.attempt(id).map(|attempt| attempt.member.job);
        match event {
            Event::Started(body) => Some(body.job),
            Event::HoldLeaked(body) => of_attempt(body.attempt),
            Event::AttemptClosed(body) => of_attempt(body.attempt),
            Event::MembersEnded(body) => Some(body.job),
            _ => None,
        }
    }

    fn snapshot_if_due(&mut self, head: Head) {
        if head.seq.0 - self.last_snapshot.0 < SNAPSHOT_EVERY {
            return;
        }
        // A snapshot only saves time at the next start: without it the log is replayed.
        let snapshot = Snapshot { head, state: self.state.to_snapshot() };
        if self.store.put_snapshot(&snapshot).is_ok() {
            self.last_snapshot = head.seq;
        }
    }
}

/// Where an event comes from.
#[derive(Clone, Copy)]
struct Origin {
    source: Source,
    actor: Actor,
    source_time: Option<Timestamp>,
    idem_key: Option<Hash32>,
}

impl Origin {
    const SERVER: Self =
        Self { source: Source::Server, actor: Actor::Server, source_time: None, idem_key: None };
    const DECISION: Self =
        Self { source: Source::Decision, actor: Actor::Server, source_time: None, idem_key: None };

    fn node(source_time: Timestamp) -> Self {
        Self {
            source: Source::Supervisor(LOCAL),
            actor: Actor::Node(LOCAL),
            source_time: Some(source_time),
            idem_key: None,
        }
    }
}

impl Draft {
    fn batch_is_empty(&self) -> bool {
        self.events.is_empty() && self.batch.side.is_empty() && self.batch.lapsed.is_empty()
    }

    /// Nothing to commit: only refusals, repeats and acknowledgements.
    fn finish(self) -> Turn {
        Turn { replies: self.answers, commands: self.commands, ..Turn::default() }
    }

    /// Every new acknowledgement carries the head that includes it.
    fn commit(self, head: Head) -> Turn {
        let replies = self
            .answers
            .into_iter()
            .map(|(reply, answer)| {
                let answer = answer.map(|ack| if ack.repeated { ack } else { Ack { head, ..ack } });
                (reply, answer)
            })
            .collect();
        Turn { replies, commands: self.commands, committed: self.events, parcels: Vec::new() }
    }

    /// The commit failed: no acknowledgement, no command; refusals stand.
    fn fail(self, error: &StoreError) -> Turn {
        let full = matches!(error, StoreError::DiskFull { .. });
        let refusal = || if full { Refusal::LowSpace } else { Refusal::NotWritten(error.to_string()) };
        let replies = self
            .answers
            .into_iter()
            .map(|(reply, answer)| {
                (reply, answer.and_then(|ack| if ack.repeated { Ok(ack) } else { Err(refusal()) }))
            })
            .collect();
        Turn { replies, ..Turn::default() }
    }
}
