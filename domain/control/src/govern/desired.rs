//! A specification as the things that it asks for, and back.

use std::fmt::Write as _;

use facts::ExitClass;
use facts::applied::{ClassV1, PriorityV1, ResourceV1, RetriesSetV1, TeamV1};
use facts::event::{LimitsV1, PreemptionSetV1, Reclaim};
use facts::notify::{Channel, DeliverySetV1, NotificationV1, Occasion};
use spec::Cluster;
use spec::model::{
    Delivery, Notification, NotificationKind, Preemption, PriorityClass, Quota, Retries, RetryClass, Team,
};
use units::Bytes;

use super::resource::{
    as_resource, channel_word, exact, exact_span, occasion_words, reclaim_word, retry_words,
};
use crate::state::usual_retries;

/// As many of anything as a specification can write: more than there is, so no limit.
const MOST: u32 = 1_000_000;
/// The same for memory.
const MOST_MEMORY: Bytes = Bytes(1_000_000 << 40);

/// What a specification asks for, of that on which this server acts.
pub fn desired(cluster: &Cluster) -> Vec<ResourceV1> {
    let teams = cluster.teams.iter().map(|team| ResourceV1::Team(team_of(team)));
    let preemption = cluster.policy.as_ref().and_then(|policy| policy.preemption.as_ref());
    let given = |class: &PriorityClass| ClassV1 { value: class.value, preempts: class.preempts };
    let classes = cluster.priorities.iter().map(|class| as_resource(class.name.as_str(), given(class)));
    let retries = cluster.retries.iter().map(|retries| ResourceV1::Retries(retries_of(retries)));
    let preemption = preemption.map(|rules| ResourceV1::Preemption(preemption_of(rules)));
    let delivery = cluster.delivery.iter().map(|delivery| ResourceV1::Delivery(delivery_of(delivery)));
    let told = cluster.notifications.iter().map(|one| ResourceV1::Notification(notification_of(one)));
    teams.chain(preemption).chain(retries).chain(classes).chain(delivery).chain(told).collect()
}

fn team_of(team: &Team) -> TeamV1 {
    let name = team.name.to_string();
    let Some(quota) = &team.quota else {
        let (quota, borrow, lend) = (LimitsV1::UNLIMITED, LimitsV1::NOTHING, LimitsV1::UNLIMITED);
        return TeamV1 { name, quota, borrow, lend };
    };
    let Quota { gpus, cores, memory, lend, lend_cores, lend_memory, .. } = *quota;
    let count = |number| Some(number).filter(|number| *number < MOST);
    let borrow = LimitsV1 {
        gpus: count(quota.borrow),
        cores: count(quota.borrow_cores),
        memory: Some(quota.borrow_memory).filter(|memory| *memory < MOST_MEMORY),
    };
    let lend = LimitsV1 { gpus: lend, cores: lend_cores, memory: lend_memory };
    TeamV1 { name, quota: LimitsV1 { gpus, cores, memory }, borrow, lend }
}

fn preemption_of(rules: &Preemption) -> PreemptionSetV1 {
    let reclaim = match rules.reclaim {
        spec::model::Reclaim::Never => Reclaim::Never,
        spec::model::Reclaim::BorrowedFirst => Reclaim::BorrowedFirst,
        spec::model::Reclaim::LowestPriority => Reclaim::LowestPriority,
    };
    let Preemption { protect, preempts_from, most, .. } = *rules;
    PreemptionSetV1 { reclaim, protect, preempts_from, most }
}

fn retries_of(retries: &Retries) -> RetriesSetV1 {
    let class = |class: &RetryClass| match class {
        RetryClass::Failure => Some(ExitClass::Failure),
        RetryClass::OutOfMemory => Some(ExitClass::OutOfMemory),
        RetryClass::TimeLimit => Some(ExitClass::TimeLimit),
        RetryClass::StartFailed => Some(ExitClass::StartFailed),
        RetryClass::Unknown => Some(ExitClass::Unknown),
        // Such a job is put back anyway, which `check` says.
        RetryClass::NodeFailure | RetryClass::Preempted => None,
    };
    let mut on: Vec<ExitClass> = retries.classes.iter().filter_map(class).collect();
    on.sort_unstable();
    on.dedup();
    let on = if on.is_empty() { usual_retries().on } else { on.into() };
    RetriesSetV1 { max: retries.most, on, backoff: retries.backoff, backoff_max: retries.longest_backoff }
}

fn notification_of(one: &Notification) -> NotificationV1 {
    let channel = match one.kind {
        NotificationKind::Webhook => Channel::Webhook,
        NotificationKind::Email => Channel::Email,
        NotificationKind::Command => Channel::Command,
    };
    let occasion = |when: &spec::model::Occasion| match when {
        spec::model::Occasion::Started => Some(Occasion::Started),
        spec::model::Occasion::Completed => Some(Occasion::Completed),
        spec::model::Occasion::Failed => Some(Occasion::Failed),
        spec::model::Occasion::Cancelled => Some(Occasion::Cancelled),
        spec::model::Occasion::Preempted => Some(Occasion::Preempted),
        spec::model::Occasion::Leaked => Some(Occasion::Leaked),
        // `check` says that nobody tells of these yet.
        spec::model::Occasion::Budget | spec::model::Occasion::Hardware => None,
    };
    let mut when: Vec<Occasion> = one.when.iter().filter_map(occasion).collect();
    when.sort_unstable();
    when.dedup();
    let teams = one.teams.iter().map(ToString::to_string).collect();
    NotificationV1 { name: one.name.to_string(), channel, to: one.to.clone(), when, teams }
}

