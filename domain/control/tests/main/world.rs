//! The words that tests are written in: a small cluster whose log and time the test makes.

use control::{Misfit, Obligation, Policy, State, Why, decide, why};
use facts::event::{
    CancelRequestedV1, DeviceV1, HealthChangedV1, HeldV1, HoldLeakedV1, LimitsV1, NodeDeclaredV1,
    NodeSchedulableV1, OutsideHeldV1, PrioritySetV1, ReleasedV1, StartedV1, StopReason, SubmittedV2,
    TaskEndedV1, TaskFreedV1, TaskRunningV1, TeamSetV2,
};
use facts::{
    Actor, ArraySpec, Condition, Dependency, Envelope, Event, Hash32, IndexSet, JobKind, JobRequest, Outcome,
    Resources, RetryPolicy, Source, StopPolicy, TaskExit,
};
use units::{AttemptId, Bytes, Cores, DeviceIndex, JobId, Nanos, NodeId, Rank, SubjectId, TeamId, Timestamp};

pub(crate) const MINUTE: u64 = 60;

/// A request to be refined: one task of one core, by default.
pub(crate) fn job() -> JobRequest {
    JobRequest {
        name: "job".to_owned(),
        kind: JobKind::Batch,
        owner: SubjectId(7),
        team: TeamId(0),
        tasks: 1,
        per_task: Resources { cores: Cores(1), memory: Bytes(1), gpus: 0 },
        array: None,
        priority: 0,
        time_limit: None,
        after: Vec::new(),
        retry: RetryPolicy::default(),
        hold: false,
        stop: StopPolicy::default(),
        labels: facts::Labels::default(),
        payload: Hash32::default(),
        gpu_model: None,
    }
}

/// Refinements of a request.
pub(crate) trait Refine: Sized {
    fn with(self, change: impl FnOnce(&mut JobRequest)) -> JobRequest;

    fn cores(self, cores: u32) -> JobRequest {
        self.with(|job| job.per_task.cores = Cores(cores))
    }
    fn gpus(self, gpus: u16) -> JobRequest {
        self.with(|job| job.per_task.gpus = gpus)
    }
    fn gpus_of(self, model: &str, gpus: u16) -> JobRequest {
        self.with(|job| {
            job.per_task.gpus = gpus;
            job.gpu_model = Some(model.parse().expect("tests name models that exist"));
        })
    }

    fn tasks(self, tasks: u32) -> JobRequest {
        self.with(|job| job.tasks = tasks)
    }
    fn minutes(self, minutes: u64) -> JobRequest {
        self.with(|job| job.time_limit = Some(Nanos::from_secs(minutes * MINUTE)))
    }
    fn array(self, first: u32, last: u32, at_once: Option<u32>) -> JobRequest {
        let indexes = IndexSet::range(first, last);
        self.with(|job| job.array = Some(ArraySpec { indexes, max_running: at_once }))
    }
    fn after(self, other: JobId, condition: Condition) -> JobRequest {
        self.with(|job| job.after.push(Dependency { job: other, condition }))
    }
    fn retries(self, max: u32) -> JobRequest {
        self.with(|job| job.retry.max = max)
    }
    fn team(self, team: u32) -> JobRequest {
        self.with(|job| job.team = TeamId(team))
    }
    fn priority(self, priority: i32) -> JobRequest {
        self.with(|job| job.priority = priority)
    }
}

impl Refine for JobRequest {
    fn with(mut self, change: impl FnOnce(&mut JobRequest)) -> JobRequest {
        change(&mut self);
        self
    }
}

/// A cluster, its log and its clock.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) log: Vec<Envelope>,
    pub(crate) policy: Policy,
}

impl World {
    /// One team without limits, and one node.
    pub(crate) fn with_node(cores: u32, gpus: usize) -> Self {
        let mut world = Self {
            state: State::new(),
            now: Timestamp::from_secs(1_000_000),
            log: Vec::new(),
            policy: Policy::default(),
        };
        world.team(0, None, None);
        world.node(0, cores, gpus);
        world
    }

    pub(crate) fn node(&mut self, node: u32, cores: u32, gpus: usize) {
        self.node_of(node, cores, &vec!["NVIDIA H200"; gpus]);
    }

