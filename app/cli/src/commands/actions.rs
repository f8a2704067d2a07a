//! `cancel`, `hold`, `release`, `priority`, `why`: one request each.

use serde::Serialize;
use server::wire::{Cancel, Done, Explanation, Holder, Priority, Why};

use crate::cli::Common;
use crate::client::{CallError, Client};
use crate::failure::Failure;
use crate::output::{Printer, plain};
use crate::values::JobRef;
use crate::when;

/// Nothing to add to the path.
#[derive(Serialize)]
struct Nothing {}

/// Ends jobs, or members of arrays.
pub(crate) async fn cancel(common: &Common, printer: Printer, ids: &[JobRef]) -> Result<u8, Failure> {
    let mut client = Client::new(common)?;
    let mut all = Together::new(printer);
    for id in ids {
        let body = Cancel { indexes: id.indexes.clone() };
        all.take(id, client.post::<Done>(&format!("/jobs/{}/cancel", id.job), &body).await);
    }
    Ok(all.end("cancelled"))
}

/// Keeps jobs from starting, or lets them.
pub(crate) async fn set_held(
    common: &Common,
    printer: Printer,
    ids: &[JobRef],
    hold: bool,
) -> Result<u8, Failure> {
    let (verb, done) = if hold { ("hold", "held") } else { ("release", "released") };
    let mut client = Client::new(common)?;
    let mut all = Together::new(printer);
    for id in ids {
        whole(id, verb)?;
        all.take(id, client.post::<Done>(&format!("/jobs/{}/{verb}", id.job), &Nothing {}).await);
    }
    Ok(all.end(done))
}

/// Changes a job's place in the queue.
pub(crate) async fn priority(
    common: &Common,
    printer: Printer,
    id: &JobRef,
    priority: i32,
) -> Result<u8, Failure> {
    whole(id, "priority")?;
    let mut all = Together::new(printer);
    let path = format!("/jobs/{}/priority", id.job);
    all.take(id, Client::new(common)?.post::<Done>(&path, &Priority { priority }).await);
    Ok(all.end("moved"))
}

/// Tells why a job stands where it does.
pub(crate) async fn why(common: &Common, printer: Printer, id: &JobRef) -> Result<u8, Failure> {
    let index = id.indexes.as_deref().map(|index| {
        let one = index.parse::<u32>();
        one.map_err(|_| Failure::usage(format!("'{index}' is not one member; ask for one at a time")))
    });
    let query = index.transpose()?.map_or_else(String::new, |index| format!("?index={index}"));
    let told: Explanation = Client::new(common)?.get(&format!("/jobs/{}/why{query}", id.job)).await?;
    explain(printer, &told);
    Ok(0)
}

/// Shows an explanation.
pub(crate) fn explain(printer: Printer, told: &Explanation) {
    if printer.is_json() {
        printer.json(told);
    } else {
        printer.data(explained(told).as_bytes());
    }
}

/// An explanation in words: the reason, the place in the queue, the estimate, what would help.
fn explained(told: &Explanation) -> String {
    let waits = told.start.as_ref().filter(|_| told.why.code != "next");
    let Some(start) = waits else { return reason(&told.why) };
    let mut text = reason(&Why { hint: None, until: None, ..told.why.clone() });
    text.extend(told.preempted.iter().map(|receipt| format!("put back: {}\n", plain(&receipt.text))));
    text.extend(told.ahead.map(|ahead| match ahead {
        0 => "first in the queue\n".to_owned(),
        1 => "1 job is ahead of it\n".to_owned(),
        ahead => format!("{ahead} jobs are ahead of it\n"),
    }));
    let zone = when::zone();
    let local = |at| format!("{} {}", when::local(at, &zone), when::zone_name(&zone));
    let expected = match (start.at, start.after) {
        (Some(at), _) => {
            let basis = "if every job runs to its time limit and none is submitted";
            format!("expected to start at {}, {basis}\n", local(at))
        }
        (None, Some(after)) => format!("not expected to start before {}\n", local(after)),
        (None, None) => "nothing tells when it starts: no time limit ends what is in the way\n".to_owned(),
    };
    text.push_str(&expected);
    if told.remedies.is_empty() {
        text.extend(told.why.hint.iter().map(|hint| format!("hint: {hint}\n")));
    } else {
        text.push_str("it would start at once, if you\n");
        text.extend(told.remedies.iter().map(|remedy| match &remedy.command {
            Some(command) => format!("  {}: {command}\n", plain(&remedy.text)),
            None => format!("  {}\n", plain(&remedy.text)),
        }));
    }
    text
}

/// A reason in words: what, who holds it, what would help.
pub(crate) fn reason(why: &Why) -> String {
    let zone = when::zone();
    let latest =
        |until| format!("at the latest until {} {}", when::local(until, &zone), when::zone_name(&zone));
    let holder = |holder: &Holder| {
        let until = holder.until.map_or_else(|| "without a time limit".to_owned(), latest);
        format!("  held by job {} of {}, {until}\n", holder.job, plain(&holder.owner))
    };
    let mut text = format!("{}\n", plain(&why.text));
    text.extend(why.holders.iter().map(holder));
    text.extend(why.until.map(|until| format!("{}\n", latest(until))));
    text.extend(why.hint.iter().map(|hint| format!("hint: {hint}\n")));
    text
}

/// Some things are done to whole jobs only.
pub(crate) fn whole(id: &JobRef, verb: &str) -> Result<(), Failure> {
    match &id.indexes {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!("{verb} is for whole jobs, not for members of an array"))
            .hint(format!("write: fourplane {verb} {}", id.job))),
    }
}

/// The answers to one request for each of several jobs. One that fails does not stop the rest.
struct Together {
    printer: Printer,
    done: Vec<Done>,
    failed: Option<u8>,
}

impl Together {
    fn new(printer: Printer) -> Self {
        Self { printer, done: Vec::new(), failed: None }
    }

    fn take(&mut self, id: &JobRef, answer: Result<Done, CallError>) {
        match answer {
            Ok(done) => self.done.push(done),
            Err(error) => {
                let mut failure = Failure::from(error);
                failure.message = format!("job {}: {}", id.job, failure.message);
                self.printer.failure(&failure);
                self.failed = self.failed.max(Some(failure.code));
            }
        }
    }

    fn end(self, word: &str) -> u8 {
        if self.printer.is_json() {
            self.printer.json(&self.done);
        } else if !self.done.is_empty() {
            let count = self.done.len();
            self.printer.say(&format!("{word}: {count} {}", if count == 1 { "job" } else { "jobs" }));
        }
        self.failed.unwrap_or(0)
    }
}
