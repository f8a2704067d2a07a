//! Plans: that they reach what is desired, in an order that works, and touch only what is owned.

use std::collections::BTreeMap;

use control::govern::{
    Action, Field, Key, Step, Thing, as_specification, desired, drift, event, observed, plan, plan_of,
    way_back,
};
use control::{Denial, State, admit_action};
use facts::applied::{AppliedV1, PriorityV1, ResourceV1, RetriesSetV1, TeamRemovedV1, TeamV1};
use facts::event::{LimitsV1, PreemptionSetV1};
use facts::notify::{Channel, DeliverySetV1, NotificationV1, Occasion};
use facts::{Actor, Envelope, Event, ExitClass, Source};
use proptest::prelude::*;
use units::{Bytes, Nanos, Seq, SubjectId, TeamId, Timestamp};

use crate::world::{World, job};

/// A thing that needs things of lower numbers. Every fourth is always there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Toy {
    id: u8,
    value: u8,
    needs: Vec<u8>,
}

impl Thing for Toy {
    type Key = u8;

    fn key(&self) -> u8 {
        self.id
    }

    fn needs(&self) -> Vec<u8> {
        self.needs.clone()
    }

    fn at_rest(&self) -> Option<Self> {
        self.id.is_multiple_of(4).then(|| Self { value: 0, needs: Vec::new(), id: self.id })
    }

    fn fields(&self) -> Vec<Field> {
        vec![Field { name: "value", value: self.value.to_string(), usual: false }]
    }
}

const TOYS: u8 = 10;

type Toys = BTreeMap<u8, Toy>;

/// Some toys, each of which needs only others of them.
fn toys() -> impl Strategy<Value = Toys> {
    let each = (0..TOYS, 0_u8..3, prop::collection::vec(0..TOYS, 0..3));
    prop::collection::vec(each, 0..8).prop_map(|drawn| {
        let mut toys = Toys::new();
        for (id, value, _) in &drawn {
            toys.insert(*id, Toy { id: *id, value: *value, needs: Vec::new() });
        }
        for (id, _, needs) in drawn {
            let needs: Vec<u8> =
                needs.into_iter().filter(|need| *need < id && toys.contains_key(need)).collect();
            toys.entry(id).and_modify(|toy| toy.needs = needs);
        }
        toys
    })
}

/// What there is always is there.
fn with_residents(mut toys: Toys) -> Toys {
    for id in (0..TOYS).step_by(4) {
        toys.entry(id).or_insert(Toy { id, value: 0, needs: Vec::new() });
    }
    toys
}

fn list(toys: &Toys) -> Vec<Toy> {
    toys.values().cloned().collect()
}

fn put(toys: &mut Toys, id: u8, toy: Option<Toy>) {
    match toy {
        Some(toy) => toys.insert(id, toy),
        None => toys.remove(&id),
    };
}

/// What an engine does that takes one step after another.
fn take(step: &Step<Toy>, observed: &mut Toys, owned: &mut Toys) {
    let id = step.thing().expect("a step is about something").id;
    assert_eq!(observed.get(&id), step.before.as_ref(), "a step starts from what there is");
    put(observed, id, step.after.clone());
    put(owned, id, step.after.clone().filter(|_| step.desired));
}

