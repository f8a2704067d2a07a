//! Ledger time: monotonic, counted by the machine's own clock, drawn gently towards the wall
//! clock (decision D6). Durations are differences of ledger time only.

use facts::event::ClockSteppedV1;
use units::Timestamp;

use crate::ports::ClockReading;

/// Ledger time follows the wall clock by at most so many parts per million.
const SLEW_PPM: i64 = 500;

/// A change of the wall clock against the machine's own, above which it is recorded.
const STEP_NS: i64 = 1_000_000_000;

/// Maps machine clock readings to ledger time.
#[derive(Clone, Debug)]
pub struct LedgerClock {
    /// Ledger time minus `CLOCK_BOOTTIME`, in nanoseconds.
    anchor: i64,
    last: Timestamp,
    read: ClockReading,
}

impl LedgerClock {
    /// Starts at `reading`, never before `last`, the time of the log's last event. `anchor` is
    /// the one this boot started with, where the log knows it.
    pub fn start(reading: ClockReading, last: Timestamp, anchor: Option<i64>) -> Self {
        let boottime = signed(reading.boottime);
        let anchor = anchor.unwrap_or_else(|| reading.wall.max(last.0) - boottime);
        Self { anchor, last: last.max(Timestamp(anchor + boottime)), read: reading }
    }

    /// Ledger time minus `CLOCK_BOOTTIME`, in nanoseconds.
    pub fn anchor(&self) -> i64 {
        self.anchor
    }

    /// The last time given out.
    pub fn now(&self) -> Timestamp {
        self.last
    }

    /// Takes a reading and moves on. Tells when the wall clock stepped since the last one.
    pub fn advance(&mut self, reading: ClockReading) -> Option<ClockSteppedV1> {
        let elapsed = signed(reading.boottime.saturating_sub(self.read.boottime));
        let offset_before = self.read.wall - self.anchor - signed(self.read.boottime);
        let offset_after = reading.wall - self.anchor - signed(reading.boottime);
        let most = elapsed / 1_000_000 * SLEW_PPM;
        self.anchor += offset_after.clamp(-most, most);
        self.read = reading;
        self.last = self.last.max(self.at(reading.boottime));
        let stepped = (offset_after - offset_before).abs() > STEP_NS;
        stepped.then_some(ClockSteppedV1 { offset_before, offset_after })
    }

    /// The ledger time of a `CLOCK_BOOTTIME` that a node on this machine read.
    pub fn at(&self, boottime: u64) -> Timestamp {
        Timestamp(self.anchor + signed(boottime))
    }
}

/// Boot times fit an `i64` for 292 years.
fn signed(boottime: u64) -> i64 {
    i64::try_from(boottime).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn reading(boot_s: i64, wall_s: i64) -> ClockReading {
        ClockReading { boottime: u64::try_from(boot_s * SECOND).unwrap(), wall: wall_s * SECOND }
    }

    #[test]
    fn a_step_back_is_told_and_time_goes_on() {
        let mut clock = LedgerClock::start(reading(10, 1_000), Timestamp(0), None);
        assert_eq!(clock.advance(reading(20, 1_010)), None);
        let before = clock.now();
        let step = clock.advance(reading(21, 11)).expect("a step of 1,000 s");
        assert_eq!(step.offset_after - step.offset_before, -1_000 * SECOND);
        let gone = clock.now().since(before).0;
        assert!((999_000_000..=1_000_000_000).contains(&gone), "{gone}");
    }

    #[test]
    fn a_restart_with_the_wall_set_back_does_not_go_back() {
        let clock = LedgerClock::start(reading(5, 100), Timestamp::from_secs(500), None);
        assert_eq!(clock.now(), Timestamp::from_secs(500));
        assert_eq!(clock.at(6 * 1_000_000_000), Timestamp::from_secs(501));
    }

    proptest! {
        #[test]
        fn ledger_time_never_goes_back_and_keeps_the_machines_pace(
            steps in prop::collection::vec((0_i64..100, -10_000_i64..10_000), 1..50),
        ) {
            let mut clock = LedgerClock::start(reading(0, 0), Timestamp(0), None);
            let (mut boot, mut wall) = (0, 0);
            for (elapsed, drift) in steps {
                boot += elapsed;
                wall += elapsed + drift;
                let before = clock.now();
                clock.advance(reading(boot, wall));
                let gone = clock.now().since(before).0;
                prop_assert!(clock.now() >= before);
                prop_assert!(gone <= u64::try_from(elapsed * SECOND * 1_001 / 1_000).unwrap());
            }
        }
    }
}
