//! One envelope of every kind, with every field set to something telling.

use std::collections::BTreeMap;

use facts::applied::{
    AppliedV1, ClassV1, PreemptsSetV1, PriorityClassSetV2, PriorityV1, ResourceV1, RetriesSetV1,
    TeamRemovedV1, TeamV1,
};
use facts::event::{
    AttemptClosedV1, CancelRequestedV1, ClockSteppedV1, DeviceV1, HealthChangedV1, HeldV1, HoldLeakedV1,
    LimitsV1, MembersEndedV1, Next, NodeDeclaredV1, NodeSchedulableV1, OutsideHeldV1, PartV1, PassCutV1,
    PlacementV1, PreemptibleSetV1, PreemptionSetV1, PrioritySetV1, ReceiptV1, Reclaim, ReleasedV1, RightV1,
    SegmentSealedV1, ServerStartedV1, StartedV1, StopOrderedV2, StopReason, SubmittedV2, TaskEndedV1,
    TaskFreedV1, TaskRunningV1, TeamSetV2,
};
use facts::notify::{Channel, DeliverySetV1, NotificationSetV1, NotificationV1, Occasion};
use facts::reservation::{HolderV1, ReservationCancelledV1, ReservationSetV1};
use facts::{
    Actor, ArraySpec, Condition, Dependency, Envelope, Event, ExitClass, Hash32, HealthCheck, IndexSet,
    JobKind, JobRequest, Outcome, Resources, RestartPolicy, RetryPolicy, Source, StartFailure, StopPolicy,
    TaskExit,
};
use units::{
    ArrayIndex, AttemptId, Bytes, Cores, DeviceIndex, Epoch, JobId, Nanos, NodeId, Rank, ReservationId, Seq,
    SubjectId, TeamId, Timestamp,
};

fn request(kind: JobKind) -> JobRequest {
    JobRequest {
        name: "train".to_owned(),
        kind,
        owner: SubjectId(7),
        team: TeamId(2),
        tasks: 4,
        per_task: Resources { cores: Cores(8), memory: Bytes(64 << 30), gpus: 1 },
        array: Some(ArraySpec { indexes: IndexSet::range(0, 99), max_running: Some(8) }),
        priority: -3,
        time_limit: Some(Nanos::from_secs(3_600)),
        after: vec![Dependency { job: JobId(11), condition: Condition::Ok }],
        retry: RetryPolicy {
            max: 2,
            on: [ExitClass::Failure, ExitClass::OutOfMemory].into_iter().collect(),
            backoff: Nanos::from_secs(1),
            backoff_max: Nanos::from_secs(300),
            requeue: true,
        },
        hold: true,
        stop: StopPolicy { signal: 15, grace: Nanos::from_secs(10), warn: Some((10, Nanos::from_secs(120))) },
        labels: BTreeMap::from([("model".to_owned(), "m1".to_owned())]).into(),
        payload: Hash32([9; 32]),
        gpu_model: None,
    }
}

