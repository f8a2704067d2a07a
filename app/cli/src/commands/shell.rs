//! `shell` and `attach`: a terminal on an allocation. The terminal is served by the task's own
//! shim, on a socket that only the job's user may open: it needs no server, and outlives one.

use std::io::{IsTerminal, Read as _};
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use server::wire::{Accepted, JobDetail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::attach::{PATIENCE, report, until_over};
use crate::cli::Common;
use crate::client::Client;
use crate::failure::{Doing, Failure};
use crate::locate::Surroundings;
use crate::output::Printer;
use crate::run_args::ShellArgs;
use crate::submission;
use crate::values::JobRef;

use super::actions::whole;
use super::run::{random_key, submit};

/// Between two looks at a job that waits for its turn.
const LOOK: Duration = Duration::from_millis(100);

/// Looks after which a wait is explained.
const EXPLAIN: u32 = 5;

/// What a terminal sends for Ctrl-D.
const END_OF_INPUT: &[u8] = b"\x04";

/// Opens a terminal on a new allocation.
pub(crate) async fn run(common: &Common, printer: Printer, args: &ShellArgs) -> Result<u8, Failure> {
    on_this_machine(common)?;
    let client = Client::new(common)?;
    let job = submission::of_shell(args, printer)?;
    let accepted: Accepted = submit(&client, &job, &random_key()?).await?;
    printer
        .say(&format!("job {}; end it with exit, come back to it with: fourplane attach {0}", accepted.job));
    stay(common, printer, client, accepted.job).await
}

/// Comes back to the terminal of a running job.
pub(crate) async fn attach(common: &Common, printer: Printer, id: &JobRef) -> Result<u8, Failure> {
    on_this_machine(common)?;
    whole(id, "attach")?;
    stay(common, printer, Client::new(common)?, id.job).await
}

fn on_this_machine(common: &Common) -> Result<(), Failure> {
    match common.server {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "a terminal cannot be reached over the network: its job serves it on a socket of its own machine",
        )
        .hint(
            "log in to that machine and do this there, without --server and FOURPLANE_SERVER; \
            `fourplane run` works from here",
        )),
    }
}

/// Connects to a job's terminal and stays until either ends.
async fn stay(common: &Common, printer: Printer, client: Client, job: u64) -> Result<u8, Failure> {
    let mut client = client.patient(PATIENCE);
    if let Some(terminal) = connect(common, printer, &mut client, job).await? {
        let raw = RawMode::enter();
        let ended = converse(printer, terminal).await;
        drop(raw);
        if let Ended::Left = ended? {
            printer.say(&format!("job {job} goes on; come back with: fourplane attach {job}"));
            return Ok(129);
        }
    }
    Ok(report(printer, &until_over(&mut client, job).await?))
}

/// The terminal, once the job runs; none if the job is over.
async fn connect(
    common: &Common,
    printer: Printer,
    client: &mut Client,
    job: u64,
) -> Result<Option<UnixStream>, Failure> {
    let states = Surroundings::of_process().states(common.state.as_deref());
    for look in 0_u32.. {
        let detail: JobDetail = client.get(&format!("/jobs/{job}")).await?;
        if detail.job.state.is_over() {
            return Ok(None);
        }
        let live = detail.tries.iter().find(|attempt| attempt.started.is_some() && attempt.ended.is_none());
        if let Some(attempt) = live {
            for path in states.iter().map(|state| state.join(format!("node/tty/{}-0.sock", attempt.id))) {
                if let Ok(stream) = UnixStream::connect(&path).await {
                    return Ok(Some(stream));
                }
            }
            if look > 10 * EXPLAIN {
                return Err(Failure::usage(format!("job {job} has no terminal that you may open"))
                    .hint(format!("it goes on; see its output with: fourplane logs {job} -f")));
            }
        } else if look == EXPLAIN
            && let Some(why) = &detail.why
        {
            printer.say(super::actions::reason(why).trim_end());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// How a conversation ended.
enum Ended {
    /// The task's side closed it.
    Closed,
    /// Our terminal went away.
    Left,
}

/// Carries bytes both ways until one side ends.
async fn converse(printer: Printer, mut terminal: UnixStream) -> Result<Ended, Failure> {
    let mut resized = signal(SignalKind::window_change()).doing(|| "cannot catch signals".to_owned())?;
    let mut hangup = signal(SignalKind::hangup()).doing(|| "cannot catch signals".to_owned())?;
    let mut typed = typed();
    let (mut from, mut to) = terminal.split();
    let mut shown = [0; 8192];
    if let Some(size) = size() {
        drop(to.write_all(&size).await);
    }
    loop {
        // A write that fails is followed by the end of what can be read.
        tokio::select! {
            read = from.read(&mut shown) => match read {
                Ok(0) | Err(_) => return Ok(Ended::Closed),
                Ok(count) => if !printer.data(&shown[..count]) {
                    return Ok(Ended::Left);
                },
            },
            Some(input) = typed.recv() => drop(to.write_all(&frame(0, &input)).await),
            _ = resized.recv() => if let Some(size) = size() {
                drop(to.write_all(&size).await);
            },
            _ = hangup.recv() => return Ok(Ended::Left),
        }
    }
}

/// What is typed, read by a thread of its own: a read of a terminal cannot be given up.
fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut input = std::io::stdin().lock();
        while let Ok(count @ 1..) = input.read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
        drop(sender.blocking_send(END_OF_INPUT.to_vec()));
    });
    receiver
}

/// A frame to the terminal: kind, length, body.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    // At most one buffer of input.
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&[kind], &length[..], body].concat()
}

/// Our terminal's size as a frame.
fn size() -> Option<Vec<u8>> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    let [row, column] = [size.ws_row.to_le_bytes(), size.ws_col.to_le_bytes()];
    Some(frame(1, &[row, column].concat()))
}

/// Our terminal in raw mode, until this is dropped: keys go to the other side as they are.
struct RawMode(Termios);

impl RawMode {
    fn enter() -> Option<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        // What was typed ahead is kept: it is for the shell.
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Drain, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that went away needs no manners.
        _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.0);
    }
}
