//! Times for people: local, with the zone in the header.

use jiff::civil;
use jiff::tz::TimeZone;
use server::wire::Time;
use units::{Nanos, Timestamp};

/// A time to come, as somebody writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// That instant.
    At(Timestamp),
    /// So long after the start.
    After(Nanos),
    /// When the clock next shows this.
    Clock(civil::Time),
}

/// Reads `17:00`, `now+2h`, `2026-11-30T12:00` (local), or RFC 3339.
pub(crate) fn ahead(text: &str) -> Result<Ahead, String> {
    let wrong = || format!("'{text}' is no time to come; write 17:00, now+2h, 2026-11-30T12:00 or RFC 3339");
    if let Some(after) = text.strip_prefix("now") {
        let after = after.strip_prefix('+').ok_or_else(wrong)?;
        return after.parse().map(Ahead::After).map_err(|error: units::QuantityError| error.to_string());
    }
    if let Ok(time) =
        civil::Time::strptime("%H:%M", text).or_else(|_| civil::Time::strptime("%H:%M:%S", text))
    {
        return Ok(Ahead::Clock(time));
    }
    crate::values::moment(text).ok().and_then(instant).map(Ahead::At).ok_or_else(wrong)
}

impl Ahead {
    /// The instant that is meant, counted from `start`, by the clocks of `zone`; none where no clock
    /// shows it.
    pub(crate) fn from(self, start: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::At(at) => Some(at),
            Self::After(span) => Some(start + span),
            Self::Clock(time) => {
                let start = zoned(Time(start), zone)?;
                let on = |day: civil::Date| day.to_datetime(time).to_zoned_datetime(zone.clone()).ok();
                let today = on(start.date()).filter(|at| *at > start);
                instant(today.or_else(|| on(start.date().tomorrow().ok()?))?.timestamp())
            }
        }
    }
}

fn instant(at: jiff::Timestamp) -> Option<Timestamp> {
    i64::try_from(at.as_nanosecond()).ok().map(Timestamp)
}

/// The time now.
pub(crate) fn now() -> Timestamp {
    instant(jiff::Timestamp::now()).unwrap_or(Timestamp::MAX)
}

/// The zone of this machine, or of `TZ`. Where the machine's own is a link into the zone database, as
/// nearly everywhere, that one file is read: a search of the database reads all of its folders.
pub(crate) fn zone() -> TimeZone {
    let own = std::env::var_os("TZ").is_none().then(of_machine).flatten();
    own.unwrap_or_else(TimeZone::system)
}

fn of_machine() -> Option<TimeZone> {
    const FILE: &str = "/etc/localtime";
    let link = std::fs::read_link(FILE).ok()?;
    let (_, name) = link.to_str()?.split_once("zoneinfo/")?;
    TimeZone::tzif(name, &std::fs::read(FILE).ok()?).ok()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_zone_is_what_a_search_finds() {
        let Some(own) = of_machine() else { return };
        let now = jiff::Timestamp::now();
        let shown = |zone: TimeZone| now.to_zoned_datetime(zone).to_string();
        assert_eq!(shown(own), shown(TimeZone::system()));
    }

    #[test]
    fn times_to_come_are_read() {
        let zone = TimeZone::get("Europe/Berlin").expect("jiff knows it");
        let at = |text: &str| instant(text.parse().expect("RFC 3339")).expect("it is in this age");
        let check = |text: &str, start: &str, expect: &str| {
            let read = ahead(text).expect("it is a time").from(at(start), &zone);
            assert_eq!(read, Some(at(expect)), "{text} from {start}");
        };
        check("17:00", "2026-06-01T12:00:00Z", "2026-06-01T15:00:00Z");
        check("17:00", "2026-06-01T15:00:00Z", "2026-06-02T15:00:00Z");
        check("00:30:15", "2026-12-31T22:00:00Z", "2026-12-31T23:30:15Z");
        check("now+90m", "2026-06-01T12:00:00Z", "2026-06-01T13:30:00Z");
        check("2027-01-01T00:00:00Z", "2026-06-01T12:00:00Z", "2027-01-01T00:00:00Z");
        // The night in which an hour is missing, and the one in which it is there twice.
        check("12:00", "2026-03-28T12:00:00Z", "2026-03-29T10:00:00Z");
        check("12:00", "2026-10-24T12:00:00Z", "2026-10-25T11:00:00Z");
        check("02:30", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00Z");
        for wrong in ["now-1h", "now", "25:00", "17", "soon", "now+5"] {
            assert!(ahead(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn instants_are_shown_in_the_zone_of_the_header() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let time = Time(units::Timestamp::from_secs(0));
        assert_eq!(local(time, &zone), "1970-01-01 02:00:00");
        assert_eq!(zone_name(&zone), "+02");
    }
}
