//! What an event means to whoever waits for news of a job.

use facts::notify::Occasion;
use facts::{Event, Outcome};
use units::JobId;

use crate::state::State;

/// What `event` means for `job`, which it is about; `state` has it applied.
pub fn news(state: &State, event: &Event, job: JobId) -> Vec<Occasion> {
    let Some(row) = state.job(job) else { return Vec::new() };
    let end = || {
        row.ended?;
        Some(match row.worst {
            Some(Outcome::Success) => Occasion::Completed,
            Some(Outcome::Cancelled) => Occasion::Cancelled,
            _ => Occasion::Failed,
        })
    };
    match event {
        Event::Started(e) => {
            // Members that were cancelled before did not start either.
            let others = row.running + row.retrying + row.succeeded;
            let unstarted = row.failed == 0 || row.worst == Some(Outcome::Cancelled);
            (e.number == 1 && others == 1 && unstarted).then_some(Occasion::Started).into_iter().collect()
        }
        Event::AttemptClosed(e) => {
            let preempted = (e.outcome == Outcome::Preempted).then_some(Occasion::Preempted);
            preempted.into_iter().chain(end()).collect()
        }
        Event::MembersEnded(_) => end().into_iter().collect(),
        Event::HoldLeaked(_) => vec![Occasion::Leaked],
        _ => Vec::new(),
    }
}
