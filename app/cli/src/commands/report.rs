//! `report`: what capacity was used for.

use server::wire::{Spent, Usage};
use units::Nanos;

use crate::cli::Common;
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::output::{Printer, table};
use crate::when;

/// Shows the time of devices and cores by state.
pub(crate) async fn usage(
    common: &Common,
    printer: Printer,
    since: Option<jiff::Timestamp>,
) -> Result<u8, Failure> {
    let query = since.map(|since| format!("?since={}", escape(&since.to_string()))).unwrap_or_default();
    let usage: Usage = Client::new(common)?.get(&format!("/usage{query}")).await?;
    if printer.is_json() {
        printer.json(&usage);
        return Ok(0);
    }
    let zone = when::zone();
    let [from, until] = [usage.since, usage.until].map(|time| when::local(time, &zone));
    printer.line(&format!("from {from} to {until} {}", when::zone_name(&zone)));
    let rehearsed = if usage.simulated { "GPU (simulated)" } else { "GPU" };
    let classes: Vec<(&str, &Spent)> = [(rehearsed, &usage.devices), ("CORE", &usage.cores)]
        .into_iter()
        .filter(|(_, spent)| spent.capacity_ns != 0)
        .collect();
    let mut header = vec!["STATE"];
    header.extend(classes.iter().flat_map(|(name, _)| [*name, "SHARE"]));
    header.push("MEANING");
    printer.data(table(&header, &rows(&classes), true).as_bytes());
    Ok(0)
}

/// A row for each state that there was, then what there was in all, and what is in no state.
fn rows(classes: &[(&str, &Spent)]) -> Vec<Vec<String>> {
    let row = |name: &str, meaning: &str, time: &dyn Fn(&Spent) -> i64| {
        let mut row = vec![name.to_owned()];
        row.extend(classes.iter().flat_map(|(_, spent)| told(time(spent), spent.capacity_ns)));
        row.push(meaning.to_owned());
        row
    };
    let of = |state: &str, spent: &Spent| spent.states.get(state).copied().unwrap_or(0);
    let mut rows: Vec<_> = Spent::STATES
        .into_iter()
        .filter(|(state, _)| classes.iter().any(|(_, spent)| of(state, spent) != 0))
        .map(|(state, meaning)| row(state, meaning, &|spent| of(state, spent)))
        .collect();
    rows.push(row("capacity", "what there was", &|spent| spent.capacity_ns));
    rows.push(row("residue", "in no state, to the nanosecond", &|spent| spent.residue_ns));
    rows
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn told(time: i64, whole: i64) -> [String; 2] {
    let sign = if time < 0 { "-" } else { "" };
    let span = if time == 0 { "0".to_owned() } else { format!("{sign}{}", Nanos(time.unsigned_abs())) };
    [span, format!("{:.1}%", 100.0 * time as f64 / whole as f64)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn spent(running: i64, free: i64, residue_ns: i64) -> Spent {
        let states = [("running", running), ("free", free), ("leaked", 0)];
        let states = states.map(|(word, time)| (word.to_owned(), time)).into();
        Spent { capacity_ns: running + free + residue_ns, states, residue_ns }
    }

    #[test]
    fn states_that_were_not_are_left_out_and_a_residue_is_not() {
        let (devices, cores) = (spent(30 * HOUR, 10 * HOUR, 0), spent(0, 5 * HOUR, -HOUR));
        let rows = rows(&[("GPU", &devices), ("CORE", &cores)]);
        let short: Vec<_> = rows.iter().map(|row| row[..5].join(" ")).collect();
        assert_eq!(
            short,
            [
                "running 1-06:00:00 75.0% 0 0.0%",
                "free 10:00:00 25.0% 05:00:00 125.0%",
                "capacity 1-16:00:00 100.0% 04:00:00 100.0%",
                "residue 0 0.0% -01:00:00 -25.0%",
            ]
        );
    }
}
