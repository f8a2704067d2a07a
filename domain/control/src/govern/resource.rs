//! The kinds of things that a server has: how they are told apart, compared and put to rest.

use std::fmt;

use facts::Event;
use facts::ExitClass;
use facts::applied::{
    ClassV1, PriorityClassSetV2, PriorityV1, ResourceV1, RetriesSetV1, TeamRemovedV1, TeamV1,
};
use facts::event::{LimitsV1, PreemptionSetV1, Reclaim, TeamSetV2};
use facts::notify::{Channel, DeliverySetV1, NotificationSetV1, NotificationV1, Occasion};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, TeamId};

use super::plan::{Field, Step, Thing};
use crate::rows::{Amount, Team};
use crate::state::{State, usual_retries};

/// The team that is always there.
const DEFAULT_TEAM: &str = "default";

/// Which resource is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// The team of this name.
    Team(String),
    /// When running jobs are stopped for others.
    Preemption,
    /// The class of urgency of this name.
    Priority(String),
    /// What happens to a failed job that does not say it itself.
    Retries,
    /// Who is told of jobs, by this name.
    Notification(String),
    /// How what is told goes out.
    Delivery,
}

impl Key {
    /// What kind of thing it is.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Team(_) => "team",
            Self::Preemption => "preemption",
            Self::Priority(_) => "priority",
            Self::Retries => "retries",
            Self::Notification(_) => "notification",
            Self::Delivery => "delivery",
        }
    }

    /// Its name among its kind; empty where there is only one.
    pub fn name(&self) -> &str {
        match self {
            Self::Team(name) | Self::Priority(name) | Self::Notification(name) => name,
            Self::Preemption | Self::Retries | Self::Delivery => "",
        }
    }

    /// What `event` makes or changes.
    pub(crate) fn of_event(state: &State, event: &Event) -> Option<Self> {
        match event {
            Event::TeamSet(e) => Some(Self::Team(e.name.clone())),
            Event::TeamRemoved(e) => state.team(e.team).map(|team| Self::Team(team.name.clone())),
            Event::PreemptionSet(_) => Some(Self::Preemption),
            Event::PriorityClassSet(e) => Some(Self::Priority(e.name.clone())),
            Event::RetriesSet(_) => Some(Self::Retries),
            Event::NotificationSet(e) => Some(Self::Notification(e.name.clone())),
            Event::DeliverySet(_) => Some(Self::Delivery),
            _ => None,
        }
    }
}

/// `team research`
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "" => f.write_str(self.kind()),
            name => write!(f, "{} {name}", self.kind()),
        }
    }
}

impl Thing for ResourceV1 {
    type Key = Key;

    fn key(&self) -> Key {
        match self {
            Self::Team(team) => Key::Team(team.name.clone()),
            Self::Preemption(_) => Key::Preemption,
            Self::Priority(class) | Self::PreemptingPriority(class) => Key::Priority(class.name.clone()),
            Self::Retries(_) => Key::Retries,
            Self::Notification(one) => Key::Notification(one.name.clone()),
            Self::Delivery(_) => Key::Delivery,
        }
    }

    fn needs(&self) -> Vec<Key> {
        match self {
            Self::Notification(one) => {
                let teams = one.teams.iter().map(|team| Key::Team(team.clone()));
                teams.chain([Key::Delivery]).collect()
            }
            Self::Team(_)
            | Self::Preemption(_)
            | Self::Priority(_)
            | Self::PreemptingPriority(_)
            | Self::Retries(_)
            | Self::Delivery(_) => Vec::new(),
        }
    }

    fn at_rest(&self) -> Option<Self> {
        match self {
            Self::Team(team) if team.name == DEFAULT_TEAM => Some(Self::Team(TeamV1 {
                name: team.name.clone(),
                quota: LimitsV1::UNLIMITED,
                borrow: LimitsV1::NOTHING,
                lend: LimitsV1::UNLIMITED,
            })),
            Self::Team(_) | Self::Priority(_) | Self::PreemptingPriority(_) | Self::Notification(_) => None,
            Self::Delivery(_) => Some(Self::Delivery(DeliverySetV1::default())),
            Self::Retries(_) => Some(Self::Retries(usual_retries())),
            Self::Preemption(_) => Some(Self::Preemption(PreemptionSetV1::default())),
        }
    }

