//! What is told to whom is decided in the very commit that it tells of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control::{State, news};
use facts::notify::{Channel, DeliverySetV1, Occasion};
use facts::{Envelope, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use units::JobId;

use super::{Core, Draft};
use crate::notify::{Delivery, Notice, Parcel, Progress, Rights, Target, Tried, Watch};
use crate::ports::{LogStore, SideTable, SideWrite, StoreError};

/// Deliveries that are over are kept up to this number, for whoever asks what became of them.
const KEPT: usize = 1_000;
/// A job's name is told up to so many bytes.
const NAME_MAX: usize = 256;

/// Who wants to be told, and what is to be told.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    watches: BTreeMap<JobId, Vec<Watch>>,
    deliveries: BTreeMap<u64, Arc<Delivery>>,
    /// Those of them that are over.
    over: BTreeSet<u64>,
    last: u64,
    settings: Arc<DeliverySetV1>,
}

/// What a turn does to the outbox, once it is committed.
#[derive(Default)]
pub(super) struct OutboxDraft {
    watches: BTreeMap<JobId, Option<Vec<Watch>>>,
    deliveries: BTreeMap<u64, Option<Arc<Delivery>>>,
}

impl OutboxDraft {
    fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.deliveries.is_empty()
    }
}

impl Outbox {
    /// What was left by the server before.
    pub(super) fn load(store: &impl LogStore, state: &State) -> Result<Self, StoreError> {
        let mut outbox = Self { settings: Arc::new(state.delivery().clone()), ..Self::default() };
        for (key, value) in store.side(SideTable::Watch)? {
            let job = JobId(u64::from_be_bytes(key.try_into().unwrap_or_default()));
            outbox.watches.insert(job, decoded(&value)?);
        }
        for (_, value) in store.side(SideTable::Delivery)? {
            let delivery: Delivery = decoded(&value)?;
            outbox.put(Arc::new(delivery));
        }
        Ok(outbox)
    }

    fn put(&mut self, delivery: Arc<Delivery>) {
        self.last = self.last.max(delivery.id);
        if delivery.progress != Progress::Waiting {
            self.over.insert(delivery.id);
        }
        self.deliveries.insert(delivery.id, delivery);
    }

    fn parcel(&self, delivery: &Arc<Delivery>) -> Parcel {
        Parcel { delivery: Arc::clone(delivery), settings: Arc::clone(&self.settings) }
    }

    /// All that is still to be delivered.
    pub(super) fn waiting(&self) -> Vec<Parcel> {
        let waiting = self.deliveries.values().filter(|one| one.progress == Progress::Waiting);
        waiting.map(|delivery| self.parcel(delivery)).collect()
    }

    /// Takes over what was committed, and tells what is to be tried.
    fn commit(&mut self, draft: OutboxDraft, state: &State) -> Vec<Parcel> {
        if *self.settings != *state.delivery() {
            self.settings = Arc::new(state.delivery().clone());
        }
        for (job, watches) in draft.watches {
            match watches {
                Some(watches) => self.watches.insert(job, watches),
                None => self.watches.remove(&job),
            };
        }
        let mut parcels = Vec::new();
        for (id, delivery) in draft.deliveries {
            let Some(delivery) = delivery else {
                self.deliveries.remove(&id);
                self.over.remove(&id);
                continue;
            };
            if delivery.progress == Progress::Waiting {
                parcels.push(self.parcel(&delivery));
            }
            self.put(delivery);
        }
        parcels
    }
}

impl<S: LogStore> Core<S> {
    /// All that is still to be delivered.
    pub fn waiting_parcels(&self) -> Vec<Parcel> {
        self.outbox.waiting()
    }

    /// After a commit: what is to be tried now.
    pub(super) fn hand_over(&mut self, draft: &mut Draft) -> Vec<Parcel> {
        let outbox = std::mem::take(&mut draft.outbox);
        let touched = |envelope: &Envelope| matches!(envelope.event, Event::DeliverySet(_));
        if outbox.is_empty() && !draft.events.iter().any(touched) {
            return Vec::new();
        }
        self.outbox.commit(outbox, &self.state)
    }

    /// Whether anybody wants to be told anything at all: mostly nobody does.
    pub(super) fn is_anybody_told(&self, draft: &Draft) -> bool {
        let asked = !self.outbox.watches.is_empty() || !draft.outbox.watches.is_empty();
        asked || self.state.notifications().next().is_some()
    }

    /// Keeps what a job's owner wants to be told.
    pub(super) fn watch(job: JobId, watches: Vec<Watch>, draft: &mut Draft) {
        if !watches.is_empty() {
            draft.batch.side.push(row(SideTable::Watch, job.0, Some(&watches)));
            draft.outbox.watches.insert(job, Some(watches));
        }
    }

