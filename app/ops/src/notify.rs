//! Telling people what became of jobs: an outbox of deliveries that were decided together with what
//! they tell, and a thread that tries each until it is delivered or given up.
//!
//! A delivery is in a side table in the same commit as its event, and its end in another. So it is
//! made at least once, whatever dies in between; its id is the same each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use facts::Outcome;
use facts::notify::{Channel, DeliverySetV1, Occasion};
use serde::{Deserialize, Serialize};
use units::{JobId, Nanos, SubjectId, Timestamp};

use crate::handle::Message;

/// Deliveries under way at a time.
const AT_ONCE: usize = 16;
/// Of those, of one owner's jobs, and to one target: a slow receiver holds up itself only.
const OF_OWNER: usize = 4;
const TO_TARGET: usize = 2;
/// Tries before a delivery is given up.
pub const TRIES: u32 = 14;
/// The wait after the first try; it doubles each time.
const BACKOFF: Nanos = Nanos::from_secs(1);
/// The longest wait.
const LONGEST_BACKOFF: Nanos = Nanos::from_secs(3_600);

/// Where somebody is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// How.
    pub channel: Channel,
    /// An address, or the path of a program.
    pub to: String,
}

/// What a job's owner wants to be told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// When.
    pub when: Vec<Occasion>,
    /// Where.
    pub target: Target,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What happened.
    pub occasion: Occasion,
    /// When, in ledger time.
    pub at: Timestamp,
    /// To which job.
    pub job: JobId,
    /// Its name; a long one is cut.
    pub name: String,
    /// Its team's name.
    pub team: String,
    /// When it was accepted, in ledger time.
    pub submitted: Timestamp,
    /// How it ended, where it did.
    pub outcome: Option<Outcome>,
    /// More, in words.
    pub detail: String,
    /// Whether it is a rehearsal on simulated devices.
    pub simulated: bool,
}

/// Whose rights a program gets, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// The directory.
    pub cwd: Vec<u8>,
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// It is tried, or will be again.
    Waiting,
    /// It was delivered.
    Delivered,
    /// It is not tried again.
    GaveUp,
}

/// Something that is told to somebody, as kept in the side table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its number, from 1.
    pub id: u64,
    /// What is told.
    pub notice: Notice,
    /// Whose job it is about.
    pub owner: SubjectId,
    /// The notification of the specification that asks for it; none where the job's owner does.
    pub asked_by: Option<String>,
    /// Where.
    pub target: Target,
    /// Whose rights a program gets.
    pub rights: Option<Rights>,
    /// How far it is.
    pub progress: Progress,
    /// Tries so far.
    pub tries: u32,
    /// When the last one ended, in ledger time.
    pub tried: Option<Timestamp>,
    /// What the last one led to, in words.
    pub said: String,
}

impl Delivery {
    /// As it is after another try.
    pub fn after(&self, outcome: &Result<String, Setback>, at: Timestamp) -> Self {
        let tries = self.tries + 1;
        let (progress, said) = match outcome {
            Ok(said) => (Progress::Delivered, said),
            Err(setback) if setback.is_final || tries >= TRIES => (Progress::GaveUp, &setback.reason),
            Err(setback) => (Progress::Waiting, &setback.reason),
        };
        Self { progress, tries, tried: Some(at), said: said.clone(), ..self.clone() }
    }

    /// How long to wait before the next try.
    pub fn pause(&self) -> Nanos {
        match self.tries.checked_sub(1) {
            None => Nanos(0),
            Some(doublings) => {
                Nanos(BACKOFF.0.checked_shl(doublings).unwrap_or(u64::MAX)).min(LONGEST_BACKOFF)
            }
        }
    }
}

/// One try.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// What is delivered.
    pub delivery: Arc<Delivery>,
    /// How it goes out.
    pub settings: Arc<DeliverySetV1>,
}

/// Why a try failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setback {
    /// In words.
    pub reason: String,
    /// Whether it would fail each time.
    pub is_final: bool,
}

