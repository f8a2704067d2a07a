//! Benchmarks against peers: rounds of each side alternate, so that the machine's moods hit all alike;
//! medians and ratios are printed (docs/benchmarks.md).

pub(crate) mod check;
mod fourplane;
mod http;
pub(crate) mod instructions;
pub(crate) mod jobs;
mod peers;
pub(crate) mod replay;
pub(crate) mod spawn;
pub(crate) mod start;
pub(crate) mod submit;
pub(crate) mod why;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

/// What every benchmark can be told.
#[derive(Args)]
pub(crate) struct Common {
    /// A few jobs and no Slurm: shows that the benchmark runs, measures nothing.
    #[arg(long)]
    smoke: bool,
    /// Rounds of each side.
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// Peers to leave out.
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Peer>,
    /// The binary to measure.
    #[arg(long, default_value = "target/release/fourplane")]
    binary: PathBuf,
    /// Where state, output and peers live; its disk is what is measured.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    Fourplane,
    Hyperqueue,
    Slurm,
}

impl Common {
    fn rounds(&self) -> usize {
        if self.smoke { 1 } else { self.rounds }
    }

    fn with(&self, peer: Peer) -> bool {
        let left_out = self.without.contains(&peer);
        let needs_install = peer != Peer::Fourplane;
        !(left_out || self.smoke && needs_install)
    }

    /// The folder, made if it is missing.
    fn dir(&self) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.dir)?;
        Ok(self.dir.canonicalize()?)
    }
}

/// One row of a printed table: a figure, once for each round.
struct Series {
    name: String,
    rounds: Vec<f64>,
}

impl Series {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), rounds: Vec::new() }
    }

    fn median(&self) -> f64 {
        quantile(&self.rounds, 0.5)
    }
}

/// The value below which a share `q` of `values` lies, between two by their distance; NaN of none.
fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 values")]
    let place = sorted.len().saturating_sub(1) as f64 * q;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * place.fract(),
        _ => f64::NAN,
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let count = count as f64;
    count / time.as_secs_f64()
}

/// Prints medians, spread, and how fourplane compares.
#[expect(clippy::print_stdout, reason = "this is the tool's output")]
fn print_table(title: &str, unit: &str, series: &[Series]) {
    println!("\n{title}\n");
    println!("| side | median {unit} | lowest | highest | fourplane / side |");
    println!("|---|---|---|---|---|");
    let ours = series.iter().find(|one| one.name == "fourplane").map_or(f64::NAN, Series::median);
    for one in series.iter().filter(|one| !one.rounds.is_empty()) {
        let (median, low, high) = (one.median(), quantile(&one.rounds, 0.0), quantile(&one.rounds, 1.0));
        println!("| {} | {median:.0} | {low:.0} | {high:.0} | {:.2} |", one.name, ours / median);
    }
}

#[expect(clippy::print_stderr, reason = "progress of a long run")]
fn progress(what: &str) {
    eprintln!("bench: {what}");
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles() {
        let check = |values: &[f64], q, expect: f64| {
            assert!(quantile(values, q).total_cmp(&expect).is_eq(), "{values:?} {q}");
        };
        check(&[3.0, 1.0, 2.0], 0.5, 2.0);
        check(&[3.0, 1.0, 2.0], 0.0, 1.0);
        check(&[3.0, 1.0, 2.0], 1.0, 3.0);
        check(&[3.0, 1.0, 2.0, 4.0], 0.5, 2.5);
        check(&[], 0.5, f64::NAN);
    }
}
