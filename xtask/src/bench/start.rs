//! How long the shortest commands take: started one after another, as a shell's user does.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use super::fourplane::Fourplane;
use super::{Common, Series, print_table, rate};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Commands a round.
    #[arg(long, default_value_t = 200)]
    commands: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let commands = if common.smoke { 3 } else { options.commands };
    let server = Fourplane::start(&common.binary, &common.dir()?, 1)?;
    let ours = |args: &'static [&str]| server.command(args);
    let mut sides = [
        (Series::new("fourplane"), ours(&["jobs"])),
        (Series::new("fourplane --help"), ours(&["--help"])),
        (Series::new("true"), Command::new("true")),
    ];
    for _ in 0..common.rounds() {
        for (series, command) in &mut sides {
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let start = Instant::now();
            for _ in 0..commands {
                let status = command.status()?;
                ensure!(status.success(), "{}: {status}", series.name);
            }
            series.rounds.push(rate(commands, start.elapsed()));
        }
    }
    let series = sides.map(|(series, _)| series);
    print_table(
        &format!("{commands} commands a round; fourplane is `fourplane jobs`"),
        "commands/s",
        &series,
    );
    Ok(())
}
