//! The state: tables of rows, and indexes derived from them.
//!
//! The only mutation is to put a row. It updates every index and keeps the old row on the
//! undo log, so that undoing anything is to put the old row back.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use facts::RetryPolicy;
use facts::applied::{ClassV1, RetriesSetV1};
use facts::notify::{DeliverySetV1, NotificationV1};
use units::{
    ArrayIndex, AttemptId, DeviceIndex, JobId, MemberId, Nanos, NodeId, Rank, ReservationId, TeamId,
    Timestamp,
};

use crate::govern::{Applied, Change, Key as ResourceKey};
use crate::lots::Sorted;
use crate::queue::{Entry, Key, Queue};
use crate::reservation::Reservation;
use crate::rows::{Amount, Attempt, Job, Meta, Node, Retry, Row, Tables, Task, Team};

/// The layout of [`State::to_snapshot`]. A snapshot of another layout is not read: the log is.
const SNAPSHOT_VERSION: u8 = 9;

/// All that scheduling looks at. Two states that applied the same events are equal.
#[derive(Clone, Debug, Default)]
pub struct State {
    tables: Tables,
    index: Index,
    undo: Vec<Row>,
}

/// A point in the undo log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(usize);

/// Why a snapshot was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Written by another version of this program.
    #[error("the snapshot has layout {0}, this program reads {SNAPSHOT_VERSION}")]
    OtherVersion(u8),
    /// Cut short, or no snapshot.
    #[error("not a readable snapshot: {0}")]
    Malformed(String),
}

/// What is held on a node, or of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) tasks: u32,
    pub(crate) amount: Amount,
}

/// Which tree of a team a job waits in: devices, cores and memory, rounded down. Jobs of about the
/// same size share a tree, so that the least of each need in a subtree says much about its jobs.
type Shape = (u64, u64, u64);

/// Everything derived from the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Jobs that may start a member, now or once their back-off is over.
    pub(crate) queues: BTreeMap<(TeamId, Shape), Queue>,
    /// Who waits on a job: (the job, who).
    pub(crate) dependents: BTreeSet<(JobId, JobId)>,
    /// Jobs with members to end because somebody cancelled them.
    pub(crate) ending: BTreeSet<JobId>,
    /// Jobs with a dependency that can no longer be met.
    pub(crate) doomed: BTreeSet<JobId>,
    /// Jobs that others were stopped for, and that have not started since.
    pub(crate) promised: BTreeSet<JobId>,
    /// Jobs whose class lets them stop others of their team.
    pub(crate) preempting: BTreeSet<JobId>,
    /// Jobs that are over, by when.
    pub(crate) over: BTreeSet<(Timestamp, JobId)>,
    /// A job's retries in the order in which they fall due.
    pub(crate) retry_order: BTreeSet<(JobId, Timestamp, ArrayIndex)>,
    /// All retries by when they fall due.
    pub(crate) retry_times: BTreeSet<(Timestamp, MemberId)>,
    /// The attempt of each running member.
    pub(crate) active: BTreeMap<MemberId, AttemptId>,
    /// Attempts to stop because somebody cancelled them.
    pub(crate) cancelled: BTreeSet<AttemptId>,
    /// Attempts to stop because a task of the gang ended badly.
    pub(crate) broken: BTreeSet<AttemptId>,
    /// Attempts to stop because their health check fails.
    pub(crate) unhealthy: BTreeSet<AttemptId>,
    /// Attempts that hold nothing any more.
    pub(crate) closable: BTreeSet<AttemptId>,
    /// Running attempts by deadline.
    pub(crate) deadlines: BTreeSet<(Timestamp, AttemptId)>,
    /// Running attempts by warning.
    pub(crate) warnings: BTreeSet<(Timestamp, AttemptId)>,
    /// All attempts by when they are expected to be free.
    pub(crate) releases: BTreeSet<(Timestamp, AttemptId)>,
    /// Tasks that hold what they should not.
    pub(crate) leaked: BTreeSet<(AttemptId, Rank)>,
    /// Devices that are held.
    pub(crate) devices: BTreeSet<(NodeId, DeviceIndex)>,
    /// Each node's devices by model.
    pub(crate) sorted: BTreeMap<NodeId, Sorted>,
    /// What each node's tasks hold.
    pub(crate) on_node: BTreeMap<NodeId, Usage>,
    /// What each team's tasks hold.
    pub(crate) of_team: BTreeMap<TeamId, Usage>,
}

