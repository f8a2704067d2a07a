//! Real processes under a real supervisor. Most need root; they say so where there is none.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod confinement;
mod crash;
mod inventory;
mod outcomes;
mod protocol;
mod reuse;
mod terminal;
mod world;
