//! HTTP API, authorisation, pages.
//!
//! [`serve`] runs the listeners; every request passes the choke point in `guard`; `api` holds
//! the operations; [`wire`] is their JSON.

mod api;
mod app;
mod ask;
mod changes;
mod error;
mod guard;
mod page;
mod people;
mod serve;
mod shares;
mod tokens;
pub mod wire;

pub use api::openapi_json;
pub use serve::{ServeError, ServeOptions, serve};

#[cfg(test)]
mod tests;
