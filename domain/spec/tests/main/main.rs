//! What the files that users write are told.
#![expect(clippy::disallowed_methods, reason = "tests read and rewrite files; the crate does not")]

mod documents;
mod examples;
mod mistakes;
mod noise;
