//! Who wants to know that a job changed, with bounded memory whatever they do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ops::Handle;
use tokio::sync::{broadcast, watch};
use units::JobId;

/// Changes that a listener may be behind before it loses some and is told so.
const BEHIND: usize = 256;

/// The news of the view.
pub(crate) struct Changes {
    all: broadcast::Sender<Arc<[JobId]>>,
    watched: Mutex<BTreeMap<JobId, watch::Sender<()>>>,
}

impl Changes {
    /// Listens to `handle` from now on.
    pub(crate) fn of(handle: &Handle) -> Arc<Self> {
        let changes = Arc::new(Self { all: broadcast::Sender::new(BEHIND), watched: Mutex::default() });
        let told = Arc::clone(&changes);
        handle.on_change(Box::new(move |jobs| told.tell(jobs)));
        changes
    }

    fn tell(&self, jobs: &[JobId]) {
        if self.all.receiver_count() > 0 {
            // Fails only if the last listener has just left.
            let _ = self.all.send(jobs.into());
        }
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !watched.is_empty() {
            jobs.iter().filter_map(|job| watched.get(job)).for_each(|watch| {
                watch.send_replace(());
            });
        }
    }

    /// Every change.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<[JobId]>> {
        self.all.subscribe()
    }

    /// The changes of one job.
    pub(crate) fn watch(self: &Arc<Self>, job: JobId) -> Watch {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let news = watched.entry(job).or_insert_with(|| watch::Sender::new(())).subscribe();
        Watch { job, news, changes: Arc::clone(self) }
    }
}

/// One job's changes since this was made.
pub(crate) struct Watch {
    job: JobId,
    news: watch::Receiver<()>,
    changes: Arc<Changes>,
}

impl Watch {
    /// Waits for a change that was not told yet.
    pub(crate) async fn changed(&mut self) {
        // The sender lives in `changes` as long as this does.
        let _ = self.news.changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.changes.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.get(&self.job).is_some_and(|sender| sender.receiver_count() == 1) {
            watched.remove(&self.job);
        }
    }
}
