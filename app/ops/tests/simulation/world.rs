//! One seeded world: users, faults and time around one server.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use control::Policy;
use control::identity::{Principal, Role};
use facts::event::{DeviceV1, LimitsV1, PreemptionSetV1, Reclaim};
use facts::notify::{Channel, Occasion};
use facts::{
    ArraySpec, Condition, Dependency, ExitClass, Hash32, IndexSet, JobKind, JobRequest, LaunchSpec,
    Resources, RestartPolicy, RetryPolicy, StopPolicy,
};
use ops::api::{Ack, Call, Command, IdemKey, Refusal, SubmitOptions};
use ops::core::{Core, Input, NodeFacts, Opening};
use ops::health::HealthReport;
use ops::notify::{Setback, Target, Tried, Watch};
use ops::ports::{ClockReading, Head, NodeReport};
use store::{ModelLog, Room};
use units::{Bytes, Cores, JobId, Nanos, NodeId, SubjectId, TeamId};

use super::check;
use super::machine::Machine;
use super::rng::Rng;

/// The teams that share the machine.
const TEAMS: [TeamId; 2] = [TeamId(0), TeamId(1)];
const STEPS: u64 = 120;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

pub(crate) struct World {
    rng: Rng,
    /// True time in nanoseconds.
    now: u64,
    /// Wall clock minus true time.
    wall_offset: i64,
    clock_faults: bool,
    disk: ModelLog,
    server: Option<Core<ModelLog>>,
    machine: Machine,
    connected: bool,
    /// Reports on their way to the server.
    wire: Vec<NodeReport>,
    /// What health checks said, on its way to the server.
    health: Vec<HealthReport>,
    tried: Vec<Tried>,
    /// Calls on their way to the server.
    calls: Vec<Call>,
    waiting: Vec<Waiting>,
    submitted: u64,
    promises: Promises,
}

/// A request whose answer is awaited.
struct Waiting {
    answer: Receiver<Result<Ack, Refusal>>,
    submission: Option<(u64, JobRequest)>,
}

/// What the server has acknowledged.
#[derive(Default)]
pub(crate) struct Promises {
    /// Accepted jobs, each with the number of the submission it answers.
    pub(crate) jobs: BTreeMap<u64, JobId>,
    /// The newest head that was handed out.
    pub(crate) head: Head,
}

/// What every job's owner wants to be told.
pub(crate) const ENDS: [Occasion; 3] = [Occasion::Completed, Occasion::Failed, Occasion::Cancelled];

