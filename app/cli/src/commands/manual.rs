//! `completions` and the manual pages: both are made of the arguments.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::{Doing, Failure};
use crate::output::Printer;

/// Prints a shell's completions.
pub(crate) fn completions(printer: Printer, shell: Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fourplane", &mut script);
    printer.data(&script);
    0
}

/// Writes a page a command into `dir`.
pub(crate) fn pages(dir: &Path) -> Result<u8, Failure> {
    let writing = || format!("cannot write manual pages into {}", dir.display());
    std::fs::create_dir_all(dir).doing(writing)?;
    clap_mangen::generate_to(Cli::command(), dir).doing(writing)?;
    Ok(0)
}
