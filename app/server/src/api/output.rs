//! A job's output, read from the user's own file.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use facts::{PathParts, expand_path};
use ops::api::OutputRow;
use ops::ports::SideTable;
use ops::view::JobRow;
use rustix::fs::OFlags;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use units::{ArrayIndex, JobId, MemberId, Rank};
use utoipa::{IntoParams, ToSchema};

use super::input::Params;
use crate::app::App;
use crate::ask;
use crate::changes::Watch;
use crate::error::ApiError;
use crate::wire::Error;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// How often a followed file is looked at: at first, doubling to the last while it is quiet.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// Which of the two streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stream {
    /// Standard output, with standard error unless that has a file of its own.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which output, and which part of it.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OutputParams {
    /// The member of an array.
    #[serde(default)]
    index: u32,
    /// The task of a gang.
    #[serde(default)]
    rank: u32,
    /// Which stream.
    #[serde(default)]
    #[param(inline)]
    stream: Stream,
    /// Go on until the member is over: `1` or `true`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    follow: Flag,
    /// Skip so many bytes.
    from: Option<u64>,
    /// Only so many bytes from the end of what is there now.
    tail: Option<u64>,
}

/// A yes or no in a query, as people write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Flag {
    #[default]
    #[serde(alias = "0", rename = "false")]
    No,
    #[serde(alias = "1", alias = "", rename = "true")]
    Yes,
}

/// Read a job's output.
///
/// The header `Fourplane-Offset` tells where in the file the answer begins; to go on after a
/// broken connection give `from` that plus the bytes received.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/output", params(("id" = u64, Path), OutputParams),
    responses((status = 200, body = String, content_type = "application/octet-stream"),
        (status = "4XX", body = Error)))]
pub(super) async fn output(
    State(app): State<Arc<App>>,
    Extension(row): Extension<Arc<JobRow>>,
    Params(params): Params<OutputParams>,
) -> Result<Response, ApiError> {
    let (handle, key) = (app.handle.clone(), row.id.0.to_be_bytes().to_vec());
    let found = ask::aside(move || handle.side_row(SideTable::Output, key)).await?;
    let bytes = found.ok_or_else(|| ApiError::not_found("where its output went is no longer known"))?;
    let place: OutputRow = ask::decode_row(&bytes)?;
    let source = Source { path: path_of(&place, &row, &params)?, uid: place.uid };
    let watch = app.changes.watch(row.id);
    let follow = params.follow == Flag::Yes && !is_over(&app, row.id, params.index).await?;
    let opening = source.clone();
    let Some(file) = ask::aside(move || opening.open()).await? else {
        if follow {
            return Ok(answer(
                0,
                Follower { app, source, watch, file: None, offset: 0, params },
                row.id,
                true,
            ));
        }
        let path = source.path.display();
        return Err(ApiError::not_found(format!("there is no output yet at {path}")));
    };
    let length = file.metadata().map_err(|error| source.failed(&error))?.len();
    let offset = params.tail.map_or(params.from.unwrap_or(0), |tail| length.saturating_sub(tail));
    let follower = Follower { app, source, watch, file: Some(file), offset, params };
    Ok(answer(offset, follower, row.id, follow))
}

fn path_of(place: &OutputRow, row: &JobRow, params: &OutputParams) -> Result<PathBuf, ApiError> {
    if !row.request.members().contains(ArrayIndex(params.index)) {
        let message = format!("job {} has no member {}", row.id, params.index);
        return Err(ApiError::not_found(message).at("index"));
    }
    if params.rank >= row.request.tasks {
        let message = format!("job {} has {} tasks, from 0", row.id, row.request.tasks);
        return Err(ApiError::not_found(message).at("rank"));
    }
    let pattern = match (params.stream, &place.stderr) {
        (Stream::Stderr, Some(stderr)) => stderr,
        _ => &place.stdout,
    };
    let parts = PathParts {
        name: &row.request.name,
        member: MemberId { job: row.id, index: ArrayIndex(params.index) },
        is_array: row.request.array.is_some(),
        rank: Rank(params.rank),
    };
    let text = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    Ok(text(&place.cwd).join(text(&expand_path(pattern, parts))))
}

