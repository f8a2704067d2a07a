//! Request bodies and queries, with errors that name the field.

use std::marker::PhantomData;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::error::ApiError;

/// A body must arrive within this time.
const BODY_TIME: Duration = Duration::from_secs(30);

async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let read = timeout(BODY_TIME, Bytes::from_request(request, state)).await;
    let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "late", "the request's body took too long");
    Ok(read.map_err(late)??)
}

/// A body as it came, for what also hashes it.
pub(super) struct Raw<T>(pub(super) Bytes, PhantomData<T>);

impl<T: DeserializeOwned> Raw<T> {
    /// What it says.
    pub(super) fn read(&self) -> Result<T, ApiError> {
        read(&self.0)
    }
}

impl<T, S: Send + Sync> FromRequest<S> for Raw<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(body(request, state).await?, PhantomData))
    }
}

/// A JSON body; none is `null`, which an `Option` takes.
pub(super) struct Input<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Input<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = body(request, state).await?;
        if bytes.is_empty() {
            let none = serde_json::from_slice(b"null").map(Self);
            return none.map_err(|_| ApiError::malformed("body", "a JSON object is needed"));
        }
        read(&bytes).map(Self)
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|_| {
        // Only what is wrong is read a second time, to find out where.
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => ApiError::malformed(&error.path().to_string(), error.inner().to_string()),
            Ok(_) => ApiError::malformed("body", "something follows the JSON value"),
        }
    })
}

/// The query part of the address.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|rejection| {
            let said = rejection.body_text();
            let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(&said);
            let field = said.split_once(':').map_or("query", |(field, _)| field);
            ApiError::malformed(field, said)
        })
    }
}
