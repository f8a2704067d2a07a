//! Submissions: JSON to what is recorded and what is launched.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json, extract::State};
use control::identity::{Action, Resource};
use facts::applied::ClassV1;
use facts::{ArraySpec, Hash32, IndexSet, JobRequest, LaunchSpec, Resources, RetryPolicy};
use ops::api::{Command, IdemKey, SubmitOptions};
use units::{Bytes, Cores, Nanos, SubjectId, TeamId};

use super::input::Raw;
use super::notify::watches;
use crate::app::{App, Caller};
use crate::ask;
use crate::error::ApiError;
use crate::people::Rights;
use crate::tokens::hex;
use crate::wire::{Accepted, Error, Kind, Submit, Text};

/// The longest name in bytes.
const NAME_MAX: usize = 16 << 10;
/// The most labels, and the most bytes in a label's name or value.
const LABELS_MAX: (usize, usize) = (64, 1024);
/// The longest idempotency key in bytes.
const KEY_MAX: usize = 255;
/// The longest path of a health check in bytes.
const PATH_MAX: usize = 1024;
/// The shortest time between health checks, and between an end and the next start, in nanoseconds.
const SHORTEST_NS: u64 = 100_000_000;
/// The highest signal number of Linux.
const SIGNAL_MAX: u8 = 64;

/// Submit a job. It is durable when the answer comes.
///
/// With the header `Idempotency-Key`, sending the same request again returns the first job.
#[utoipa::path(post, path = "/api/v1/jobs", request_body = Submit,
    params(("Idempotency-Key" = Option<String>, Header, description = "Any text, at most 255 bytes")),
    responses((status = 201, body = Accepted), (status = "4XX", body = Error)))]
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Raw<Submit>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let idem = idem_key(caller.who.subject, &headers, &body.0)?;
    let body: Submit = body.read()?;
    let Prepared { request, launch, options } = prepare(&app, &caller, body).await?;
    let command = Command::Submit { request: Box::new(request), launch: Box::new(launch), options };
    let ack = app.call(&caller, command, idem).await?;
    let job = ack.job.ok_or_else(ApiError::stopping)?;
    let accepted =
        Accepted { job: job.0, seq: ack.head.seq.0, hash: hex(&ack.head.hash.0), repeated: ack.repeated };
    Ok((StatusCode::CREATED, Json(accepted)))
}

/// A submission, taken apart.
pub(super) struct Prepared {
    /// What is recorded.
    pub(super) request: JobRequest,
    /// What is launched.
    pub(super) launch: LaunchSpec,
    /// What is said about it beside.
    pub(super) options: SubmitOptions,
}

/// Checks that the caller may submit this at all, and takes it apart.
pub(super) async fn prepare(app: &App, caller: &Caller, mut submit: Submit) -> Result<Prepared, ApiError> {
    may_run(app, &caller.rights)?;
    if submit.priority > 0 {
        caller.may(Action::Favour, Resource::Cluster).map_err(|error| error.at("priority"))?;
    }
    let watches = watches(app, std::mem::take(&mut submit.notify))?;
    let mut options = SubmitOptions { preemptible: submit.preemptible, preempts: false, watches };
    if let Some(class) = submit.priority_class.take() {
        let class = class_called(app, class, submit.priority).await?;
        (submit.priority, options.preempts) = (class.value, class.preempts);
    }
    let team = team(app, submit.team.as_deref()).await?;
    let memory = submit.memory_bytes.unwrap_or_else(|| app.memory_share(submit.cores));
    let retry = std::mem::take(&mut submit.retry).settle(app.retry_defaults(), &submit.kind);
    let (request, launch) = read(submit, caller.who.subject, team, memory, retry, &caller.rights)?;
    Ok(Prepared { request, launch, options })
}

/// Whether this server can and may start processes with these rights.
fn may_run(app: &App, rights: &Rights) -> Result<(), ApiError> {
    let server = app.config.server_uid;
    if rights.uid == 0 && !app.config.allow_root {
        return Err(ApiError::forbidden("jobs do not run as root here")
            .hint("submit as another user, or start the server with `up --allow-root`"));
    }
    if server != 0 && rights.uid != server {
        return Err(ApiError::forbidden(format!(
            "this server runs without root rights: it can start jobs of uid {server} only"
        ))
        .hint("have the server started by root"));
    }
    Ok(())
}

