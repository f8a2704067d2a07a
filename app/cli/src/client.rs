//! Talks to the server: HTTP/1.1 over its Unix socket, or over TCP with a token.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use server::wire;
use tokio::net::{TcpStream, UnixStream};

use crate::cli::Common;
use crate::failure::{FAILED, Failure, USAGE};
use crate::locate::Surroundings;

/// Between two tries to reach a server that is away.
const RETRY: Duration = Duration::from_millis(100);

/// Where the server is.
#[derive(Clone, Debug)]
enum Place {
    /// The first of these sockets that answers.
    Sockets(Vec<PathBuf>),
    /// `HOST:PORT`, and the token to show.
    Tcp(String, Option<String>),
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nobody answers, or stopped in the middle. Whether the request was done is not known.
    #[error("the server at {place} does not answer: {what}")]
    Unreachable {
        /// Where it was looked for.
        place: String,
        /// What the system said.
        what: String,
        /// Whether it had taken the connection.
        was_connected: bool,
    },
    /// The server says no.
    #[error("{}", .1.message)]
    Refused(StatusCode, Box<wire::Error>),
    /// The answer is not what this version understands.
    #[error("the server's answer to {0} is not understood: {1}")]
    Strange(String, String),
}

impl CallError {
    /// A body that broke off.
    pub(crate) fn broken(error: &hyper::Error) -> Self {
        Self::Unreachable { place: "the other end".to_owned(), what: error.to_string(), was_connected: true }
    }

    /// Whether trying again may help.
    fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(status, _) => *status == StatusCode::SERVICE_UNAVAILABLE,
            Self::Strange(..) => false,
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        match error {
            CallError::Unreachable { .. } => Self::failed(message).hint(
                "start one with: fourplane up --detach, or name one with --server, FOURPLANE_SERVER or FOURPLANE_STATE",
            ),
            CallError::Refused(status, answer) => {
                let code = if status.is_client_error() { USAGE } else { FAILED };
                let wire::Error { hint, field, .. } = *answer;
                let message = field.map_or_else(|| message.clone(), |field| format!("{message} (in {field})"));
                Self { code, message, hints: hint.into_iter().collect() }
            }
            CallError::Strange(..) => {
                Self::failed(message).hint("check with `fourplane --version` that both are of the same version")
            }
        }
    }
}

/// One connection to the server, made when first needed and again after it broke.
#[derive(Debug)]
pub(crate) struct Client {
    place: Place,
    patience: Duration,
    link: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client of the server that the arguments or the surroundings name.
    pub(crate) fn new(common: &Common) -> Result<Self, Failure> {
        let place = match &common.server {
            Some(url) => Place::Tcp(host_of(url)?, std::env::var("FOURPLANE_TOKEN").ok()),
            None => Place::Sockets(Surroundings::of_process().sockets(common.state.as_deref())),
        };
        Ok(Self { place, patience: Duration::ZERO, link: None })
    }

    /// A second connection to the same server.
    pub(crate) fn another(&self) -> Self {
        Self { place: self.place.clone(), patience: self.patience, link: None }
    }

    /// Bears with a server that is away for so long. For requests that may be repeated.
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Gets a value.
    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, CallError> {
        self.call(Method::GET, path, None, &[]).await
    }