    fn fields(&self) -> Vec<Field> {
        match self {
            Self::Team(team) => [
                limits(["gpus", "cores", "memory"], &team.quota, LimitsV1::UNLIMITED),
                limits(["borrow", "borrow_cores", "borrow_memory"], &team.borrow, LimitsV1::NOTHING),
                limits(["lend", "lend_cores", "lend_memory"], &team.lend, LimitsV1::UNLIMITED),
            ]
            .concat(),
            Self::Priority(class) => class_fields(class, false),
            Self::PreemptingPriority(class) => class_fields(class, true),
            Self::Retries(retries) => {
                let usual = usual_retries();
                vec![
                    field("most", retries.max, usual.max, |most| most.to_string()),
                    field("classes", retries.on.as_slice(), usual.on.as_slice(), retry_words),
                    field("backoff", retries.backoff, usual.backoff, exact_span),
                    field("longest_backoff", retries.backoff_max, usual.backoff_max, exact_span),
                ]
            }
            Self::Notification(one) => notification_fields(one),
            Self::Delivery(delivery) => delivery_fields(delivery),
            Self::Preemption(rules) => {
                let usual = PreemptionSetV1::default();
                let from = |from: Option<i32>| from.map_or("none".to_owned(), |from| from.to_string());
                vec![
                    field("reclaim", rules.reclaim, usual.reclaim, |one| reclaim_word(one).to_owned()),
                    field("protect", rules.protect, usual.protect, exact_span),
                    field("preempts_from", rules.preempts_from, usual.preempts_from, from),
                    field("most", rules.most, usual.most, |most| most.to_string()),
                ]
            }
        }
    }
}

fn field<V: Copy + PartialEq>(name: &'static str, value: V, usual: V, words: impl Fn(V) -> String) -> Field {
    Field { name, value: words(value), usual: value == usual }
}

fn notification_fields(one: &NotificationV1) -> Vec<Field> {
    let said = |name, value: String| Field { name, value, usual: false };
    vec![
        said("kind", channel_word(one.channel).to_owned()),
        said("to", one.to.clone()),
        said("when", occasion_words(&one.when)),
        Field { name: "teams", value: listed(&one.teams, "all"), usual: one.teams.is_empty() },
    ]
}

fn delivery_fields(delivery: &DeliverySetV1) -> Vec<Field> {
    let said = |name, value: &Option<String>| {
        let words = value.clone().unwrap_or_else(|| "none".to_owned());
        Field { name, value: words, usual: value.is_none() }
    };
    vec![
        said("relay", &delivery.relay),
        said("from", &delivery.from),
        said("key_file", &delivery.key_file),
        Field { name: "allow", value: listed(&delivery.allow, "none"), usual: delivery.allow.is_empty() },
    ]
}

fn listed(names: &[String], nothing: &str) -> String {
    if names.is_empty() { nothing.to_owned() } else { names.join(", ") }
}

/// The word of the specification.
pub(crate) fn channel_word(channel: Channel) -> &'static str {
    match channel {
        Channel::Webhook => "webhook",
        Channel::Email => "email",
        Channel::Command => "command",
    }
}

/// The words of the specification.
pub(crate) fn occasion_words(when: &[Occasion]) -> String {
    when.iter().map(|occasion| occasion.word()).collect::<Vec<_>>().join(", ")
}

fn class_fields(class: &PriorityV1, preempts: bool) -> Vec<Field> {
    vec![
        Field { name: "value", value: class.value.to_string(), usual: false },
        field("preempts", preempts, false, |preempts| preempts.to_string()),
    ]
}

fn limits(names: [&'static str; 3], limits: &LimitsV1, usual: LimitsV1) -> Vec<Field> {
    let unlimited = || "unlimited".to_owned();
    let count = |count: Option<u32>| count.map_or_else(unlimited, |count| count.to_string());
    let memory = |memory: Option<Bytes>| memory.map_or_else(unlimited, exact);
    vec![
        field(names[0], limits.gpus, usual.gpus, count),
        field(names[1], limits.cores, usual.cores, count),
        field(names[2], limits.memory, usual.memory, memory),
    ]
}

/// In the largest unit that loses nothing.
pub(crate) fn exact(bytes: Bytes) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.into_iter().find(|(shift, _)| bytes.0 != 0 && bytes.0.trailing_zeros() >= *shift);
    fitting.map_or_else(|| format!("{} B", bytes.0), |(shift, unit)| format!("{} {unit}", bytes.0 >> shift))
}

/// The same for a length of time; below a microsecond it is rounded up.
pub(crate) fn exact_span(span: Nanos) -> String {
    let micros = span.0.div_ceil(1_000);
    let units =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")];
    let fitting = units.into_iter().find(|(scale, _)| micros != 0 && micros.is_multiple_of(*scale));
    match fitting {
        Some((scale, unit)) => format!("{} {unit}", micros / scale),
        None if micros == 0 => "0 s".to_owned(),
        None => format!("{micros} us"),
    }
}

