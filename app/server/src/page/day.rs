//! What devices, or where there are none, cores did today.

use std::sync::Arc;

use units::{Nanos, Timestamp};

use crate::api::usage_since;
use crate::app::App;
use crate::error::ApiError;
use crate::wire::{Spent, Usage};

/// The bar's width in its own units.
const WIDTH: i64 = 10_000;

/// A bar of states and its legend.
pub(super) struct Day {
    /// `GPU` or `core`.
    pub(super) unit: &'static str,
    pub(super) simulated: bool,
    pub(super) date: String,
    /// When the day began, with its zone.
    pub(super) since: String,
    pub(super) parts: Vec<Part>,
    /// Unit-nanoseconds that are in no state.
    pub(super) residue_ns: i64,
}

/// A state with a share in the day.
pub(super) struct Part {
    pub(super) state: &'static str,
    pub(super) words: &'static str,
    pub(super) time: String,
    pub(super) percent: String,
    /// Where it begins in the bar, and how wide it is, of [`WIDTH`].
    pub(super) from: i64,
    pub(super) width: i64,
}

impl Day {
    /// Today until now, in the server's zone.
    pub(super) async fn today(app: &Arc<App>) -> Result<Self, ApiError> {
        let now = app.now().await?;
        let instant =
            jiff::Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let local = instant.to_zoned_datetime(jiff::tz::TimeZone::system());
        // A zone whose day does not begin is told of from now on.
        let midnight = local.start_of_day().unwrap_or(local);
        let begin = i64::try_from(midnight.timestamp().as_nanosecond()).map_or(now, Timestamp);
        let usage = usage_since(app, begin).await?;
        Ok(Self::of(&usage, &midnight))
    }

    fn of(usage: &Usage, midnight: &jiff::ZonedDateTime) -> Self {
        let has_devices = usage.devices.capacity_ns > 0;
        let (unit, spent) = if has_devices { ("GPU", &usage.devices) } else { ("core", &usage.cores) };
        let simulated = usage.simulated && has_devices;
        Self {
            unit,
            simulated,
            date: midnight.strftime("%Y-%m-%d").to_string(),
            since: midnight.strftime("%H:%M %Z").to_string(),
            parts: parts(spent),
            residue_ns: spent.residue_ns,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn parts(spent: &Spent) -> Vec<Part> {
    let whole = spent.capacity_ns.max(1);
    let scaled =
        |time: i64| i64::try_from(i128::from(time) * i128::from(WIDTH) / i128::from(whole)).unwrap_or(0);
    let mut before = 0;
    let mut parts = Vec::new();
    for (state, words) in Spent::STATES {
        let time = spent.states.get(state).copied().unwrap_or(0);
        if time == 0 {
            continue;
        }
        let (from, until) = (scaled(before), scaled(before + time));
        before += time;
        parts.push(Part {
            state,
            words,
            time: Nanos(u64::try_from(time).unwrap_or(0)).to_string(),
            percent: format!("{:.1}", 100.0 * time as f64 / whole as f64),
            from,
            width: until - from,
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_bar_is_filled_without_gaps() {
        let states = [("free", 1), ("running", 2), ("leaked", 0), ("drained", 4)];
        let states: BTreeMap<String, i64> =
            states.map(|(word, hours)| (word.to_owned(), hours * 3_600_000_000_000)).into();
        let spent = Spent { capacity_ns: 7 * 3_600_000_000_000, states, residue_ns: 0 };
        let parts = parts(&spent);
        let shown: Vec<_> =
            parts.iter().map(|part| (part.state, part.time.as_str(), part.percent.as_str())).collect();
        assert_eq!(
            shown,
            [("running", "02:00:00", "28.6"), ("drained", "04:00:00", "57.1"), ("free", "01:00:00", "14.3")]
        );
        let end = parts.iter().fold(0, |end, part| {
            assert_eq!(part.from, end);
            end + part.width
        });
        assert_eq!(end, WIDTH);
    }

    #[test]
    fn every_state_has_its_words() {
        let words: BTreeMap<_, _> = Spent::STATES.into();
        for entry in cost::Entry::ALL {
            assert!(entry == cost::Entry::Capacity || words.contains_key(entry.word()), "{entry:?}");
        }
    }
}
