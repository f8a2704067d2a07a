//! The scheduling state: decide, apply, explain
