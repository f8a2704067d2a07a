//! The choke point: every request passes [`guard`], which knows who asks, what for and whose
//! it is, and asks `control::identity::authorize`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::identity::{Action, Principal, Resource, Role, authorize};
use units::JobId;

use crate::app::{App, Caller};
use crate::error::ApiError;
use crate::page;
use crate::people::Rights;
use crate::tokens::now;

/// The name of the browser's cookie.
pub(crate) const COOKIE_NAME: &str = "fourplane";

/// What an operation does, and to whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody, without saying who.
    Public,
    /// Something that is nobody's in particular.
    Cluster(Action),
    /// The job named by `{id}`.
    Job(Action),
    /// The token named by `{id}`.
    Token(Action),
}

/// Every operation of the API and what it needs. An operation that is not here is refused.
pub(crate) const OPERATIONS: &[(&str, &str, Access)] = &[
    ("GET", "/", Access::Cluster(Action::SeeJobs)),
    ("GET", "/jobs/{id}", Access::Job(Action::SeeJobs)),
    ("GET", "/login", Access::Public),
    ("GET", "/api/v1/healthz", Access::Public),
    ("GET", "/api/v1/openapi.json", Access::Public),
    ("GET", "/api/v1/version", Access::Cluster(Action::SeeNodes)),
    ("POST", "/api/v1/jobs", Access::Cluster(Action::Submit)),
    ("GET", "/api/v1/jobs", Access::Cluster(Action::SeeJobs)),
    ("POST", "/api/v1/preflight", Access::Cluster(Action::Submit)),
    ("GET", "/api/v1/jobs/{id}", Access::Job(Action::SeeJobs)),
    ("GET", "/api/v1/jobs/{id}/why", Access::Job(Action::SeeJobs)),
    ("GET", "/api/v1/jobs/{id}/wait", Access::Job(Action::SeeJobs)),
    ("GET", "/api/v1/jobs/{id}/output", Access::Job(Action::ReadOutput)),
    ("POST", "/api/v1/jobs/{id}/hold", Access::Job(Action::Control)),
    ("POST", "/api/v1/jobs/{id}/release", Access::Job(Action::Control)),
    ("POST", "/api/v1/jobs/{id}/cancel", Access::Job(Action::Control)),
    ("POST", "/api/v1/jobs/{id}/priority", Access::Job(Action::Control)),
    ("POST", "/api/v1/jobs/{id}/preemptible", Access::Job(Action::Control)),
    ("GET", "/api/v1/events", Access::Cluster(Action::SeeJobs)),
    ("GET", "/api/v1/usage", Access::Cluster(Action::SeeNodes)),
    ("GET", "/api/v1/nodes", Access::Cluster(Action::SeeNodes)),
    ("POST", "/api/v1/nodes/{id}/schedulable", Access::Cluster(Action::Operate)),
    ("GET", "/api/v1/teams", Access::Cluster(Action::SeeNodes)),
    ("POST", "/api/v1/teams", Access::Cluster(Action::Operate)),
    ("GET", "/api/v1/preemption", Access::Cluster(Action::SeeNodes)),
    ("POST", "/api/v1/preemption", Access::Cluster(Action::Operate)),
    ("GET", "/api/v1/priorities", Access::Cluster(Action::SeeNodes)),
    ("GET", "/api/v1/notifications", Access::Cluster(Action::SeeJobs)),
    ("POST", "/api/v1/plan", Access::Cluster(Action::SeeNodes)),
    ("POST", "/api/v1/apply", Access::Cluster(Action::Operate)),
    ("GET", "/api/v1/drift", Access::Cluster(Action::SeeNodes)),
    ("GET", "/api/v1/reservations", Access::Cluster(Action::SeeNodes)),
    ("POST", "/api/v1/reservations", Access::Cluster(Action::Operate)),
    ("DELETE", "/api/v1/reservations/{id}", Access::Cluster(Action::Operate)),
    ("POST", "/api/v1/login-link", Access::Cluster(Action::MintToken)),
    ("GET", "/api/v1/tokens", Access::Cluster(Action::MintToken)),
    ("POST", "/api/v1/tokens", Access::Cluster(Action::MintToken)),
    ("DELETE", "/api/v1/tokens/{id}", Access::Token(Action::Control)),
];

/// Those of them that people read.
pub(crate) const PAGES: [&str; 2] = ["/", "/jobs/{id}"];

/// How a connection reached the server.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Over the Unix socket: the kernel vouches for who it is.
    Socket(Arc<Rights>),
    /// Over TCP: it has to prove who it is.
    Tcp,
}

/// Lets a request through, or answers it.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match admit(&app, &mut parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(error) if PAGES.contains(&path_of(&parts)) => page::refused(&error),
        Err(error) => error.into_response(),
    }
}

