//! Metering: which device and core was in which state, and the conservation check.

pub mod balance;
pub mod occupancy;
pub mod tally;

pub use balance::{Balance, balance};
pub use occupancy::{Capacity, Holder, Interval, Meter, Occupancy, Unit};
pub use tally::{Amounts, Entry, QUARTER, Quarters, Sums, Tally};