/// Whether nothing more will be written for a member.
async fn is_over(app: &Arc<App>, id: JobId, index: u32) -> Result<bool, ApiError> {
    let row = app.job(id).await?;
    if row.state.is_over() || row.request.array.is_none() {
        return Ok(row.state.is_over());
    }
    // A member of an array is over when none of its tries is open and none is to come.
    ask::look(&app.handle, move |state, _| {
        let index = ArrayIndex(index);
        let member = MemberId { job: id, index };
        state.job(id).is_none_or(|job| {
            !job.pending.contains(index)
                && !job.ending.contains(index)
                && state.retry(member).is_none()
                && state.attempt_of(member).is_none()
        })
    })
    .await
}

/// The user's file.
#[derive(Clone)]
struct Source {
    path: PathBuf,
    uid: u32,
}

impl Source {
    /// Opens the file, if it is there. The server may have rights that the user has not: what
    /// it opens must be a plain file of the job's own user, reached by no link of that name.
    fn open(&self) -> Result<Option<File>, ApiError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = i32::try_from(flags.bits()).expect("open flags are small");
        let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(&error)),
        };
        let metadata = file.metadata().map_err(|error| self.failed(&error))?;
        if !metadata.is_file() || metadata.uid() != self.uid {
            let path = self.path.display();
            let message = format!("{path} is no plain file of the job's user");
            return Err(ApiError::new(StatusCode::CONFLICT, "not-readable", message));
        }
        Ok(Some(file))
    }

    fn failed(&self, error: &io::Error) -> ApiError {
        let message = format!("{} cannot be read: {error}", self.path.display());
        ApiError::new(StatusCode::CONFLICT, "not-readable", message)
    }
}

fn answer(offset: u64, follower: Follower, job: JobId, follow: bool) -> Response {
    // Two chunks ahead of the reader, no more: a slow one slows the reading.
    let (chunks, body) = mpsc::channel(2);
    tokio::spawn(async move {
        // An error here breaks the answer off, which is how a client sees that it is not whole.
        if let Err(error) = follower.run(job, follow, &chunks).await {
            drop(chunks.send(Err(error)).await);
        }
    });
    let headers = [
        (CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
        ("fourplane-offset", offset.to_string()),
    ];
    (headers, Body::from_stream(ReceiverStream::new(body))).into_response()
}

struct Follower {
    app: Arc<App>,
    source: Source,
    watch: Watch,
    file: Option<File>,
    offset: u64,
    params: OutputParams,
}

impl Follower {
    async fn run(
        mut self,
        job: JobId,
        follow: bool,
        chunks: &mpsc::Sender<Result<Bytes, ApiError>>,
    ) -> Result<(), ApiError> {
        let mut pause = LOOK.0;
        // Known to be over before the last look at the file: nothing is missed.
        let mut is_last = !follow;
        loop {
            let mut grew = false;
            while let Some(chunk) = self.chunk().await? {
                grew = true;
                if chunks.send(Ok(chunk)).await.is_err() {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
            pause = if grew { LOOK.0 } else { (pause * 2).min(LOOK.1) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.watch.changed() => is_last = is_over(&self.app, job, self.params.index).await?,
                () = chunks.closed() => return Ok(()),
                () = self.app.closed() => return Err(ApiError::stopping()),
            }
        }
    }

    /// The next bytes; none at the end of the file, or where there is none yet.
    async fn chunk(&mut self) -> Result<Option<Bytes>, ApiError> {
        let (source, file, offset) = (self.source.clone(), self.file.take(), self.offset);
        let (file, offset, chunk) = ask::aside(move || read(&source, file, offset)).await?;
        (self.file, self.offset) = (file, offset);
        Ok(chunk)
    }
}

type Read = (Option<File>, u64, Option<Bytes>);

fn read(source: &Source, file: Option<File>, offset: u64) -> Result<Read, ApiError> {
    let Some(file) = file.map_or_else(|| source.open(), |file| Ok(Some(file)))? else {
        return Ok((None, offset, None));
    };
    let mut chunk = vec![0; CHUNK];
    let length = file.read_at(&mut chunk, offset).map_err(|error| source.failed(&error))?;
    chunk.truncate(length);
    let is_empty = chunk.is_empty();
    // A file that was cut short is read from its start again, as `tail -f` does.
    let is_cut = is_empty && file.metadata().is_ok_and(|metadata| metadata.len() < offset);
    let next = if is_cut { 0 } else { offset + length as u64 };
    Ok((Some(file), next, (!is_empty).then(|| chunk.into())))
}
