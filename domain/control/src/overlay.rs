//! What would follow if: events tried on the state itself, and undone.

use facts::event::{StartedV1, SubmittedV2, TaskEndedV1, TaskFreedV1};
use facts::{Actor, Envelope, Event, JobRequest, Source, TaskExit};
use units::{AttemptId, JobId, Rank, Timestamp};

use crate::admit::{Denial, admit};
use crate::decide::{Policy, decide};
use crate::explain::{Why, why};
use crate::remedy::{Remedy, remedies};
use crate::state::{Mark, State};

/// A supposed course of events. Dropping it undoes all of them.
pub(crate) struct Overlay<'a> {
    pub(crate) state: &'a mut State,
    mark: Mark,
    pub(crate) now: Timestamp,
    policy: Policy,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(state: &'a mut State, now: Timestamp, policy: Policy) -> Self {
        let mark = state.mark();
        Self { state, mark, now, policy }
    }

    /// Lets `event` happen; false if it cannot.
    pub(crate) fn happens(&mut self, event: Event) -> bool {
        let envelope = Envelope {
            seq: self.state.meta().seq.next(),
            ledger_time: self.now,
            wall_time: self.now,
            source: Source::Decision,
            source_time: None,
            actor: Actor::Server,
            cause: None,
            idem_key: None,
            event,
        };
        self.state.apply(&envelope).is_ok()
    }

    /// Lets a job be submitted.
    pub(crate) fn submitted(&mut self, request: JobRequest) -> Option<JobId> {
        let job = self.state.next_job_id();
        self.happens(Event::Submitted(SubmittedV2 { job, request })).then_some(job)
    }

    /// Lets all tasks of an attempt end well, and be proven free.
    pub(crate) fn ends(&mut self, attempt: AttemptId) {
        let open = self.state.tasks_of(attempt).filter(|(_, task)| task.freed.is_none());
        let open: Vec<(Rank, bool)> = open.map(|(rank, task)| (rank, task.end.is_some())).collect();
        for (rank, ended) in open {
            let at = self.now;
            // Neither is refused: the task is the attempt's and not freed.
            self.happens(if ended {
                Event::TaskFreed(TaskFreedV1 { attempt, rank, at })
            } else {
                Event::TaskEnded(TaskEndedV1 {
                    attempt,
                    rank,
                    exit: TaskExit::Exited(0),
                    started: None,
                    ended: at,
                    freed: Some(at),
                    cpu: None,
                    memory_peak: None,
                })
            });
        }
    }

    /// Decides until a member of `job` starts; false if none does.
    pub(crate) fn starts(&mut self, job: JobId) -> bool {
        while let Some(event) = decide(self.state, self.now, &self.policy) {
            let starts = matches!(event, Event::Started(StartedV1 { job: started, .. }) if started == job);
            if !self.happens(event) {
                return false;
            }
            if starts {
                return true;
            }
        }
        false
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        self.state.rollback(self.mark);
    }
}

/// When a job is expected to start, if nothing is submitted, every attempt ends at its time limit
/// and well, and an ordered stop takes its whole grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forecast {
    /// By the decisions that are being taken, or at this later time.
    At(Timestamp),
    /// Not before something happens that nobody can foresee: an attempt without a time limit
    /// ends, a held job is released, a quota is raised.
    Unforeseen,
    /// Not in as many ends as were looked at; the last was at this time.
    After(Timestamp),
}

/// The most ends that a forecast looks at.
const MAX_ENDS: usize = 1_000;

/// Forecasts the start of the next member of a job that waits. The state is left as it is.
pub fn forecast(state: &mut State, job: JobId, now: Timestamp, policy: &Policy) -> Forecast {
    let mut overlay = Overlay::new(state, now, *policy);
    let mut looked = 0;
    loop {
        if overlay.starts(job) {
            return Forecast::At(overlay.now);
        }
        if looked >= MAX_ENDS {
            return Forecast::After(overlay.now);
        }
        let first = overlay.state.index().releases.first().map(|(at, _)| *at);
        if first.is_none_or(|at| at > overlay.now) {
            match overlay.state.next_wake(overlay.now) {
                Some(at) => overlay.now = at,
                None => return Forecast::Unforeseen,
            }
        }
        let due = overlay.state.index().releases.iter().take_while(|(at, _)| *at <= overlay.now);
        let due: Vec<AttemptId> = due.map(|(_, attempt)| *attempt).collect();
        looked += due.len().max(1);
        for attempt in due {
            overlay.ends(attempt);
        }
    }
}

/// What would become of a request, if it were submitted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// Where it would stand.
    pub why: Why,
    /// Jobs ahead of it in the queue.
    pub ahead: Option<usize>,
    /// When it would start.
    pub forecast: Forecast,
    /// What would let it start at once; empty if it would.
    pub remedies: Vec<Remedy>,
}

/// Tries a submission. The state is left as it is.
pub fn preflight(
    state: &mut State,
    request: &JobRequest,
    now: Timestamp,
    policy: &Policy,
) -> Result<Preflight, Denial> {
    admit(state, request)?;
    let mut overlay = Overlay::new(state, now, *policy);
    let job = overlay.submitted(request.clone()).ok_or(Denial::Inconsistent)?;
    let why = why(overlay.state, job, None, now, policy);
    let ahead = overlay.state.jobs_ahead(job);
    let forecast = forecast(overlay.state, job, now, policy);
    let remedies = remedies(overlay.state, job, now, policy);
    Ok(Preflight { why, ahead, forecast, remedies })
}