/// Who carries deliveries out. A try must end by itself.
pub trait Courier: Send + Sync {
    /// Tries once; says what was answered.
    fn deliver(&self, parcel: &Parcel) -> Result<String, Setback>;
}

/// What a try led to.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Which delivery.
    pub id: u64,
    /// What was answered, or why it failed.
    pub outcome: Result<String, Setback>,
}

enum Work {
    Deliver(Parcel),
    Done(u64),
}

/// The thread that makes deliveries, as the writer sees it.
pub(crate) struct Notifier {
    work: Sender<Work>,
}

impl Notifier {
    /// Starts it. What is tried is told to `reports`.
    pub(crate) fn start(courier: Arc<dyn Courier>, reports: Sender<Message>) -> std::io::Result<Self> {
        let (work, to_do) = channel();
        let desk = Desk {
            courier,
            reports,
            done: work.clone(),
            held: BTreeSet::new(),
            due: BTreeMap::new(),
            busy: BTreeMap::new(),
        };
        std::thread::Builder::new().name("notifier".to_owned()).spawn(move || desk.run(&to_do))?;
        Ok(Self { work })
    }

    /// Takes deliveries on; those that it has are left as they are.
    pub(crate) fn take(&self, parcels: impl IntoIterator<Item = Parcel>) {
        for parcel in parcels {
            drop(self.work.send(Work::Deliver(parcel)));
        }
    }
}

/// What the thread has at hand.
struct Desk {
    courier: Arc<dyn Courier>,
    reports: Sender<Message>,
    done: Sender<Work>,
    /// Deliveries that wait here or are under way.
    held: BTreeSet<u64>,
    due: BTreeMap<(Instant, u64), Parcel>,
    /// Tries under way.
    busy: BTreeMap<u64, Arc<Delivery>>,
}

