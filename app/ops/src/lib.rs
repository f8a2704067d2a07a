//! Use cases and the ports they need.
//!
//! [`core`] is the single writer's logic, [`run`] its threads, [`handle`] how others ask it,
//! [`health`] checks services, [`notify`] tells people.

pub mod api;
pub mod clock;
pub mod core;
pub mod handle;
pub mod health;
pub mod notify;
pub mod ports;
pub mod run;
pub mod view;

pub use handle::{Handle, Inbox};
pub use run::{Parts, Running, start};
