//! The threads around [`crate::core`]: the writer, and the projector that keeps the view.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use facts::{Envelope, decode};
use units::JobId;

use crate::core::{Core, Input, Opening};
use crate::handle::{Handle, Inbox, Message, Progress};
use crate::health::Prober;
use crate::notify::{Courier, Notifier};
use crate::ports::{Clock, Head, LogStore, Node, NodeError, NodeEvent, StoreError};
use crate::view::{Projection, ViewStore};

/// At most so many messages share a commit.
const DRAIN: usize = 512;

/// Events that a view being caught up takes in one write.
const REPLAY_BATCH: usize = 10_000;

/// Changes gather for so long before the view is written, unless somebody waits for them: each
/// write costs the writer's disk and processor, however few rows it has.
const LINGER: Duration = Duration::from_millis(5);

/// A view that could not be written is tried again after this time.
const VIEW_RETRY: Duration = Duration::from_secs(1);

/// A node that does not answer is tried again after this time.
const RECONNECT: Duration = Duration::from_millis(250);

/// What a server is made of.
pub struct Parts<S, N, C> {
    /// The event log.
    pub store: S,
    /// The view, of the same log or empty.
    pub view: Box<dyn ViewStore>,
    /// The node, whose events go to `inbox`.
    pub node: N,
    /// The clocks.
    pub clock: C,
    /// Who tells people what became of jobs.
    pub courier: Arc<dyn Courier>,
    /// Where requests and the node's events arrive.
    pub inbox: Inbox,
    /// What this start is given.
    pub opening: Opening,
}

/// A running writer.
pub struct Running {
    /// For everybody who asks.
    pub handle: Handle,
    writer: JoinHandle<Result<(), WriterError>>,
    projector: JoinHandle<Result<(), StoreError>>,
}

/// Why a writer stopped on its own.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// Another server has taken over.
    #[error(transparent)]
    Node(#[from] NodeError),
}

impl Running {
    /// Waits until writer and projector have stopped.
    pub fn join(self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let Self { handle, writer, projector } = self;
        let written = writer.join();
        drop(handle);
        projector.join().map_err(|_| "the projector thread panicked")??;
        written.map_err(|_| "the writer thread panicked")??;
        Ok(())
    }
}

/// Opens the log, brings the view up to date and starts the threads.
pub fn start<S, N, C>(parts: Parts<S, N, C>) -> Result<Running, StoreError>
where
    S: LogStore + 'static,
    N: Node + 'static,
    C: Clock + 'static,
{
    let Parts { store, mut view, node, clock, courier, inbox, opening } = parts;
    let core = Core::open(store, opening)?;
    catch_up(view.as_mut(), core.store())?;
    let progress = Arc::new(Progress::default());
    progress.committed(core.head().seq);
    progress.applied(core.head().seq, &[]);
    let view = Arc::new(Mutex::new(view));
    let prober = Prober::new(inbox.sender.clone(), core.state());
    let notifier =
        Notifier::start(courier, inbox.sender.clone()).map_err(|error| no_thread("notifier", error))?;
    notifier.take(core.waiting_parcels());
    let handle = Handle { sender: inbox.sender, progress: Arc::clone(&progress), view: Arc::clone(&view) };
    let (committed, to_project) = channel();
    let projector_progress = Arc::clone(&progress);
    let projector = named("projector", move || run_projector(&view, &to_project, &projector_progress))?;
    let link = Link::Down(Instant::now());
    let mut writer = Writer { core, node, clock, link, committed, progress, prober, notifier };
    let receiver = inbox.receiver;
    let writer = named("writer", move || writer.run(&receiver))?;
    Ok(Running { handle, writer, projector })
}

fn named<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(|source| no_thread(name, source))
}

fn no_thread(name: &str, source: std::io::Error) -> StoreError {
    StoreError::Failed { doing: "starting thread", path: name.to_owned(), source: Box::new(source) }
}

/// Whether the node is connected, and if not, when to try next.
#[derive(Clone, Copy)]
enum Link {
    Up,
    Down(Instant),
}

struct Writer<S, N, C> {
    core: Core<S>,
    node: N,
    clock: C,
    link: Link,
    committed: Sender<(Vec<Envelope>, Head)>,
    progress: Arc<Progress>,
    prober: Prober,
    notifier: Notifier,
}

impl<S: LogStore, N: Node, C: Clock> Writer<S, N, C> {
    fn run(&mut self, inbox: &Receiver<Message>) -> Result<(), WriterError> {
        loop {
            let messages = self.wait(inbox);
            let (mut inputs, mut looks, mut stop) = (Vec::with_capacity(messages.len()), Vec::new(), false);
            for message in messages {
                match message {
                    Message::Call(call) => inputs.push(Input::Call(call)),
                    Message::Node(NodeEvent::Report(report)) => inputs.push(Input::Report(report)),
                    Message::Node(NodeEvent::Outside(devices)) => inputs.push(Input::Outside(devices)),
                    Message::Node(NodeEvent::Lost) => self.link = Link::Down(Instant::now()),
                    Message::Health(report) => inputs.push(Input::Health(report)),
                    Message::Tried(tried) => inputs.push(Input::Tried(tried)),
                    Message::Stop => stop = true,
                    look => looks.push(look),
                }
            }
            self.connect(&mut inputs)?;
            self.turn(inputs)?;
            for look in looks {
                match look {
                    Message::Look(look) => look(self.core.state(), self.core.now()),
                    Message::Suppose(trial) => self.core.suppose(trial),
                    Message::Read(read) => read(self.core.store()),
                    Message::Call(_)
                    | Message::Node(_)
                    | Message::Health(_)
                    | Message::Tried(_)
                    | Message::Stop => {}
                }
            }
            if stop {
                return Ok(());
            }
        }
    }

