//! How fast the log is read back: `replay DIR EVENTS...` lets the server's core write a history of
//! the first count into DIR, replays it, times a start, and goes on to the next count. It is driven
//! by `cargo xtask bench replay`, and fails if a ratio is worse than wanted (docs/benchmarks.md);
//! of fewer than a million events it tells the figures only.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::identity::{Principal, Role};
use control::{Policy, State};
use facts::event::{LimitsV1, SubmittedV2, TeamSetV2};
use facts::{Actor, Envelope, Event, Hash32, JobKind, JobRequest, LaunchSpec, Resources, Source, TaskExit};
use fourplane_store::{Options, SqliteLog};
use ops::api::{Call, Command, IdemKey, SubmitOptions};
use ops::core::{Core, Input, NodeFacts, Opening};
use ops::ports::{ClockReading, Head, LogStore, NodeCommand, NodeReport, ReportBody, TaskId};
use units::{Bytes, Cores, JobId, Nanos, Seq, SubjectId, TeamId, Timestamp};

/// The program's own allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Jobs submitted in one turn; each leaves five events.
const JOBS: u32 = 512;
/// Time between turns: some 200,000 events a day, and each job stays in the state for a day.
const TURN: u64 = 1_100_000_000_000;
/// Events between the snapshot and the log's end when a start is timed.
const AFTER_SNAPSHOT: u64 = 50_000;
/// Below this a ratio says nothing.
const ENOUGH: u64 = 1_000_000;
const QUEUED: u32 = 100_000;

fn request(at: u32) -> JobRequest {
    JobRequest {
        name: format!("train-resnet-{at:06}"),
        kind: JobKind::Batch,
        owner: SubjectId(1),
        team: TeamId(0),
        tasks: 1,
        per_task: Resources { cores: Cores(1 + at % 2), memory: Bytes(4 << 30), gpus: 0 },
        array: None,
        priority: 0,
        time_limit: Some(Nanos::from_secs(86_400)),
        after: Vec::new(),
        retry: facts::RetryPolicy::default(),
        hold: false,
        stop: facts::StopPolicy::default(),
        labels: BTreeMap::from([
            ("experiment".to_owned(), format!("sweep-{}", at % 100)),
            ("model".to_owned(), "resnet-50".to_owned()),
        ])
        .into(),
        payload: Hash32::default(),
        gpu_model: None,
    }
}

/// Writes a history as a server does: its core, its log, and a node whose jobs take two turns.
struct Writer {
    core: Core<SqliteLog>,
    clock: ClockReading,
    submitted: u32,
    reports: u64,
    running: Vec<TaskId>,
}

impl Writer {
    fn submit(&mut self) -> Input {
        self.submitted += 1;
        let launch = LaunchSpec {
            uid: 1_000,
            gid: 1_000,
            groups: vec![1_000],
            argv: vec![b"python".to_vec(), b"train.py".to_vec()],
            script: None,
            cwd: b"/home/user/project".to_vec(),
            env: vec![b"PATH=/usr/bin:/bin".to_vec(), b"HOME=/home/user".to_vec()],
            umask: 0o022,
            stdout: b"%x-%j.out".to_vec(),
            stderr: None,
            output_max: None,
        };
        // The clock goes on from one writer to the next, so no key comes twice.
        let unique = self.clock.boottime + u64::from(self.submitted);
        let key = Hash32(*blake3::hash(&unique.to_le_bytes()).as_bytes());
        let command = Command::Submit {
            request: Box::new(request(self.submitted)),
            launch: Box::new(launch),
            options: SubmitOptions::default(),
        };
        Input::Call(Call {
            who: Principal { subject: SubjectId(1), uid: 1_000, role: Role::User },
            command,
            idem: Some(IdemKey { key, request: key }),
            reply: Box::new(|answer| assert!(answer.is_ok(), "{answer:?}")),
        })
    }

    fn report(&mut self, body: ReportBody) -> Input {
        self.reports += 1;
        Input::Report(NodeReport { number: self.reports, body })
    }

