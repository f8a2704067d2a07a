//! How the rest of the server talks to the writer.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use units::{JobId, Seq};

use crate::api::{Call, Look, Refusal, Trial};
use crate::health::HealthReport;
use crate::notify::Tried;
use crate::ports::{LogStore, NodeEvent, SideRow, SideTable, StoreError};
use crate::view::{ViewReader, ViewStore};

/// What the writer's inbox takes.
pub(crate) enum Message {
    Call(Call),
    Look(Look),
    Suppose(Trial),
    Read(Read),
    Node(NodeEvent),
    Health(HealthReport),
    Tried(Tried),
    Stop,
}

/// Reads the store between two commits.
pub type Read = Box<dyn FnOnce(&dyn LogStore) + Send>;

/// Told which jobs changed, once the view shows it.
pub type Hook = Box<dyn FnMut(&[JobId]) + Send>;

/// The writer's end of the inbox; made before the writer, because a node needs to know where
/// its events go.
pub struct Inbox {
    pub(crate) receiver: Receiver<Message>,
    pub(crate) sender: Sender<Message>,
}

impl Inbox {
    /// An empty inbox.
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        Self { receiver, sender }
    }

    /// Where a node delivers what happens on it.
    pub fn node_events(&self) -> Box<dyn Fn(NodeEvent) + Send + Sync> {
        let sender = self.sender.clone();
        // A stopped writer needs no more news: the node keeps what is not acknowledged.
        Box::new(move |event| drop(sender.send(Message::Node(event))))
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// How far the view is, and who wants to know.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<ProgressState>,
    moved: Condvar,
    asked: Condvar,
    hooks: Mutex<Vec<Hook>>,
}

#[derive(Default)]
struct ProgressState {
    committed: Seq,
    applied: Seq,
    /// What somebody waits to see in the view.
    wanted: Seq,
}

impl Progress {
    pub(crate) fn committed(&self, seq: Seq) {
        self.lock().committed = seq;
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody wants to see what is not in the view, at most so long.
    pub(crate) fn linger(&self, at_most: Duration) {
        drop(self.asked.wait_timeout_while(self.lock(), at_most, |state| state.wanted <= state.applied));
    }

    fn settled(&self, seq: Seq, at_most: Duration) -> bool {
        let mut state = self.lock();
        if state.applied >= seq {
            return true;
        }
        state.wanted = state.wanted.max(seq);
        self.asked.notify_one();
        let waited = self.moved.wait_timeout_while(state, at_most, |state| state.applied < seq);
        waited.is_ok_and(|(state, _)| state.applied >= seq)
    }

    pub(crate) fn applied(&self, seq: Seq, jobs: &[JobId]) {
        self.lock().applied = seq;
        self.moved.notify_all();
        if !jobs.is_empty() {
            for hook in self.hooks.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                hook(jobs);
            }
        }
    }
}

/// A way to ask the writer, for any number of threads.
#[derive(Clone)]
pub struct Handle {
    pub(crate) sender: Sender<Message>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) view: Arc<Mutex<Box<dyn ViewStore>>>,
}

impl Handle {
    /// Asks for a change. The reply is always called, from the writer's thread.
    pub fn call(&self, call: Call) {
        if let Err(unsent) = self.sender.send(Message::Call(call))
            && let Message::Call(call) = unsent.0
        {
            (call.reply)(Err(Refusal::Stopping));
        }
    }

    /// Looks at the state between two commits; dropped unused if the writer has stopped.
    pub fn look(&self, look: Look) {
        drop(self.sender.send(Message::Look(look)));
    }

    /// Supposes things on the state between two commits; dropped unused if the writer has stopped.
    pub fn suppose(&self, trial: Trial) {
        drop(self.sender.send(Message::Suppose(trial)));
    }

    /// Reads the store between two commits; dropped unused if the writer has stopped.
    pub fn read(&self, read: Read) {
        drop(self.sender.send(Message::Read(read)));
    }

    /// All rows of a side table. Blocks.
    pub fn side(&self, table: SideTable) -> Result<Vec<SideRow>, Refusal> {
        self.read_blocking(move |store| store.side(table))
    }

    /// One row of a side table. Blocks.
    pub fn side_row(&self, table: SideTable, key: Vec<u8>) -> Result<Option<Vec<u8>>, Refusal> {
        self.read_blocking(move |store| store.side_row(table, &key))
    }

    fn read_blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn LogStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (answer, answered) = channel();
        self.read(Box::new(move |store| drop(answer.send(read(store)))));
        Ok(answered.recv().map_err(|_| Refusal::Stopping)??)
    }

    /// The last committed event.
    pub fn head(&self) -> Seq {
        self.progress.lock().committed
    }

    /// Waits until the view shows everything up to `seq`, at most so long. Blocks.
    pub fn settled(&self, seq: Seq, at_most: Duration) -> bool {
        self.progress.settled(seq, at_most)
    }

    /// Calls `hook` with the jobs that changed, each time the view moves. Must not block.
    pub fn on_change(&self, hook: Hook) {
        self.progress.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(hook);
    }

    /// A reader of the view.
    pub fn reader(&self) -> Result<Box<dyn ViewReader>, StoreError> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).reader()
    }

    /// Lets the writer finish what it has and stop.
    pub fn stop(&self) {
        drop(self.sender.send(Message::Stop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_wants_to_see_more_ends_the_lingering() {
        const LONG: Duration = Duration::from_mins(1);
        let progress = Progress::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 1..=100 {
                    progress.linger(LONG);
                    progress.applied(Seq(seq), &[]);
                }
            });
            for seq in 1..=100 {
                assert!(progress.settled(Seq(seq), LONG / 2), "{seq}");
            }
        });
    }
}
