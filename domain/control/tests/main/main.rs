//! Behaviours as sentences, and random histories against a slow scheduler that recomputes
//! everything from the rows.

extern crate fourplane_control as control;

mod behaviours;
mod ends;
mod govern;
mod histories;
mod invariants;
mod news;
mod oracle;
mod preempting;
mod reasons;
mod remedies;
mod reservations;
mod world;
