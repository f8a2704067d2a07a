//! Listeners and connections: who is at the other end, and how long they may take.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ops::Handle;
use ops::api::Refusal;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};

use crate::app::{App, Config};
use crate::error::{ApiError, BODY_LIMIT};
use crate::guard::{Peer, guard};
use crate::people::Rights;
use crate::shares::{Share, Shares};
use crate::{api, page};

/// The most connections at a time; further ones wait in the kernel's queue.
const CONNECTIONS: u32 = 4_096;
/// The part of all connections that one user of this machine, or one remote address, may have.
const PART: (u32, u32) = (2, 4);
/// Connections at a time that are only told that they are too many; further ones are just closed.
const REFUSALS: usize = 16;
/// How long such a connection may take.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// A request's head must arrive within this time.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// A reader must take something within this time.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// What is under way at the end gets this time.
const GRACE: Duration = Duration::from_secs(3);
/// Wait after a failed accept: without file descriptors it fails at once, again and again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a server serves, and where.
pub struct ServeOptions {
    /// The writer.
    pub handle: Handle,
    /// Where browsers and remote clients connect.
    pub tcp: Option<std::net::TcpListener>,
    /// Where this machine's users connect; the kernel tells who they are.
    pub unix: Option<std::os::unix::net::UnixListener>,
    /// The user who is an administrator beside root.
    pub admin_uid: u32,
    /// Whether root's jobs are accepted.
    pub allow_root: bool,
    /// The program's version.
    pub version: String,
    /// Names by which the TCP listener may be called, beside addresses, `localhost` and the
    /// machine's own name.
    pub hosts: Vec<String>,
    /// Whether this is a rehearsal with simulated GPUs, so that nothing about GPUs is measured.
    pub rehearsal: bool,
}

/// Why a server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// People or tokens could not be read.
    #[error("people and tokens could not be read: {0}")]
    Tables(#[from] Refusal),
    /// A listener is of no use.
    #[error("the listening socket could not be used: {0}")]
    Listener(#[from] io::Error),
}

/// Serves until `shutdown`, then lets what is under way end.
pub async fn serve(options: ServeOptions, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
    let ServeOptions { handle, tcp, unix, admin_uid, allow_root, version, mut hosts, rehearsal } = options;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    hosts.push(name.clone());
    let address = tcp.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
    let server_uid = rustix::process::geteuid().as_raw();
    let config = Config { admin_uid, server_uid, allow_root, version, name, hosts, address, rehearsal };
    let (close, closing) = watch::channel(false);
    let watching = closing.clone();
    let app = tokio::task::spawn_blocking(move || App::open(handle, config, watching));
    let app = app.await.map_err(|_| Refusal::Stopping)??;
    let connections = connections();
    let room = Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(usize::MAX)));
    let server = Server {
        router: router(app),
        room,
        connections,
        shares: Shares::default(),
        refusals: Arc::new(Semaphore::new(REFUSALS)),
        closing,
    };
    if let Some(listener) = tcp {
        listener.set_nonblocking(true)?;
        tokio::spawn(server.clone().accept_tcp(TcpListener::from_std(listener)?));
    }
    if let Some(listener) = unix {
        listener.set_nonblocking(true)?;
        tokio::spawn(server.clone().accept_unix(UnixListener::from_std(listener)?));
    }
    shutdown.await;
    close.send_replace(true);
    // All permits back means that every connection is over.
    let _ = timeout(GRACE, server.room.acquire_many(connections)).await;
    Ok(())
}

/// How many connections fit: half of the descriptors that this process may have stay for the
/// log, the view and the files that are read.
fn connections() -> u32 {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = descriptors.map_or(CONNECTIONS, |most| u32::try_from(most / 2).unwrap_or(CONNECTIONS));
    half.clamp(1, CONNECTIONS)
}

/// All routes behind the choke point.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, _) = api::router().split_for_parts();
    router
        .route("/", get(page::index))
        .route("/jobs/{id}", get(page::job))
        .route_layer(from_fn_with_state(Arc::clone(&app), guard))
        .fallback(|| async {
            ApiError::not_found("there is nothing at this address; see /api/v1/openapi.json")
        })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this address does not take this method")
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(app)
}