fn events() -> Vec<(&'static str, Event)> {
    let (attempt, rank, job, node) = (AttemptId(300), Rank(1), JobId(12), NodeId(0));
    let at = Timestamp::from_secs(1_800_000_000);
    let service = JobKind::Service {
        port: Some(8_080),
        health: Some(HealthCheck {
            http_path: Some("/ok".to_owned()),
            every: Nanos::from_secs(5),
            failures: 3,
        }),
        restart: RestartPolicy::OnFailure,
    };
    let interactive = JobKind::Interactive { idle_limit: Some(Nanos::from_secs(900)) };
    let device = DeviceV1 {
        key: "GPU-1".to_owned(),
        model: "H100-SXM-80GB".to_owned(),
        memory: Bytes(80 << 30),
        simulated: false,
    };
    let failure = StartFailure { step: "exec".to_owned(), subject: "nope".to_owned(), errno: 2 };
    let ended = |exit| {
        Event::TaskEnded(TaskEndedV1 {
            attempt,
            rank,
            exit,
            started: Some(at),
            ended: at,
            freed: None,
            cpu: Some(5),
            memory_peak: Some(Bytes(6)),
        })
    };
    let submitted = |kind, gpu_model| {
        Event::Submitted(SubmittedV2 { job, request: JobRequest { gpu_model, ..request(kind) } })
    };
    let stopped = |reason, receipt| Event::StopOrdered(StopOrderedV2 { attempt, reason, receipt });
    let receipt = |right| Some(ReceiptV1 { job, team: TeamId(2), right });
    let applied =
        |resource| Event::Applied(AppliedV1 { cluster: "aurora".to_owned(), resources: vec![resource] });
    let class = |class| Event::PriorityClassSet(PriorityClassSetV2 { name: "high".to_owned(), class });
    let notification = |channel| NotificationV1 {
        name: "ops".to_owned(),
        channel,
        to: "ops@example.org".to_owned(),
        when: Occasion::ALL.to_vec(),
        teams: vec!["research".to_owned()],
    };
    let told =
        |notification| Event::NotificationSet(NotificationSetV1 { name: "ops".to_owned(), notification });
    let delivery = DeliverySetV1 {
        relay: Some("mail.example.org:25".to_owned()),
        from: Some("fourplane@example.org".to_owned()),
        key_file: Some("/etc/fourplane/key".to_owned()),
        allow: vec!["10.2.0.0/16".to_owned()],
    };
    let retries = RetriesSetV1 {
        max: 2,
        on: [ExitClass::Failure, ExitClass::TimeLimit].into_iter().collect(),
        backoff: Nanos::from_secs(10),
        backoff_max: Nanos::from_secs(600),
    };
    let reserved = |holder| {
        Event::ReservationSet(ReservationSetV1 {
            reservation: ReservationId(5),
            node,
            amount: Resources { cores: Cores(16), memory: Bytes(128 << 30), gpus: 4 },
            from: at,
            until: at + Nanos::from_secs(3_600),
            holder,
            reason: "course".to_owned(),
        })
    };
    let closed = |outcome, next| Event::AttemptClosed(AttemptClosedV1 { attempt, outcome, next });
    vec![
        (
            "server-started",
            Event::ServerStarted(ServerStartedV1 {
                epoch: Epoch(3),
                boot_id: [1; 16],
                anchor: -5,
                version: "0.1.0".to_owned(),
                nonce_seed: Hash32([2; 32]),
            }),
        ),
        (
            "clock-stepped",
            Event::ClockStepped(ClockSteppedV1 { offset_before: 1, offset_after: -2_000_000_000 }),
        ),
        (
            "node-declared",
            Event::NodeDeclared(NodeDeclaredV1 {
                node,
                name: "gpu001".to_owned(),
                boot_id: [1; 16],
                cores: Cores(192),
                memory: Bytes(2 << 40),
                devices: vec![device],
            }),
        ),
        (
            "node-schedulable",
            Event::NodeSchedulable(NodeSchedulableV1 { node, schedulable: false, reason: "fan".to_owned() }),
        ),
        (
            "team-set",
            Event::TeamSet(TeamSetV2 {
                team: TeamId(2),
                name: "research".to_owned(),
                quota: LimitsV1 { cores: Some(64), memory: None, gpus: Some(8) },
                borrow: LimitsV1::NOTHING,
                lend: LimitsV1::UNLIMITED,
            }),
        ),
        ("submitted-batch", submitted(JobKind::Batch, None)),
        ("submitted-service", submitted(service.clone(), None)),
        ("submitted-interactive", submitted(interactive.clone(), None)),
        ("held", Event::Held(HeldV1 { job })),
        ("released", Event::Released(ReleasedV1 { job })),
        ("priority-set", Event::PrioritySet(PrioritySetV1 { job, priority: 5 })),
        (
            "cancel-requested",
            Event::CancelRequested(CancelRequestedV1 {
                job,
                members: Some(IndexSet::range(3, 5)),
                by: SubjectId(7),
            }),
        ),
        (
            "started",
            Event::Started(StartedV1 {
                attempt,
                job,
                index: ArrayIndex(4),
                number: 2,
                tasks: vec![PlacementV1 { node, devices: vec![DeviceIndex(0), DeviceIndex(3)] }],
            }),
        ),
        ("task-running", Event::TaskRunning(TaskRunningV1 { attempt, rank, at })),
        ("stop-ordered", stopped(StopReason::TimeLimit, None)),
        ("task-ended-code", ended(TaskExit::Exited(3))),
        ("task-ended-signal", ended(TaskExit::Signalled(9))),
        ("task-ended-memory", ended(TaskExit::OutOfMemory(9))),
        ("task-ended-start", ended(TaskExit::StartFailed(failure.clone()))),
        ("task-ended-restart", ended(TaskExit::NodeRestart)),
        ("task-ended-unknown", ended(TaskExit::Unknown)),
        ("task-freed", Event::TaskFreed(TaskFreedV1 { attempt, rank, at })),
        (
            "hold-leaked",
            Event::HoldLeaked(HoldLeakedV1 { attempt, rank, since: at, reason: "frozen".to_owned() }),
        ),
        ("attempt-closed-success", closed(Outcome::Success, Next::Finish)),
        ("attempt-closed-retry", closed(Outcome::Code(3), Next::Retry { not_before: at, counted: true })),
        ("attempt-closed-start", closed(Outcome::StartFailed(failure), Next::Finish)),
        (
            "members-ended",
            Event::MembersEnded(MembersEndedV1 {
                job,
                members: IndexSet::range(0, 99),
                outcome: Outcome::DependencyFailed,
            }),
        ),
        (
            "segment-sealed",
            Event::SegmentSealed(SegmentSealedV1 {
                kind: "step-log".to_owned(),
                hash: Hash32([4; 32]),
                rows: 10,
                from: at,
                until: at,
                source: "gpu001".to_owned(),
                parser_version: 1,
            }),
        ),
        (
            "health-changed",
            Event::HealthChanged(HealthChangedV1 {
                attempt,
                healthy: true,
                at,
                reason: "it answers".to_owned(),
            }),
        ),
        ("task-ended-idle", ended(TaskExit::IdleLimit)),
        ("attempt-closed-afresh", closed(Outcome::Code(3), Next::Afresh { not_before: at })),
        ("pass-cut", Event::PassCut(PassCutV1 { limit: 1_000 })),
        (
            "team-set-2",
            Event::TeamSet(TeamSetV2 {
                team: TeamId(2),
                name: "research".to_owned(),
                quota: LimitsV1 { cores: Some(64), memory: Some(Bytes(1 << 40)), gpus: Some(8) },
                borrow: LimitsV1 { cores: Some(32), memory: None, gpus: Some(4) },
                lend: LimitsV1 { cores: None, memory: Some(Bytes(1 << 30)), gpus: Some(2) },
            }),
        ),
        ("stop-ordered-2", stopped(StopReason::Cancel, None)),
        (
            "stop-ordered-2-reclaim",
            stopped(
                StopReason::Preempt,
                receipt(RightV1::Reclaim { part: PartV1::Gpus, quota: 8, held: 12 }),
            ),
        ),
        (
            "stop-ordered-2-priority",
            stopped(StopReason::Preempt, receipt(RightV1::Priority { above: 50, below: -1 })),
        ),
        (
            "preemption-set",
            Event::PreemptionSet(PreemptionSetV1 {
                reclaim: Reclaim::LowestPriority,
                protect: Nanos::from_secs(7_200),
                preempts_from: Some(100),
                most: 3,
            }),
        ),
        ("preemptible-set", Event::PreemptibleSet(PreemptibleSetV1 { job, preemptible: true })),
        ("team-removed", Event::TeamRemoved(TeamRemovedV1 { team: TeamId(2) })),
        (
            "applied-team",
            applied(ResourceV1::Team(TeamV1 {
                name: "research".to_owned(),
                quota: LimitsV1 { cores: Some(64), memory: None, gpus: Some(8) },
                borrow: LimitsV1::NOTHING,
                lend: LimitsV1::UNLIMITED,
            })),
        ),
        ("applied-preemption", applied(ResourceV1::Preemption(PreemptionSetV1::default()))),
        (
            "applied-priority",
            applied(ResourceV1::Priority(PriorityV1 { name: "high".to_owned(), value: 100 })),
        ),
        ("priority-class-set", class(Some(ClassV1 { value: -5, preempts: false }))),
        ("priority-class-gone", class(None)),
        ("priority-class-set-2", class(Some(ClassV1 { value: 100, preempts: true }))),
        ("priority-class-gone-2", class(None)),
        ("preempts-set", Event::PreemptsSet(PreemptsSetV1 { job, preempts: true })),
        ("retries-set", Event::RetriesSet(retries.clone())),
        (
            "applied-preempting-priority",
            applied(ResourceV1::PreemptingPriority(PriorityV1 { name: "high".to_owned(), value: 100 })),
        ),
        ("applied-retries", applied(ResourceV1::Retries(retries))),
        ("submitted-2-batch", submitted(JobKind::Batch, "H100-SXM-80GB".parse().ok())),
        ("submitted-2-service", submitted(service, None)),
        ("submitted-2-interactive", submitted(interactive, None)),
        ("notification-set", told(Some(notification(Channel::Webhook)))),
        ("notification-gone", told(None)),
        ("delivery-set", Event::DeliverySet(delivery.clone())),
        ("applied-notification", applied(ResourceV1::Notification(notification(Channel::Command)))),
        ("applied-delivery", applied(ResourceV1::Delivery(delivery))),
        (
            "outside-held",
            Event::OutsideHeld(OutsideHeldV1 {
                node: NodeId(0),
                devices: vec![DeviceIndex(0), DeviceIndex(5)],
            }),
        ),
        ("reservation-set-user", reserved(HolderV1::User(SubjectId(7)))),
        ("reservation-set-team", reserved(HolderV1::Team(TeamId(2)))),
        (
            "reservation-cancelled",
            Event::ReservationCancelled(ReservationCancelledV1 { reservation: ReservationId(5) }),
        ),
    ]
}

/// One envelope of every kind.
pub(crate) fn envelopes() -> Vec<(&'static str, Envelope)> {
    let plain = |(number, (name, event))| {
        let seq = Seq(number);
        let envelope = Envelope {
            seq,
            ledger_time: Timestamp(1_800_000_000_123_456_789),
            wall_time: Timestamp(1_800_000_000_223_456_789),
            source: Source::Supervisor(NodeId(0)),
            source_time: Some(Timestamp(1_800_000_000_023_456_789)),
            actor: Actor::Subject(SubjectId(7)),
            cause: Some(Seq(1)),
            idem_key: Some(Hash32([8; 32])),
            event,
        };
        (name, envelope)
    };
    (1_u64..).zip(events()).map(plain).collect()
}
