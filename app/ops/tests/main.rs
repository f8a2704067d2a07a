//! The writer as a whole, in a deterministic simulation, and logs of every format so far.

extern crate fourplane_ops as ops;

mod keys;
mod old_logs;
mod simulation;
