//! `reserve`, `reservations`, `unreserve`: capacity that is kept for somebody.

use jiff::tz::TimeZone;
use server::wire::{Holder, Reservation, Reserve, Reserved, Time};
use units::Bytes;

use crate::cli::{Common, ReserveArgs};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{Printer, plain, table};
use crate::when;

/// Keeps capacity for somebody.
pub(crate) async fn reserve(common: &Common, printer: Printer, args: &ReserveArgs) -> Result<u8, Failure> {
    let zone = TimeZone::system();
    let no_clock = || Failure::usage("no clock of this time zone shows that time".to_owned());
    let now = when::now();
    let from = args.from.map(|from| from.from(now, &zone).ok_or_else(no_clock)).transpose()?;
    let until = args.until.from(from.unwrap_or(now), &zone).ok_or_else(no_clock)?;
    let body = Reserve {
        gpus: args.gpus,
        cores: args.cores,
        memory_bytes: args.memory.as_ref().map(|memory| memory.bytes.0),
        from: from.map(Time),
        until: Time(until),
        holder: args.holder.clone(),
        reason: args.reason.clone(),
    };
    let done: Reserved = Client::new(common)?.post("/reservations", &body).await?;
    if printer.is_json() {
        printer.json(&done);
        return Ok(0);
    }
    let made = &done.reservation;
    printer.line(&made.id.to_string());
    let (from, until) = (when::local(made.from, &zone), when::local(made.until, &zone));
    printer.say(&format!(
        "reserved for {}: {} on {}, from {from} until {until} {}",
        plain(&made.holder),
        amount(made),
        plain(&made.node),
        when::zone_name(&zone)
    ));
    for line in held(made, &zone) {
        printer.say(&line);
    }
    Ok(0)
}

/// Lists reservations.
pub(crate) async fn list(common: &Common, printer: Printer) -> Result<u8, Failure> {
    let all: Vec<Reservation> = Client::new(common)?.get("/reservations").await?;
    if printer.is_json() {
        printer.json(&all);
        return Ok(0);
    }
    let zone = TimeZone::system();
    let row = |row: &Reservation| {
        vec![
            row.id.to_string(),
            plain(&row.holder),
            plain(&row.node),
            row.gpus.to_string(),
            row.cores.to_string(),
            Bytes(row.memory_bytes).to_string(),
            when::local(row.from, &zone),
            when::local(row.until, &zone),
            if row.active {
                format!("{} GPUs, {} cores", row.gpus_used, row.cores_used)
            } else {
                "-".to_owned()
            },
            plain(&row.reason),
        ]
    };
    let name = when::zone_name(&zone);
    let (from, until) = (format!("FROM ({name})"), "UNTIL");
    let header = ["ID", "FOR", "NODE", "GPUS", "CORES", "MEMORY", &from, until, "USED", "REASON"];
    printer.data(table(&header, &all.iter().map(row).collect::<Vec<_>>(), true).as_bytes());
    for reservation in &all {
        let lines = held(reservation, &zone);
        if !lines.is_empty() {
            printer.line(&format!("\nreservation {}: {}", reservation.id, lines.join("\n")));
        }
    }
    Ok(0)
}

/// Cancels reservations.
pub(crate) async fn cancel(common: &Common, printer: Printer, ids: &[u64]) -> Result<u8, Failure> {
    let mut client = Client::new(common)?;
    for id in ids {
        client.delete(&format!("/reservations/{id}")).await?;
    }
    if printer.is_json() {
        printer.json(&ids);
    } else {
        let word = if ids.len() == 1 { "reservation" } else { "reservations" };
        printer.say(&format!("cancelled: {} {word}", ids.len()));
    }
    Ok(0)
}

/// `4 GPUs, 32 cores, 64 GiB of memory`
fn amount(row: &Reservation) -> String {
    let count = |number: u64, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    let parts = [
        (row.gpus > 0).then(|| count(row.gpus, "GPU")),
        (row.cores > 0).then(|| count(row.cores, "core")),
        (row.memory_bytes > 0).then(|| format!("{} of memory", Bytes(row.memory_bytes))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Who holds what of it and until when: nobody is stopped for a reservation.
fn held(row: &Reservation, zone: &TimeZone) -> Vec<String> {
    if row.holders.is_empty() {
        return Vec::new();
    }
    let taken = Reservation {
        gpus: row.gpus_taken,
        cores: row.cores_taken,
        memory_bytes: row.memory_taken_bytes,
        ..row.clone()
    };
    let when = if row.active { "now" } else { "when it begins" };
    let holder = |holder: &Holder| {
        let until = holder.until.map_or_else(
            || "without a time limit".to_owned(),
            |until| format!("at the latest until {} {}", when::local(until, zone), when::zone_name(zone)),
        );
        format!("  held by job {} of {}, {until}", holder.job, plain(&holder.owner))
    };
    let first = format!("jobs that run are not stopped; others hold {} of it {when}", amount(&taken));
    std::iter::once(first).chain(row.holders.iter().map(holder)).collect()
}
