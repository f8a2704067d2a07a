//! Refusals as HTTP answers.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::Denial;
use control::identity::Forbidden;
use ops::api::Refusal;
use ops::ports::StoreError;

use crate::wire;

/// The largest request body in bytes.
pub(crate) const BODY_LIMIT: usize = 8 << 20;

/// A request that was not carried out.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: wire::Error,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let body = wire::Error { code: code.to_owned(), message: message.into(), hint: None, field: None };
        Self { status, body }
    }

    /// The request makes no sense; `field` is the part of it that is meant.
    pub(crate) fn malformed(field: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message).at(field)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message).hint(
            "use the Unix socket, a token (`fourplane token create`) or a login link (`fourplane login`)",
        )
    }

    /// Somebody has as many of something as one may: `what` in words, and what they could do.
    pub(crate) fn too_many(what: &str, most: u32, hint: &str) -> Self {
        let message = format!("you have {most} {what}, as many as one may");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-open", message).hint(hint)
    }

    pub(crate) fn stopping() -> Self {
        Refusal::Stopping.into()
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.body.message
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    pub(crate) fn at(mut self, field: &str) -> Self {
        self.body.field = Some(field.to_owned());
        self
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.body.message)
    }
}

/// A stream that has begun can only be broken off with its reason.
impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<Forbidden> for ApiError {
    fn from(forbidden: Forbidden) -> Self {
        Self::forbidden(forbidden.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store", error.to_string())
            .hint("run `fourplane audit verify`; running jobs go on")
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::Denied(denial) => denied(&denial, message),
            Refusal::KeyReused => Self::new(StatusCode::CONFLICT, "key-reused", message)
                .hint("use a new Idempotency-Key for a new request")
                .at("Idempotency-Key"),
            Refusal::PlanChanged => Self::new(StatusCode::CONFLICT, "plan-changed", message)
                .hint("nothing was done; look at the new plan and agree to that")
                .at("plan"),
            Refusal::LowSpace => Self::new(StatusCode::INSUFFICIENT_STORAGE, "low-space", message)
                .hint("free space in the server's state directory; running jobs go on"),
            Refusal::Stopping => Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message)
                .hint("try again once it is back; running jobs go on"),
            Refusal::Store(error) => error.into(),
            Refusal::NotWritten(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "not-written", message),
        }
    }
}

/// The scheduler's refusals: what can never be done is 422, what cannot be done now 409.
fn denied(denial: &Denial, message: String) -> ApiError {
    let never = |code: &str, field: &str| {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message.clone()).at(field)
    };
    match denial {
        Denial::NoSuchJob(_) | Denial::NoSuchNode(_) | Denial::NoSuchReservation(_) => ApiError::not_found(message),
        Denial::Inconsistent => ApiError::new(StatusCode::CONFLICT, "inconsistent", message),
        Denial::TeamInUse { name, .. } => ApiError::new(StatusCode::CONFLICT, "team-in-use", message)
            .hint(format!("wait for them or cancel them: fourplane jobs -A {name} --all")),
        Denial::JobEnded(_) => ApiError::new(StatusCode::CONFLICT, "ended", message),
        Denial::NoSuchMembers { .. } => never("no-such-members", "indexes"),
        Denial::NoTasks => never("no-tasks", "tasks"),
        Denial::NoCores => never("no-cores", "cores"),
        Denial::NoGpus(_) => never("no-gpus", "gpus"),
        Denial::NoSuchModel { .. } => never("no-such-model", "gpu_model")
            .hint("ask for a model that is there, or for GPUs of any model"),
        Denial::NoMembers => never("no-members", "array.indexes"),
        Denial::ArrayLimitZero => never("array-limit", "array.max_running"),
        Denial::TooMany { .. } => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "too-many", message),
        Denial::UnknownTeam(_) => never("no-such-team", "team"),
        Denial::UnknownDependency(_) => never("no-such-dependency", "after"),
        Denial::NothingReserved => never("nothing-reserved", "gpus"),
        Denial::ReservedInPast => never("in-the-past", "from").hint("leave it out to begin now"),
        Denial::ReservationEndsFirst => never("ends-first", "until").hint("let it end after it begins"),
        Denial::OverReserved { .. } => never("over-reserved", "gpus")
            .hint("ask for no more than that, for another time, or cancel another reservation first"),
        Denial::OverQuota { name, fits, .. } => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "over-quota", message).hint(format!(
                "ask for at most {fits} tasks of this size, or have an administrator raise the quota of team {name}"
            ))
        }
        Denial::OverCapacity { fits, .. } => {
            let hint = match fits {
                0 => "ask for less a task".to_owned(),
                fits => format!("ask for at most {fits} tasks of this size"),
            };
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "over-capacity", message).hint(hint)
        }
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let message = format!("the request's body is larger than {} MiB", BODY_LIMIT >> 20);
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message)
                .hint("pass less environment (`--export`), or data in a file rather than an argument");
        }
        Self::malformed("body", rejection.body_text())
    }
}
