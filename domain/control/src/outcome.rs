//! What an attempt's end means: from its tasks' exits to one outcome, and what follows.

use facts::event::{Next, StopReason};
use facts::{JobKind, JobRequest, Outcome, RestartPolicy, TaskExit};
use units::{Nanos, Timestamp};

use crate::rows::{Attempt, TaskEnd};

/// The worse of two outcomes: what is not known outweighs what is, then the highest code.
pub(crate) fn worse(known: Option<Outcome>, other: Outcome) -> Outcome {
    fn severity(outcome: &Outcome) -> (u8, u8) {
        let rank = match outcome {
            Outcome::Success => 0,
            Outcome::Cancelled | Outcome::DependencyFailed | Outcome::Preempted => 1,
            Outcome::Code(_) | Outcome::Signal(_) => 2,
            Outcome::TimeLimit | Outcome::IdleLimit => 3,
            Outcome::OutOfMemory => 4,
            Outcome::StartFailed(_) => 5,
            Outcome::Unknown => 6,
            Outcome::NodeRestart => 7,
        };
        (rank, outcome.exit_code())
    }
    match known {
        Some(known) if severity(&known) >= severity(&other) => known,
        _ => other,
    }
}

fn of_exit(exit: &TaskExit) -> Outcome {
    match exit {
        TaskExit::Exited(0) => Outcome::Success,
        TaskExit::Exited(code) => Outcome::Code(*code),
        TaskExit::Signalled(signal) => Outcome::Signal(*signal),
        TaskExit::OutOfMemory(_) => Outcome::OutOfMemory,
        TaskExit::StartFailed(failure) => Outcome::StartFailed(failure.clone()),
        TaskExit::NodeRestart => Outcome::NodeRestart,
        TaskExit::Unknown => Outcome::Unknown,
        TaskExit::IdleLimit => Outcome::IdleLimit,
    }
}

/// How an attempt ended, from the ends of all its tasks.
///
/// The reason of an ordered stop counts unless every task was over before it. Tasks that
/// were stopped because of a mate say nothing: the mate does.
pub(crate) fn of_attempt(attempt: &Attempt, request: &JobRequest, ends: &[&TaskEnd]) -> Outcome {
    let stop = attempt.stop.filter(|_| ends.iter().any(|end| end.stopped));
    let by_reason = match stop.map(|stop| stop.reason) {
        Some(StopReason::Cancel) => Some(Outcome::Cancelled),
        Some(StopReason::TimeLimit) => Some(Outcome::TimeLimit),
        Some(StopReason::IdleLimit) => Some(Outcome::IdleLimit),
        Some(StopReason::Preempt) => Some(Outcome::Preempted),
        Some(StopReason::Unhealthy) => Some(Outcome::Signal(request.stop.signal)),
        Some(StopReason::GangMate) | None => None,
    };
    by_reason.unwrap_or_else(|| {
        let own = ends.iter().filter(|end| !end.stopped || end.exit == TaskExit::NodeRestart);
        own.fold(None, |worst, end| Some(worse(worst, of_exit(&end.exit)))).unwrap_or(Outcome::Unknown)
    })
}

/// What follows an attempt that ended so.
pub(crate) fn next(attempt: &Attempt, request: &JobRequest, outcome: &Outcome, now: Timestamp) -> Next {
    let retry = &request.retry;
    let again = |counted| {
        let delay =
            if counted { backoff(retry.backoff, attempt.counted, retry.backoff_max) } else { Nanos::ZERO };
        Next::Retry { not_before: now + delay, counted }
    };
    if attempt.cancelled || *outcome == Outcome::Cancelled {
        return Next::Finish;
    }
    let restart = match &request.kind {
        JobKind::Service { restart: RestartPolicy::Always, .. } => true,
        JobKind::Service { restart: RestartPolicy::OnFailure, .. } => *outcome != Outcome::Success,
        JobKind::Service { restart: RestartPolicy::Never, .. } | JobKind::Batch => false,
        // Whoever sat at the terminal is gone.
        JobKind::Interactive { .. } => return Next::Finish,
    };
    if matches!(outcome, Outcome::NodeRestart | Outcome::Preempted) && retry.requeue {
        return again(false);
    }
    // A service that ran for longer than the longest wait is no restart loop.
    if restart && now.since(attempt.started) > retry.backoff_max {
        return Next::Afresh { not_before: now + retry.backoff };
    }
    let listed = outcome.class().is_some_and(|class| retry.on.contains(&class));
    if restart || (listed && attempt.counted < retry.max) { again(true) } else { Next::Finish }
}

/// The wait after so many earlier tries: doubles each time, up to `most`.
fn backoff(first: Nanos, earlier: u32, most: Nanos) -> Nanos {
    Nanos(first.0.saturating_mul(1_u64.checked_shl(earlier).unwrap_or(u64::MAX))).min(most)
}
