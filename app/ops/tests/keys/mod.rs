//! How long an idempotency key is remembered.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]

use std::sync::mpsc::channel;

use control::Policy;
use control::identity::{Principal, Role};
use facts::{Hash32, JobKind, JobRequest, LaunchSpec, Resources, RetryPolicy, StopPolicy};
use ops::api::{Ack, Call, Command, IdemKey, SubmitOptions};
use ops::core::{Core, Input, NodeFacts, Opening};
use ops::ports::{ClockReading, LogStore};
use store::{ModelLog, Room};
use units::{Bytes, Cores, JobId, Nanos, SubjectId, TeamId, Timestamp};

const DAY: u64 = 86_400_000_000_000;

struct Server {
    disk: ModelLog,
    core: Core<ModelLog>,
    now: u64,
}

fn reading(now: u64) -> ClockReading {
    ClockReading { boottime: now, wall: 1_800_000_000_000_000_000 + i64::try_from(now).unwrap() }
}

fn open(disk: &ModelLog, now: u64) -> Core<ModelLog> {
    let node = NodeFacts { name: "n".to_owned(), cores: Cores(8), memory: Bytes(1 << 30), devices: vec![] };
    let (version, policy) = ("test".to_owned(), Policy::default());
    let reading = reading(now);
    let opening = Opening { version, boot_id: [1; 16], entropy: [2; 32], reading, node, policy };
    Core::open(disk.clone(), opening).unwrap()
}

impl Server {
    fn new() -> Self {
        let disk = ModelLog::new();
        Self { core: open(&disk, 1), disk, now: 1 }
    }

    fn restart(&mut self) {
        self.disk.crash(false);
        self.core = open(&self.disk, self.now);
    }

    /// A turn, `days` after the start.
    fn at(&mut self, days: u64) -> &mut Self {
        self.now = days * DAY;
        self.turn(Vec::new());
        self
    }

    fn turn(&mut self, inputs: Vec<Input>) {
        let (turn, error) = self.core.turn(inputs, reading(self.now));
        assert!(error.is_none(), "{error:?}");
        turn.replies.into_iter().for_each(|(reply, answer)| reply(answer));
    }

    fn call(&mut self, command: Command, key: Option<u64>) -> Ack {
        let who = Principal { subject: SubjectId(1), uid: 1, role: Role::Admin };
        let idem = key.map(|key| IdemKey { key: hash(key), request: Hash32([9; 32]) });
        let (answer, answered) = channel();
        let reply = Box::new(move |result| answer.send(result).unwrap());
        self.turn(vec![Input::Call(Call { who, command, idem, reply })]);
        answered.recv().unwrap().unwrap()
    }

    fn submit(&mut self, key: u64) -> Ack {
        let (request, launch) = (Box::new(request()), Box::new(launch()));
        let options = SubmitOptions { preemptible: true, ..SubmitOptions::default() };
        self.call(Command::Submit { request, launch, options }, Some(key))
    }

    fn cancel(&mut self, job: Option<JobId>) {
        self.call(Command::Cancel { job: job.unwrap(), members: None }, None);
    }

    fn waits(&self) -> usize {
        self.disk.lapses(usize::MAX).unwrap().len()
    }

    fn wakes(&self) -> Option<Nanos> {
        self.core.next_wake().map(|at: Timestamp| at.since(self.core.now()))
    }
}

fn hash(key: u64) -> Hash32 {
    Hash32(*blake3::hash(&key.to_le_bytes()).as_bytes())
}

/// A job that waits until it is cancelled.
fn request() -> JobRequest {
    JobRequest {
        name: "job".to_owned(),
        kind: JobKind::Batch,
        owner: SubjectId(1),
        team: TeamId(0),
        tasks: 1,
        per_task: Resources { cores: Cores(1), memory: Bytes(1), gpus: 0 },
        array: None,
        priority: 0,
        time_limit: None,
        after: Vec::new(),
        retry: RetryPolicy::default(),
        hold: true,
        stop: StopPolicy::default(),
        labels: facts::Labels::default(),
        payload: Hash32::default(),
        gpu_model: None,
    }
}

fn launch() -> LaunchSpec {
    LaunchSpec {
        argv: vec![b"true".to_vec()],
        script: None,
        env: Vec::new(),
        cwd: b"/".to_vec(),
        stdout: b"o".to_vec(),
        stderr: None,
        uid: 1,
        gid: 1,
        groups: Vec::new(),
        umask: 0o022,
        output_max: None,
    }
}

#[test]
fn a_key_lives_as_long_as_its_job_and_thirty_days() {
    let mut server = Server::new();
    let first = server.submit(1);
    assert!(server.at(40).submit(1).repeated, "its job waits");
    server.cancel(first.job);
    assert_eq!(server.submit(1), Ack { repeated: true, ..server.submit(1) });
    for restart in [false, true] {
        if restart {
            server.restart();
        }
        let again = server.at(69).submit(1);
        assert!(again.repeated && again.job == first.job, "29 days after its end, restart {restart}");
        assert_eq!(server.wakes(), Some(Nanos(DAY)));
    }
    let head = server.core.head();
    let second = server.at(70).submit(1);
    assert_eq!((second.repeated, second.job), (false, Some(JobId(2))));
    assert!(server.disk.event(head.seq).unwrap().is_some(), "the log keeps its events");
    server.restart();
    assert_eq!(server.submit(1).job, second.job, "and is remembered anew");
    assert_eq!(server.waits(), 0);
}

#[test]
fn a_key_of_anything_else_lives_thirty_days() {
    let mut server = Server::new();
    let job = server.submit(1).job.unwrap();
    let hold = |server: &mut Server| server.call(Command::Hold(job), Some(2)).repeated;
    assert!(!hold(&mut server));
    server.at(29);
    assert!(hold(&mut server));
    server.at(31);
    assert!(!hold(&mut server));
    assert!(server.submit(1).repeated, "the job's own is not touched");
}

#[test]
fn many_keys_are_forgotten_piece_by_piece_and_none_on_a_full_disk() {
    let mut server = Server::new();
    for key in 0..150 {
        let job = server.submit(key).job;
        server.cancel(job);
    }
    server.disk.set_room(Room::Low);
    server.at(31);
    assert_eq!((server.waits(), server.wakes()), (150, Some(Nanos::from_secs(60))));
    server.disk.set_room(Room::Plenty);
    server.at(32);
    assert_eq!((server.waits(), server.wakes()), (86, Some(Nanos::ZERO)), "it goes on at once");
    assert!(server.disk.idem(&hash(0)).unwrap().is_none() && server.disk.idem(&hash(149)).unwrap().is_some());
    for left in [22, 0] {
        server.turn(Vec::new());
        assert_eq!(server.waits(), left);
    }
    assert_eq!((server.disk.idem(&hash(149)).unwrap(), server.wakes()), (None, None));
}
