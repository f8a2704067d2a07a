//! Staying with a job: its output as it comes, Ctrl-C, and its exit code at the end. The job
//! does not need us: a server that restarts, or a terminal that goes away, leaves it running.

use std::io::IsTerminal;
use std::time::Duration;

use http_body_util::BodyExt;
use server::wire::{Cancel, Done, Job, Waited};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::client::{CallError, Client};
use crate::failure::{Doing, FAILED, Failure};
use crate::output::Printer;

/// How long a server may be away under an attached command.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// A second Ctrl-C within this time cancels.
const CONFIRM: Duration = Duration::from_secs(1);

/// One wait request; then the next is sent.
const WAIT_SECONDS: u64 = 30;

/// What of a job's output is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The job.
    pub(crate) job: u64,
    /// The member.
    pub(crate) index: u32,
    /// The task.
    pub(crate) rank: u32,
    /// Standard error rather than standard output.
    pub(crate) stderr: bool,
    /// Whether to go on until the job is over.
    pub(crate) follow: bool,
    /// Only the last so many bytes.
    pub(crate) tail: Option<u64>,
}

impl Wanted {
    /// All the output of the first task, as it comes.
    pub(crate) fn live(job: u64, stderr: bool) -> Self {
        Self { job, index: 0, rank: 0, stderr, follow: true, tail: None }
    }

    fn path(&self, from: u64) -> String {
        let stream = if self.stderr { "stderr" } else { "stdout" };
        let start = match self.tail {
            Some(tail) if from == 0 => format!("tail={tail}"),
            _ => format!("from={from}"),
        };
        let Self { job, index, rank, follow, .. } = self;
        format!("/jobs/{job}/output?index={index}&rank={rank}&stream={stream}&{start}&follow={follow}")
    }
}

