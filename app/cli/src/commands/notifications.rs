//! `notifications`: what was told to whom, and what became of it.

use jiff::tz::TimeZone;
use server::wire::{Channel, Delivery, Occasion, Progress};

use crate::cli::Common;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{Printer, plain, table};
use crate::when;

pub(crate) async fn run(common: &Common, printer: Printer) -> Result<u8, Failure> {
    let deliveries: Vec<Delivery> = Client::new(common)?.get("/notifications").await?;
    if printer.is_json() {
        printer.json(&deliveries);
    } else {
        printer.data(listed(&deliveries, &TimeZone::system()).as_bytes());
    }
    Ok(0)
}

fn listed(deliveries: &[Delivery], zone: &TimeZone) -> String {
    let at = format!("AT ({})", when::zone_name(zone));
    let row = |one: &Delivery| {
        let state = match one.state {
            Progress::Waiting => "waiting",
            Progress::Delivered => "delivered",
            Progress::GaveUp => "gave up",
        };
        let kind = match one.kind {
            Channel::Webhook => "webhook",
            Channel::Email => "email",
            Channel::Command => "command",
        };
        vec![
            one.id.to_string(),
            when::local(one.at, zone),
            one.job.to_string(),
            event(one.event).to_owned(),
            kind.to_owned(),
            plain(&one.to),
            state.to_owned(),
            one.tries.to_string(),
            plain(&one.said),
        ]
    };
    let rows: Vec<Vec<String>> = deliveries.iter().map(row).collect();
    table(&["ID", &at, "JOB", "EVENT", "KIND", "TO", "STATE", "TRIES", "ANSWER"], &rows, true)
}

/// The word that `--notify` takes, too.
fn event(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Started => "started",
        Occasion::Completed => "completed",
        Occasion::Failed => "failed",
        Occasion::Cancelled => "cancelled",
        Occasion::Preempted => "preempted",
        Occasion::Leaked => "leaked",
    }
}
