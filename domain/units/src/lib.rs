//! Quantities, time, money, typed ids and the names of GPU models.
//!
//! Every public value in Fourplane that has a unit has a type here. All arithmetic is on
//! integers, so that two machines and two versions get the same answer.

pub mod address;
pub mod amount;
pub mod gpu;
pub mod id;
pub mod money;
pub mod quantity;
pub mod time;

pub use address::{BadAddress, HostPort, MailAddress, Network, WebUrl};
pub use amount::{BitsPerSec, BytesPerSec, GpuSeconds, Share, Watts};
pub use gpu::{GpuForm, GpuModel, GpuName, GpuNameError, GpuResource, GpuVendor, MigExtras, MigProfile};
pub use id::{
    ArrayIndex, AttemptId, DeviceIndex, Epoch, JobId, MemberId, NodeId, Rank, ReservationId, Seq, SubjectId,
    TeamId,
};
pub use money::{Currency, Frequency, Money, Per, Price, Window};
pub use quantity::{Bytes, Cores, QuantityError};
pub use time::{Nanos, Timestamp};
