//! Why a command failed, in the words that the user reads, and the exit code that goes with it.

use std::fmt;

/// The program was used wrongly, or what was asked for cannot be.
pub(crate) const USAGE: u8 = 3;

/// Fourplane itself failed or could not be reached.
pub(crate) const FAILED: u8 = 125;

/// A failure: what happened, what to do about it, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// What happened, where and why.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hints: Vec<String>,
}

impl Failure {
    /// What was asked for cannot be.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), hints: Vec::new() }
    }

    /// Fourplane could not do what it should.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), hints: Vec::new() }
    }

    /// Adds a way out.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// For system calls: says what was being done to what.
pub(crate) trait Doing<T> {
    /// Turns the error into a [`Failure`] that starts with `doing`.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::failed(format!("{}: {error}", doing())))
    }
}
