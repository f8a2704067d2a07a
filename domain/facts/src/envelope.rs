//! What every event carries beside its body.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::{NodeId, Seq, SubjectId, Timestamp};

use crate::event::Event;

/// A BLAKE3 hash.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash32(pub [u8; 32]);

impl fmt::Display for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is not 64 digits of hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is written in 64 hexadecimal digits")]
pub struct NoHash;

/// As it is displayed.
impl FromStr for Hash32 {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NoHash);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0]).ok_or(NoHash)? << 4 | digit(pair[1]).ok_or(NoHash)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who caused an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// The server itself, by its own policy.
    Server,
    /// A person.
    Subject(SubjectId),
    /// A node, by what happened on it.
    Node(NodeId),
}

/// Where an event came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The API.
    Api,
    /// The server's own decision.
    Decision,
    /// A node's supervisor.
    Supervisor(NodeId),
    /// The server's start, clock and housekeeping.
    Server,
    /// An imported history.
    Import,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Position in the log.
    pub seq: Seq,
    /// Monotonic time of the log (decision D6).
    pub ledger_time: Timestamp,
    /// The wall clock when it was written; may step.
    pub wall_time: Timestamp,
    /// Where it came from.
    pub source: Source,
    /// The source's own time, mapped to ledger time.
    pub source_time: Option<Timestamp>,
    /// Who caused it.
    pub actor: Actor,
    /// The event that led to it.
    pub cause: Option<Seq>,
    /// The hash of the client's idempotency key, where it came with one.
    pub idem_key: Option<Hash32>,
    /// What happened.
    pub event: Event,
}
