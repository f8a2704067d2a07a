//! What health checks say becomes facts.

use facts::Event;
use facts::event::HealthChangedV1;

use super::{Core, Draft, Origin};
use crate::health::HealthReport;
use crate::ports::LogStore;

impl<S: LogStore> Core<S> {
    /// Only news counts, and only of an attempt that runs and was not told to stop.
    pub(super) fn take_health(&mut self, report: HealthReport, draft: &mut Draft) {
        let HealthReport { attempt, healthy, reason } = report;
        let news =
            |row: &control::Attempt| row.is_live() && row.stop.is_none() && row.healthy != Some(healthy);
        if self.state.attempt(attempt).is_some_and(news) {
            let body = HealthChangedV1 { attempt, healthy, at: self.clock.now(), reason };
            self.record(Event::HealthChanged(body), Origin::SERVER, draft);
        }
    }
}