/// Puts `key` in or takes it out.
fn mark<K: Ord>(set: &mut BTreeSet<K>, key: K, present: bool) {
    if present {
        set.insert(key);
    } else {
        set.remove(&key);
    }
}

/// Adds what `task` holds to the usage of `key`, or takes it away. Who holds nothing has no row.
fn hold<K: Ord + Copy>(usages: &mut BTreeMap<K, Usage>, key: K, task: &Task, present: bool) {
    let usage = usages.entry(key).or_default();
    if present {
        usage.tasks += 1;
        usage.amount = usage.amount.plus(task.amount);
    } else {
        usage.tasks -= 1;
        usage.amount = usage.amount.less(task.amount);
    }
    if usage.tasks == 0 {
        usages.remove(&key);
    }
}

impl Index {
    fn job(&mut self, id: JobId, job: &Job, present: bool) {
        for dependency in &job.open {
            mark(&mut self.dependents, (dependency.job, id), present);
        }
        if !job.ending.is_empty() {
            mark(&mut self.ending, id, present);
        }
        if job.doomed && job.ended.is_none() {
            mark(&mut self.doomed, id, present);
        }
        if job.promised && job.ended.is_none() {
            mark(&mut self.promised, id, present);
        }
        if job.preempts && job.ended.is_none() {
            mark(&mut self.preempting, id, present);
        }
        if let Some(at) = job.ended {
            mark(&mut self.over, (at, id), present);
        }
    }

    fn retry(&mut self, member: MemberId, retry: &Retry, present: bool) {
        mark(&mut self.retry_order, (member.job, retry.not_before, member.index), present);
        mark(&mut self.retry_times, (retry.not_before, member), present);
    }

    fn attempt(&mut self, id: AttemptId, attempt: &Attempt, present: bool) {
        if present {
            self.active.insert(attempt.member, id);
        } else {
            self.active.remove(&attempt.member);
        }
        mark(&mut self.releases, (attempt.expected_end(), id), present);
        if attempt.freed == attempt.tasks {
            mark(&mut self.closable, id, present);
        }
        if attempt.stop.is_some() || !attempt.is_live() {
            return;
        }
        if attempt.cancelled {
            mark(&mut self.cancelled, id, present);
        }
        if attempt.broken {
            mark(&mut self.broken, id, present);
        }
        if attempt.healthy == Some(false) {
            mark(&mut self.unhealthy, id, present);
        }
        if let Some(at) = attempt.deadline {
            mark(&mut self.deadlines, (at, id), present);
        }
        if let Some((at, _)) = attempt.warn {
            mark(&mut self.warnings, (at, id), present);
        }
    }

    fn task(&mut self, id: (AttemptId, Rank), task: &Task, present: bool) {
        if task.freed.is_some() {
            return;
        }
        if task.leaked.is_some() {
            mark(&mut self.leaked, id, present);
        }
        for device in &task.devices {
            mark(&mut self.devices, (task.node, *device), present);
        }
        hold(&mut self.on_node, task.node, task, present);
        hold(&mut self.of_team, task.team, task, present);
    }
}

/// Keeps the three leading bits of each need: few trees, and those of small jobs are exact.
fn shape(entry: &Entry) -> Shape {
    let rounded = |need: u64| {
        let dropped = (u64::BITS - need.leading_zeros()).saturating_sub(3);
        need >> dropped << dropped
    };
    (rounded(entry.need.gpus), rounded(entry.need.cores), rounded(entry.need.memory))
}

