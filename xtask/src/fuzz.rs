//! Coverage-guided fuzzing by libFuzzer. The flags that count coverage are stable ones, so that it
//! needs no other toolchain; safe code needs no sanitizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

/// What makes rustc count which edges of the control flow are taken, for libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// `cargo xtask fuzz`
#[derive(Args)]
pub(crate) struct Options {
    /// What is fuzzed; all if not given
    targets: Vec<Target>,
    /// How long each of them is
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Where it is built, and where found inputs are kept for the next time
    #[arg(long, default_value = "target/fuzz")]
    dir: PathBuf,
}

/// A program in `fuzz/targets`. Inputs that once failed lie in `fuzz/seeds`, and are tried first.
#[derive(Clone, Copy, ValueEnum)]
enum Target {
    /// Specifications
    Spec,
    /// The #SBATCH lines of a script
    Sbatch,
    /// Quantities, times, money and names
    Units,
    /// Events of the log
    Codec,
}

impl Target {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs each target for its time. Fails where one of them did, and tells which input that was.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    cargo.args(["--target", &host, "--target-dir"]).arg(&options.dir).env("RUSTFLAGS", FLAGS);
    ensure!(cargo.status()?.success(), "the fuzz targets do not build");
    let targets: &[Target] = match &options.targets[..] {
        [] => Target::value_variants(),
        some => some,
    };
    let mut failed = 0;
    for target in targets {
        let name = target.name();
        let corpus = options.dir.join("corpus").join(&name);
        seed(*target, &corpus).with_context(|| format!("seeds of {name}"))?;
        let found = options.dir.join("found").join(&name);
        fs::create_dir_all(&found)?;
        let mut program = Command::new(options.dir.join(&host).join("release").join(&name));
        program.arg(&corpus).arg(Path::new("fuzz/seeds").join(&name));
        program.arg(format!("-max_total_time={}", options.seconds));
        program.arg(format!("-artifact_prefix={}/", found.display()));
        program.args(["-timeout=5", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"]);
        if !program.status()?.success() {
            failed += 1;
            say(&format!(
                "{name}: failed; mend it, and keep the input: mv {}/* fuzz/seeds/{name}/",
                found.display()
            ));
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    say(&format!("test result: {word}. {} passed; {failed} failed; 0 ignored", targets.len() - failed));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the repository has anyway: a way past the first checks.
fn seed(target: Target, corpus: &Path) -> Result<()> {
    fs::create_dir_all(corpus)?;
    match target {
        Target::Spec => {
            for entry in fs::read_dir("examples")? {
                let entry = entry?;
                if entry.path().extension().is_some_and(|extension| extension == "yaml") {
                    fs::copy(entry.path(), corpus.join(entry.file_name()))?;
                }
            }
        }
        Target::Codec => {
            let golden = fs::read_to_string("domain/facts/tests/data/events.golden")?;
            for (number, line) in golden.lines().enumerate() {
                let (name, hex) = line.split_once(' ').context("a golden line has a name")?;
                fs::write(corpus.join(format!("{number}-{name}")), bytes(hex.trim())?)?;
            }
        }
        Target::Sbatch | Target::Units => {}
    }
    Ok(())
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair));
    pairs.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect()
}

#[expect(clippy::print_stdout, reason = "this is the tool's output")]
fn say(text: &str) {
    println!("{text}");
}
