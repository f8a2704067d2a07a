//! Capacity that is kept for somebody.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Holder, Time};

/// Capacity to keep for somebody, all on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// Whole devices.
    #[serde(default)]
    pub gpus: u16,
    /// Cores; the devices' share of the node's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory; the cores' share of the node's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// From when; from now on if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// Until when.
    pub until: Time,
    /// Whose jobs may use it: `user:NAME`, `team:NAME`, or a name that only one of them has; whoever
    /// asks if absent.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// The answer to a reservation that was made, durable by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserved {
    /// The reservation as it stands.
    pub reservation: Reservation,
    /// The log's head with it in.
    pub seq: u64,
    /// The head's hash: whoever keeps it can prove a lost tail.
    pub hash: String,
}

/// Capacity that is kept for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// Its id.
    pub id: u64,
    /// The node, by name.
    pub node: String,
    /// Whole devices.
    pub gpus: u64,
    /// Cores.
    pub cores: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// From when.
    pub from: Time,
    /// Until when.
    pub until: Time,
    /// Whose jobs may use it: `user:NAME` or `team:NAME`.
    #[serde(rename = "for")]
    pub holder: String,
    /// Why.
    pub reason: String,
    /// Whether it has begun.
    pub active: bool,
    /// Devices of it that its holder's jobs use now.
    pub gpus_used: u64,
    /// Cores of it that its holder's jobs use now.
    pub cores_used: u64,
    /// Devices of it that others still hold at its start, or now, by their time limits.
    pub gpus_taken: u64,
    /// Cores of it that others still hold at its start, or now, by their time limits.
    pub cores_taken: u64,
    /// Memory of it that others still hold at its start, or now, by their time limits.
    pub memory_taken_bytes: u64,
    /// Those others; nobody is stopped for it.
    pub holders: Vec<Holder>,
}