fn delivery_of(delivery: &Delivery) -> DeliverySetV1 {
    let Delivery { relay, from, key_file, allow } = delivery.clone();
    DeliverySetV1 { relay, from, key_file, allow }
}

/// A specification of `cluster` that asks for `resources`.
pub fn as_specification(cluster: &str, resources: &[ResourceV1]) -> String {
    let [mut teams, mut policy, mut classes, mut defaults, mut told, mut delivered] =
        [const { String::new() }; 6];
    for thing in resources {
        match thing {
            ResourceV1::Team(team) => {
                let quota = quota_text(team);
                writeln!(teams, "  - {{ name: \"{}\", quota: {{ {quota} }} }}", team.name)
            }
            ResourceV1::Priority(PriorityV1 { name, value }) => {
                writeln!(classes, "  - {{ name: \"{name}\", value: {value} }}")
            }
            ResourceV1::PreemptingPriority(PriorityV1 { name, value }) => {
                writeln!(classes, "  - {{ name: \"{name}\", value: {value}, preempts: true }}")
            }
            ResourceV1::Notification(one) => writeln!(told, "  - {{ {} }}", notification_text(one)),
            ResourceV1::Delivery(delivery) => writeln!(delivered, "  {}", delivery_text(delivery)),
            ResourceV1::Retries(retries) => writeln!(defaults, "  {}", retries_text(retries)),
            ResourceV1::Preemption(rules) => {
                writeln!(policy, "  preemption: {{ {} }}", preemption_text(rules))
            }
        }
        .expect("a string takes all text");
    }
    let sections = [
        ("teams:\n", teams),
        ("priorities:\n", classes),
        ("retries:\n", defaults),
        ("policy:\n", policy),
        ("delivery:\n", delivered),
        ("notifications:\n", told),
    ];
    let written = sections.iter().filter(|(_, text)| !text.is_empty());
    let body: String = written.flat_map(|(head, text)| [*head, text.as_str()]).collect();
    format!("fourplane: 1\ncluster: \"{cluster}\"\n{body}")
}

fn quota_text(team: &TeamV1) -> String {
    let TeamV1 { quota, borrow, lend, .. } = team;
    let count = |number: Option<u32>| number.filter(|number| *number < MOST).map(|number| number.to_string());
    let memory = |memory: Option<Bytes>| memory.map(exact);
    let more = |number: Option<u32>| {
        let number = number.unwrap_or(MOST).min(MOST);
        (number > 0).then(|| number.to_string())
    };
    let more_memory = borrow.memory.unwrap_or(MOST_MEMORY).min(MOST_MEMORY);
    let fields = [
        ("gpus", count(quota.gpus)),
        ("cores", count(quota.cores)),
        ("memory", memory(quota.memory)),
        ("borrow", more(borrow.gpus)),
        ("borrow_cores", more(borrow.cores)),
        ("borrow_memory", (more_memory > Bytes(0)).then(|| exact(more_memory))),
        ("lend", count(lend.gpus)),
        ("lend_cores", count(lend.cores)),
        ("lend_memory", memory(lend.memory)),
    ];
    let written = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value?)));
    written.collect::<Vec<_>>().join(", ")
}

/// In quotes that hold any text.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn notification_text(one: &NotificationV1) -> String {
    let (name, kind, to) = (&one.name, channel_word(one.channel), quoted(&one.to));
    let (when, teams) = (occasion_words(&one.when), one.teams.iter().map(|team| quoted(team)));
    let teams = teams.collect::<Vec<_>>().join(", ");
    format!("name: \"{name}\", kind: {kind}, to: {to}, when: [{when}], teams: [{teams}]")
}

fn delivery_text(delivery: &DeliverySetV1) -> String {
    let DeliverySetV1 { relay, from, key_file, allow } = delivery;
    let said = [("relay", relay), ("from", from), ("key_file", key_file)];
    let said = said.iter().filter_map(|(name, value)| Some(format!("{name}: {}", quoted(value.as_ref()?))));
    let allow = allow.iter().map(|network| quoted(network)).collect::<Vec<_>>().join(", ");
    let all: Vec<String> = said.chain([format!("allow: [{allow}]")]).collect();
    format!("{{ {} }}", all.join(", "))
}

fn retries_text(retries: &RetriesSetV1) -> String {
    let RetriesSetV1 { max, on, backoff, backoff_max } = retries;
    let (on, backoff, longest) = (retry_words(on), exact_span(*backoff), exact_span(*backoff_max));
    format!("{{ most: {max}, classes: [{on}], backoff: {backoff}, longest_backoff: {longest} }}")
}

fn preemption_text(rules: &PreemptionSetV1) -> String {
    let PreemptionSetV1 { reclaim, protect, preempts_from, most } = rules;
    let from = preempts_from.map_or_else(String::new, |from| format!(", preempts_from: {from}"));
    let (reclaim, protect) = (reclaim_word(*reclaim), exact_span(*protect));
    format!("reclaim: {reclaim}, protect: {protect}{from}, most: {most}")
}
