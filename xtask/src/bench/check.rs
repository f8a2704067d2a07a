//! Instructions that checking a specification costs, counted by callgrind: how they grow with its pools,
//! and against reading the same YAML and throwing it away.

use anyhow::Result;
use clap::Args;

use super::instructions::{callgrind, cargo_bench};
use super::progress;

/// Ten times the pools may cost so many times the instructions.
const MOST_GROWTH: f64 = 11.0;
/// A check may cost so many times what reading the YAML does.
const MOST_OVER_PARSE: f64 = 3.0;

#[derive(Args)]
pub(crate) struct Options {
    /// A debug build and a tenth of the pools.
    #[arg(long)]
    smoke: bool,
}

/// Prints the table and returns what is over a limit.
#[expect(clippy::print_stdout, reason = "this is the tool's output")]
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let pools = if options.smoke { [30, 300] } else { [300, 3_000] };
    let count = |what: &str, pools: u32| {
        progress(&format!("{what} of {pools} pools"));
        let pools = pools.to_string();
        callgrind("*measured*", |runner| {
            let mut bench = cargo_bench("check", options.smoke, runner);
            bench.args([what, &pools]);
            bench
        })
    };
    let [few, many] = [count("check", pools[0])?, count("check", pools[1])?];
    let parse = count("parse", pools[1])?;
    println!("| what | {} pools | {} pools | ratio |\n|---|---|---|---|", pools[0], pools[1]);
    let (growth, over_parse) = (ratio(many, few), ratio(many, parse));
    println!("| check | {few} | {many} | {growth:.2} |");
    println!("| reading the YAML alone | | {parse} | {over_parse:.2} |");
    let limits = [(growth, MOST_GROWTH, "ten times the pools"), (over_parse, MOST_OVER_PARSE, "a check")];
    let over = limits.iter().filter(|(ratio, most, _)| ratio > most);
    Ok(over.map(|(ratio, most, what)| format!("{what}: {ratio:.2} times, at most {most} wanted")).collect())
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 instructions")]
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}