/// The key that a submission carries, however often it is sent.
pub(crate) fn key_of(submission: u64) -> Hash32 {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&submission.to_be_bytes());
    Hash32(key)
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clock_faults = rng.one_in(2);
        Self {
            rng,
            now: SECOND,
            wall_offset: 1_800_000_000_000_000_000,
            clock_faults,
            disk: ModelLog::new(),
            server: None,
            machine: Machine::default(),
            connected: false,
            wire: Vec::new(),
            health: Vec::new(),
            tried: Vec::new(),
            calls: Vec::new(),
            waiting: Vec::new(),
            submitted: 0,
            promises: Promises::default(),
        }
    }

    /// Runs the whole story; returns the log that it left.
    pub(crate) fn run(mut self) -> ModelLog {
        self.change_quota();
        for _ in 0..STEPS {
            self.step();
        }
        self.settle();
        let core = self.server.take().expect("settling leaves a server");
        check::everything(&core, &self.machine, &self.promises, self.clock_faults);
        self.disk
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..10 => self.submit(),
            10..14 => self.act(),
            14 => self.change_quota(),
            31 if self.rng.one_in(2) => self.change_preemption(),
            15 => self.set_schedulable(self.submitted.is_multiple_of(2)),
            16 => self.crash(),
            17 => self.crash_in_turn(),
            18 => self.lose_connection(),
            19 => self.machine.freeze_one(&mut self.rng),
            20 => self.machine.thaw_all(self.now),
            21 if self.rng.one_in(4) => self.reboot(),
            22 if self.clock_faults => self.step_clock(),
            23 => self.disk.set_room(if self.rng.one_in(2) { Room::Low } else { Room::None }),
            24..27 => self.disk.set_room(Room::Plenty),
            27 => self.disk.fail_commits(1),
            28..31 => self.check_health(),
            _ => self.pass_time(),
        }
        self.turn();
    }

    /// No more faults: everything that was accepted comes to an end.
    fn settle(&mut self) {
        self.disk.set_room(Room::Plenty);
        self.disk.fail_commits(0);
        self.machine.thaw_all(self.now);
        self.set_schedulable(true);
        for team in TEAMS {
            self.set_team(team, LimitsV1::UNLIMITED, LimitsV1::NOTHING, LimitsV1::UNLIMITED);
        }
        self.call(Command::SetPreemption(PreemptionSetV1::default()), None);
        for round in 0..4_000 {
            let held = |core: &Core<ModelLog>| {
                core.state().jobs().filter(|(_, job)| job.held).map(|(id, _)| id).collect()
            };
            for job in self.server.as_ref().map_or_else(Vec::new, held) {
                self.call(Command::Release(job), None);
            }
            self.now += 500 * MILLISECOND;
            self.machine.thaw_all(self.now);
            self.turn();
            let open = self
                .server
                .as_ref()
                .is_some_and(|core| core.state().jobs().any(|(_, job)| job.ended.is_none()));
            if !open && self.waiting.is_empty() && round > 10 {
                return;
            }
        }
        let core = self.server.as_ref().expect("turns leave a server");
        let open: Vec<_> =
            core.state().jobs().filter(|(_, job)| job.ended.is_none()).map(|(id, _)| id).collect();
        let attempts: Vec<_> = core.state().attempts().collect();
        panic!("work never ends: {open:?}, {attempts:?}, {} answers awaited", self.waiting.len());
    }

    fn reading(&self) -> ClockReading {
        let now = i64::try_from(self.now).expect("a short story");
        ClockReading { boottime: self.now - self.machine.booted, wall: now + self.wall_offset }
    }

    fn pass_time(&mut self) {
        let most = if self.rng.one_in(5) { 60_000 } else { 2_000 };
        self.now += MILLISECOND * (1 + self.rng.below(most));
    }

    fn step_clock(&mut self) {
        let by = i64::try_from(self.rng.below(7_200 * SECOND)).expect("two hours") - 3_600_000_000_000;
        self.wall_offset += by;
    }

    /// Takes what has arrived, in one turn; starts the server if it is down.
    fn turn(&mut self) {
        self.now += self.rng.below(MILLISECOND);
        let lived = self.machine.live(self.now);
        if self.server.is_none() && !self.open() {
            return;
        }
        let inputs = self.inputs(lived);
        let reading = self.reading();
        let Some(core) = &mut self.server else { return };
        let (turn, failed) = core.turn(inputs, reading);
        for (reply, answer) in turn.replies {
            reply(answer);
        }
        if failed.is_some() {
            self.connected = false;
        }
        for parcel in turn.parcels {
            let later = Setback { reason: "later".to_owned(), is_final: false };
            let outcome = if self.rng.one_in(3) { Err(later) } else { Ok("told".to_owned()) };
            self.tried.push(Tried { id: parcel.delivery.id, outcome });
        }
        for command in &turn.commands {
            let reports = self.machine.command(command, self.now, &mut self.rng);
            self.wire.extend(reports);
        }
        self.hear();
    }

    fn inputs(&mut self, lived: Vec<NodeReport>) -> Vec<Input> {
        let mut inputs = Vec::new();
        if self.connected {
            self.wire.extend(lived);
        } else {
            let epoch = self.server.as_ref().map_or(0, |core| core.epoch().0);
            inputs.push(Input::Hello(self.machine.hello(epoch)));
            self.wire = self.machine.repeat();
            self.connected = true;
        }
        inputs.extend(self.calls.drain(..).map(Input::Call));
        inputs.extend(self.health.drain(..).map(Input::Health));
        inputs.extend(self.tried.drain(..).map(Input::Tried));
        inputs.extend(self.wire.drain(..).map(Input::Report));
        inputs
    }

    /// Opens the log. A full disk may refuse even that; the next turn tries again.
    fn open(&mut self) -> bool {
        let device = |key: &str| DeviceV1 {
            key: key.to_owned(),
            model: "none".to_owned(),
            memory: Bytes(0),
            simulated: true,
        };
        let opening = Opening {
            version: "test".to_owned(),
            boot_id: [self.machine.boot; 16],
            entropy: self.rng_bytes(),
            reading: self.reading(),
            node: NodeFacts {
                name: "node".to_owned(),
                cores: Cores(8),
                memory: Bytes(8 << 30),
                devices: ["a", "b", "c", "d"].map(device).into(),
            },
            policy: Policy::default(),
        };
        self.server = Core::open(self.disk.clone(), opening).ok();
        let Some(core) = &self.server else { return false };
        check::promises_kept(core, &self.promises);
        true
    }

    fn rng_bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.rng.next().to_le_bytes());
        }
        bytes
    }

    /// The server dies between two turns.
    fn crash(&mut self) {
        self.server = None;
        self.connected = false;
        self.wire.clear();
        self.health.clear();
        self.calls.clear();
        self.disk.crash(self.rng.one_in(2));
        self.hear();
    }

    /// The server dies in a turn: what it committed stays, and nobody hears of it.
    fn crash_in_turn(&mut self) {
        let lived = self.machine.live(self.now);
        if self.server.is_some() {
            let inputs = self.inputs(lived);
            let reading = self.reading();
            if let Some(core) = &mut self.server {
                let _unheard = core.turn(inputs, reading);
            }
        }
        self.crash();
    }

    /// A check of some attempt says something, true or late.
    fn check_health(&mut self) {
        let Some(core) = &self.server else { return };
        let attempts: Vec<_> = core.state().attempts().map(|(id, _)| id).collect();
        if attempts.is_empty() {
            return;
        }
        let nth = usize::try_from(self.rng.below(attempts.len() as u64)).unwrap_or(0);
        let healthy = !self.rng.one_in(3);
        self.health.push(HealthReport { attempt: attempts[nth], healthy, reason: "a check".to_owned() });
    }

    fn lose_connection(&mut self) {
        self.connected = false;
        self.wire.clear();
    }

    /// The machine restarts, and the server with it.
    fn reboot(&mut self) {
        self.crash();
        self.now += 10 * SECOND;
        self.machine.reboot(self.now, &mut self.rng);
        self.now += 5 * SECOND;
    }

    /// Hears answers. Whoever asked and hears nothing asks again, under the same key.
    fn hear(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.answer.try_recv() {
                Ok(Ok(ack)) => {
                    if ack.head.seq > self.promises.head.seq {
                        self.promises.head = ack.head;
                    }
                    if let (Some((number, _)), Some(job)) = (waiting.submission, ack.job) {
                        let before = self.promises.jobs.insert(number, job);
                        assert!(before.is_none_or(|before| before == job), "one submission became two jobs");
                    }
                }
                Ok(Err(_)) => {}
                Err(TryRecvError::Empty) => self.waiting.push(waiting),
                Err(TryRecvError::Disconnected) => {
                    if let Some((number, request)) = waiting.submission {
                        self.send_submission(number, request);
                    }
                }
            }
        }
    }

    fn call(&mut self, command: Command, submission: Option<(u64, JobRequest)>) {
        let (answer, answered) = channel();
        let idem =
            submission.as_ref().map(|(number, _)| IdemKey { key: key_of(*number), request: key_of(*number) });
        let who = Principal { subject: SubjectId(1), uid: 1_000, role: Role::Admin };
        self.calls.push(Call {
            who,
            command,
            idem,
            reply: Box::new(move |result| drop(answer.send(result))),
        });
        self.waiting.push(Waiting { answer: answered, submission });
    }

    fn submit(&mut self) {
        self.submitted += 1;
        let request = self.request();
        self.send_submission(self.submitted, request);
    }

    fn send_submission(&mut self, number: u64, request: JobRequest) {
        let launch = LaunchSpec {
            uid: 1_000,
            gid: 1_000,
            groups: Vec::new(),
            argv: vec![b"true".to_vec()],
            script: None,
            cwd: b"/".to_vec(),
            env: Vec::new(),
            umask: 0o022,
            stdout: b"/dev/null".to_vec(),
            stderr: None,
            output_max: None,
        };
        let target = Target { channel: Channel::Webhook, to: "https://example.org/".to_owned() };
        let options = SubmitOptions {
            preemptible: request.priority == 0,
            preempts: request.priority > 1,
            watches: vec![Watch { when: ENDS.to_vec(), target }],
        };
        let command =
            Command::Submit { request: Box::new(request.clone()), launch: Box::new(launch), options };
        self.call(command, Some((number, request)));
    }

    fn request(&mut self) -> JobRequest {
        let rng = &mut self.rng;
        let known = u64::try_from(self.promises.jobs.len()).unwrap_or(0);
        let array = rng.one_in(5).then(|| ArraySpec {
            indexes: IndexSet::range(0, u32::try_from(rng.below(6)).unwrap_or(0)),
            max_running: rng.one_in(2).then_some(2),
        });
        let after = if known > 0 && rng.one_in(4) {
            let nth = usize::try_from(rng.below(known)).unwrap_or(0);
            let job = self.promises.jobs.values().nth(nth).copied().unwrap_or_default();
            let condition =
                [Condition::Ok, Condition::NotOk, Condition::Any][usize::try_from(rng.below(3)).unwrap_or(0)];
            vec![Dependency { job, condition }]
        } else {
            Vec::new()
        };
        let restart = [RestartPolicy::Never, RestartPolicy::OnFailure];
        let restart = restart[usize::try_from(rng.below(2)).unwrap_or(0)];
        let service = rng.one_in(3).then_some(JobKind::Service { port: None, health: None, restart });
        // One that is stopped at its limit each time would be started again for ever.
        let limited = service.is_none() && !rng.one_in(3);
        JobRequest {
            name: "job".to_owned(),
            kind: service.unwrap_or(JobKind::Batch),
            owner: SubjectId(1),
            team: TEAMS[usize::from(rng.one_in(2))],
            tasks: if rng.one_in(4) { 2 } else { 1 },
            per_task: Resources {
                cores: Cores(1 + u32::try_from(rng.below(4)).unwrap_or(0)),
                memory: Bytes(1 << 20),
                gpus: u16::try_from(rng.below(3)).unwrap_or(0),
            },
            array,
            priority: i32::try_from(rng.below(3)).unwrap_or(0),
            time_limit: limited.then(|| Nanos::from_millis(1 + rng.below(10_000))),
            after,
            retry: RetryPolicy {
                max: u32::try_from(rng.below(3)).unwrap_or(0),
                on: [ExitClass::Failure, ExitClass::OutOfMemory].into_iter().collect(),
                backoff_max: Nanos::from_secs(10),
                ..RetryPolicy::default()
            },
            hold: rng.one_in(10),
            stop: StopPolicy { grace: Nanos::from_secs(2), ..StopPolicy::default() },
            labels: facts::Labels::default(),
            payload: Hash32::default(),
            gpu_model: None,
        }
    }

    fn act(&mut self) {
        let jobs = u64::try_from(self.promises.jobs.len()).unwrap_or(0);
        if jobs == 0 {
            return;
        }
        let nth = usize::try_from(self.rng.below(jobs)).unwrap_or(0);
        let job = self.promises.jobs.values().nth(nth).copied().unwrap_or_default();
        let command = match self.rng.below(6) {
            5 => Command::SetPreemptible(job, self.rng.one_in(2)),
            0 => Command::Hold(job),
            1 => Command::Release(job),
            2 => Command::SetPriority(job, i32::try_from(self.rng.below(5)).unwrap_or(0)),
            3 => Command::Cancel { job, members: Some(IndexSet::range(0, 1)) },
            _ => Command::Cancel { job, members: None },
        };
        self.call(command, None);
    }

    fn change_quota(&mut self) {
        let known = self.server.as_ref().is_some_and(|core| core.state().team(TEAMS[1]).is_some());
        let team = TEAMS[usize::from(!known || self.rng.one_in(2))];
        let mut gpus = |below, others: LimitsV1| {
            let gpus = self.rng.below(below);
            LimitsV1 { gpus: u32::try_from(gpus).ok(), ..others }
        };
        let quota = gpus(5, LimitsV1::UNLIMITED);
        let borrow = gpus(4, LimitsV1::NOTHING);
        let lend = gpus(5, LimitsV1::UNLIMITED);
        self.set_team(team, quota, borrow, lend);
    }

    fn set_team(&mut self, team: TeamId, quota: LimitsV1, borrow: LimitsV1, lend: LimitsV1) {
        let known = self.server.as_ref().is_some_and(|core| core.state().team(team).is_some());
        let name = format!("team {team}");
        self.call(Command::SetTeam { team: known.then_some(team), name, quota, borrow, lend }, None);
    }

    fn change_preemption(&mut self) {
        let reclaim = [Reclaim::Never, Reclaim::BorrowedFirst, Reclaim::LowestPriority];
        let policy = PreemptionSetV1 {
            reclaim: reclaim[usize::try_from(self.rng.below(3)).unwrap_or(0)],
            protect: Nanos::from_millis(self.rng.below(2) * self.rng.below(20_000)),
            preempts_from: self.rng.one_in(2).then_some(1),
            most: u32::try_from(self.rng.below(4)).unwrap_or(0),
        };
        self.call(Command::SetPreemption(policy), None);
    }

    fn set_schedulable(&mut self, schedulable: bool) {
        let reason = "drill".to_owned();
        self.call(Command::SetSchedulable { node: NodeId(0), schedulable, reason }, None);
    }
}