    /// Waits for a message, a timer or the next try to connect; then takes what is there.
    fn wait(&self, inbox: &Receiver<Message>) -> Vec<Message> {
        let timer = self.core.next_wake().map(|at| Duration::from_nanos(at.since(self.core.now()).0));
        let retry = match self.link {
            Link::Up => None,
            Link::Down(at) => Some(at.saturating_duration_since(Instant::now())),
        };
        // The clock itself wants to be read now and then, to see steps of the wall clock.
        let longest = Duration::from_secs(10);
        let patience = [timer, retry].into_iter().flatten().fold(longest, Duration::min);
        match inbox.recv_timeout(patience.max(Duration::from_millis(1))) {
            Ok(first) => std::iter::once(first).chain(inbox.try_iter().take(DRAIN - 1)).collect(),
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => vec![Message::Stop],
        }
    }

    fn connect(&mut self, inputs: &mut Vec<Input>) -> Result<(), WriterError> {
        let Link::Down(due) = self.link else { return Ok(()) };
        if due > Instant::now() {
            return Ok(());
        }
        match self.node.hello(self.core.epoch()) {
            Ok(hello) => {
                self.link = Link::Up;
                inputs.push(Input::Hello(hello));
                Ok(())
            }
            Err(error @ NodeError::Superseded(_)) => Err(error.into()),
            Err(NodeError::Unreachable { .. }) => {
                self.link = Link::Down(Instant::now() + RECONNECT);
                Ok(())
            }
        }
    }

    fn turn(&mut self, inputs: Vec<Input>) -> Result<(), WriterError> {
        let (turn, failed) = self.core.turn(inputs, self.clock.read());
        if !turn.committed.is_empty() {
            let head = self.core.head();
            self.prober.follow(self.core.state(), &turn.committed);
            self.progress.committed(head.seq);
            // The projector only ends before the writer if the view failed; the log goes on.
            drop(self.committed.send((turn.committed, head)));
        }
        self.notifier.take(turn.parcels);
        for (reply, answer) in turn.replies {
            reply(answer);
        }
        if failed.is_some() {
            // The node repeats what was not acknowledged when it is greeted again, and checks
            // tell again what is not known.
            self.link = Link::Down(Instant::now() + RECONNECT);
            self.prober.restart(self.core.state());
            self.notifier.take(self.core.waiting_parcels());
        } else if !turn.commands.is_empty() && matches!(self.link, Link::Up) {
            match self.node.send(&turn.commands) {
                Ok(()) => {}
                Err(error @ NodeError::Superseded(_)) => return Err(error.into()),
                Err(NodeError::Unreachable { .. }) => self.link = Link::Down(Instant::now()),
            }
        }
        Ok(())
    }
}

/// Brings the view to the log's end; a view that does not fit the log is made again.
fn catch_up(view: &mut dyn ViewStore, store: &impl LogStore) -> Result<(), StoreError> {
    let from = view.applied();
    match replay(view, store, from) {
        Err(StoreError::Damaged { .. }) if from != Head::default() => {
            view.clear()?;
            replay(view, store, Head::default())
        }
        done => done,
    }
}

fn replay(view: &mut dyn ViewStore, store: &impl LogStore, from: Head) -> Result<(), StoreError> {
    let (mut head, mut pending) = (from, Vec::with_capacity(REPLAY_BATCH));
    store.scan(from, &mut |seq, bytes| {
        let envelope = decode(bytes).map_err(|error| StoreError::Damaged {
            path: "the event log".to_owned(),
            seq,
            what: error.to_string(),
        })?;
        head = head.then(bytes);
        pending.push(envelope);
        if pending.len() == REPLAY_BATCH {
            fold(view, &pending, head)?;
            pending.clear();
        }
        Ok(())
    })?;
    fold(view, &pending, head).map(drop)
}

/// Folds events that end at `head` into the view; tells which jobs changed.
fn fold<'a>(
    view: &mut dyn ViewStore,
    envelopes: impl IntoIterator<Item = &'a Envelope>,
    head: Head,
) -> Result<Vec<JobId>, StoreError> {
    let mut projection = Projection::new(view)?;
    for envelope in envelopes {
        projection.apply(envelope)?;
    }
    let changed = projection.finish();
    view.write(&changed, head)?;
    Ok(changed.jobs.into_keys().collect())
}

/// Keeps the view up with the log. A view that cannot be written, as on a full disk, is behind
/// until it can: the events wait here, and a start of the server would fold them in as well.
fn run_projector(
    view: &Mutex<Box<dyn ViewStore>>,
    committed: &Receiver<(Vec<Envelope>, Head)>,
    progress: &Progress,
) -> Result<(), StoreError> {
    let mut behind: Vec<(Vec<Envelope>, Head)> = Vec::new();
    loop {
        let next = if behind.is_empty() {
            let first = committed.recv();
            if first.is_ok() {
                progress.linger(LINGER);
            }
            first.map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            committed.recv_timeout(VIEW_RETRY)
        };
        let stopped = matches!(next, Err(RecvTimeoutError::Disconnected));
        behind.extend(next.into_iter().chain(committed.try_iter().take(DRAIN)));
        if let Some(&(_, head)) = behind.last() {
            let envelopes = behind.iter().flat_map(|(envelopes, _)| envelopes);
            let folded = fold(view.lock().unwrap_or_else(PoisonError::into_inner).as_mut(), envelopes, head);
            match folded {
                Ok(jobs) => {
                    behind.clear();
                    progress.applied(head.seq, &jobs);
                }
                Err(error) if stopped => return Err(error),
                Err(_) => {}
            }
        }
        if stopped {
            return Ok(());
        }
    }
}
