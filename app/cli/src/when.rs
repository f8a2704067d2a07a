//! Times for people: local, with the zone in the header.

use jiff::tz::TimeZone;
use server::wire::Time;

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
    fn instants_are_shown_in_the_zone_of_the_header() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let time = Time(units::Timestamp::from_secs(0));
        assert_eq!(local(time, &zone), "1970-01-01 02:00:00");
        assert_eq!(zone_name(&zone), "+02");
    }
}