proptest! {
    #[test]
    fn any_plan_reaches_what_is_desired(desired in toys(), there in toys(), owned in toys(), cut in 0..20_usize) {
        let before = with_residents(there);
        let (mut there, mut now_owned) = (before.clone(), owned.clone());
        // The first is killed in the middle; the second goes on.
        for most in [cut, usize::MAX] {
            let plan = plan(&list(&desired), &list(&there), &list(&now_owned));
            for step in plan.steps.iter().take(most) {
                take(step, &mut there, &mut now_owned);
            }
        }
        for (id, toy) in &desired {
            prop_assert_eq!(there.get(id), Some(toy));
        }
        prop_assert_eq!(&now_owned, &desired);
        for (id, toy) in before.iter().filter(|(id, _)| !desired.contains_key(id)) {
            let expect = if owned.contains_key(id) { toy.at_rest() } else { Some(toy.clone()) };
            prop_assert_eq!(there.get(id), expect.as_ref(), "only what is owned goes");
        }
        let again = plan(&list(&desired), &list(&there), &list(&now_owned));
        prop_assert_eq!(again.steps, vec![]);
    }

    #[test]
    fn nothing_is_there_before_what_it_needs(desired in toys(), owned in toys()) {
        let (mut there, mut now_owned) = (with_residents(owned.clone()), owned.clone());
        for step in plan(&list(&desired), &list(&there), &list(&owned)).steps {
            take(&step, &mut there, &mut now_owned);
            for need in step.after.iter().flat_map(|toy| &toy.needs) {
                prop_assert_eq!(there.get(need), desired.get(need), "what it needs is ready");
            }
            for need in there.values().flat_map(|toy| &toy.needs) {
                prop_assert!(there.contains_key(need), "{} went before what needs it", need);
            }
        }
    }

    #[test]
    fn what_is_written_down_is_read_as_it_was(resources in resources()) {
        let text = as_specification("c", &resources);
        let checked = spec::check(text.as_bytes());
        let quota = |finding: &&spec::Finding| finding.code != spec::Code::IdleBorrowing;
        prop_assert_eq!(checked.findings.iter().find(quota), None, "{}", text);
        prop_assert_eq!(desired(checked.cluster.as_ref().unwrap()), resources);
    }

    #[test]
    fn there_is_a_way_back(first in resources(), by_hand in resources(), second in resources()) {
        let mut server = Server::new();
        server.apply("c", &first);
        for thing in &by_hand {
            server.by_hand(thing);
        }
        let before = observed(&server.state);
        let back = way_back(&server.state, "c", &plan_of(&server.state, &second));
        server.apply("c", &second);
        server.apply("c", &desired(spec::check(back.as_bytes()).cluster.as_ref().unwrap()));
        let sorted = |mut things: Vec<ResourceV1>| {
            things.sort_by_key(Thing::key);
            things
        };
        prop_assert_eq!(sorted(observed(&server.state)), sorted(before));
    }

    #[test]
    fn a_server_becomes_what_was_applied(first in resources(), by_hand in resources(), second in resources()) {
        let mut server = Server::new();
        server.apply("c", &first);
        for thing in &by_hand {
            server.by_hand(thing);
        }
        let strangers: Vec<_> = observed(&server.state)
            .into_iter()
            .filter(|thing| ![&first, &second].iter().any(|list| list.iter().any(|one| one.key() == thing.key())))
            .collect();
        server.apply("c", &second);
        prop_assert_eq!(plan_of(&server.state, &second).steps, vec![]);
        prop_assert_eq!(drift(&server.state), vec![]);
        let now = observed(&server.state);
        prop_assert!(second.iter().all(|thing| now.contains(thing)));
        prop_assert!(strangers.iter().all(|thing| now.contains(thing)), "strangers are left alone");
        let (log, state) = (server.log, server.state);
        let mut replayed = State::new();
        for envelope in &log {
            replayed.apply(envelope).unwrap();
        }
        prop_assert_eq!(&replayed, &state);
        prop_assert_eq!(&State::from_snapshot(&state.to_snapshot()).unwrap(), &state);
    }
}

fn limits() -> impl Strategy<Value = LimitsV1> {
    let part = || prop::option::of(0_u32..3);
    (part(), part(), part()).prop_map(|(cores, memory, gpus)| LimitsV1 {
        cores,
        memory: memory.map(|memory| Bytes(u64::from(memory) << 30)),
        gpus,
    })
}