async fn admit(app: &Arc<App>, request: &mut Parts) -> Result<(), ApiError> {
    let access = access_of(request)?;
    // A connection that nobody described proves nothing about who is at its other end.
    let peer = request.extensions.get().cloned().unwrap_or(Peer::Tcp);
    if matches!(peer, Peer::Tcp) {
        known_host(app, &request.headers)?;
    }
    let (action, what) = match access {
        Access::Public => return Ok(()),
        Access::Cluster(action) => (action, None),
        Access::Job(action) | Access::Token(action) => (action, Some(id_of(request).await?)),
    };
    let caller = authenticate(app, &peer, request).await?;
    let resource = match (access, what) {
        (Access::Job(_), Some(id)) => {
            let wrong = |_| ApiError::malformed("id", format!("'{id}' is no job; jobs are numbers"));
            let row = app.job(JobId(id.parse().map_err(wrong)?)).await?;
            let owner = row.request.owner;
            request.extensions.insert(Arc::new(row));
            Resource::Of(owner)
        }
        (Access::Token(_), Some(id)) => Resource::Of(app.tokens.owner(&id)?),
        _ => Resource::Cluster,
    };
    authorize(&caller.who, action, resource)?;
    request.extensions.insert(caller);
    Ok(())
}

fn access_of(request: &Parts) -> Result<Access, ApiError> {
    let path = path_of(request);
    let method = if request.method == Method::HEAD { "GET" } else { request.method.as_str() };
    let known = OPERATIONS.iter().find(|(m, p, _)| *m == method && *p == path);
    known.map(|(.., access)| *access).ok_or_else(|| ApiError::forbidden("nobody may do this"))
}

/// The path as the router knows it.
fn path_of(request: &Parts) -> &str {
    request.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str)
}

async fn id_of(request: &mut Parts) -> Result<String, ApiError> {
    let params = RawPathParams::from_request_parts(request, &()).await;
    let params = params.map_err(|_| ApiError::malformed("id", "the path is malformed"))?;
    let id = params.iter().find(|(name, _)| *name == "id").map(|(_, value)| value.to_owned());
    id.ok_or_else(|| ApiError::malformed("id", "the path names nothing"))
}

/// Who asks: by the socket's peer, a bearer token or a browser's cookie.
async fn authenticate(app: &App, peer: &Peer, request: &Parts) -> Result<Caller, ApiError> {
    if let Peer::Socket(rights) = peer {
        let subject = app.people.subject(&app.handle, rights.uid).await?;
        let is_admin = rights.uid == 0 || rights.uid == app.config.admin_uid;
        let role = if is_admin { Role::Admin } else { Role::User };
        let who = Principal { subject, uid: rights.uid, role };
        return Ok(Caller { who, rights: Arc::clone(rights) });
    }
    let headers = &request.headers;
    let grant = if let Some(header) = headers.get(AUTHORIZATION) {
        let secret = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        secret
            .and_then(|secret| app.tokens.check(secret.trim(), now()))
            .ok_or_else(|| ApiError::unauthorized("this token is not known, was taken back or has expired"))?
    } else {
        let grant = cookie(headers).and_then(|secret| app.sessions.check(secret, now()));
        let grant =
            grant.ok_or_else(|| ApiError::unauthorized("this request does not say who it comes from"))?;
        same_origin(&request.method, headers)?;
        grant
    };
    Ok(Caller { who: grant.principal(), rights: app.people.rights(grant.uid, grant.gid) })
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}

/// A browser sends its cookie with whatever page asks: only our own may change things.
fn same_origin(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    if method.is_safe() {
        return Ok(());
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let same = match text("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => text(ORIGIN.as_str())
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(_, host)| Some(host) == text(HOST.as_str())),
    };
    if same { Ok(()) } else { Err(ApiError::forbidden("this request came from another site's page")) }
}

/// A name that somebody else's DNS points here is not ours: addresses cannot be rebound, names
/// must be known.
fn known_host(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if is_known_host(host, &app.config.hosts) {
        return Ok(());
    }
    Err(ApiError::new(
        axum::http::StatusCode::MISDIRECTED_REQUEST,
        "unknown-host",
        format!("'{host}' is not this server's name"),
    )
    .hint("use its address, localhost or its host name"))
}

fn is_known_host(host: &str, names: &[String]) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest
            .split_once(']')
            .is_some_and(|(address, _)| address.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.parse::<std::net::Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_hosts() {
        let names = ["node1".to_owned()];
        for host in ["127.0.0.1:80", "10.1.2.3", "[::1]:8080", "localhost:1", "LocalHost", "NODE1:9"] {
            assert!(is_known_host(host, &names), "{host}");
        }
        for host in
            ["", "evil.example:80", "127.0.0.1.evil.example", "[evil]:80", "node1.evil", "localhost.evil"]
        {
            assert!(!is_known_host(host, &names), "{host}");
        }
    }

    #[test]
    fn a_cookie_changes_things_only_from_our_own_page() {
        let check = |pairs: &[(&'static str, &'static str)], expect: bool| {
            let headers = pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
            assert_eq!(same_origin(&Method::POST, &headers).is_ok(), expect, "{pairs:?}");
            assert!(same_origin(&Method::GET, &headers).is_ok());
        };
        check(&[], false);
        check(&[("sec-fetch-site", "same-origin")], true);
        check(&[("sec-fetch-site", "same-site")], false);
        check(&[("sec-fetch-site", "cross-site"), ("origin", "http://a:1"), ("host", "a:1")], false);
        check(&[("origin", "http://a:1"), ("host", "a:1")], true);
        check(&[("origin", "http://a:2"), ("host", "a:1")], false);
        check(&[("origin", "null"), ("host", "a:1")], false);
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = [(COOKIE, "a=b; fourplane=xyz; c=d".parse().unwrap())].into_iter().collect();
        assert_eq!(cookie(&headers), Some("xyz"));
    }
}
