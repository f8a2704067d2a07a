//! `logs`: a job's output.

use crate::attach::{PATIENCE, Wanted, copy_output};
use crate::cli::{Common, LogsArgs};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Printer;

/// Prints the output of one task.
pub(crate) async fn run(common: &Common, printer: Printer, args: &LogsArgs) -> Result<u8, Failure> {
    let named = match args.job.indexes.as_deref().map(str::parse) {
        None => None,
        Some(Ok(index)) => Some(index),
        Some(Err(_)) => {
            return Err(Failure::usage("logs shows one member at a time")
                .hint(format!("write for example: fourplane logs {}_0", args.job.job)));
        }
    };
    let wanted = Wanted {
        job: args.job.job,
        index: args.index.or(named).unwrap_or(0),
        rank: args.rank,
        stderr: args.stderr,
        follow: args.follow,
        tail: args.tail.as_ref().map(|tail| tail.bytes.0),
    };
    let mut client = Client::new(common)?;
    // The first look tells at once of a server or a job that is not there.
    client.get::<serde_json::Value>(&format!("/jobs/{}", wanted.job)).await?;
    let patience = if args.follow { PATIENCE } else { std::time::Duration::ZERO };
    copy_output(client.patient(patience), printer, &Wanted { stderr: args.stderr, ..wanted }).await?;
    Ok(0)
}