/// Whose a connection is counted as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    User(u32),
    Address(IpAddr),
}

#[derive(Clone)]
struct Server {
    router: Router,
    room: Arc<Semaphore>,
    connections: u32,
    shares: Shares<Holder>,
    refusals: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

impl Server {
    async fn accept_tcp(self, listener: TcpListener) {
        self.accept(
            || listener.accept(),
            |(stream, address): (TcpStream, SocketAddr)| {
                // Without it an answer may wait for the acknowledgement of the last one.
                let _ = stream.set_nodelay(true);
                Some((stream, Peer::Tcp, Holder::Address(address.ip())))
            },
        )
        .await;
    }

    async fn accept_unix(self, listener: UnixListener) {
        self.accept(
            || listener.accept(),
            |(stream, _): (UnixStream, _)| {
                let peer = stream.peer_cred().ok()?;
                let rights = Rights::of_peer(peer.uid(), peer.gid(), peer.pid());
                Some((stream, Peer::Socket(Arc::new(rights)), Holder::User(peer.uid())))
            },
        )
        .await;
    }

    async fn accept<S, A, F>(mut self, next: impl Fn() -> F, know: impl Fn(A) -> Option<(S, Peer, Holder)>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<A>>,
    {
        loop {
            let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = next() => accepted,
                _ = self.closing.wait_for(|closing| *closing) => return,
            };
            match accepted {
                Ok(connection) => {
                    if let Some((stream, peer, holder)) = know(connection) {
                        self.take(stream, peer, holder, permit);
                    }
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Serves a connection, unless its holder has too many: nobody may keep the others out.
    fn take<S>(&self, stream: S, peer: Peer, holder: Holder, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let most = match holder {
            Holder::User(_) => self.connections / PART.0,
            Holder::Address(_) => self.connections / PART.1,
        };
        let most = most.max(1);
        if let Some(share) = self.shares.take(holder, most) {
            tokio::spawn(connected(stream, peer, self.router.clone(), self.closing.clone(), (permit, share)));
        } else if let Ok(refusal) = Arc::clone(&self.refusals).try_acquire_owned() {
            drop(permit);
            tokio::spawn(refuse(stream, most, refusal));
        }
    }
}

/// Answers one request with the reason why there will be no second.
async fn refuse<S>(stream: S, most: u32, _refusal: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hint = "end clients that wait or follow, such as attached runs, `logs -f` and pages";
    let service = service_fn(move |_: Request<Incoming>| async move {
        Ok::<_, Infallible>(ApiError::too_many("connections", most, hint).into_response())
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(64 << 10);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    // Whoever does not listen is not told.
    let _ = timeout(REFUSAL_TIME, connection).await;
}

async fn connected<S>(
    stream: S,
    peer: Peer,
    router: Router,
    mut closing: watch::Receiver<bool>,
    _held: (OwnedSemaphorePermit, Share<Holder>),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(64 << 10).half_close(true);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(Patient::new(stream)), service));
    // A connection that breaks off is the client's affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(GRACE, connection).await;
}

/// A stream whose reader may not keep a write waiting for ever.
struct Patient<S> {
    stream: S,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S) -> Self {
        Self { stream, waiting: None }
    }

    /// Passes `poll` on, or fails if it has been pending for too long.
    fn within_time<T>(&mut self, poll: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.waiting = None;
            return poll;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(WRITE_TIME)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.within_time(poll, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.within_time(poll, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.within_time(poll, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within_time(poll, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let failed = Patient::new(ours).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);

        let (ours, mut theirs) = tokio::io::duplex(16);
        let reading = async {
            for _ in 0..4 {
                sleep(WRITE_TIME * 9 / 10).await;
                tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut [0; 16]).await.unwrap();
            }
        };
        let mut patient = Patient::new(ours);
        let (written, ()) = tokio::join!(patient.write_all(&[0; 64]), reading);
        written.unwrap();
    }
}