/// Copies output to the terminal until its end, over restarts of the server.
pub(crate) async fn copy_output(
    mut client: Client,
    printer: Printer,
    wanted: &Wanted,
) -> Result<(), CallError> {
    let mut from = 0;
    let mut broken_since: Option<Instant> = None;
    loop {
        let mut body = client.stream(&wanted.path(from)).await?;
        let end = loop {
            match body.frame().await {
                None => break Ok(()),
                Some(Err(error)) => break Err(error),
                Some(Ok(frame)) => {
                    let Some(bytes) = frame.data_ref() else { continue };
                    broken_since = None;
                    from += bytes.len() as u64;
                    let read = if wanted.stderr { printer.error_data(bytes) } else { printer.data(bytes) };
                    if !read {
                        return Ok(());
                    }
                }
            }
        };
        let Err(error) = end else { return Ok(()) };
        // A tail cannot be resumed: how far it began into the file is not known here.
        let since = *broken_since.get_or_insert_with(Instant::now);
        if wanted.tail.is_some() || since.elapsed() > PATIENCE {
            return Err(CallError::broken(&error));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a job is over.
pub(crate) async fn until_over(client: &mut Client, job: u64) -> Result<Job, CallError> {
    loop {
        let waited: Waited = client.get(&format!("/jobs/{job}/wait?timeout={WAIT_SECONDS}")).await?;
        if waited.over {
            return Ok(waited.job);
        }
    }
}

/// Stays with a job to its end. `streams` are what is shown of it meanwhile.
pub(crate) async fn stay(
    client: &Client,
    printer: Printer,
    job: u64,
    streams: Vec<Wanted>,
    mut interrupts: Interrupts,
) -> Result<u8, Failure> {
    let patient = || client.another().patient(PATIENCE);
    let watch = async {
        let copies = streams.into_iter().map(|wanted| {
            let client = patient();
            tokio::spawn(async move { copy_output(client, printer, &wanted).await })
        });
        for copy in copies.collect::<Vec<_>>() {
            match copy.await {
                // No file yet, or none ever: how it ended says why.
                Ok(Ok(()) | Err(CallError::Refused(hyper::StatusCode::NOT_FOUND, _))) | Err(_) => {}
                Ok(Err(error)) => printer.warn(&format!("the output cannot be shown: {error}")),
            }
        }
        until_over(&mut patient(), job).await
    };
    tokio::pin!(watch);
    loop {
        tokio::select! {
            over = &mut watch => return Ok(report(printer, &over?)),
            wish = interrupts.next() => match wish {
                Wish::Ask => printer.say(&format!(
                    "job {job} goes on; press Ctrl-C again within a second to cancel it, or close the terminal to leave it"
                )),
                Wish::Cancel => {
                    printer.say(&format!("cancelling job {job}"));
                    // Aside: a server that is away must not keep the next signal from being heard.
                    tokio::spawn(cancel(patient(), printer, job));
                }
                Wish::Leave(code) => {
                    printer.say(&format!("job {job} goes on; wait for it with: fourplane wait {job}"));
                    return Ok(code);
                }
            },
        }
    }
}

async fn cancel(mut client: Client, printer: Printer, job: u64) {
    match client.post::<Done>(&format!("/jobs/{job}/cancel"), &Cancel::default()).await {
        // It ended on its own in the meantime.
        Ok(_) | Err(CallError::Refused(hyper::StatusCode::CONFLICT, _)) => {}
        Err(error) => printer.failure(&error.into()),
    }
}

/// Tells what a code alone does not, and returns the code.
pub(crate) fn report(printer: Printer, job: &Job) -> u8 {
    let Some(outcome) = &job.outcome else {
        printer.warn(&format!("nobody can say how job {} ended", job.id));
        return FAILED;
    };
    match outcome.kind.as_str() {
        "success" | "code" => {}
        "cancelled" => {
            let by = job.cancelled_by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            printer.say(&format!("job {} was cancelled{by}", job.id));
        }
        _ => printer.say(&format!("job {}: {}", job.id, outcome.text)),
    }
    outcome.exit_code
}

/// What a signal means to an attached command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The first Ctrl-C on a terminal.
    Ask,
    /// End the job.
    Cancel,
    /// Leave the job running, and exit with this code.
    Leave(u8),
}

/// Signals, read as an attached command does.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    manners: Manners,
}

impl Interrupts {
    /// Catches signals from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).doing(|| "cannot catch signals".to_owned());
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
            manners: Manners { on_terminal: std::io::stdin().is_terminal(), asked: None, cancelled: false },
        })
    }

    /// The next wish.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => self.manners.on_interrupt(Instant::now()),
            _ = self.terminate.recv() => self.manners.on_terminate(143),
            _ = self.hangup.recv() => Wish::Leave(129),
        }
    }
}

/// Which signal means what, given those before.
struct Manners {
    on_terminal: bool,
    asked: Option<Instant>,
    cancelled: bool,
}

impl Manners {
    fn on_interrupt(&mut self, now: Instant) -> Wish {
        let confirmed = self.asked.replace(now).is_some_and(|asked| now.duration_since(asked) <= CONFIRM);
        if self.on_terminal && !confirmed && !self.cancelled { Wish::Ask } else { self.on_terminate(130) }
    }

    fn on_terminate(&mut self, code: u8) -> Wish {
        if std::mem::replace(&mut self.cancelled, true) { Wish::Leave(code) } else { Wish::Cancel }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_asks_on_a_terminal_and_cancels_without_one() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut terminal = Manners { on_terminal: true, asked: None, cancelled: false };
        assert_eq!(terminal.on_interrupt(at(0)), Wish::Ask);
        assert_eq!(terminal.on_interrupt(at(1_500)), Wish::Ask);
        assert_eq!(terminal.on_interrupt(at(2_400)), Wish::Cancel);
        assert_eq!(terminal.on_interrupt(at(9_000)), Wish::Leave(130));
        let mut pipe = Manners { on_terminal: false, asked: None, cancelled: false };
        assert_eq!(pipe.on_interrupt(at(0)), Wish::Cancel);
        assert_eq!(pipe.on_terminate(143), Wish::Leave(143));
    }
}