    /// Posts a value.
    pub(crate) async fn post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        self.call(Method::POST, path, Some(encode(body)), &[]).await
    }

    /// Posts a value under an idempotency key.
    pub(crate) async fn post_once<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
        key: &str,
    ) -> Result<T, CallError> {
        self.call(Method::POST, path, Some(encode(body)), &[("idempotency-key", key)]).await
    }

    /// Deletes something.
    pub(crate) async fn delete(&mut self, path: &str) -> Result<(), CallError> {
        self.send(Method::DELETE, path, None, &[]).await.map(drop)
    }

    /// Gets a body that comes in pieces. Uses up the connection.
    pub(crate) async fn stream(&mut self, path: &str) -> Result<Incoming, CallError> {
        let response = self.send(Method::GET, path, None, &[]).await?;
        self.link = None;
        Ok(response.into_body())
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&'static str, &str)],
    ) -> Result<T, CallError> {
        let started = Instant::now();
        loop {
            let response = self.send(method.clone(), path, body.clone(), headers).await?;
            match response.into_body().collect().await {
                Ok(body) => {
                    return serde_json::from_slice(&body.to_bytes())
                        .map_err(|error| CallError::Strange(format!("{method} {path}"), error.to_string()));
                }
                Err(error) if started.elapsed() >= self.patience => return Err(self.unreachable(error, true)),
                Err(_) => self.link = None,
            }
        }
    }

    /// Sends a request until an answer begins or patience ends.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&'static str, &str)],
    ) -> Result<Response<Incoming>, CallError> {
        let started = Instant::now();
        loop {
            match self.send_once(&method, path, body.clone(), headers).await {
                Err(error) if error.is_passing() && started.elapsed() < self.patience => {
                    self.link = None;
                    tokio::time::sleep(RETRY).await;
                }
                answer => return answer,
            }
        }
    }

    async fn send_once(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&'static str, &str)],
    ) -> Result<Response<Incoming>, CallError> {
        let mut link = match self.link.take() {
            Some(link) if !link.is_closed() => link,
            _ => self.connect().await?,
        };
        let host = match &self.place {
            Place::Sockets(_) => "localhost",
            Place::Tcp(host, _) => host,
        };
        let mut request = Request::builder().method(method).uri(format!("/api/v1{path}")).header(HOST, host);
        if let Place::Tcp(_, Some(token)) = &self.place {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| CallError::Strange(format!("{method} {path}"), error.to_string()))?;
        let sent = async {
            link.ready().await?;
            link.send_request(request).await
        };
        let response = sent.await.map_err(|error| self.unreachable(error, true))?;
        if response.status().is_success() {
            self.link = Some(link);
            return Ok(response);
        }
        let status = response.status();
        let body =
            response.into_body().collect().await.map_err(|error| self.unreachable(error, true))?.to_bytes();
        let answer = serde_json::from_slice(&body).unwrap_or_else(|_| wire::Error {
            code: status.as_str().to_owned(),
            message: format!("the server answered {status} to {method} {path}"),
            hint: None,
            field: None,
        });
        Err(CallError::Refused(status, Box::new(answer)))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, CallError> {
        match &self.place {
            Place::Tcp(host, _) => {
                let stream =
                    TcpStream::connect(host).await.map_err(|error| self.unreachable(error, false))?;
                stream.set_nodelay(true).map_err(|error| self.unreachable(error, true))?;
                self.shake_hands(TokioIo::new(stream)).await
            }
            Place::Sockets(paths) => {
                let mut last = None;
                for path in paths {
                    match UnixStream::connect(path).await {
                        Ok(stream) => return self.shake_hands(TokioIo::new(stream)).await,
                        // A socket that is there and refuses says more than one that is not.
                        Err(error) if last.is_none() || error.kind() != std::io::ErrorKind::NotFound => {
                            last = Some((path, error));
                        }
                        Err(_) => {}
                    }
                }
                let (place, what) = match last {
                    Some((path, error)) => (path.display().to_string(), error.to_string()),
                    None => ("no socket".to_owned(), "there is no directory for one".to_owned()),
                };
                Err(CallError::Unreachable { place, what, was_connected: false })
            }
        }
    }

    async fn shake_hands<S>(&self, io: TokioIo<S>) -> Result<SendRequest<Full<Bytes>>, CallError>
    where
        TokioIo<S>: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (link, connection) = handshake(io).await.map_err(|error| self.unreachable(error, true))?;
        // Whoever uses the link sees the same error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(link)
    }

    fn unreachable(&self, error: impl std::fmt::Display, was_connected: bool) -> CallError {
        let place = match &self.place {
            Place::Sockets(paths) => {
                paths.first().map_or_else(String::new, |path| path.display().to_string())
            }
            Place::Tcp(host, _) => host.clone(),
        };
        CallError::Unreachable { place, what: error.to_string(), was_connected }
    }
}

fn encode(body: &impl Serialize) -> Bytes {
    // The wire types have string keys and finite numbers only.
    serde_json::to_vec(body).unwrap_or_default().into()
}

/// `HOST:PORT` of `http://HOST:PORT`.
fn host_of(url: &str) -> Result<String, Failure> {
    let wrong = || Failure::usage(format!("'{url}' is no server; write for example http://127.0.0.1:7444"));
    if url.starts_with("https://") {
        return Err(wrong().hint("https is not supported yet; use an ssh tunnel to the server's port"));
    }
    let host = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '@', '?', '#']) {
        return Err(wrong());
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { host.to_owned() } else { format!("{host}:80") })
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A value made safe for a query string.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            safe.extend(["%", &hex(&[byte])]);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_url() {
        let check = |url: &str, expect: Option<&str>| {
            assert_eq!(host_of(url).ok(), expect.map(str::to_owned), "{url}");
        };
        check("http://127.0.0.1:7444", Some("127.0.0.1:7444"));
        check("http://[::1]:7444/", Some("[::1]:7444"));
        check("http://head", Some("head:80"));
        check("https://head", None);
        check("head:7444", None);
        check("http://user@head", None);
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escape("a=b&c d/é"), "a%3db%26c%20d%2f%c3%a9");
    }
}
