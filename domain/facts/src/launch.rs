//! How a job is launched. Kept beside the log, never in it, and erased when the job ends:
//! it holds the user's environment and script (decisions D2 and D32).

use serde::{Deserialize, Serialize};
use units::{Bytes, MemberId, Rank};

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

/// What the `%` signs of an output path stand for.
#[derive(Clone, Copy, Debug)]
pub struct PathParts<'a> {
    /// `%x`: the job's name.
    pub name: &'a str,
    /// `%A`: the job; `%j`: the job, with `_index` in an array.
    pub member: MemberId,
    /// Whether the job is an array.
    pub is_array: bool,
    /// `%t`: the task's rank.
    pub rank: Rank,
}

/// The longest file name that Linux file systems take.
const NAME_MAX: usize = 255;

/// Expands `%x`, `%j`, `%A`, `%a`, `%t` and `%%`. A name's slashes become underscores, and the
/// file name is cut to what a file system takes, with its ending kept.
pub fn expand_path(pattern: &[u8], parts: PathParts<'_>) -> Vec<u8> {
    let mut path = Vec::with_capacity(pattern.len() + 16);
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'x') => path.extend(parts.name.bytes().map(|b| if b == b'/' || b == 0 { b'_' } else { b })),
            Some(b'j') if parts.is_array => {
                path.extend(format!("{}_{}", parts.member.job, parts.member.index).bytes());
            }
            Some(b'A' | b'j') => path.extend(parts.member.job.to_string().bytes()),
            Some(b'a') => path.extend(parts.member.index.to_string().bytes()),
            Some(b't') => path.extend(parts.rank.to_string().bytes()),
            Some(b'%') | None => path.push(b'%'),
            Some(other) => path.extend([b'%', other]),
        }
    }
    cut_file_name(path)
}

/// Cuts the last component to [`NAME_MAX`] bytes, out of the middle.
fn cut_file_name(mut path: Vec<u8>) -> Vec<u8> {
    const TAIL: usize = 48;
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let length = path.len() - start;
    if length > NAME_MAX {
        path.drain(start + NAME_MAX - TAIL..path.len() - TAIL);
    }
    path
}

#[cfg(test)]
mod tests {
    use units::{ArrayIndex, JobId};

    use super::*;

    fn check(pattern: &str, is_array: bool, expect: &str) {
        let member = MemberId { job: JobId(12), index: ArrayIndex(3) };
        let parts = PathParts { name: "a/b", member, is_array, rank: Rank(1) };
        assert_eq!(String::from_utf8_lossy(&expand_path(pattern.as_bytes(), parts)), expect);
    }

    #[test]
    fn signs_are_expanded() {
        check("%x-%j.out", false, "a_b-12.out");
        check("%x-%j.out", true, "a_b-12_3.out");
        check("/tmp/%A/%a-%t", true, "/tmp/12/3-1");
        check("100%%-%q%", false, "100%-%q%");
    }

    #[test]
    fn a_long_name_still_makes_a_file_name() {
        let name = "n".repeat(10_000);
        let parts =
            PathParts { name: &name, member: MemberId::sole(JobId(7)), is_array: false, rank: Rank(0) };
        let path = expand_path(b"/home/u/%x-%j.out", parts);
        assert_eq!(path.len(), "/home/u/".len() + NAME_MAX);
        assert!(path.ends_with(b"n-7.out"));
    }
}
