//! Repository checks and benchmarks.
fn main() {}