    /// A node with devices of these models.
    pub(crate) fn node_of(&mut self, node: u32, cores: u32, models: &[&str]) {
        let device = |(index, model): (usize, &&str)| DeviceV1 {
            key: format!("gpu-{node}-{index}"),
            model: (*model).to_owned(),
            memory: Bytes(1),
            simulated: true,
        };
        self.event(Event::NodeDeclared(NodeDeclaredV1 {
            node: NodeId(node),
            name: format!("n{node}"),
            boot_id: [0; 16],
            cores: Cores(cores),
            memory: Bytes(1 << 20),
            devices: models.iter().enumerate().map(device).collect(),
        }));
    }

    pub(crate) fn team(&mut self, team: u32, cores: Option<u32>, gpus: Option<u32>) {
        self.team_sharing(team, (cores, gpus), (0, 0), (None, None));
    }

    /// A team with a quota, what it may borrow and what it lends, of cores and devices.
    pub(crate) fn team_sharing(
        &mut self,
        team: u32,
        quota: (Option<u32>, Option<u32>),
        borrow: (u32, u32),
        lend: (Option<u32>, Option<u32>),
    ) {
        let limits = |(cores, gpus)| LimitsV1 { cores, memory: None, gpus };
        self.event(Event::TeamSet(TeamSetV2 {
            team: TeamId(team),
            name: format!("t{team}"),
            quota: limits(quota),
            borrow: LimitsV1 { memory: Some(Bytes(0)), ..limits((Some(borrow.0), Some(borrow.1))) },
            lend: limits(lend),
        }));
    }

    pub(crate) fn try_event(&mut self, event: Event) -> Result<(), Misfit> {
        let envelope = Envelope {
            seq: self.state.meta().seq.next(),
            ledger_time: self.now,
            wall_time: self.now,
            source: Source::Server,
            source_time: None,
            actor: Actor::Server,
            cause: None,
            idem_key: None,
            event,
        };
        self.state.apply(&envelope).map_err(|error| error.misfit)?;
        self.log.push(envelope);
        Ok(())
    }

    pub(crate) fn event(&mut self, event: Event) {
        let text = format!("{event:?}");
        self.try_event(event).unwrap_or_else(|misfit| panic!("{text}: {misfit}"));
    }

    /// Takes the next decision.
    pub(crate) fn decide(&mut self) -> Option<Event> {
        let event = decide(&self.state, self.now, &self.policy)?;
        self.event(event.clone());
        Some(event)
    }

