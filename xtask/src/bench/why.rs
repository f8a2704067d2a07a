//! What a question costs with a short and a long queue, asked of two servers by turns.

use std::time::Instant;

use anyhow::Result;
use clap::Args;

use super::fourplane::Fourplane;
use super::submit::{micros, submit_many};
use super::{Common, progress, quantile};

/// A long queue may cost so many times what a short one does.
const MOST: f64 = 3.0;
const SHORT: usize = 1_000;
const LONG: usize = 100_000;
const LONG_SMOKE: usize = 2_000;
/// Connections that submit at the same time.
const CLIENTS: usize = 8;
const CORES: usize = 4;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Questions a round.
    #[arg(long, default_value_t = 50)]
    questions: usize,
}

/// Prints the table and returns what is over the limit.
#[expect(clippy::print_stdout, reason = "this is the tool's output")]
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let common = &options.common;
    let (long, questions) = if common.smoke { (LONG_SMOKE, 2) } else { (LONG, options.questions) };
    let queues = [queue(common, SHORT)?, queue(common, long)?];
    let last = |queued: usize| format!("/api/v1/jobs/{}/why", queued + 1);
    let page = |_| "/api/v1/jobs?limit=100".to_owned();
    println!("| question | {SHORT} jobs wait, us | {long} jobs wait, us | ratio |\n|---|---|---|---|");
    let mut problems = Vec::new();
    for (name, path) in
        [("why the last one waits", &last as &dyn Fn(usize) -> String), ("the first page", &page)]
    {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..common.rounds() {
            for ((server, queued), times) in queues.iter().zip(&mut times) {
                let mut connection = server.address.connect()?;
                let request = connection.request("GET", &path(*queued), "");
                // The first list waits until the view has all that was submitted.
                connection.repeat(&request)?;
                for _ in 0..questions {
                    let start = Instant::now();
                    connection.repeat(&request)?;
                    times.push(micros(start.elapsed()));
                }
            }
        }
        let [few, many] = times.map(|times| quantile(&times, 0.5));
        println!("| {name} | {few:.0} | {many:.0} | {:.2} |", many / few);
        if many > few * MOST && !common.smoke {
            problems.push(format!("{name}: {:.2} times as long, at most {MOST} wanted", many / few));
        }
    }
    Ok(problems)
}

/// A server with so many jobs that wait.
fn queue(common: &Common, queued: usize) -> Result<(Fourplane, usize)> {
    let dir = common.dir()?.join(format!("queue-{queued}"));
    std::fs::create_dir_all(&dir)?;
    let server = Fourplane::start(&common.binary, &dir, CORES)?;
    server.occupy(CORES)?;
    progress(&format!("{queued} jobs are submitted"));
    std::thread::scope(|scope| {
        let submit = || submit_many(&server.address, queued / CLIENTS, Fourplane::waiting);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(submit)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("clients do not panic").map(drop))
    })?;
    Ok((server, queued))
}
