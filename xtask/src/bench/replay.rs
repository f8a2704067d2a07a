//! Reading the log back: builds and runs `adapters/store/benches/replay.rs`, which measures.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// A short history and a debug build: shows that the benchmark runs, measures nothing.
    #[arg(long)]
    smoke: bool,
    /// Lengths of history: all of the first is replayed, starts are timed at each.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 10_000_000])]
    events: Vec<u64>,
    /// Where the log lives while it is measured: some 200 bytes an event.
    #[arg(long, default_value = "target/bench/replay")]
    dir: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.dir)?;
    // Only what this made: the log's folder inside it.
    let dir = options.dir.canonicalize()?.join("state");
    std::fs::remove_dir_all(&dir).ok();
    let mut cargo = Command::new("cargo");
    cargo.args(["bench", "--quiet", "--workspace", "--bench", "replay"]);
    cargo.args(["--profile", if options.smoke { "dev" } else { "release" }, "--"]).arg(&dir);
    if options.smoke {
        cargo.args(["10000", "20000"]);
    } else {
        cargo.args(options.events.iter().map(u64::to_string));
    }
    let status = cargo.status();
    std::fs::remove_dir_all(&dir).ok();
    ensure!(status?.success(), "the replay benchmark failed");
    Ok(())
}
