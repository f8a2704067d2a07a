//! Job changes as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use ops::view::JobRow;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use units::{JobId, SubjectId};

use super::jobs::active;
use super::show::show_job;
use crate::app::{App, Caller};
use crate::error::ApiError;
use crate::shares::Share;
use crate::wire::{Error, Job};

/// Events that wait for a slow reader before it is let fall behind.
const AHEAD: usize = 64;
/// Jobs told to a listener that fell behind.
const CAUGHT_UP: usize = 500;
/// Streams of one person: each costs a look at the view for every change.
const LISTENERS: u32 = 64;
/// An idle stream shows so often that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Follow the changes of all jobs.
///
/// Each event `job` carries a job as it stands after a change. A reader that is too slow gets
/// `lagged` with the number of changes it missed, then the jobs that are not over; what
/// ended meanwhile is in `GET /jobs?since=`.
#[utoipa::path(get, path = "/api/v1/events",
    responses((status = 200, body = Job, content_type = "text/event-stream"), (status = "4XX", body = Error)))]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let share = app.listeners.take(caller.who.subject, LISTENERS);
    let hint = "close pages of this server, or programs that follow /api/v1/events";
    let share = share.ok_or_else(|| ApiError::too_many("streams of events", LISTENERS, hint))?;
    let (told, stream) = mpsc::channel(AHEAD);
    // Listening begins before the answer does: what happens after it is never missed.
    let news = app.changes.listen();
    let listener = Listener { app, told, _share: share };
    tokio::spawn(listener.follow(news));
    Ok(Sse::new(ReceiverStream::new(stream)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// The reader has gone, or the server is going.
struct Over;

struct Listener {
    app: Arc<App>,
    told: mpsc::Sender<Result<Event, Infallible>>,
    _share: Share<SubjectId>,
}

impl Listener {
    async fn follow(self, mut news: tokio::sync::broadcast::Receiver<Arc<[JobId]>>) {
        loop {
            let next = tokio::select! {
                next = news.recv() => next,
                () = self.told.closed() => return,
                () = self.app.closed() => return,
            };
            let sent = match next {
                Ok(jobs) => self.changed(jobs).await,
                Err(RecvError::Lagged(missed)) => self.lagged(missed).await,
                Err(RecvError::Closed) => return,
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn changed(&self, jobs: Arc<[JobId]>) -> Result<(), Over> {
        let rows = self.app.view(move |view| {
            let rows = jobs.iter().map(|job| view.job(*job));
            rows.filter_map(Result::transpose).collect::<Result<Vec<JobRow>, _>>()
        });
        let (rows, now) = (rows.await?, self.app.now().await?);
        for row in rows {
            self.tell(&show_job(&self.app, row, now)).await?;
        }
        Ok(())
    }

    async fn lagged(&self, missed: u64) -> Result<(), Over> {
        let event = Event::default().event("lagged").data(format!("{{\"missed\":{missed}}}"));
        self.told.send(Ok(event)).await.map_err(|_| Over)?;
        for job in active(&self.app, CAUGHT_UP).await? {
            self.tell(&job).await?;
        }
        Ok(())
    }

    async fn tell(&self, job: &Job) -> Result<(), Over> {
        let event = Event::default().event("job").json_data(job).expect("plain values serialise");
        self.told.send(Ok(event)).await.map_err(|_| Over)
    }
}

impl From<ApiError> for Over {
    /// The stream has begun: ending it makes the client come back and hear the error itself.
    fn from(_: ApiError) -> Self {
        Self
    }
}
