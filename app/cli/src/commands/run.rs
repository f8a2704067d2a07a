//! `run`: submits a job and stays with it.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use facts::{PathParts, expand_path};
use server::wire::{Accepted, Submit};
use units::{ArrayIndex, JobId, MemberId, Rank};

use crate::attach::{self, Interrupts, PATIENCE, Wanted};
use crate::cli::Common;
use crate::client::{CallError, Client, hex};
use crate::failure::{Doing, Failure};
use crate::output::Printer;
use crate::run_args::RunArgs;
use crate::submission;

/// Where output goes unless told otherwise.
const DEFAULT_OUTPUT: &[u8] = b"%x-%j.out";

/// What a server answers that has no mail server.
const NO_MAIL: &str = "no-mail-server";

/// Runs the command.
pub(crate) async fn run(common: &Common, printer: Printer, args: &RunArgs) -> Result<u8, Failure> {
    let mut job = submission::of_run(args, printer)?;
    let mut client = Client::new(common)?;
    if args.dry_run {
        super::actions::explain(printer, &client.post("/preflight", &job).await?);
        return Ok(0);
    }
    let interrupts = Interrupts::new()?;
    let key = args.idempotency_key.clone().map_or_else(random_key, Ok)?;
    let accepted = match submit(&client, &job, &key).await {
        Err(CallError::Refused(_, error)) if error.code == NO_MAIL && args.mail_type.is_some() => {
            // A script that was written for Slurm runs on a machine without a mail server, too.
            printer.warn("--mail-type: no mail is sent here, as there is no mail server");
            job.notify.retain(|one| !one.to.starts_with("mailto:"));
            submit(&client, &job, &key).await?
        }
        answer => answer?,
    };
    let returns = args.detach || (args.parsable && !args.wait);
    if printer.is_json() {
        printer.json(&accepted);
    } else if args.parsable {
        printer.line(&accepted.job.to_string());
    } else if args.detach {
        printer.line(&accepted.job.to_string());
        printer.say(&told(&job, &accepted));
    } else {
        printer.say(&told(&job, &accepted));
    }
    if returns {
        return Ok(0);
    }
    let streams = if args.wait || printer.is_json() { Vec::new() } else { streams(&job, accepted.job) };
    attach::stay(&client, printer, accepted.job, streams, interrupts).await
}

/// Submits under `key`, as often as it takes: with one key the job is accepted once.
pub(crate) async fn submit(client: &Client, job: &Submit, key: &str) -> Result<Accepted, CallError> {
    // A server that is not there at all is told at once; one that goes away is waited for.
    let mut first = client.another();
    match first.post_once("/jobs", job, key).await {
        Err(CallError::Unreachable { was_connected: true, .. }) => {
            client.another().patient(PATIENCE).post_once("/jobs", job, key).await
        }
        answer => answer,
    }
}

/// A key that nobody else uses.
pub(crate) fn random_key() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .doing(|| "cannot read /dev/urandom".to_owned())?;
    Ok(hex(&bytes))
}

/// Which output is shown live: that of a single member. An array's members each have a file.
fn streams(job: &Submit, id: u64) -> Vec<Wanted> {
    match &job.array {
        Some(_) => Vec::new(),
        None if job.stderr.is_some() => vec![Wanted::live(id, false), Wanted::live(id, true)],
        None => vec![Wanted::live(id, false)],
    }
}

/// What is said about an accepted job: its id, and how to see its output.
fn told(job: &Submit, accepted: &Accepted) -> String {
    let id = accepted.job;
    let again = if accepted.repeated { " (accepted before, under the same key)" } else { "" };
    if let Some(array) = &job.array {
        return format!("job {id}{again}: members {}; see: fourplane logs {id}_INDEX -f", array.indexes);
    }
    let pattern = job.stdout.as_ref().map_or(DEFAULT_OUTPUT, |text| &text.0);
    let parts = PathParts {
        name: job.name.as_deref().unwrap_or_default(),
        member: MemberId { job: JobId(id), index: ArrayIndex(0) },
        is_array: false,
        rank: Rank(0),
    };
    let file = expand_path(pattern, parts);
    let path = Path::new(OsStr::from_bytes(&job.cwd.0)).join(OsStr::from_bytes(&file));
    format!("job {id}{again}: tail -f {}", quoted(&path.to_string_lossy()))
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let bare = path.chars().all(|c| c.is_alphanumeric() || "/._-+:,@%=".contains(c));
    if bare { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_command_can_be_pasted() {
        assert_eq!(quoted("/home/u/train-1.out"), "/home/u/train-1.out");
        assert_eq!(quoted("/home/u/it's here"), "'/home/u/it'\\''s here'");
    }

    #[test]
    fn keys_differ() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }
}
