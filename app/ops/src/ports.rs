//! What the use cases need of the outside world. Adapters implement these traits; tests and
//! the deterministic simulation bring doubles that behave (decision D35).

use std::collections::BTreeSet;
use std::sync::Arc;

use facts::{Hash32, LaunchSpec, Resources, StartFailure, TaskExit};
use serde::{Deserialize, Serialize};
use units::{AttemptId, Bytes, DeviceIndex, Epoch, JobId, MemberId, Rank, Seq, Timestamp};

/// The last event of a log and the hash of the chain up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Position of the last event; 0 for an empty log.
    pub seq: Seq,
    /// `blake3(previous hash, body)`; zero for an empty log.
    pub hash: Hash32,
}

impl Head {
    /// The head after one more event.
    pub fn then(self, body: &[u8]) -> Self {
        let hash = blake3::Hasher::new().update(&self.hash.0).update(body).finalize();
        Self { seq: self.seq.next(), hash: Hash32(*hash.as_bytes()) }
    }
}

/// What one commit writes, all or nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Encoded envelopes, in order, from `head.seq + 1`.
    pub events: Vec<Vec<u8>>,
    /// Idempotency keys that became used, each with the hash of its request.
    pub idem: Vec<IdemRow>,
    /// Launch payloads of new jobs.
    pub payloads: Vec<(JobId, Vec<u8>)>,
    /// Jobs that ended and whose payload is erased.
    pub erase: Vec<JobId>,
    /// Changes to the erasable side tables.
    pub side: Vec<SideWrite>,
    /// When keys that were used will be forgotten.
    pub lapses: Vec<Lapse>,
    /// Keys that are forgotten, each as it was to be; none where the event had no key.
    pub lapsed: Vec<(Lapse, Option<Hash32>)>,
}

/// A used idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdemRow {
    /// Hash of principal and key.
    pub key: Hash32,
    /// Hash of the request that used it.
    pub request: Hash32,
    /// The event it led to.
    pub seq: Seq,
}

/// That an event's idempotency key is to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lapse {
    /// When, in ledger time.
    pub at: Timestamp,
    /// The event.
    pub seq: Seq,
}

/// Erasable tables beside the log: they may name people, the log may not (decision D32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideTable {
    /// Subject id to uid and name.
    Subject,
    /// Token hash to what it grants.
    Token,
    /// Job to where its output goes.
    Output,
    /// Hash of a browser session's secret to what it grants.
    Session,
    /// Job to what its owner wants to be told of it, until it is over.
    Watch,
    /// Number of a delivery to what is told to whom, and how far it is.
    Delivery,
}

/// A row of a side table: its key and value.
pub type SideRow = (Vec<u8>, Vec<u8>);

/// One change to a side table.
#[derive(Clone, PartialEq, Eq)]
pub struct SideWrite {
    /// Which table.
    pub table: SideTable,
    /// The row's key.
    pub key: Vec<u8>,
    /// Its new value; none erases it.
    pub value: Option<Vec<u8>>,
}

impl std::fmt::Debug for SideWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SideWrite").field("table", &self.table).finish_non_exhaustive()
    }
}

/// A stored `State`, with which a start need not replay the whole log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The log's head when it was taken.
    pub head: Head,
    /// The encoded state.
    pub state: Vec<u8>,
}

/// Why the store failed. After any of these the log is as it was before the call.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No space left for new work; ends of jobs still fit.
    #[error("the disk that holds {path} is full")]
    DiskFull {
        /// The log's path.
        path: String,
    },
    /// Another server has the log open.
    #[error("{path} is in use by another fourplane server{}", holder.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    InUse {
        /// The log's directory.
        path: String,
        /// Its process, where known.
        holder: Option<u32>,
    },
    /// The log's bytes are not what was written.
    #[error("event {seq} of {path} is damaged: {what}")]
    Damaged {
        /// The log's path.
        path: String,
        /// The first event that cannot be trusted.
        seq: Seq,
        /// What is wrong.
        what: String,
    },
    /// Written by a newer version.
    #[error("{path} was written by a newer version of fourplane ({found}); this one reads up to {known}")]
    Newer {
        /// The log's path.
        path: String,
        /// The format found.
        found: u32,
        /// The newest format known.
        known: u32,
    },
    /// Anything else the database or the system said.
    #[error("{doing} {path}: {source}")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: String,
        /// What was said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Called with each event of a scan: its position and bytes.
pub type Visit<'a> = &'a mut dyn FnMut(Seq, &[u8]) -> Result<(), StoreError>;

/// The event log. One writer; whatever a call acknowledged survives a power loss.
pub trait LogStore: Send {
    /// Where the log ends.
    fn head(&self) -> Head;
    /// Appends a batch and returns when it is durable.
    fn append(&mut self, batch: &Batch) -> Result<Head, StoreError>;
    /// Visits every event after `after`, checking the chain on the way.
    fn scan(&self, after: Head, visit: Visit<'_>) -> Result<Head, StoreError>;
    /// One event's bytes, unless the log does not reach so far.
    fn event(&self, seq: Seq) -> Result<Option<Vec<u8>>, StoreError>;
    /// Looks up an idempotency key.
    fn idem(&self, key: &Hash32) -> Result<Option<IdemRow>, StoreError>;
    /// The first `most` keys to be forgotten, in the order of their times.
    fn lapses(&self, most: usize) -> Result<Vec<Lapse>, StoreError>;
    /// The launch payload of a job that has not ended.
    fn payload(&self, job: JobId) -> Result<Option<Vec<u8>>, StoreError>;
    /// All rows of a side table.
    fn side(&self, table: SideTable) -> Result<Vec<SideRow>, StoreError>;
    /// One row of a side table.
    fn side_row(&self, table: SideTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// The newest snapshot whose place in the chain still fits.
    fn snapshot(&self) -> Result<Option<Snapshot>, StoreError>;
    /// Keeps a snapshot; older ones may go.
    fn put_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), StoreError>;
    /// Whether little enough space is left that new work must be refused.
    fn low_space(&self) -> bool;
}

/// A task by its attempt and rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its place in the gang.
    pub rank: Rank,
}

