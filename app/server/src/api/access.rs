//! Login links, browser sessions and tokens.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use control::identity;
use serde::Deserialize;
use units::{Nanos, Timestamp};
use utoipa::IntoParams;

use super::input::{Input, Params};
use crate::app::{App, Caller};
use crate::error::ApiError;
use crate::guard::COOKIE_NAME;
use crate::page;
use crate::tokens::{Grant, LINK_LIFE, SESSION_LIFE, TOKEN_LIFE, now};
use crate::wire::{Error, LoginLink, Minted, NewToken, Role, Token};

/// The longest label of a token in bytes.
const LABEL_MAX: usize = 256;

impl Caller {
    /// What a secret made by this caller grants.
    fn grant(&self, role: Role, label: String, created: Timestamp, life: Nanos) -> Grant {
        let (uid, gid) = (self.rights.uid, self.rights.gid);
        Grant { subject: self.who.subject, uid, gid, role, label, created, expires: created + life }
    }

    fn role(&self) -> Role {
        match self.who.role {
            identity::Role::User => Role::User,
            identity::Role::Admin => Role::Admin,
        }
    }
}

/// Make a link that signs a browser in as yourself. It works once, within ten minutes.
#[utoipa::path(post, path = "/api/v1/login-link",
    responses((status = 201, body = LoginLink), (status = "4XX", body = Error)))]
pub(super) async fn login_link(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> (StatusCode, Json<LoginLink>) {
    let grant = caller.grant(caller.role(), String::new(), now(), LINK_LIFE);
    let expires = grant.expires.into();
    let path = format!("/login?token={}", app.links.open(grant));
    let url = app.config.address.map(|address| {
        // Listening on every address: the machine's name is as good as any of them.
        let name = Some(&app.config.name).filter(|_| address.ip().is_unspecified());
        let host = name.map_or_else(|| address.to_string(), |name| format!("{name}:{}", address.port()));
        format!("http://{host}{path}")
    });
    (StatusCode::CREATED, Json(LoginLink { path, url, expires }))
}

/// The link's secret.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LoginParams {
    /// From the link.
    token: String,
}

/// Sign a browser in.
#[utoipa::path(get, path = "/login", params(LoginParams),
    responses((status = 303, description = "Signed in"), (status = "4XX", description = "The link is used up, or none")))]
pub(super) async fn login(State(app): State<Arc<App>>, Params(params): Params<LoginParams>) -> Response {
    let Some(link) = app.links.take(&params.token, now()) else {
        return page::refused(&ApiError::unauthorized(
            "this link was used already, or is older than ten minutes",
        ));
    };
    let created = now();
    let session = Grant { created, expires: created + SESSION_LIFE, ..link };
    let secret = match app.sessions.sign_in(&app.handle, session).await {
        Ok(secret) => secret,
        Err(error) => return page::refused(&error),
    };
    let age = SESSION_LIFE.as_secs();
    let cookie = format!("{COOKIE_NAME}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}");
    let headers = [
        (SET_COOKIE, cookie.as_str()),
        (LOCATION, "/"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn show(app: &App, id: String, grant: Grant) -> Token {
    Token {
        id,
        owner: app.people.name(grant.subject),
        label: grant.label,
        role: grant.role,
        created: grant.created.into(),
        expires: grant.expires.into(),
    }
}

/// List your tokens; an administrator sees everybody's.
#[utoipa::path(get, path = "/api/v1/tokens",
    responses((status = 200, body = Vec<Token>), (status = "4XX", body = Error)))]
pub(super) async fn tokens(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Json<Vec<Token>> {
    let owner = (caller.who.role == identity::Role::User).then_some(caller.who.subject);
    let tokens = app.tokens.list(owner).into_iter();
    Json(tokens.map(|(id, grant)| show(&app, id, grant)).collect())
}

/// Make a token for yourself. Its secret is shown this once.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = NewToken,
    responses((status = 201, body = Minted), (status = "4XX", body = Error)))]
pub(super) async fn new_token(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Input(new): Input<NewToken>,
) -> Result<(StatusCode, Json<Minted>), ApiError> {
    if new.label.is_empty() || new.label.len() > LABEL_MAX {
        return Err(ApiError::malformed("label", "1 to 256 bytes that say what it is for"));
    }
    if new.role == Role::Admin && caller.role() != Role::Admin {
        return Err(ApiError::forbidden("only an administrator can make an administrator's token").at("role"));
    }
    let life = new.expires_in_ns.map_or(TOKEN_LIFE, Nanos);
    let grant = caller.grant(new.role, new.label, now(), life);
    let (secret, id) = app.tokens.mint(&app.handle, caller.who, grant.clone()).await?;
    Ok((StatusCode::CREATED, Json(Minted { secret, token: show(&app, id, grant) })))
}

/// Take a token back.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", params(("id" = String, Path)),
    responses((status = 204, description = "It works no more"), (status = "4XX", body = Error)))]
pub(super) async fn revoke_token(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.tokens.revoke(&app.handle, caller.who, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
