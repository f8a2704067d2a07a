//! What all requests share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::http::StatusCode;
use control::identity::{Action, Principal, Resource, authorize};
use facts::applied::RetriesSetV1;
use ops::Handle;
use ops::api::{Ack, Command, IdemKey, Refusal};
use ops::ports::{SideTable, StoreError};
use ops::view::{JobRow, ViewReader};
use tokio::sync::{Semaphore, watch};
use units::{JobId, SubjectId, TeamId, Timestamp};

use crate::changes::Changes;
use crate::error::ApiError;
use crate::people::{People, Rights};
use crate::shares::Shares;
use crate::tokens::{Kept, Passing};
use crate::{ask, wire};

/// Readers of the view at a time.
const READERS: usize = 4;
/// A view that is this far behind answers 503 rather than with old rows.
const SETTLE: Duration = Duration::from_secs(10);

/// What an installation decides.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) admin_uid: u32,
    pub(crate) server_uid: u32,
    pub(crate) allow_root: bool,
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) rehearsal: bool,
}

/// The server's state beside the writer's.
pub(crate) struct App {
    pub(crate) handle: Handle,
    pub(crate) config: Config,
    pub(crate) people: People,
    pub(crate) tokens: Kept,
    pub(crate) links: Passing,
    pub(crate) sessions: Kept,
    pub(crate) changes: Arc<Changes>,
    pub(crate) listeners: Shares<SubjectId>,
    pub(crate) closing: watch::Receiver<bool>,
    settings: RwLock<Settings>,
    memory_per_core: u64,
    readers: Mutex<Vec<Box<dyn ViewReader>>>,
    permits: Semaphore,
}

/// Who asks, and with which rights their jobs run.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) who: Principal,
    pub(crate) rights: Arc<Rights>,
}

impl Caller {
    /// Passes the choke point once more, for what only the body tells.
    pub(crate) fn may(&self, action: Action, what: Resource) -> Result<(), ApiError> {
        Ok(authorize(&self.who, action, what)?)
    }
}

/// What only an apply or an administrator changes, and each submission needs.
struct Settings {
    teams: BTreeMap<TeamId, Named>,
    retries: RetriesSetV1,
    sends_mail: bool,
}

impl Settings {
    fn of(state: &control::State) -> Self {
        let named = |team: &control::Team| Named { name: team.name.clone(), removed: team.removed };
        let teams = state.teams().map(|(id, team)| (id, named(team))).collect();
        Self { teams, retries: state.retry_defaults(), sends_mail: state.delivery().relay.is_some() }
    }
}

/// A team's name. What its jobs were is told by it when the team is long removed.
struct Named {
    name: String,
    removed: bool,
}

impl App {
    /// Reads people, tokens and sessions. Blocks.
    pub(crate) fn open(
        handle: Handle,
        config: Config,
        closing: watch::Receiver<bool>,
    ) -> Result<Arc<Self>, Refusal> {
        let people = People::load(&handle)?;
        let tokens = Kept::load(&handle, SideTable::Token)?;
        let sessions = Kept::load(&handle, SideTable::Session)?;
        let (answer, answered) = std::sync::mpsc::channel();
        handle.look(Box::new(move |state, _| {
            let settings = Settings::of(state);
            let share =
                state.nodes().map(|(_, node)| node.capacity.memory / node.capacity.cores.max(1)).min();
            drop(answer.send((settings, share.unwrap_or(0))));
        }));
        let (settings, memory_per_core) = answered.recv().map_err(|_| Refusal::Stopping)?;
        Ok(Arc::new(Self {
            changes: Changes::of(&handle),
            handle,
            config,
            people,
            tokens,
            links: Passing::default(),
            sessions,
            listeners: Shares::default(),
            closing,
            settings: RwLock::new(settings),
            memory_per_core,
            readers: Mutex::default(),
            permits: Semaphore::new(READERS),
        }))
    }

    /// Asks for a change and waits until it is durable or refused.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        command: Command,
        idem: Option<IdemKey>,
    ) -> Result<Ack, ApiError> {
        ask::call(&self.handle, caller.who, command, idem).await
    }

    /// Asks for a change whose answer is just that it is durable.
    pub(crate) async fn done(&self, caller: &Caller, command: Command) -> Result<wire::Done, ApiError> {
        let ack = self.call(caller, command, None).await?;
        Ok(wire::Done { seq: ack.head.seq.0, hash: crate::tokens::hex(&ack.head.hash.0) })
    }

    /// Reads the view, which by then shows everything committed before this call.
    pub(crate) async fn view<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&dyn ViewReader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let _permit = self.permits.acquire().await.map_err(|_| ApiError::stopping())?;
        let head = self.handle.head();
        let app = Arc::clone(self);
        ask::aside(move || {
            if !app.handle.settled(head, SETTLE) {
                let message = "the server's lists are behind its log";
                return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "behind", message)
                    .hint("try again in a moment; nothing is lost"));
            }
            let kept = app.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let reader = kept.map_or_else(|| app.handle.reader(), Ok)?;
            let answer = read(reader.as_ref())?;
            app.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            Ok(answer)
        })
        .await
    }

    /// Ledger time now, which is at or after that of every row read before.
    pub(crate) async fn now(&self) -> Result<Timestamp, ApiError> {
        ask::look(&self.handle, |_, now| now).await
    }

    /// One job's row.
    pub(crate) async fn job(self: &Arc<Self>, id: JobId) -> Result<JobRow, ApiError> {
        let row = self.view(move |view| view.job(id)).await?;
        row.ok_or_else(|| ApiError::not_found(format!("there is no job {id}")))
    }

    /// The memory a task of `cores` gets unless it says otherwise, in bytes.
    pub(crate) fn memory_share(&self, cores: u32) -> u64 {
        self.memory_per_core.saturating_mul(u64::from(cores))
    }

    /// What a team is called.
    pub(crate) fn team_name(&self, id: TeamId) -> String {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        settings.teams.get(&id).map_or_else(|| format!("team:{id}"), |team| team.name.clone())
    }

    /// The team that is called `name`.
    pub(crate) fn team_called(&self, name: &str) -> Option<TeamId> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        settings.teams.iter().find(|(_, team)| team.name == name && !team.removed).map(|(id, _)| *id)
    }

    /// What happens to a failed job that does not say it itself.
    pub(crate) fn retry_defaults(&self) -> RetriesSetV1 {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).retries.clone()
    }

    /// Whether there is a mail server.
    pub(crate) fn sends_mail(&self) -> bool {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).sends_mail
    }

    /// Learns teams and settings again after a change.
    pub(crate) async fn refresh(&self) -> Result<(), ApiError> {
        let settings = ask::look(&self.handle, |state, _| Settings::of(state)).await?;
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        Ok(())
    }

    /// Waits until the server is on its way down.
    pub(crate) async fn closed(&self) {
        // An error means that the server is gone already.
        let _ = self.closing.clone().wait_for(|closing| *closing).await;
    }
}
