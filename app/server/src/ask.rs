//! The writer, for async code.

use control::identity::Principal;
use control::{Policy, State};
use ops::Handle;
use ops::api::{Ack, Call, Command, IdemKey, Refusal};
use ops::ports::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use units::Timestamp;

use crate::error::ApiError;

/// Asks for a change and waits until it is durable or refused.
pub(crate) async fn call(
    handle: &Handle,
    who: Principal,
    command: Command,
    idem: Option<IdemKey>,
) -> Result<Ack, ApiError> {
    let (answer, answered) = oneshot::channel();
    // A client that has gone away does not undo its request: nobody is left to read the answer.
    let reply = Box::new(move |result| drop(answer.send(result)));
    handle.call(Call { who, command, idem, reply });
    Ok(answered.await.map_err(|_| Refusal::Stopping)??)
}

/// Looks at the state between two commits.
pub(crate) async fn look<T: Send + 'static>(
    handle: &Handle,
    see: impl FnOnce(&State, Timestamp) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let (answer, answered) = oneshot::channel();
    handle.look(Box::new(move |state, now| drop(answer.send(see(state, now)))));
    answered.await.map_err(|_| ApiError::stopping())
}

/// Supposes things on the state between two commits; they are undone.
pub(crate) async fn suppose<T: Send + 'static>(
    handle: &Handle,
    trial: impl FnOnce(&mut State, Timestamp, &Policy) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let (answer, answered) = oneshot::channel();
    handle.suppose(Box::new(move |state, now, policy| drop(answer.send(trial(state, now, policy)))));
    answered.await.map_err(|_| ApiError::stopping())
}

/// Runs what blocks, aside.
pub(crate) async fn aside<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, ApiError>
where
    T: Send + 'static,
    E: Send + 'static,
    ApiError: From<E>,
{
    Ok(tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::stopping())??)
}

/// A row of a side table from its bytes.
pub(crate) fn decode_row<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|error| StoreError::Failed {
        doing: "reading a row of",
        path: "the side tables".to_owned(),
        source: Box::new(error),
    })
}

/// A row of a side table as bytes.
pub(crate) fn encode_row<T: Serialize>(row: &T) -> Vec<u8> {
    postcard::to_stdvec(row).expect("side rows are plain values that postcard can always encode")
}