    /// Takes decisions until there is none.
    pub(crate) fn settle(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.decide()).collect()
    }

    pub(crate) fn pass(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
        self.settle();
    }

    /// Processes that were not started here hold these devices.
    pub(crate) fn outside(&mut self, node: u32, devices: &[u16]) {
        let devices = devices.iter().copied().map(DeviceIndex).collect();
        self.event(Event::OutsideHeld(OutsideHeldV1 { node: NodeId(node), devices }));
    }

    /// Submits, and lets decisions follow.
    pub(crate) fn submit(&mut self, request: JobRequest) -> JobId {
        let job = self.state.next_job_id();
        self.event(Event::Submitted(SubmittedV2 { job, request }));
        self.settle();
        job
    }

    pub(crate) fn hold(&mut self, job: JobId) {
        self.event(Event::Held(HeldV1 { job }));
    }

    pub(crate) fn release(&mut self, job: JobId) {
        self.event(Event::Released(ReleasedV1 { job }));
        self.settle();
    }

    pub(crate) fn set_priority(&mut self, job: JobId, priority: i32) {
        self.event(Event::PrioritySet(PrioritySetV1 { job, priority }));
        self.settle();
    }

    pub(crate) fn cancel(&mut self, job: JobId, members: Option<IndexSet>) -> Vec<Event> {
        self.event(Event::CancelRequested(CancelRequestedV1 { job, members, by: SubjectId(7) }));
        self.settle()
    }

    pub(crate) fn drain(&mut self, node: u32, schedulable: bool) {
        let reason = "maintenance".to_owned();
        self.event(Event::NodeSchedulable(NodeSchedulableV1 { node: NodeId(node), schedulable, reason }));
        self.settle();
    }

    pub(crate) fn attempt(&self, job: JobId) -> AttemptId {
        self.state.attempts_of(job).next().expect("the job has an attempt").0
    }

    pub(crate) fn runs(&mut self, attempt: AttemptId, rank: u32) {
        let at = self.now;
        self.event(Event::TaskRunning(TaskRunningV1 { attempt, rank: Rank(rank), at }));
    }

    /// One task ends; what it held is free where `freed`.
    pub(crate) fn task_ends(&mut self, attempt: AttemptId, rank: u32, exit: TaskExit, freed: bool) {
        self.event(Event::TaskEnded(TaskEndedV1 {
            attempt,
            rank: Rank(rank),
            exit,
            started: None,
            ended: self.now,
            freed: freed.then_some(self.now),
            cpu: None,
            memory_peak: None,
        }));
    }

    pub(crate) fn task_freed(&mut self, attempt: AttemptId, rank: u32) {
        let at = self.now;
        self.event(Event::TaskFreed(TaskFreedV1 { attempt, rank: Rank(rank), at }));
    }

    pub(crate) fn leak(&mut self, attempt: AttemptId, rank: u32) {
        let (since, reason) = (self.now, "a frozen process".to_owned());
        self.event(Event::HoldLeaked(HoldLeakedV1 { attempt, rank: Rank(rank), since, reason }));
    }

    /// A health check says so; decisions follow.
    pub(crate) fn health(&mut self, attempt: AttemptId, healthy: bool) {
        let (at, reason) = (self.now, "a check".to_owned());
        self.event(Event::HealthChanged(HealthChangedV1 { attempt, healthy, at, reason }));
        self.settle();
    }

    /// All that an attempt still holds is freed, and what runs of it ends well. Nothing follows yet.
    pub(crate) fn ends_all(&mut self, attempt: AttemptId) {
        let open = self.state.tasks_of(attempt).filter(|(_, task)| task.freed.is_none());
        for (rank, ended) in open.map(|(rank, task)| (rank.0, task.end.is_some())).collect::<Vec<_>>() {
            if ended {
                self.task_freed(attempt, rank);
            } else {
                self.task_ends(attempt, rank, TaskExit::Exited(0), true);
            }
        }
    }

    /// Every task of the job's first attempt ends so and is free; decisions follow.
    pub(crate) fn ends(&mut self, job: JobId, exit: &TaskExit) -> Vec<Event> {
        let attempt = self.attempt(job);
        let live: Vec<_> = self.state.tasks_of(attempt).filter(|(_, task)| task.end.is_none()).collect();
        for rank in live.into_iter().map(|(rank, _)| rank.0).collect::<Vec<_>>() {
            self.task_ends(attempt, rank, exit.clone(), true);
        }
        self.settle()
    }

    pub(crate) fn succeeds(&mut self, job: JobId) {
        self.ends(job, &TaskExit::Exited(0));
    }

    pub(crate) fn running(&self, job: JobId) -> u32 {
        self.state.job(job).expect("the job is known").running
    }

    /// Asserts which of `jobs` run.
    pub(crate) fn assert_running(&self, jobs: &[JobId], expect: &[JobId]) {
        let run: Vec<_> = jobs.iter().copied().filter(|job| self.running(*job) > 0).collect();
        assert_eq!(run, expect);
    }

    pub(crate) fn outcome(&self, job: JobId) -> Option<Outcome> {
        let job = self.state.job(job).expect("the job is known");
        job.ended.and(job.worst.clone())
    }

    pub(crate) fn devices(&self, job: JobId) -> Vec<u16> {
        let tasks = self.state.tasks_of(self.attempt(job));
        tasks.flat_map(|(_, task)| task.devices.iter().map(|device| device.0)).collect()
    }

    pub(crate) fn why(&self, job: JobId) -> Why {
        why(&self.state, job, None, self.now, &self.policy)
    }
}

/// The members that were started, in order.
pub(crate) fn started(events: &[Event]) -> Vec<(JobId, u32)> {
    let started = |event: &Event| match event {
        Event::Started(StartedV1 { job, index, .. }) => Some((*job, index.0)),
        _ => None,
    };
    events.iter().filter_map(started).collect()
}

/// The tasks that must be stopped, with the reason.
pub(crate) fn stops(obligations: &[Obligation]) -> Vec<(u32, StopReason)> {
    let stop = |obligation: &Obligation| match obligation {
        Obligation::Stop { rank, reason, .. } => Some((rank.0, *reason)),
        _ => None,
    };
    obligations.iter().filter_map(stop).collect()
}