    /// Jobs that run end, jobs that were started run, `new` ones come.
    fn turn(&mut self, started: &[TaskId], new: u32) -> Outcome<Vec<TaskId>> {
        let now = self.clock.boottime;
        let mut inputs = Vec::new();
        for task in std::mem::take(&mut self.running) {
            inputs.push(self.report(ReportBody::Ended {
                task,
                exit: TaskExit::Exited(u8::from(task.attempt.0.is_multiple_of(50))),
                started: Some(now - TURN),
                ended: now,
                freed: Some(now),
                cpu: Some(TURN),
                memory_peak: Some(Bytes(1 << 30)),
            }));
        }
        for &task in started {
            inputs.push(self.report(ReportBody::Running { task, at: now }));
        }
        self.running = started.to_vec();
        inputs.extend((0..new).map(|_| self.submit()).collect::<Vec<_>>());
        let (turn, failed) = self.core.turn(inputs, self.clock);
        self.clock = ClockReading { boottime: now + TURN, wall: self.clock.wall + TURN.cast_signed() };
        turn.replies.into_iter().for_each(|(reply, answer)| reply(answer));
        let started = turn.commands.iter().filter_map(|command| match command {
            NodeCommand::Start(start) => Some(start.task),
            _ => None,
        });
        failed.map_or(Ok(started.collect()), |error| Err(error.into()))
    }
}

fn open(dir: &Path, clock: ClockReading) -> Outcome<Core<SqliteLog>> {
    let opening = Opening {
        version: "bench".to_owned(),
        boot_id: [1; 16],
        entropy: [1; 32],
        reading: clock,
        node: NodeFacts {
            name: "node".to_owned(),
            cores: Cores(4 * JOBS),
            memory: Bytes(64 << 40),
            devices: Vec::new(),
        },
        policy: Policy::default(),
    };
    Ok(Core::open(SqliteLog::open(dir, Options::default())?, opening)?)
}

/// Makes the history longer until it has `events`, and a snapshot the usual way behind its end.
fn write(dir: &Path, events: u64, clock: ClockReading) -> Outcome<ClockReading> {
    let core = open(dir, clock)?;
    let mut writer = Writer { core, clock, submitted: 0, reports: 0, running: Vec::new() };
    let mut started = Vec::new();
    loop {
        started = writer.turn(&started, JOBS)?;
        let head = writer.core.head().seq.0;
        let behind = |snapshot: Seq| head - snapshot.0;
        let snapshot =
            || Ok::<_, Box<dyn Error>>(writer.core.store().snapshot()?.map(|found| found.head.seq));
        if head >= events && (events < ENOUGH || snapshot()?.is_some_and(|seq| behind(seq) >= AFTER_SNAPSHOT))
        {
            break;
        }
    }
    // The next writer knows nothing of this one's tasks: they would hold their cores for ever.
    while !started.is_empty() || !writer.running.is_empty() {
        started = writer.turn(&started, 0)?;
    }
    Ok(writer.clock)
}

/// Reads and checks the whole chain: the peer of a replay.
fn read_and_hash(dir: &Path) -> Outcome<Duration> {
    let log = SqliteLog::open(dir, Options::default())?;
    let start = Instant::now();
    log.scan(Head::default(), &mut |_, bytes| {
        std::hint::black_box(bytes);
        Ok(())
    })?;
    Ok(start.elapsed())
}

/// A full verified replay, as a start without snapshots does it, on two threads.
fn replay(dir: &Path) -> Outcome<Duration> {
    let log = SqliteLog::open(dir, Options::default())?;
    let start = Instant::now();
    let state = ops::core::replay(&log, State::new(), Head::default())?;
    let time = start.elapsed();
    drop(state);
    Ok(time)
}