impl Desk {
    fn run(mut self, to_do: &Receiver<Work>) {
        loop {
            self.begin_what_is_due();
            let patience = self.due.keys().next().map_or(Duration::from_mins(1), |(at, _)| {
                at.saturating_duration_since(Instant::now()).max(Duration::from_millis(10))
            });
            match to_do.recv_timeout(patience) {
                Ok(Work::Deliver(parcel)) => self.hold(parcel),
                Ok(Work::Done(id)) => {
                    self.busy.remove(&id);
                    self.held.remove(&id);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn hold(&mut self, parcel: Parcel) {
        let id = parcel.delivery.id;
        if self.held.insert(id) {
            let at = Instant::now() + Duration::from_nanos(parcel.delivery.pause().0);
            self.due.insert((at, id), parcel);
        }
    }

    fn begin_what_is_due(&mut self) {
        let now = Instant::now();
        while let Some(key) = self.next(now) {
            if let Some(parcel) = self.due.remove(&key) {
                self.begin(key.1, parcel);
            }
        }
    }

    /// The first delivery that is due and whose target is not as busy as may be.
    fn next(&self, now: Instant) -> Option<(Instant, u64)> {
        if self.busy.len() >= AT_ONCE {
            return None;
        }
        let count = |same: &dyn Fn(&Delivery) -> bool| self.busy.values().filter(|busy| same(busy)).count();
        let is_free = |one: &Delivery| {
            count(&|busy| busy.target == one.target) < TO_TARGET
                && count(&|busy| busy.owner == one.owner) < OF_OWNER
        };
        let mut due = self.due.iter().take_while(|((at, _), _)| *at <= now);
        due.find(|(_, parcel)| is_free(&parcel.delivery)).map(|(key, _)| *key)
    }

    fn begin(&mut self, id: u64, parcel: Parcel) {
        self.busy.insert(id, Arc::clone(&parcel.delivery));
        let (courier, reports, done) = (Arc::clone(&self.courier), self.reports.clone(), self.done.clone());
        let body = move || {
            let outcome = courier.deliver(&parcel);
            // First: what is reported may be taken on again.
            drop(done.send(Work::Done(id)));
            drop(reports.send(Message::Tried(Tried { id, outcome })));
        };
        if std::thread::Builder::new().name(format!("notify {id}")).spawn(body).is_err() {
            let reason = "there was no thread to deliver it".to_owned();
            let outcome = Err(Setback { reason, is_final: false });
            drop(self.done.send(Work::Done(id)));
            drop(self.reports.send(Message::Tried(Tried { id, outcome })));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use units::Nanos;

    use super::*;

    fn delivery(id: u64, owner: u64, to: &str) -> Delivery {
        let notice = Notice {
            occasion: Occasion::Failed,
            at: Timestamp(0),
            job: JobId(id),
            name: "job".to_owned(),
            team: "default".to_owned(),
            submitted: Timestamp(0),
            outcome: None,
            detail: String::new(),
            simulated: false,
        };
        Delivery {
            id,
            notice,
            owner: SubjectId(owner),
            asked_by: None,
            target: Target { channel: Channel::Webhook, to: to.to_owned() },
            rights: None,
            progress: Progress::Waiting,
            tries: 0,
            tried: None,
            said: String::new(),
        }
    }

    fn parcel(id: u64, owner: u64, to: &str) -> Parcel {
        Parcel { delivery: Arc::new(delivery(id, owner, to)), settings: Arc::default() }
    }

    #[test]
    fn tries_are_bounded_and_each_waits_longer() {
        let setback = |is_final| Err(Setback { reason: "no".to_owned(), is_final });
        let (mut one, mut waited) = (delivery(1, 1, "a"), Nanos(0));
        while one.progress == Progress::Waiting {
            waited = waited + one.pause();
            one = one.after(&setback(false), Timestamp(1));
        }
        assert_eq!((one.progress, one.tries), (Progress::GaveUp, TRIES));
        // 1 + 2 + 4 + … + 2048 s, then an hour.
        assert_eq!(waited, Nanos::from_secs(4_095 + 3_600));
        let check =
            |outcome, expect| assert_eq!(delivery(1, 1, "a").after(&outcome, Timestamp(1)).progress, expect);
        check(setback(true), Progress::GaveUp);
        check(setback(false), Progress::Waiting);
        check(Ok("200".to_owned()), Progress::Delivered);
    }

    /// Hangs on targets called `slow` until it is let go.
    struct Hanging(Mutex<Receiver<()>>);

    impl Courier for Hanging {
        fn deliver(&self, parcel: &Parcel) -> Result<String, Setback> {
            if parcel.delivery.target.to.starts_with("slow") {
                drop(self.0.lock().map(|gate| gate.recv()));
            }
            Ok("told".to_owned())
        }
    }

    #[test]
    fn a_slow_receiver_holds_up_itself_only() {
        let (open, gate) = channel();
        let (reports, reported) = channel();
        let notifier = Notifier::start(Arc::new(Hanging(Mutex::new(gate))), reports).unwrap();
        notifier.take((1..40).map(|id| parcel(id, 1, &format!("slow {id}"))));
        notifier.take([parcel(40, 2, "quick")]);
        let next = || match reported.recv_timeout(Duration::from_secs(20)) {
            Ok(Message::Tried(tried)) => tried.id,
            _ => panic!("nothing was tried"),
        };
        assert_eq!(next(), 40);
        drop(open);
        let mut others: Vec<u64> = (1..40).map(|_| next()).collect();
        others.sort_unstable();
        assert_eq!(others, (1..40).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_at_hand_is_not_taken_twice() {
        let (open, gate) = channel();
        let (reports, reported) = channel();
        let notifier = Notifier::start(Arc::new(Hanging(Mutex::new(gate))), reports).unwrap();
        notifier.take([parcel(1, 1, "slow"), parcel(1, 1, "slow")]);
        drop(open);
        assert!(matches!(reported.recv_timeout(Duration::from_secs(20)), Ok(Message::Tried(_))));
        assert!(reported.recv_timeout(Duration::from_millis(100)).is_err());
    }
}