/// Everything needed to start one task. Fields are only added, at the end: an older supervisor
/// reads those that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartTask {
    /// The task.
    pub task: TaskId,
    /// The decision that started it; a node de-duplicates on it (decision D5).
    pub decision: Seq,
    /// Proves that an exit record belongs to this attempt and no other.
    pub nonce: [u8; 16],
    /// The job's member, for names and paths.
    pub member: MemberId,
    /// Whether the job is an array.
    pub is_array: bool,
    /// The job's name.
    pub name: String,
    /// Which try this is, from 1.
    pub number: u32,
    /// Tasks in the gang.
    pub world_size: u32,
    /// A loopback port for the gang to meet at (`MASTER_PORT`).
    pub rendezvous_port: u16,
    /// What it may use.
    pub resources: Resources,
    /// Its devices: index on the node and key.
    pub devices: Vec<(u16, String)>,
    /// Whether it gets a terminal.
    pub terminal: bool,
    /// How to launch it.
    pub launch: Arc<LaunchSpec>,
    /// When a terminal that nobody uses is ended.
    pub idle: Option<IdleLimit>,
    /// The port it is to listen on (`PORT`).
    pub port: Option<u16>,
}

/// How a terminal that nobody uses is ended: SIGHUP, then a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleLimit {
    /// After so long without input or output, in nanoseconds.
    pub after: u64,
    /// Time between the signal and the kill, in nanoseconds.
    pub grace: u64,
}

/// What the server tells a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeCommand {
    /// Start a task, once.
    Start(Box<StartTask>),
    /// Send one signal to its processes.
    Signal {
        /// The task.
        task: TaskId,
        /// Signal number.
        signal: u8,
    },
    /// Signal, wait, kill the whole group.
    Stop {
        /// The task.
        task: TaskId,
        /// First signal.
        signal: u8,
        /// Time between it and the kill, in nanoseconds.
        grace: u64,
    },
    /// All reports up to this number are durable in the log and may be forgotten.
    Acknowledge(u64),
}

/// What a node tells the server. Numbered without gaps per supervisor life; repeated until
/// acknowledged. Times are the node's `CLOCK_BOOTTIME` in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The report's number, from 1.
    pub number: u64,
    /// What happened.
    pub body: ReportBody,
}

/// See [`NodeReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportBody {
    /// A task's process runs.
    Running {
        /// The task.
        task: TaskId,
        /// Since when.
        at: u64,
    },
    /// A task's process ended, or never was.
    Ended {
        /// The task.
        task: TaskId,
        /// How.
        exit: TaskExit,
        /// When its process started, if it did.
        started: Option<u64>,
        /// When it ended.
        ended: u64,
        /// When all it held was proven free, if it is already.
        freed: Option<u64>,
        /// CPU time in nanoseconds, where measured.
        cpu: Option<u64>,
        /// Memory high-water mark, where measured.
        memory_peak: Option<Bytes>,
    },
    /// All that an ended task held is proven free.
    Freed {
        /// The task.
        task: TaskId,
        /// When.
        at: u64,
    },
    /// A task should be gone and something of it lives.
    Leaked {
        /// The task.
        task: TaskId,
        /// Since when.
        since: u64,
        /// What lives, in words.
        reason: String,
    },
}

/// What a node says when a server connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHello {
    /// The kernel's boot id.
    pub boot_id: [u8; 16],
    /// Every task it knows that it has not been told to forget.
    pub tasks: Vec<TaskId>,
}

/// What comes from a node on its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// Something happened to a task.
    Report(NodeReport),
    /// These devices are held by processes that were not started here, and no others.
    Outside(BTreeSet<DeviceIndex>),
    /// The connection is gone; say hello again and repeat what is owed.
    Lost,
}

/// A node that runs tasks. [`NodeEvent`]s go to the callback that its constructor was given.
pub trait Node: Send {
    /// Says who is talking; a node refuses an epoch lower than it has seen.
    fn hello(&mut self, epoch: Epoch) -> Result<NodeHello, NodeError>;
    /// Hands over commands, in order. May be repeated after a reconnect.
    fn send(&mut self, commands: &[NodeCommand]) -> Result<(), NodeError>;
}

/// Why a node did not take a command.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A newer server talks to this node.
    #[error("a newer server (epoch {0}) drives this node")]
    Superseded(Epoch),
    /// The connection is gone; it will be made again.
    #[error("the supervisor at {path} does not answer: {source}")]
    Unreachable {
        /// Its socket.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The clocks of this machine, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub boottime: u64,
    /// `CLOCK_REALTIME` in nanoseconds since the Unix epoch.
    pub wall: i64,
}

/// Reads the clocks.
pub trait Clock: Send {
    /// Both clocks, as close together as can be.
    fn read(&self) -> ClockReading;
    /// The kernel's boot id.
    fn boot_id(&self) -> [u8; 16];
}

/// A start failure met before a supervisor was even asked.
pub fn never_started(step: &str, subject: &str, errno: i32) -> TaskExit {
    TaskExit::StartFailed(StartFailure { step: step.to_owned(), subject: subject.to_owned(), errno })
}
