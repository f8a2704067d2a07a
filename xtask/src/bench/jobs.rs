//! Listing a queue as JSON: one command each, from its start to the end of its output.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use super::fourplane::Fourplane;
use super::http::Address;
use super::peers::Slurm;
use super::submit::{slurm_submission, submit_many};
use super::{Common, Peer, Series, print_table, progress, rate};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Jobs in the queue.
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let jobs = if common.smoke { 200 } else { options.jobs };
    let server = Fourplane::start(&common.binary, &common.dir()?, 1)?;
    progress("jobs are submitted");
    submit_many(&server.address, jobs, Fourplane::submission)?;
    let slurm = if common.with(Peer::Slurm) { Some(Slurm::start()?) } else { None };
    if let Some(slurm) = &slurm {
        slurm.clear()?;
        submit_many(&Address::Unix(slurm.rest()), jobs, slurm_submission)?;
    }
    let mut ours = Series::new("fourplane");
    let mut theirs = Series::new("squeue --json");
    for _ in 0..common.rounds() {
        let mut list = server.command(&["jobs", "--all", "--json", "--limit", &jobs.to_string()]);
        ours.rounds.push(timed(&mut list, jobs, "\"submitted\":")?);
        if let Some(slurm) = &slurm {
            theirs.rounds.push(timed(slurm.client("squeue").arg("--json"), jobs, "\"submit_time\":")?);
        }
    }
    print_table(&format!("{jobs} waiting jobs as JSON"), "jobs/s", &[ours, theirs]);
    Ok(())
}

/// Jobs a second that a command lists; each has `mark` in it once.
fn timed(list: &mut Command, jobs: usize, mark: &str) -> Result<f64> {
    let start = Instant::now();
    let output = list.stderr(Stdio::inherit()).output()?;
    let took = start.elapsed();
    let listed = String::from_utf8(output.stdout)?.matches(mark).count();
    ensure!(output.status.success() && listed == jobs, "{listed} of {jobs} jobs were listed");
    Ok(rate(jobs, took))
}
