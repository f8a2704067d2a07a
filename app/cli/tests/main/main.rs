//! Drives the real program as its users do: a server with real processes, and commands.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]

mod apply;
mod browser;
mod control;
mod crash;
mod drill;
mod first;
mod gpus;
mod habits;
mod inventory;
mod lists;
mod network;
mod notify;
mod page;
mod readme;
mod reservations;
mod sbatch;
mod service;
mod shapes;
mod sharing;
mod spec;
mod terminal;
mod upgrade;
mod users;
mod world;
