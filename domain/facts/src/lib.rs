//! What was asked for and what was seen.
//!
//! The log holds [`event::Event`]s wrapped in [`envelope::Envelope`]s; both are encoded by
//! [`codec`]. These types are the product's memory: variants are only ever appended, and a
//! struct whose bytes would change gets a new version beside the old one (decision D4).

pub mod applied;
pub mod codec;
pub mod envelope;
pub mod event;
pub mod index_set;
pub mod inventory;
pub mod job;
pub mod labels;
pub mod launch;
pub mod notify;
pub mod outcome;
pub mod reservation;

pub use codec::{CodecError, FORMAT, decode, encode};
pub use envelope::{Actor, Envelope, Hash32, Source};
pub use event::Event;
pub use index_set::{IndexSet, IndexSetError};
pub use job::{
    ArraySpec, Condition, Dependency, HealthCheck, JobKind, JobRequest, Resources, RestartPolicy,
    RetryPolicy, StopPolicy,
};
pub use labels::Labels;
pub use launch::{LaunchSpec, PathParts, expand_path};
pub use outcome::{ExitClass, Outcome, StartFailure, TaskExit};
