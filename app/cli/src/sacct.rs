//! Jobs as sacct exports them, for what reads that.
//!
//! The fields and their forms are from the manual of sacct (Slurm 22.05 to 26.05), and only those
//! that mean here what they mean there.

use jiff::tz::TimeZone;
use server::wire::{Job, Time};
use units::Nanos;

use crate::failure::Failure;
use crate::output::plain;
use crate::when;

/// What `-P` shows unless told otherwise: sacct's own, less the partition.
pub(crate) const USUAL: &str = "JobID,JobName,Account,AllocCPUS,State,ExitCode";

/// A field's name, and its text for one job.
pub(crate) type Field = (&'static str, fn(&Job, &TimeZone) -> String);

const FIELDS: [Field; 24] = [
    ("Account", |job, _| plain(&job.team)),
    ("AllocCPUS", |job, _| if job.attempts > 0 { cores(job).to_string() } else { "0".to_owned() }),
    ("AllocTRES", |job, _| if job.attempts > 0 { tres(job) } else { String::new() }),
    ("CPUTime", |job, _| cpu_time(job).to_string()),
    ("CPUTimeRAW", |job, _| cpu_time(job).as_secs().to_string()),
    ("Elapsed", |job, _| elapsed(job).to_string()),
    ("ElapsedRaw", |job, _| elapsed(job).as_secs().to_string()),
    ("End", |job, zone| time(job.ended, zone)),
    ("ExitCode", |job, _| exit_code(job)),
    ("JobID", |job, _| match &job.array {
        Some(array) => format!("{}_[{}]", job.id, array.indexes),
        None => job.id.to_string(),
    }),
    ("JobIDRaw", |job, _| job.id.to_string()),
    ("JobName", |job, _| plain(&job.name)),
    ("NTasks", |job, _| job.tasks.to_string()),
    ("Priority", |job, _| job.priority.to_string()),
    ("ReqCPUS", |job, _| cores(job).to_string()),
    ("ReqMem", |job, _| memory(job)),
    ("ReqTRES", |job, _| tres(job)),
    ("Restarts", |job, _| job.attempts.saturating_sub(1).to_string()),
    ("Start", |job, zone| time(job.started, zone)),
    ("State", |job, _| state(job)),
    ("Submit", |job, zone| time(Some(job.submitted), zone)),
    ("Timelimit", |job, _| {
        job.time_limit_ns.map_or_else(|| "UNLIMITED".to_owned(), |limit| Nanos(limit).to_string())
    }),
    ("TimelimitRaw", |job, _| {
        job.time_limit_ns
            .map_or_else(|| "UNLIMITED".to_owned(), |limit| (Nanos(limit).as_secs() / 60).to_string())
    }),
    ("User", |job, _| plain(&job.owner)),
];

/// The fields of a list such as `JobID,State`, in any case.
pub(crate) fn fields(names: &str) -> Result<Vec<Field>, Failure> {
    let find = |name: &str| {
        let found = FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied();
        found.ok_or_else(|| {
            let all = || FIELDS.iter().map(|(known, _)| *known);
            let near = spec::nearest(name, all()).map(|near| format!("did you mean {near}?"));
            let failure = Failure::usage(format!("there is no field '{name}' of sacct here"));
            let list = format!("the fields are {}", all().collect::<Vec<_>>().join(", "));
            near.into_iter().fold(failure, Failure::hint).hint(list)
        })
    };
    names.split(',').filter(|name| !name.is_empty()).map(find).collect()
}

fn cores(job: &Job) -> u64 {
    u64::from(job.tasks) * u64::from(job.cores)
}

fn elapsed(job: &Job) -> Nanos {
    Nanos(job.elapsed_ns.unwrap_or(0))
}

fn cpu_time(job: &Job) -> Nanos {
    Nanos(elapsed(job).0.saturating_mul(cores(job)))
}

/// As sacct writes times: local, and `Unknown` for what has not happened.
fn time(time: Option<Time>, zone: &TimeZone) -> String {
    time.map_or_else(|| "Unknown".to_owned(), |time| when::local(time, zone).replace(' ', "T"))
}

/// `64M`, `16G`: binary, as Slurm has it.
fn memory(job: &Job) -> String {
    let mebibytes = job.memory_bytes.saturating_mul(u64::from(job.tasks)).div_ceil(1 << 20);
    if mebibytes > 0 && mebibytes % 1_024 == 0 {
        format!("{}G", mebibytes / 1_024)
    } else {
        format!("{mebibytes}M")
    }
}

/// GPUs are named with their model, where that was asked for, and without.
fn tres(job: &Job) -> String {
    let gpus = u64::from(job.tasks) * u64::from(job.gpus);
    let typed = job.gpu_model.as_ref().map(|model| format!("gres/gpu:{}={gpus}", model.to_lowercase()));
    let plain = (gpus > 0).then(|| format!("gres/gpu={gpus}"));
    let parts = [Some(format!("cpu={}", cores(job))), plain, typed, Some(format!("mem={}", memory(job)))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// `0:9`: the exit code, then the signal.
fn exit_code(job: &Job) -> String {
    let Some(outcome) = &job.outcome else { return "0:0".to_owned() };
    match (outcome.kind.as_str(), outcome.number) {
        ("code", Some(code)) => format!("{code}:0"),
        ("signal", Some(signal)) => format!("0:{signal}"),
        ("out-of-memory", _) => "0:125".to_owned(),
        ("success" | "time-limit" | "idle-limit" | "cancelled" | "preempted" | "node-restart", _) => {
            "0:0".to_owned()
        }
        _ => "1:0".to_owned(),
    }
}

/// The state's word in Slurm.
fn state(job: &Job) -> String {
    let kind = job.outcome.as_ref().map(|outcome| outcome.kind.as_str());
    let word = match (job.state.word(), kind) {
        ("queued" | "held", _) => "PENDING",
        ("running", _) => "RUNNING",
        ("completed", _) => "COMPLETED",
        ("cancelled", _) => "CANCELLED",
        (_, Some("out-of-memory")) => "OUT_OF_MEMORY",
        (_, Some("time-limit")) => "TIMEOUT",
        (_, Some("node-restart")) => "NODE_FAIL",
        (_, Some("preempted")) => "PREEMPTED",
        _ => "FAILED",
    };
    word.to_owned()
}