fn delivery() -> impl Strategy<Value = DeliverySetV1> {
    let word = |text: &'static str| prop::option::of(Just(text.to_owned()));
    let allow = prop::sample::subsequence(vec!["10.0.0.0/8".to_owned(), "::1".to_owned()], 0..=2);
    // A specification with mail names a mail server.
    (word("it's@example.org"), word("/etc/key"), allow).prop_map(|(from, key_file, allow)| {
        let relay = Some("[::1]:25".to_owned());
        DeliverySetV1 { relay, from, key_file, allow }
    })
}

fn notification() -> impl Strategy<Value = NotificationV1> {
    let target = prop_oneof![
        Just((Channel::Webhook, "https://example.org/it's?a=b")),
        Just((Channel::Command, "/bin/it's")),
    ];
    let when = prop::sample::subsequence(Occasion::ALL.to_vec(), 1..=6);
    ("[a-c]", target, when).prop_map(|(name, (channel, to), when)| {
        let (to, teams) = (to.to_owned(), Vec::new());
        NotificationV1 { name, channel, to, when, teams }
    })
}

fn resources() -> impl Strategy<Value = Vec<ResourceV1>> {
    let names = prop::sample::subsequence(vec!["default", "research", "speech", "vision"], 0..=4);
    let teams = (names, prop::collection::vec((limits(), limits(), limits()), 4));
    let preemption = prop::option::of((0_u32..3, 0_u64..3));
    let classes = prop::collection::btree_map("[a-c]", (-2..3, any::<bool>()), 0..3);
    let retries = prop::option::of((0_u32..3, 0_u64..3));
    let told = (prop::option::of(delivery()), prop::option::of(notification()));
    let all = (teams, preemption, classes, retries, told);
    all.prop_map(|((names, limits), preemption, classes, retries, (delivery, notification))| {
        let teams = names.into_iter().zip(limits).map(|(name, (quota, borrow, lend))| {
            ResourceV1::Team(TeamV1 { name: name.to_owned(), quota, borrow, lend })
        });
        let preemption = preemption.map(|(most, protect)| {
            let protect = Nanos::from_secs(protect);
            ResourceV1::Preemption(PreemptionSetV1 { most, protect, ..PreemptionSetV1::default() })
        });
        let classes = classes.into_iter();
        let classes = classes.map(|(name, (value, preempts))| {
            let class = PriorityV1 { name, value };
            if preempts { ResourceV1::PreemptingPriority(class) } else { ResourceV1::Priority(class) }
        });
        let retries = retries.map(|(max, backoff)| {
            let on = [ExitClass::Failure, ExitClass::TimeLimit].into_iter().collect();
            let (backoff, backoff_max) = (Nanos::from_secs(backoff), Nanos::from_secs(9));
            ResourceV1::Retries(RetriesSetV1 { max, on, backoff, backoff_max })
        });
        let notification = notification.map(ResourceV1::Notification);
        let told = delivery.map(ResourceV1::Delivery).into_iter().chain(notification);
        teams.chain(preemption).chain(retries).chain(classes).chain(told).collect()
    })
}

/// A state and the log that led to it.
struct Server {
    state: State,
    log: Vec<Envelope>,
}

impl Server {
    fn new() -> Self {
        let mut server = Self { state: State::new(), log: Vec::new() };
        server.by_hand(&team("default", None));
        server
    }

    fn record(&mut self, event: Event) {
        let seq = Seq(self.log.len() as u64 + 1);
        let at = Timestamp::from_secs(1_000_000);
        let envelope = Envelope {
            seq,
            ledger_time: at,
            wall_time: at,
            source: Source::Api,
            source_time: None,
            actor: Actor::Subject(SubjectId(7)),
            cause: None,
            idem_key: None,
            event,
        };
        self.state.apply(&envelope).expect("it follows");
        self.log.push(envelope);
    }

