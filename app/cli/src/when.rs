//! Times for people: local, with the zone in the header.

use jiff::tz::TimeZone;
use server::wire::Time;
use units::Nanos;

/// An instant as `2026-11-30 14:05:09` in `zone`.
pub(crate) fn local(time: Time, zone: &TimeZone) -> String {
    zoned(time, zone).map_or_else(|| "-".to_owned(), |zoned| zoned.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// The zone's name now, for headers.
pub(crate) fn zone_name(zone: &TimeZone) -> String {
    jiff::Timestamp::now().to_zoned_datetime(zone.clone()).strftime("%Z").to_string()
}

fn zoned(time: Time, zone: &TimeZone) -> Option<jiff::ZonedDateTime> {
    let instant = jiff::Timestamp::from_nanosecond(i128::from(time.0.0)).ok()?;
    Some(instant.to_zoned_datetime(zone.clone()))
}

/// The instant now, as the wire has it.
pub(crate) fn now() -> Time {
    wire_time(jiff::Timestamp::now())
}

/// An instant as the wire has it; beyond 2262 it is the last one that fits.
pub(crate) fn wire_time(instant: jiff::Timestamp) -> Time {
    Time(units::Timestamp(i64::try_from(instant.as_nanosecond()).unwrap_or(i64::MAX)))
}

/// The time between two instants, `D-HH:MM:SS`.
pub(crate) fn between(from: Time, to: Time) -> Nanos {
    to.0.since(from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_the_zone_of_the_header() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let time = Time(units::Timestamp::from_secs(0));
        assert_eq!(local(time, &zone), "1970-01-01 02:00:00");
        assert_eq!(zone_name(&zone), "+02");
        assert_eq!(between(time, Time(units::Timestamp::from_secs(93_784))).to_string(), "1-02:03:04");
    }
}
