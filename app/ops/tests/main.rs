//! The writer as a whole, in a deterministic simulation.

extern crate fourplane_ops as ops;

mod simulation;