/// Puts `row` at `key` and returns what was there.
fn replace<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, row: Option<V>) -> Option<V> {
    match row {
        Some(row) => table.insert(key, row),
        None => table.remove(&key),
    }
}

/// The same, telling `index` that the old row goes and the new one comes.
fn replace_indexed<K: Ord + Copy, V>(
    table: &mut BTreeMap<K, V>,
    key: K,
    row: Option<V>,
    mut index: impl FnMut(&V, bool),
) -> Option<V> {
    let Some(row) = row else {
        return table.remove(&key).inspect(|old| index(old, false));
    };
    match table.entry(key) {
        Slot::Vacant(place) => {
            index(place.insert(row), true);
            None
        }
        // In place: taking a large row out of the tree and putting it back moves its neighbours.
        Slot::Occupied(mut place) => {
            index(place.get(), false);
            index(&row, true);
            Some(place.insert(row))
        }
    }
}

impl State {
    /// The state before the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the undo log stands.
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Undoes everything since `to`, which must come from this state and not lie before the
    /// last [`Self::forget_undo`].
    pub fn rollback(&mut self, to: Mark) {
        assert!(to.0 <= self.undo.len(), "a mark outlives no forget_undo");
        while self.undo.len() > to.0 {
            if let Some(row) = self.undo.pop() {
                self.swap(row);
            }
        }
    }

    /// What was applied so far stands: call it after each commit, and now and then in a replay.
    pub fn forget_undo(&mut self) {
        self.undo.clear();
    }

    /// All rows as bytes. Indexes are rebuilt on reading.
    pub fn to_snapshot(&self) -> Vec<u8> {
        postcard::to_extend(&self.tables, vec![SNAPSHOT_VERSION])
            .expect("a growing buffer takes every row, and no row has an unsized sequence")
    }

