//! Between the API's JSON and the facts.

use facts::event::{PreemptionSetV1, Reclaim as ReclaimFirst, StopReason};
use facts::notify::{Channel, Occasion};
use facts::{
    ArraySpec, Condition, Dependency, ExitClass, HealthCheck, JobKind, RestartPolicy, RetryPolicy,
    StopPolicy, TaskExit,
};
use ops::notify::Progress;
use units::{JobId, Nanos};

use super::{
    After, Array, Channel as WireChannel, Condition as WireCondition, Health, Kind, Occasion as WireOccasion,
    Outcome, Preemption, Progress as WireProgress, Reclaim, Restart, Retry, RetryClass, Stop, Warn,
};

impl From<&RetryPolicy> for Retry {
    fn from(policy: &RetryPolicy) -> Self {
        Self {
            max: policy.max,
            on: policy.on.iter().map(|class| (*class).into()).collect(),
            backoff_ns: policy.backoff.0,
            backoff_max_ns: policy.backoff_max.0,
            requeue: policy.requeue,
        }
    }
}

/// Two enums with the same variants, converted both ways.
macro_rules! same {
    ($here:ident, $there:ident: $($variant:ident),+) => {
        impl From<$here> for $there {
            fn from(value: $here) -> Self {
                match value { $($here::$variant => Self::$variant),+ }
            }
        }
        impl From<$there> for $here {
            fn from(value: $there) -> Self {
                match value { $($there::$variant => Self::$variant),+ }
            }
        }
    };
}

same!(WireOccasion, Occasion: Started, Completed, Failed, Cancelled, Preempted, Leaked);
same!(WireChannel, Channel: Webhook, Email, Command);
same!(WireProgress, Progress: Waiting, Delivered, GaveUp);
same!(Reclaim, ReclaimFirst: Never, BorrowedFirst, LowestPriority);
same!(RetryClass, ExitClass: Failure, OutOfMemory, TimeLimit, StartFailed, Unknown);
same!(Restart, RestartPolicy: Always, OnFailure, Never);
same!(WireCondition, Condition: Ok, NotOk, Any);

impl From<PreemptionSetV1> for Preemption {
    fn from(rules: PreemptionSetV1) -> Self {
        Self {
            reclaim: rules.reclaim.into(),
            protect_ns: rules.protect.0,
            preempts_from: rules.preempts_from,
            most: rules.most,
        }
    }
}

impl From<Preemption> for PreemptionSetV1 {
    fn from(rules: Preemption) -> Self {
        Self {
            reclaim: rules.reclaim.into(),
            protect: Nanos(rules.protect_ns),
            preempts_from: rules.preempts_from,
            most: rules.most,
        }
    }
}

impl From<StopPolicy> for Stop {
    fn from(policy: StopPolicy) -> Self {
        let warn = policy.warn.map(|(signal, before)| Warn { signal, before_ns: before.0 });
        Self { signal: policy.signal, grace_ns: policy.grace.0, warn }
    }
}

impl From<Stop> for StopPolicy {
    fn from(stop: Stop) -> Self {
        let warn = stop.warn.map(|warn| (warn.signal, Nanos(warn.before_ns)));
        Self { signal: stop.signal, grace: Nanos(stop.grace_ns), warn }
    }
}

impl From<&JobKind> for Kind {
    fn from(kind: &JobKind) -> Self {
        match kind {
            JobKind::Batch => Self::Batch,
            JobKind::Service { port, health, restart } => Self::Service {
                port: *port,
                health: health.as_ref().map(|health| Health {
                    http_path: health.http_path.clone(),
                    every_ns: health.every.0,
                    failures: health.failures,
                }),
                restart: (*restart).into(),
            },
            JobKind::Interactive { idle_limit } => {
                Self::Interactive { idle_limit_ns: idle_limit.map(|limit| limit.0) }
            }
        }
    }
}

impl From<Kind> for JobKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Batch => Self::Batch,
            Kind::Service { port, health, restart } => Self::Service {
                port,
                health: health.map(|health| HealthCheck {
                    http_path: health.http_path,
                    every: Nanos(health.every_ns),
                    failures: health.failures,
                }),
                restart: restart.into(),
            },
            Kind::Interactive { idle_limit_ns } => Self::Interactive { idle_limit: idle_limit_ns.map(Nanos) },
        }
    }
}

impl From<Dependency> for After {
    fn from(dependency: Dependency) -> Self {
        Self { job: dependency.job.0, condition: dependency.condition.into() }
    }
}

impl From<After> for Dependency {
    fn from(after: After) -> Self {
        Self { job: JobId(after.job), condition: after.condition.into() }
    }
}

impl From<&ArraySpec> for Array {
    fn from(array: &ArraySpec) -> Self {
        Self { indexes: array.indexes.to_string(), max_running: array.max_running }
    }
}

/// An outcome as JSON.
impl From<&facts::Outcome> for Outcome {
    fn from(outcome: &facts::Outcome) -> Self {
        use facts::Outcome as O;
        let number = match outcome {
            O::Code(code) => Some(i32::from(*code)),
            O::Signal(signal) => Some(i32::from(*signal)),
            O::StartFailed(failure) => Some(failure.errno),
            _ => None,
        };
        let (kind, text) = (outcome.kind().to_owned(), outcome.to_string());
        Self { kind, number, text, exit_code: outcome.exit_code() }
    }
}

impl From<&TaskExit> for Outcome {
    fn from(exit: &TaskExit) -> Self {
        use facts::Outcome as O;
        Self::from(&match exit {
            TaskExit::Exited(0) => O::Success,
            TaskExit::Exited(code) => O::Code(*code),
            TaskExit::Signalled(signal) => O::Signal(*signal),
            TaskExit::OutOfMemory(_) => O::OutOfMemory,
            TaskExit::StartFailed(failure) => O::StartFailed(failure.clone()),
            TaskExit::NodeRestart => O::NodeRestart,
            TaskExit::Unknown => O::Unknown,
            TaskExit::IdleLimit => O::IdleLimit,
        })
    }
}

/// The word for why an attempt is stopped.
pub(crate) fn stop_word(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancel => "cancelled",
        StopReason::TimeLimit => "time-limit",
        StopReason::IdleLimit => "idle-limit",
        StopReason::GangMate => "gang-mate",
        StopReason::Preempt => "preempted",
        StopReason::Unhealthy => "unhealthy",
    }
}
