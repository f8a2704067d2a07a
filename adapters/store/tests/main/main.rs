//! The store against its contract, power loss, damage and a full disk.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod contract;
mod damage;
mod disk_full;
mod power_loss;
mod speed;
mod trace;
mod view;
