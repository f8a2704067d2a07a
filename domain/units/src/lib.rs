//! Quantities, time, money and typed ids.
//!
//! Every public value in Fourplane that has a unit has a type here. All arithmetic is on
//! integers, so that two machines and two versions get the same answer.

pub mod id;
pub mod quantity;
pub mod time;

pub use id::{
    ArrayIndex, AttemptId, DeviceIndex, Epoch, JobId, MemberId, NodeId, Rank, Seq, SubjectId, TeamId,
};
pub use quantity::{Bytes, Cores, QuantityError};
pub use time::{Nanos, Timestamp};