pub(super) fn idem_key(
    owner: SubjectId,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<IdemKey>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    if key.is_empty() || key.len() > KEY_MAX {
        let message = format!("the key has {} bytes; 1 to {KEY_MAX} are allowed", key.len());
        return Err(ApiError::malformed("Idempotency-Key", message));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&owner.0.to_be_bytes()).update(key.as_bytes());
    let key = Hash32(*hasher.finalize().as_bytes());
    Ok(Some(IdemKey { key, request: Hash32(*blake3::hash(body).as_bytes()) }))
}

async fn team(app: &App, name: Option<&str>) -> Result<TeamId, ApiError> {
    let name = name.unwrap_or("default");
    if app.team_called(name).is_none() {
        app.refresh().await?;
    }
    app.team_called(name).ok_or_else(|| {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "no-such-team", format!("there is no team {name}"))
            .hint("`GET /api/v1/teams` lists them")
            .at("team")
    })
}

/// What a class gives. Whoever set it up lets everybody ask for it.
async fn class_called(app: &App, class: String, also: i32) -> Result<ClassV1, ApiError> {
    if also != 0 {
        let message = "a class and a number are given; one of them tells the priority";
        return Err(ApiError::malformed("priority_class", message));
    }
    let classes = ask::look(&app.handle, |state, _| {
        state.priority_classes().map(|(name, class)| (name.to_owned(), class)).collect::<Vec<_>>()
    });
    let classes = classes.await?;
    let found = classes.iter().find(|(name, _)| *name == class).map(|(_, class)| *class);
    found.ok_or_else(|| {
        let names: Vec<_> = classes.iter().map(|(name, _)| name.as_str()).collect();
        let hint = match names.as_slice() {
            [] => "no class is set up; `priorities` of a specification does that".to_owned(),
            names => format!("the classes are {}", names.join(", ")),
        };
        let message = format!("there is no priority called {class}");
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "no-such-priority", message)
            .hint(hint)
            .at("priority_class")
    })
}

/// Checks the request's form and splits it into what is recorded and what is launched.
fn read(
    submit: Submit,
    owner: SubjectId,
    team: TeamId,
    memory: u64,
    retry: RetryPolicy,
    rights: &Rights,
) -> Result<(JobRequest, LaunchSpec), ApiError> {
    check_form(&submit)?;
    check_kind(&submit, &retry)?;
    let array = submit.array.map(|array| -> Result<ArraySpec, ApiError> {
        let wrong = |error: facts::IndexSetError| ApiError::malformed("array.indexes", error.to_string());
        let indexes: IndexSet = array.indexes.parse().map_err(wrong)?;
        Ok(ArraySpec { indexes, max_running: array.max_running })
    });
    let array = array.transpose()?;
    let wrong = |error: units::GpuNameError| ApiError::malformed("gpu_model", error.to_string());
    let gpu_model = submit.gpu_model.map(|name| name.parse().map_err(wrong)).transpose()?;
    let request = JobRequest {
        name: submit.name.unwrap_or_else(|| name_of(&submit.argv, submit.script.is_some())),
        kind: submit.kind.into(),
        owner,
        team,
        tasks: submit.tasks,
        per_task: Resources { cores: Cores(submit.cores), memory: Bytes(memory), gpus: submit.gpus },
        array,
        priority: submit.priority,
        time_limit: submit.time_limit_ns.map(Nanos),
        after: submit.after.into_iter().map(Into::into).collect(),
        retry,
        hold: submit.hold,
        stop: submit.stop.into(),
        labels: submit.labels.into(),
        payload: Hash32::default(),
        gpu_model,
    };
    let bytes = |texts: Vec<Text>| texts.into_iter().map(|text| text.0).collect::<Vec<_>>();
    let script = submit.script.map(|script| script.0);
    let launch = LaunchSpec {
        uid: rights.uid,
        gid: rights.gid,
        groups: rights.groups.clone(),
        argv: match &script {
            Some(script) => interpreted(script, bytes(submit.argv))?,
            None => bytes(submit.argv),
        },
        script,
        cwd: submit.cwd.0,
        env: bytes(submit.env),
        umask: submit.umask,
        stdout: submit.stdout.map_or_else(|| b"%x-%j.out".to_vec(), |path| path.0),
        stderr: submit.stderr.map(|path| path.0),
        output_max: submit.output_max_bytes.map(Bytes),
    };
    Ok((request, launch))
}