/// The word of the specification.
pub(crate) fn reclaim_word(reclaim: Reclaim) -> &'static str {
    match reclaim {
        Reclaim::Never => "never",
        Reclaim::BorrowedFirst => "borrowed-first",
        Reclaim::LowestPriority => "lowest-priority",
    }
}

/// The words of the specification.
pub(crate) fn retry_words(on: &[ExitClass]) -> String {
    let word = |class: &ExitClass| match class {
        ExitClass::Failure => "failure",
        ExitClass::OutOfMemory => "out-of-memory",
        ExitClass::TimeLimit => "time-limit",
        ExitClass::StartFailed => "start-failed",
        ExitClass::Unknown => "unknown",
    };
    on.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// What this server has, of the kinds that a specification describes.
pub fn observed(state: &State) -> Vec<ResourceV1> {
    let teams =
        state.teams().filter(|(_, team)| !team.removed).map(|(_, team)| ResourceV1::Team(as_fact(team)));
    let classes = state.priority_classes().map(|(name, class)| as_resource(name, class));
    let always =
        [ResourceV1::Preemption(state.meta().preemption), ResourceV1::Retries(state.retry_defaults())];
    let told = state.notifications().cloned().map(ResourceV1::Notification);
    let delivery = ResourceV1::Delivery(state.delivery().clone());
    teams.chain(always).chain(classes).chain([delivery]).chain(told).collect()
}

fn as_fact(team: &Team) -> TeamV1 {
    let [quota, borrow, lend] = [team.quota, team.borrow, team.lend].map(Amount::as_limits);
    TeamV1 { name: team.name.clone(), quota, borrow, lend }
}

/// A class of urgency by its name.
pub(crate) fn as_resource(name: &str, ClassV1 { value, preempts }: ClassV1) -> ResourceV1 {
    let class = PriorityV1 { name: name.to_owned(), value };
    if preempts { ResourceV1::PreemptingPriority(class) } else { ResourceV1::Priority(class) }
}

fn class_set(class: &PriorityV1, given: Option<ClassV1>) -> Event {
    Event::PriorityClassSet(PriorityClassSetV2 { name: class.name.clone(), class: given })
}

fn notification_set(name: &str, notification: Option<NotificationV1>) -> Event {
    Event::NotificationSet(NotificationSetV1 { name: name.to_owned(), notification })
}

/// The event that carries out a step; none where nothing but the ownership changes.
pub fn event(state: &State, step: &Step<ResourceV1>) -> Option<Event> {
    if step.before == step.after {
        return None;
    }
    match (step.before.as_ref(), step.after.as_ref()) {
        (_, Some(ResourceV1::Team(team))) => {
            let TeamV1 { name, quota, borrow, lend } = team.clone();
            let team = state.team_named(&name).unwrap_or_else(|| state.next_team_id());
            Some(Event::TeamSet(TeamSetV2 { team, name, quota, borrow, lend }))
        }
        (_, Some(ResourceV1::Preemption(rules))) => Some(Event::PreemptionSet(*rules)),
        (Some(ResourceV1::Team(team)), None) => {
            let team: TeamId = state.team_named(&team.name)?;
            Some(Event::TeamRemoved(TeamRemovedV1 { team }))
        }
        (_, Some(ResourceV1::Priority(class))) => {
            Some(class_set(class, Some(ClassV1 { value: class.value, preempts: false })))
        }
        (_, Some(ResourceV1::PreemptingPriority(class))) => {
            Some(class_set(class, Some(ClassV1 { value: class.value, preempts: true })))
        }
        (_, Some(ResourceV1::Retries(retries))) => Some(Event::RetriesSet(RetriesSetV1::clone(retries))),
        (Some(ResourceV1::Priority(class) | ResourceV1::PreemptingPriority(class)), None) => {
            Some(class_set(class, None))
        }
        (_, Some(ResourceV1::Notification(one))) => Some(notification_set(&one.name, Some(one.clone()))),
        (_, Some(ResourceV1::Delivery(delivery))) => Some(Event::DeliverySet(delivery.clone())),
        (Some(ResourceV1::Notification(one)), None) => Some(notification_set(&one.name, None)),
        (Some(ResourceV1::Preemption(_) | ResourceV1::Retries(_) | ResourceV1::Delivery(_)) | None, None) => {
            None
        }
    }
}
