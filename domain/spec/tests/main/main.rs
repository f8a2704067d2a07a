//! What the files that users write are told.

mod documents;
mod examples;
mod mistakes;
mod noise;