fn check_form(submit: &Submit) -> Result<(), ApiError> {
    let ensure = |right: bool, field: &str, message: &str| {
        if right { Ok(()) } else { Err(ApiError::malformed(field, message)) }
    };
    let no_nul = |texts: &[Text]| texts.iter().all(|text| !text.0.contains(&0));
    let path = |text: &Text| !text.0.is_empty() && !text.0.contains(&0);
    let program = submit.script.is_some() || submit.argv.first().is_some_and(|word| !word.0.is_empty());
    ensure(program, "argv", "there is no program to run")?;
    ensure(no_nul(&submit.argv), "argv", "an argument contains a zero byte")?;
    let assigns = |text: &Text| text.0.iter().skip(1).any(|byte| *byte == b'=');
    ensure(no_nul(&submit.env) && submit.env.iter().all(assigns), "env", "a variable is not NAME=value")?;
    ensure(path(&submit.cwd) && submit.cwd.0[0] == b'/', "cwd", "the working directory is no absolute path")?;
    ensure(submit.stdout.as_ref().is_none_or(path), "stdout", "not a path")?;
    ensure(submit.stderr.as_ref().is_none_or(path), "stderr", "not a path")?;
    ensure(submit.umask <= 0o777, "umask", "a mask has at most nine bits")?;
    let name = submit.name.as_deref();
    ensure(name.is_none_or(|name| !name.is_empty() && name.len() <= NAME_MAX), "name", "1 to 16384 bytes")?;
    ensure(submit.time_limit_ns != Some(0), "time_limit_ns", "a job needs some time")?;
    let signal = |number: u8| (1..=SIGNAL_MAX).contains(&number);
    ensure(signal(submit.stop.signal), "stop.signal", "signals are 1 to 64")?;
    ensure(
        submit.stop.warn.is_none_or(|warn| signal(warn.signal)),
        "stop.warn.signal",
        "signals are 1 to 64",
    )?;
    let (most, longest) = LABELS_MAX;
    let fits = |(name, value): (&String, &String)| !name.is_empty() && name.len().max(value.len()) <= longest;
    let labels = submit.labels.len() <= most && submit.labels.iter().all(fits);
    ensure(labels, "labels", "at most 64 labels, each name and value at most 1024 bytes")
}

/// A health check must be possible and must not become a flood; neither may restarts.
fn check_kind(submit: &Submit, retry: &RetryPolicy) -> Result<(), ApiError> {
    let Kind::Service { port, health, .. } = &submit.kind else { return Ok(()) };
    let ensure = |right: bool, field: &str, message: &str| {
        if right { Ok(()) } else { Err(ApiError::malformed(field, message)) }
    };
    let backoff = retry.backoff.min(retry.backoff_max);
    ensure(backoff.0 >= SHORTEST_NS, "retry", "a service is started again after 0.1 s or more")?;
    ensure(*port != Some(0), "kind.service.port", "a port is 1 to 65535")?;
    let Some(health) = health else { return Ok(()) };
    ensure(port.is_some(), "kind.service.health", "a health check needs the service's port")?;
    ensure(health.failures > 0, "kind.service.health.failures", "at least one failure is needed")?;
    ensure(health.every_ns >= SHORTEST_NS, "kind.service.health.every_ns", "at least 0.1 s")?;
    let plain = |path: &String| {
        path.starts_with('/') && path.len() <= PATH_MAX && path.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let path = health.http_path.as_ref().is_none_or(plain);
    ensure(path, "kind.service.health.http_path", "a path begins with / and has no spaces, in ASCII")
}

/// The command that runs a script: what its `#!` line names, with at most one argument as the
/// kernel has it, then `-` for the script itself.
fn interpreted(script: &[u8], arguments: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ApiError> {
    let first = script.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let line = first.unwrap_or_default().trim_ascii();
    if line.is_empty() {
        return Err(ApiError::malformed("script", "the script's first line names no interpreter")
            .hint("let it be #!/bin/sh"));
    }
    let mut words = line.splitn(2, u8::is_ascii_whitespace).map(|word| word.trim_ascii().to_vec());
    Ok(words.by_ref().chain([b"-".to_vec()]).chain(arguments).collect())
}

/// A job is called like its program.
fn name_of(argv: &[Text], is_script: bool) -> String {
    let program = argv.first().filter(|_| !is_script).map(|word| word.0.rsplit(|byte| *byte == b'/').next());
    let name = program.flatten().map(|name| String::from_utf8_lossy(name).into_owned());
    name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX).unwrap_or_else(|| "script".to_owned())
}
