//! Who is told what of jobs, and how.

use serde::{Deserialize, Serialize};

/// How somebody is told. Variants are only ever appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    /// By a POST of JSON.
    Webhook,
    /// By mail.
    Email,
    /// By a program that is run with the rights of the job's owner.
    Command,
}

/// When somebody is told. Variants are only ever appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Occasion {
    /// A job's first attempt started.
    Started,
    /// A job ended well.
    Completed,
    /// A job ended otherwise, and nobody had cancelled it.
    Failed,
    /// A job was cancelled.
    Cancelled,
    /// A job was stopped to make room for another.
    Preempted,
    /// A job ended, and what it held cannot be proven free.
    Leaked,
}

impl Occasion {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Started, Self::Completed, Self::Failed, Self::Cancelled, Self::Preempted, Self::Leaked];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Preempted => "preempted",
            Self::Leaked => "leaked",
        }
    }
}

/// Somebody who is told of everybody's jobs, or of some teams'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationV1 {
    /// Its name.
    pub name: String,
    /// How they are told.
    pub channel: Channel,
    /// Where: an address or a program.
    pub to: String,
    /// When.
    pub when: Vec<Occasion>,
    /// Of the jobs of these teams, by name; of all where there is none.
    pub teams: Vec<String>,
}

/// See [`crate::Event::NotificationSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationSetV1 {
    /// Its name.
    pub name: String,
    /// What it is; none takes it away.
    pub notification: Option<NotificationV1>,
}

/// How what is told goes out. See [`crate::Event::DeliverySet`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverySetV1 {
    /// The mail server that takes mail, `host:port`; without it no mail is sent.
    pub relay: Option<String>,
    /// The address that mail comes from.
    pub from: Option<String>,
    /// The file with the key that webhooks are signed with; without it they are not signed.
    pub key_file: Option<String>,
    /// Networks that webhooks may reach although they are not public.
    pub allow: Vec<String>,
}
