//! How a job is launched. Kept beside the log, never in it, and erased when the job ends:
//! it holds the user's environment and script (decisions D2 and D32).

use serde::{Deserialize, Serialize};
use units::Bytes;

/// Everything a supervisor needs to start one task, but for what the placement decides.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The user the job runs as.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// The program and its arguments, as raw bytes. A script is `[interpreter, "-", ...]` with
    /// the text in `script`.
    pub argv: Vec<Vec<u8>>,
    /// A script fed as the program's file, where the user submitted one.
    pub script: Option<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// The user's environment, `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// File creation mask.
    pub umask: u32,
    /// Where standard output goes; `%x`, `%j`, `%A`, `%a`, `%t` are expanded.
    pub stdout: Vec<u8>,
    /// Where standard error goes; none merges it into standard output.
    pub stderr: Option<Vec<u8>>,
    /// The most output kept, enforced by the shim; none writes straight to the file.
    pub output_max: Option<Bytes>,
}

/// Shows shape and never contents: the environment and arguments may hold secrets.
impl std::fmt::Debug for LaunchSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaunchSpec")
            .field("uid", &self.uid)
            .field("argv", &self.argv.len())
            .field("env", &self.env.len())
            .finish_non_exhaustive()
    }
}