    fn apply(&mut self, cluster: &str, desired: &[ResourceV1]) {
        for step in plan_of(&self.state, desired).steps {
            if let Some(event) = event(&self.state, &step) {
                assert_eq!(admit_action(&self.state, &event), Ok(()));
                self.record(event);
            }
        }
        self.record(Event::Applied(AppliedV1 { cluster: cluster.to_owned(), resources: desired.to_vec() }));
    }

    fn by_hand(&mut self, thing: &ResourceV1) {
        let step = Step { before: None, after: Some(thing.clone()), last: None, desired: true };
        let event = event(&self.state, &step).expect("something changes");
        self.record(event);
    }
}

fn team(name: &str, gpus: Option<u32>) -> ResourceV1 {
    ResourceV1::Team(TeamV1 {
        name: name.to_owned(),
        quota: LimitsV1 { gpus, ..LimitsV1::UNLIMITED },
        borrow: LimitsV1::NOTHING,
        lend: LimitsV1::UNLIMITED,
    })
}

#[test]
fn each_step_says_what_it_does() {
    let check = |desired: &[ResourceV1], by_hand: &[ResourceV1], expect: &[(Action, &str)]| {
        let mut server = Server::new();
        server.by_hand(&team("manual", Some(1)));
        server.apply("c", &[team("old", Some(1)), team("kept", Some(1))]);
        for thing in by_hand {
            server.by_hand(thing);
        }
        let plan = plan_of(&server.state, desired);
        let steps = plan.steps.iter().map(|step| (step.action(), step.thing().unwrap().key()));
        let steps: Vec<_> = steps.map(|(action, key)| (action, key.to_string())).collect();
        let expect: Vec<_> = expect.iter().map(|(action, key)| (*action, (*key).to_owned())).collect();
        assert_eq!(steps, expect);
    };
    let both = [team("old", Some(1)), team("kept", Some(1))];
    check(&both, &[], &[]);
    check(&both[1..], &[], &[(Action::Delete, "team old")]);
    check(&both, &[team("kept", Some(2))], &[(Action::Change, "team kept")]);
    let accepted = [team("old", Some(1)), team("kept", Some(2))];
    check(&accepted, &[team("kept", Some(2))], &[(Action::Accept, "team kept")]);
    let more = [both.as_slice(), &[team("manual", Some(1)), team("new", None)]].concat();
    check(&more, &[], &[(Action::Adopt, "team manual"), (Action::Create, "team new")]);
    let changed = [both.as_slice(), &[team("default", Some(4))]].concat();
    check(&changed, &[], &[(Action::Change, "team default")]);
}

#[test]
fn drift_names_who_changed_what_and_when() {
    let mut server = Server::new();
    server.apply("c", &[team("research", Some(4))]);
    assert_eq!(drift(&server.state), vec![]);
    server.by_hand(&team("research", Some(8)));
    let found = drift(&server.state);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (&one.key, one.observed.as_ref()),
        (&Key::Team("research".to_owned()), Some(&team("research", Some(8))))
    );
    let change = one.change.unwrap();
    assert_eq!((change.seq, change.by), (Seq(server.log.len() as u64), Actor::Subject(SubjectId(7))));
}

#[test]
fn a_team_with_jobs_stays_and_one_that_went_keeps_its_id() {
    let mut world = World::with_node(4, 0);
    let running = world.submit(job());
    let removed = |team| Event::TeamRemoved(TeamRemovedV1 { team });
    let refused = admit_action(&world.state, &removed(TeamId(0)));
    assert!(matches!(refused, Err(Denial::TeamInUse { jobs: 1, .. })), "{running}: {refused:?}");

    let mut server = Server::new();
    server.apply("c", &[team("research", Some(4))]);
    let id = server.state.team_named("research").unwrap();
    server.apply("c", &[]);
    assert!(server.state.team(id).unwrap().removed);
    server.apply("c", &[team("speech", None), team("research", Some(2))]);
    assert_eq!(server.state.team_named("research"), Some(id));
    assert_ne!(server.state.team_named("speech"), Some(id));
}