    /// What a try led to.
    pub(super) fn take_tried(&mut self, tried: &Tried, draft: &mut Draft) {
        let known = self.outbox.deliveries.get(&tried.id);
        let Some(known) = known.filter(|known| known.progress == Progress::Waiting) else { return };
        let after = known.after(&tried.outcome, self.clock.now());
        if after.progress != Progress::Waiting && self.outbox.over.len() >= KEPT {
            let surplus = self.outbox.over.len() + 1 - KEPT;
            for id in self.outbox.over.iter().take(surplus) {
                draft.batch.side.push(row::<Delivery>(SideTable::Delivery, *id, None));
                draft.outbox.deliveries.insert(*id, None);
            }
        }
        Self::write(after, draft);
    }

    fn write(delivery: Delivery, draft: &mut Draft) {
        draft.batch.side.push(row(SideTable::Delivery, delivery.id, Some(&delivery)));
        draft.outbox.deliveries.insert(delivery.id, Some(Arc::new(delivery)));
    }

    /// Who is to be told of an event that was just applied, and is about `job`.
    pub(super) fn tell(&mut self, event: &Event, job: JobId, draft: &mut Draft) {
        let occasions = news(&self.state, event, job);
        for occasion in &occasions {
            for (target, asked_by) in self.told(job, *occasion, draft) {
                self.deliver(event, job, *occasion, target, asked_by, draft);
            }
        }
        let is_over = self.state.job(job).is_some_and(|row| row.ended.is_some());
        if is_over && self.watches_of(job, draft).is_some() {
            draft.batch.side.push(row::<Vec<Watch>>(SideTable::Watch, job.0, None));
            draft.outbox.watches.insert(job, None);
        }
    }

    fn watches_of<'a>(&'a self, job: JobId, draft: &'a Draft) -> Option<&'a Vec<Watch>> {
        let fresh = draft.outbox.watches.get(&job).map(Option::as_ref);
        fresh.unwrap_or_else(|| self.outbox.watches.get(&job))
    }

    /// Each target, with the notification of the specification that asks for it.
    fn told(&self, job: JobId, occasion: Occasion, draft: &Draft) -> Vec<(Target, Option<String>)> {
        let watches = self.watches_of(job, draft).into_iter().flatten();
        let own = watches.filter(|watch| watch.when.contains(&occasion));
        let own = own.map(|watch| (watch.target.clone(), None));
        let team = self.state.job(job).and_then(|row| self.state.team(row.request.team));
        let concerned = self.state.notifications().filter(|one| {
            let of_team = one.teams.is_empty() || team.is_some_and(|team| one.teams.contains(&team.name));
            of_team && one.when.contains(&occasion)
        });
        let everybodys = concerned
            .map(|one| (Target { channel: one.channel, to: one.to.clone() }, Some(one.name.clone())));
        own.chain(everybodys).collect()
    }

    fn deliver(
        &mut self,
        event: &Event,
        job: JobId,
        occasion: Occasion,
        target: Target,
        asked_by: Option<String>,
        draft: &mut Draft,
    ) {
        let rights = if target.channel == Channel::Command { self.rights_of(job) } else { None };
        let Some(row) = self.state.job(job) else { return };
        let team = self.state.team(row.request.team).map(|team| team.name.clone()).unwrap_or_default();
        let devices = || self.state.nodes().flat_map(|(_, node)| node.devices.iter());
        let notice = Notice {
            occasion,
            at: self.clock.now(),
            job,
            name: cut(&row.request.name),
            team,
            submitted: row.submitted,
            outcome: row.worst.clone().filter(|_| row.ended.is_some()),
            detail: if let Event::HoldLeaked(e) = event { e.reason.clone() } else { String::new() },
            simulated: row.request.per_task.gpus > 0 && devices().any(|device| device.simulated),
        };
        let fresh = draft.outbox.deliveries.keys().next_back().copied().unwrap_or(0);
        let delivery = Delivery {
            id: self.outbox.last.max(fresh) + 1,
            notice,
            owner: row.request.owner,
            asked_by,
            target,
            rights,
            progress: Progress::Waiting,
            tries: 0,
            tried: None,
            said: String::new(),
        };
        Self::write(delivery, draft);
    }

    fn rights_of(&mut self, job: JobId) -> Option<Rights> {
        let launch = self.launch(job)?;
        let (uid, gid, groups) = (launch.uid, launch.gid, launch.groups.clone());
        Some(Rights { uid, gid, groups, cwd: launch.cwd.clone() })
    }
}

/// The beginning of a name that may be long.
fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_MAX)].to_owned()
}

fn row<T: Serialize>(table: SideTable, key: u64, value: Option<&T>) -> SideWrite {
    let value = value.map(|value| {
        postcard::to_stdvec(value)
            .expect("a growing buffer takes every row, and no row has an unsized sequence")
    });
    SideWrite { table, key: key.to_be_bytes().to_vec(), value }
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|error| StoreError::Failed {
        doing: "reading what is to be told from",
        path: "the side tables".to_owned(),
        source: Box::new(error),
    })
}
