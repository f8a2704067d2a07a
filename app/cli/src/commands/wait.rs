//! `wait`: until jobs are over.

use std::time::Duration;

use server::wire::Job;

use crate::attach::{PATIENCE, report, until_over};
use crate::cli::{Common, WaitArgs};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Printer;

use super::actions::whole;

/// Waits for every job and returns the highest of their exit codes.
pub(crate) async fn run(common: &Common, printer: Printer, args: &WaitArgs) -> Result<u8, Failure> {
    let mut client = Client::new(common)?;
    let all = async {
        let mut over: Vec<Job> = Vec::new();
        for id in &args.ids {
            whole(id, "wait")?;
            // The first look tells at once of a server or a job that is not there.
            client.get::<serde_json::Value>(&format!("/jobs/{}", id.job)).await?;
            over.push(until_over(&mut client.another().patient(PATIENCE), id.job).await?);
        }
        Ok::<_, Failure>(over)
    };
    let over = match args.timeout {
        None => all.await?,
        Some(limit) => tokio::time::timeout(Duration::from_nanos(limit.0), all).await.map_err(|_| {
            Failure::failed(format!("not all of the jobs were over within {limit}"))
                .hint("the jobs go on; see: fourplane jobs")
        })??,
    };
    if printer.is_json() {
        printer.json(&over);
    }
    Ok(over.iter().map(|job| report(printer, job)).max().unwrap_or(0))
}