    /// Reads what [`Self::to_snapshot`] wrote.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let malformed = |said: String| SnapshotError::Malformed(said);
        let (version, bytes) = bytes.split_first().ok_or_else(|| malformed("it is empty".to_owned()))?;
        if *version != SNAPSHOT_VERSION {
            return Err(SnapshotError::OtherVersion(*version));
        }
        let (tables, rest) = postcard::take_from_bytes(bytes)
            .map_err(|error: postcard::Error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes left over", rest.len())));
        }
        Ok(Self::from_tables(tables))
    }

    fn from_tables(tables: Tables) -> Self {
        let mut state = Self::default();
        state.swap(Row::Meta(tables.meta));
        for (id, row) in tables.teams {
            state.swap(Row::Team(id, Some(row)));
        }
        for (key, row) in tables.changes {
            state.swap(Row::Change(key, Some(row)));
        }
        state.swap(Row::Applied(tables.applied));
        state.swap(Row::RetryDefaults(tables.retry_defaults));
        state.swap(Row::Delivery(tables.delivery));
        for (name, row) in tables.notifications {
            state.swap(Row::Notification(name, Some(row)));
        }
        for (name, row) in tables.classes {
            state.swap(Row::Class(name, Some(row)));
        }
        for (id, row) in tables.reservations {
            state.swap(Row::Reservation(id, Some(row)));
        }
        for (id, row) in tables.nodes {
            state.swap(Row::Node(id, Some(row)));
        }
        for (id, row) in tables.jobs {
            state.swap(Row::Job(id, Some(row)));
        }
        for (id, row) in tables.retries {
            state.swap(Row::Retry(id, Some(row)));
        }
        for (id, row) in tables.attempts {
            state.swap(Row::Attempt(id, Some(row)));
        }
        for (id, row) in tables.tasks {
            state.swap(Row::Task(id, Some(row)));
        }
        state
    }

    /// Whether every index is what its rows say. For tests and doubles; slow.
    pub fn is_consistent(&self) -> bool {
        Self::from_tables(self.tables.clone()).index == self.index
    }

    /// Puts a row: the one way in which a state changes.
    pub(crate) fn put(&mut self, row: Row) {
        let old = self.swap(row);
        self.undo.push(old);
    }

    /// Puts a row, updates the indexes and returns the old row.
    fn swap(&mut self, row: Row) -> Row {
        let Self { tables, index, .. } = self;
        match row {
            Row::Meta(new) => Row::Meta(std::mem::replace(&mut tables.meta, new)),
            Row::Node(id, new) => {
                let sorted = new.as_ref().map(|row| Sorted::new(&row.devices, &row.outside));
                replace(&mut index.sorted, id, sorted);
                Row::Node(id, replace(&mut tables.nodes, id, new))
            }
            Row::Team(id, new) => Row::Team(id, replace(&mut tables.teams, id, new)),
            Row::Change(key, new) => {
                let old = replace(&mut tables.changes, key.clone(), new);
                Row::Change(key, old)
            }
            Row::Class(name, new) => {
                let old = replace(&mut tables.classes, name.clone(), new);
                Row::Class(name, old)
            }
            Row::RetryDefaults(new) => Row::RetryDefaults(std::mem::replace(&mut tables.retry_defaults, new)),
            Row::Notification(name, new) => {
                let old = replace(&mut tables.notifications, name.clone(), new);
                Row::Notification(name, old)
            }
            Row::Delivery(new) => Row::Delivery(std::mem::replace(&mut tables.delivery, new)),
            Row::Applied(new) => Row::Applied(std::mem::replace(&mut tables.applied, new)),
            Row::Reservation(id, new) => Row::Reservation(id, replace(&mut tables.reservations, id, new)),
            Row::Attempt(id, new) => Row::Attempt(
                id,
                replace_indexed(&mut tables.attempts, id, new, |row, present| {
                    index.attempt(id, row, present);
                }),
            ),
            Row::Task(id, new) => Row::Task(
                id,
                replace_indexed(&mut tables.tasks, id, new, |row, present| index.task(id, row, present)),
            ),
            Row::Job(id, new) => {
                let before = self.entry(id);
                let after = new.as_ref().and_then(|job| self.entry_of(id, job));
                let Self { tables, index, .. } = self;
                let old =
                    replace_indexed(&mut tables.jobs, id, new, |row, present| index.job(id, row, present));
                self.requeue(before, after);
                Row::Job(id, old)
            }
            Row::Retry(id, new) => {
                let before = self.entry(id.job);
                let Self { tables, index, .. } = self;
                let old = replace_indexed(&mut tables.retries, id, new, |row, present| {
                    index.retry(id, row, present);
                });
                let after = self.entry(id.job);
                self.requeue(before, after);
                Row::Retry(id, old)
            }
        }
    }

    /// Brings the queue up to date after a change to a job or its retries.
    fn requeue(&mut self, before: Option<(TeamId, Entry)>, after: Option<(TeamId, Entry)>) {
        if before == after {
            return;
        }
        if let Some((team, entry)) = before {
            let tree = (team, shape(&entry));
            if let Some(queue) = self.index.queues.get_mut(&tree) {
                queue.remove(entry.key);
                if queue.is_empty() {
                    self.index.queues.remove(&tree);
                }
            }
        }
        if let Some((team, entry)) = after {
            self.index.queues.entry((team, shape(&entry))).or_default().insert(entry);
        }
    }

    /// A job's entry in the queue: none unless it may start a member now, or once a back-off is over.
    pub(crate) fn entry(&self, id: JobId) -> Option<(TeamId, Entry)> {
        self.entry_of(id, self.tables.jobs.get(&id)?)
    }

    /// The same of a row that may not be in its table.
    fn entry_of(&self, id: JobId, job: &Job) -> Option<(TeamId, Entry)> {
        if job.held || job.doomed || !job.open.is_empty() || job.is_at_array_limit() {
            return None;
        }
        let not_before = if job.pending.is_empty() { self.first_retry(id)?.1 } else { Timestamp(i64::MIN) };
        let entry = Entry {
            key: Key::new(job.submitted, job.priority, id),
            need: Amount::of_attempt(&job.request),
            estimate: job.request.time_limit.unwrap_or(Nanos(u64::MAX)),
            not_before,
        };
        Some((job.request.team, entry))
    }

    /// The member of a job whose back-off is over first, and when.
    pub(crate) fn first_retry(&self, id: JobId) -> Option<(MemberId, Timestamp)> {
        let from = (id, Timestamp(i64::MIN), ArrayIndex(0));
        let (job, at, index) = *self.index.retry_order.range(from..).next()?;
        (job == id).then_some((MemberId { job, index }, at))
    }

    /// The derived indexes.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Facts about the log as a whole.
    pub fn meta(&self) -> Meta {
        self.tables.meta
    }

    /// The id the next job gets, from 1.
    pub fn next_job_id(&self) -> JobId {
        JobId(self.tables.meta.last_job.0 + 1)
    }

    /// The id the next attempt gets, from 1.
    pub fn next_attempt_id(&self) -> AttemptId {
        AttemptId(self.tables.meta.last_attempt.0 + 1)
    }

    /// The id the next reservation gets, from 1.
    pub fn next_reservation_id(&self) -> ReservationId {
        ReservationId(self.tables.meta.last_reservation.0 + 1)
    }

    /// A reservation that was not over at the last event.
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.tables.reservations.get(&id)
    }

    /// All such reservations, by id.
    pub fn reservations(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.tables.reservations.iter().map(|(id, row)| (*id, row))
    }

    /// A job that has not ended more than a day ago.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.tables.jobs.get(&id).map(AsRef::as_ref)
    }

    /// All such jobs, by id.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = (JobId, &Job)> {
        self.tables.jobs.iter().map(|(id, job)| (*id, &**job))
    }

    /// A member that waits for another try.
    pub fn retry(&self, member: MemberId) -> Option<&Retry> {
        self.tables.retries.get(&member)
    }

    /// A job's members that wait for another try, by index.
    pub fn retries_of(&self, job: JobId) -> impl Iterator<Item = (MemberId, &Retry)> {
        self.tables.retries.range(members_of(job)).map(|(member, retry)| (*member, retry))
    }

    /// An attempt that is not closed.
    pub fn attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.tables.attempts.get(&id)
    }

    /// All attempts that are not closed, by id.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = (AttemptId, &Attempt)> {
        self.tables.attempts.iter().map(|(id, attempt)| (*id, attempt))
    }

    /// A member's attempt, where it has one that is not closed.
    pub fn attempt_of(&self, member: MemberId) -> Option<(AttemptId, &Attempt)> {
        let id = *self.index.active.get(&member)?;
        Some((id, self.tables.attempts.get(&id)?))
    }

    /// The attempts of a job that are not closed, by member.
    pub fn attempts_of(&self, job: JobId) -> impl Iterator<Item = (AttemptId, &Attempt)> {
        let ids = self.index.active.range(members_of(job)).map(|(_, id)| *id);
        ids.filter_map(|id| Some((id, self.tables.attempts.get(&id)?)))
    }

    /// One task of an attempt that is not closed.
    pub fn task(&self, attempt: AttemptId, rank: Rank) -> Option<&Task> {
        self.tables.tasks.get(&(attempt, rank))
    }

    /// The tasks of an attempt that is not closed, by rank.
    pub fn tasks_of(&self, attempt: AttemptId) -> impl Iterator<Item = (Rank, &Task)> {
        let all = (attempt, Rank(0))..=(attempt, Rank(u32::MAX));
        self.tables.tasks.range(all).map(|((_, rank), task)| (*rank, task))
    }

    /// Tasks that hold what they should not, and since when.
    pub fn leaked(&self) -> impl Iterator<Item = (AttemptId, Rank, &Task)> {
        let ids = self.index.leaked.iter();
        ids.filter_map(|id| Some((id.0, id.1, self.tables.tasks.get(id)?)))
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.tables.nodes.get(&id)
    }

    /// All nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.tables.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// What tasks hold on a node.
    pub fn used_on(&self, node: NodeId) -> Amount {
        self.index.on_node.get(&node).map_or(Amount::default(), |usage| usage.amount)
    }

    /// A node's devices by model.
    pub(crate) fn sorted_devices(&self, node: NodeId) -> Option<&Sorted> {
        self.index.sorted.get(&node)
    }

    /// A node's devices that tasks hold.
    pub(crate) fn devices_held_on(&self, node: NodeId) -> impl Iterator<Item = DeviceIndex> {
        let all = (node, DeviceIndex(0))..=(node, DeviceIndex(u16::MAX));
        self.index.devices.range(all).map(|(_, device)| *device)
    }

    /// Whether a task holds this device.
    pub fn is_device_held(&self, node: NodeId, device: DeviceIndex) -> bool {
        self.index.devices.contains(&(node, device))
    }

    /// A team.
    pub fn team(&self, id: TeamId) -> Option<&Team> {
        self.tables.teams.get(&id)
    }

    /// All teams, by id, those that were removed too.
    pub fn teams(&self) -> impl Iterator<Item = (TeamId, &Team)> {
        self.tables.teams.iter().map(|(id, team)| (*id, team))
    }

    /// The team of this name, removed or not.
    pub fn team_named(&self, name: &str) -> Option<TeamId> {
        self.teams().find(|(_, team)| team.name == name).map(|(id, _)| id)
    }

    /// The id the next team gets.
    pub fn next_team_id(&self) -> TeamId {
        TeamId(self.tables.teams.last_key_value().map_or(0, |(id, _)| id.0 + 1))
    }

    /// What was applied last.
    pub fn applied(&self) -> Option<&Applied> {
        self.tables.applied.as_deref()
    }

    /// Classes of urgency and what they give, by name.
    pub fn priority_classes(&self) -> impl Iterator<Item = (&str, ClassV1)> {
        self.tables.classes.iter().map(|(name, class)| (name.as_str(), *class))
    }

    /// Who is told of jobs, by name.
    pub fn notifications(&self) -> impl Iterator<Item = &NotificationV1> {
        self.tables.notifications.values()
    }

    /// How what is told goes out.
    pub fn delivery(&self) -> &DeliverySetV1 {
        &self.tables.delivery
    }

    /// What happens to a failed job that does not say it itself.
    pub fn retry_defaults(&self) -> RetriesSetV1 {
        self.tables.retry_defaults.as_deref().cloned().unwrap_or_else(usual_retries)
    }

    /// Who changed something last.
    pub fn change_of(&self, key: &ResourceKey) -> Option<Change> {
        self.tables.changes.get(key).copied()
    }

    /// What a team's tasks hold, proven free or not yet.
    pub fn used_by(&self, team: TeamId) -> Amount {
        self.index.of_team.get(&team).map_or(Amount::default(), |usage| usage.amount)
    }

    /// How many jobs wait ahead of this one, over all teams; none unless it is in the queue.
    pub fn jobs_ahead(&self, id: JobId) -> Option<usize> {
        let (_, entry) = self.entry(id)?;
        Some(self.index.queues.values().map(|queue| queue.position(entry.key)).sum())
    }
}

/// What happens to a failed job where nobody says anything.
pub(crate) fn usual_retries() -> RetriesSetV1 {
    let RetryPolicy { max, on, backoff, backoff_max, .. } = RetryPolicy::default();
    RetriesSetV1 { max, on, backoff, backoff_max }
}

/// All members that a job can have.
fn members_of(job: JobId) -> std::ops::RangeInclusive<MemberId> {
    MemberId { job, index: ArrayIndex(0) }..=MemberId { job, index: ArrayIndex(u32::MAX) }
}

/// By rows and indexes, whatever the undo log holds.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables && self.index == other.index
    }
}

impl Eq for State {}
