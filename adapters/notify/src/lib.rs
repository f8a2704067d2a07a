//! Telling people what became of a job: by a webhook, by mail, by a program of theirs.
//!
//! Each delivery is one try with a bound on its time; when to try again is told by
//! [`ops::notify`].

mod address;
mod command;
mod mail;
mod message;
mod stream;
#[cfg(test)]
mod tests;
mod webhook;

use std::path::PathBuf;

use facts::notify::Channel;
use ops::notify::{Courier, Parcel, Setback};

pub use command::{As, become_and_run};

/// Delivers to the outside world.
pub struct Post {
    webhooks: webhook::Client,
    /// This program, which becomes a user to run the user's command.
    program: PathBuf,
    /// What this machine calls itself to a mail server.
    host: String,
}

impl Post {
    /// `program` answers to the command that [`become_and_run`] is behind; `host` is this machine's
    /// name.
    pub fn new(program: PathBuf, host: String) -> Self {
        Self { webhooks: webhook::Client::new(address::resolve), program, host }
    }
}

impl Courier for Post {
    fn deliver(&self, parcel: &Parcel) -> Result<String, Setback> {
        match parcel.delivery.target.channel {
            Channel::Webhook => self.webhooks.post(parcel),
            Channel::Email => mail::send(parcel, &self.host),
            Channel::Command => command::run(parcel, &self.program),
        }
    }
}

/// It may work another time.
fn later(reason: impl Into<String>) -> Setback {
    Setback { reason: reason.into(), is_final: false }
}

/// It never will.
fn never(reason: impl Into<String>) -> Setback {
    Setback { reason: reason.into(), is_final: true }
}
