//! How things ended. What is not known stays `Unknown`; it is never a success.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How one task's process ended, as its supervisor saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskExit {
    /// It exited with this code.
    Exited(u8),
    /// It was ended by this signal.
    Signalled(u8),
    /// The kernel killed something in its memory limit; the raw wait status is kept.
    OutOfMemory(i32),
    /// It never ran.
    StartFailed(StartFailure),
    /// The machine restarted under it.
    NodeRestart,
    /// Its supervisor cannot say.
    Unknown,
    /// It was ended because nothing was typed or shown for as long as that is allowed.
    IdleLimit,
}

/// Why a task never ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    /// What was being done, for example `open output` or `exec`.
    pub step: String,
    /// The path or name it was done to, as text.
    pub subject: String,
    /// The operating system's error number.
    pub errno: i32,
}

/// How an attempt, or a member that never started, ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every task exited 0.
    Success,
    /// A task exited with this code, the highest over a gang.
    Code(u8),
    /// A task was ended by this signal.
    Signal(u8),
    /// Memory limit.
    OutOfMemory,
    /// Time limit.
    TimeLimit,
    /// Idle limit of an interactive job.
    IdleLimit,
    /// Cancelled; who is in the cancel request's event.
    Cancelled,
    /// It never ran.
    StartFailed(StartFailure),
    /// The machine restarted under it.
    NodeRestart,
    /// A dependency can no longer be met.
    DependencyFailed,
    /// Put back to make room.
    Preempted,
    /// Nobody can say.
    Unknown,
}

/// For people: `exited with code 1`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Success => "succeeded",
            Self::Code(code) => return write!(f, "exited with code {code}"),
            Self::Signal(signal) => return write!(f, "ended by signal {signal}"),
            Self::OutOfMemory => "exceeded its memory limit",
            Self::TimeLimit => "reached its time limit",
            Self::IdleLimit => "reached its idle limit",
            Self::Cancelled => "cancelled",
            Self::StartFailed(StartFailure { step, subject, errno }) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                return write!(f, "could not {step} {subject}: {error}");
            }
            Self::NodeRestart => "ended by a restart of the node",
            Self::DependencyFailed => "a job it waited for did not end as asked",
            Self::Preempted => "put back to make room",
            Self::Unknown => "nobody saw how it ended",
        };
        f.write_str(words)
    }
}

/// The classes of end that a retry policy tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ExitClass {
    /// A code other than 0, or a signal.
    Failure,
    /// Memory limit.
    OutOfMemory,
    /// Time limit.
    TimeLimit,
    /// It never ran.
    StartFailed,
    /// Nobody can say.
    Unknown,
}

impl Outcome {
    /// The class a retry policy looks at; none where a retry never applies.
    pub fn class(&self) -> Option<ExitClass> {
        match self {
            Self::Code(_) | Self::Signal(_) => Some(ExitClass::Failure),
            Self::OutOfMemory => Some(ExitClass::OutOfMemory),
            Self::TimeLimit => Some(ExitClass::TimeLimit),
            Self::StartFailed(_) => Some(ExitClass::StartFailed),
            Self::Unknown => Some(ExitClass::Unknown),
            Self::Success
            | Self::IdleLimit
            | Self::Cancelled
            | Self::NodeRestart
            | Self::DependencyFailed
            | Self::Preempted => None,
        }
    }

    /// Its kind, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Code(_) => "code",
            Self::Signal(_) => "signal",
            Self::OutOfMemory => "out-of-memory",
            Self::TimeLimit => "time-limit",
            Self::IdleLimit => "idle-limit",
            Self::Cancelled => "cancelled",
            Self::StartFailed(_) => "start-failed",
            Self::NodeRestart => "node-restart",
            Self::DependencyFailed => "dependency-failed",
            Self::Preempted => "preempted",
            Self::Unknown => "unknown",
        }
    }

    /// The code an attached `run` or `wait` returns: the job's own, 128+n for a signal, and
    /// 125 where Fourplane or the machine failed it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Code(code) => *code,
            Self::Signal(signal) => 128_u8.saturating_add(*signal),
            Self::OutOfMemory => 137,
            Self::TimeLimit | Self::IdleLimit => 124,
            Self::Cancelled | Self::Preempted => 143,
            // As shells do: not found is 127, found but not runnable 126.
            Self::StartFailed(failure) if failure.step == "exec" => {
                if failure.errno == 2 {
                    127
                } else {
                    126
                }
            }
            Self::StartFailed(_) | Self::NodeRestart | Self::DependencyFailed | Self::Unknown => 125,
        }
    }
}
