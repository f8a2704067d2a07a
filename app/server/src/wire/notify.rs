//! Who is told what of jobs, and what became of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// Somebody who is told of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// When.
    pub on: Vec<Occasion>,
    /// Where: `https://…`, an address of mail, or the absolute path of a program that is run with the
    /// rights of the job.
    pub to: String,
}

/// When somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Occasion {
    /// The job's first attempt started.
    Started,
    /// It ended well.
    Completed,
    /// It ended otherwise, and nobody had cancelled it.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was stopped to make room for another.
    Preempted,
    /// It ended, and what it held cannot be proven free.
    Leaked,
}

/// How somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// By a POST of JSON.
    Webhook,
    /// By mail.
    Email,
    /// By a program.
    Command,
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// It is tried, or will be again.
    Waiting,
    /// It was delivered.
    Delivered,
    /// It is not tried again.
    GaveUp,
}

/// Something that is told to somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Its number; the same each time it is tried.
    pub id: u64,
    /// When it came up.
    pub at: Time,
    /// Of which job.
    pub job: u64,
    /// What happened to that.
    pub event: Occasion,
    /// How it is told.
    pub kind: Channel,
    /// To whom.
    pub to: String,
    /// The notification of the specification that asks for it; `null` where the job's owner does.
    pub notification: Option<String>,
    /// How far it is.
    pub state: Progress,
    /// Tries so far.
    pub tries: u32,
    /// When the last one ended.
    pub tried: Option<Time>,
    /// What the last one led to.
    pub said: String,
}
