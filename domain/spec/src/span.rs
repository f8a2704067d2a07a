//! Where something stands in the file.

use serde::Serialize;

/// A place in the file. The offset is in bytes from 0; line and column count from 1, the column in
/// characters, as editors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Bytes before it.
    pub offset: u32,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// From its first byte to before its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Span {
    /// The first byte.
    pub start: Position,
    /// The byte after the last.
    pub end: Position,
}

impl Position {
    /// The start of the file.
    pub(crate) const START: Self = Self { offset: 0, line: 1, column: 1 };
}

impl Span {
    /// Nothing, at the start of the file.
    pub(crate) const START: Self = Self { start: Position::START, end: Position::START };

    pub(crate) fn contains(self, other: Self) -> bool {
        self.start.offset <= other.start.offset && other.end.offset <= self.end.offset
    }
}
