//! The scheduling core: what is (the state), what follows (decide), what it means (apply),
//! and why (explain). All of it is pure: time, seeds and ids are arguments.

mod admit;
mod apply;
mod calendar;
mod decide;
mod explain;
pub mod govern;
pub mod identity;
mod lots;
mod news;
mod outcome;
mod overlay;
mod place;
mod preempt;
mod queue;
mod remedy;
mod reservation;
mod rows;
mod share;
mod state;
mod wake;

pub use admit::{Denial, Resource, admit, admit_action};
pub use apply::{ApplyError, Misfit};
pub use decide::{Policy, decide};
pub use explain::{Holder, Why, why};
pub use news::news;
pub use overlay::{Forecast, Preflight, forecast, preflight};
pub use remedy::{Remedy, remedies};
pub use reservation::{Reservation, Standing, Wish, reserve, standing};
pub use rows::{Amount, Attempt, Job, Meta, Node, Retry, Stop, Task, TaskEnd, Team};
pub use state::{Mark, SnapshotError, State};
pub use wake::{Obligation, nonce};