/// The same on one thread, for comparison.
fn replay_alone(dir: &Path) -> Outcome<Duration> {
    let log = SqliteLog::open(dir, Options::default())?;
    let mut state = State::new();
    let start = Instant::now();
    log.scan(Head::default(), &mut |_, bytes| {
        let envelope = facts::decode(bytes).expect("the log was written by this program");
        state.apply(&envelope).expect("the event was applied before");
        state.forget_undo();
        Ok(())
    })?;
    Ok(start.elapsed())
}

fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

/// Resident memory of this process in bytes.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Growth of resident memory by a job that waits in the state. Only true in a fresh process.
fn bytes_a_job() -> Outcome<u64> {
    let mut state = State::new();
    let mut apply = |seq: u32, event| {
        let envelope = Envelope {
            seq: Seq(seq.into()),
            ledger_time: Timestamp(seq.into()),
            wall_time: Timestamp(seq.into()),
            source: Source::Api,
            source_time: None,
            actor: Actor::Server,
            cause: None,
            idem_key: None,
            event,
        };
        state.apply(&envelope).map(|()| state.forget_undo())
    };
    let team = TeamSetV2 {
        team: TeamId(0),
        name: "default".to_owned(),
        quota: LimitsV1::UNLIMITED,
        borrow: LimitsV1::NOTHING,
        lend: LimitsV1::UNLIMITED,
    };
    apply(1, Event::TeamSet(team))?;
    let before = resident()?;
    for at in 1..=QUEUED {
        apply(at + 1, Event::Submitted(SubmittedV2 { job: JobId(at.into()), request: request(at) }))?;
    }
    Ok((resident()? - before) / u64::from(QUEUED))
}

/// Prints a figure with what is wanted of it; true if it is missed.
#[expect(clippy::print_stdout, reason = "the result")]
fn missed(what: &str, value: f64, wanted: f64) -> bool {
    println!("| {what} | {value:.2} | {wanted:.2} |");
    value > wanted
}

#[expect(clippy::print_stderr, reason = "progress of a long run")]
fn progress(what: &str, time: Duration) {
    eprintln!("bench: {what}: {:.0} ms", time.as_secs_f64() * 1e3);
}

#[expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "the result; small numbers")]
fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let (dir, counts) = args.split_first().ok_or("usage: replay DIR EVENTS...")?;
    let dir = PathBuf::from(dir);
    let counts: Vec<u64> = counts.iter().map(|count| count.parse()).collect::<Result<_, _>>()?;
    println!("| what | figure | at most |\n|---|---|---|");
    let mut bad = missed("bytes of memory a queued job", bytes_a_job()? as f64, 1_024.0);
    let mut clock = ClockReading { boottime: TURN, wall: 1_800_000_000_000_000_000 };
    let mut first_start = None;
    for &events in &counts {
        let writing = Instant::now();
        clock = write(&dir, events, clock)?;
        progress(&format!("{events} events written"), writing.elapsed());
        let start = || {
            let begin = Instant::now();
            open(&dir, clock).map(|_| begin.elapsed())
        };
        let start = median((0..5).map(|_| start()).collect::<Outcome<_>>()?);
        progress(&format!("start at {events} events"), start);
        if let Some(first) = first_start {
            let what = format!("start at {events} events / at {}", counts[0]);
            bad |= missed(&what, start.as_secs_f64() / Duration::as_secs_f64(&first), 1.5);
            continue;
        }
        first_start = Some(start);
        let (mut hashed, mut replayed, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            hashed.push(read_and_hash(&dir)?);
            replayed.push(replay(&dir)?);
            alone.push(replay_alone(&dir)?);
        }
        let (hashed, replayed, alone) = (median(hashed), median(replayed), median(alone));
        progress(&format!("reading and hashing {events} events"), hashed);
        progress(&format!("replaying {events} events"), replayed);
        progress(&format!("replaying {events} events on one thread"), alone);
        let ratio = replayed.as_secs_f64() / hashed.as_secs_f64();
        bad |= missed(&format!("replay of {events} events / reading and hashing"), ratio, 3.0);
    }
    if bad && counts.first() >= Some(&ENOUGH) { Err("worse than wanted".into()) } else { Ok(()) }
}
