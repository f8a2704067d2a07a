//! How many trivial jobs a second are started, supervised, logged and recorded. Each prints a line and
//! writes a file to its scratch folder.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use super::fourplane::Fourplane;
use super::peers::{HyperQueue, Slurm};
use super::{Common, Peer, Series, print_table, progress, rate};

/// Slurm starts some 50 jobs a second here: its rounds are shortened by this factor.
const SLURM_SHARE: usize = 5;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Jobs a round.
    #[arg(long, default_value_t = 5_000)]
    jobs: usize,
    /// Jobs in flight.
    #[arg(long, default_value_t = 8)]
    in_flight: usize,
}

/// Runs `count` jobs and tells how long they took.
type Round<'a> = Box<dyn FnMut(usize) -> Result<Duration> + 'a>;

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let dir = common.dir()?;
    let in_flight = options.in_flight;
    let jobs = if common.smoke { 20 } else { options.jobs };

    let mut sides: Vec<(Series, usize, Round<'_>)> = Vec::new();
    if common.with(Peer::Fourplane) {
        let server = Fourplane::start(&common.binary, &dir, in_flight)?;
        let out = dir.join("out");
        std::fs::create_dir_all(&out)?;
        let round = move |count| server.run(count, &out);
        sides.push((Series::new("fourplane"), jobs, Box::new(round)));
    }
    let bare = dir.clone();
    let round = move |count| spawn_bare(count, in_flight, &bare);
    sides.push((Series::new("bare posix_spawn and wait"), jobs, Box::new(round)));
    if common.with(Peer::Hyperqueue) {
        let mut peer = HyperQueue::start(&dir, in_flight)?;
        sides.push((Series::new("HyperQueue 0.27"), jobs, Box::new(move |count| peer.run(count))));
    }
    if common.with(Peer::Slurm) {
        let peer = Slurm::start()?;
        let jobs = jobs.div_ceil(SLURM_SHARE);
        sides.push((
            Series::new("Slurm, any number in flight"),
            jobs,
            Box::new(move |count| peer.run(count)),
        ));
    }

    for round in 1..=common.rounds() {
        for (series, count, run) in &mut sides {
            let result = rate(*count, run(*count)?);
            progress(&format!("round {round}: {} {result:.0} jobs/s ({count} jobs)", series.name));
            series.rounds.push(result);
        }
    }
    let series: Vec<_> = sides.into_iter().map(|(series, ..)| series).collect();
    print_table(&format!("{jobs} jobs a round, {in_flight} in flight"), "jobs/s", &series);
    Ok(())
}

/// The least that any supervisor must do: spawn, and wait. Output files and folders are made once.
fn spawn_bare(count: usize, in_flight: usize, dir: &Path) -> Result<Duration> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..in_flight)
            .map(|slot| {
                let next = &next;
                scope.spawn(move || -> Result<()> {
                    let scratch = dir.join(format!("bare-{slot}"));
                    std::fs::create_dir_all(&scratch)?;
                    let out = File::create(scratch.join("out"))?;
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        let status = Command::new("/bin/sh")
                            .args(["-c", r#"echo done; echo x >"$SCRATCH/x""#])
                            .env("SCRATCH", &scratch)
                            .stdin(Stdio::null())
                            .stdout(out.try_clone()?)
                            .status()?;
                        ensure!(status.success(), "the job failed: {status}");
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("workers do not panic"))
    })?;
    Ok(start.elapsed())
}
