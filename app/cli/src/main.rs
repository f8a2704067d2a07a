//! The fourplane command
fn main() {}
