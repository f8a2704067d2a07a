//! The test machine: what only a kernel of its own can show. A virtual machine without KVM, with
//! Debian's cloud kernel and the real binary, runs the steps of `tests/vm`; the host cuts its power.

mod image;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use image::Image;

/// The longest that a boot and its step may take.
const PATIENCE: Duration = Duration::from_mins(4);

/// So many submissions are acknowledged before the power is cut.
const ACKED_BEFORE_CUT: usize = 20;

/// `cargo xtask vm`
#[derive(Args)]
pub(crate) struct Options {
    /// What to run; all if not given
    scenarios: Vec<Scenario>,
    /// The binary to test
    #[arg(long, default_value = "target/debug/fourplane")]
    binary: PathBuf,
    /// Where the kernel, the images and the logs are
    #[arg(long, default_value = "target/vm")]
    dir: PathBuf,
}

/// What is tried, each on a disk of its own.
#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    /// cgroups v2 and nothing else
    Controllers,
    /// GPUs that a job was not given, with cgroups v2
    Devices,
    /// The wall clock steps by hours
    Clock,
    /// The power is cut under load
    PowerCut,
    /// The machine restarts under load
    Reboot,
}

impl Scenario {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs the scenarios, or says why this host cannot.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.dir)?;
    let kernel = match image::kernel(&options.dir) {
        Ok(kernel) => kernel,
        Err(why) => return skip(&format!("{why:#}")),
    };
    let image = Image::build(&options.dir, &kernel, &options.binary)?;
    let scenarios: &[Scenario] = match &options.scenarios[..] {
        [] => Scenario::value_variants(),
        some => some,
    };
    let mut tally = Tally::default();
    for &scenario in scenarios {
        let ended = play(scenario, &image, &mut tally);
        tally.add(&format!("{} comes to its end", scenario.name()), ended.is_ok());
        if let Err(error) = ended {
            say(&format!("{error:#}\n{}", image.last_words()));
        }
    }
    say(&format!(
        "test result: {}. {} passed; {} failed; 0 ignored",
        if tally.failed == 0 { "ok" } else { "FAILED" },
        tally.passed,
        tally.failed
    ));
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(scenario: Scenario, image: &Image, tally: &mut Tally) -> Result<()> {
    let disk = image.new_disk(&scenario.name())?;
    let mut boot = |step: &str, acked: &Acked, cut: Option<Duration>| {
        let machine = Machine::boot(image, &disk, step, acked)?;
        machine.watch(&scenario.name(), cut, tally).with_context(|| format!("step {step}"))
    };
    let nothing = Acked::new();
    match scenario {
        Scenario::Controllers => boot("controllers", &nothing, None).map(drop),
        Scenario::Devices => boot("devices", &nothing, None).map(drop),
        Scenario::Clock => boot("clock", &nothing, None).map(drop),
        Scenario::PowerCut => {
            let acked = boot("power", &nothing, Some(sometime()))?;
            boot("recovered", &acked, None).map(drop)
        }
        Scenario::Reboot => {
            let acked = boot("reboot", &nothing, None)?;
            boot("recovered", &acked, None).map(drop)
        }
    }
}

/// What was acknowledged: the job and its program's exit code, by key.
type Acked = BTreeMap<String, String>;

/// How long after enough was acknowledged the power is cut: up to a second, another in each run.
fn sometime() -> Duration {
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().subsec_nanos();
    Duration::from_millis(u64::from(nanos / 1_000 % 1_000))
}

/// A running machine. It loses its power when this is dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Machine {
    fn boot(image: &Image, disk: &Path, step: &str, acked: &Acked) -> Result<Self> {
        let list = image.dir.join("acked");
        std::fs::write(&list, padded(acked))?;
        let drive = |file: &Path, more: &str| format!("file={},format=raw,if=virtio{more}", file.display());
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-machine", "q35", "-accel", "tcg,thread=single", "-smp", "2", "-m", "1024"]);
        command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
        // Two threads for two processors have locked each other up on a busy host.
        // On a busy host an emulated timer may tick too late for the kernel's check of it.
        let kernel = format!("console=ttyS0 quiet panic=-1 no_timer_check vm.step={step}");
        command.args(["-append", &kernel]);
        command.args(["-serial", &format!("file:{}", image.console().display()), "-serial", "stdio"]);
        // What the guest's kernel has not written is lost with its power. What the disk itself may
        // lose is the subject of the store's own power-loss test.
        command.args(["-drive", &drive(disk, ",cache=writeback")]);
        command.args(["-drive", &drive(&list, ",readonly=on")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        child.map(Self).context("cannot start qemu-system-x86_64")
    }

    /// Hears the step to its end, or cuts the power so long after enough was acknowledged.
    fn watch(mut self, name: &str, cut: Option<Duration>, tally: &mut Tally) -> Result<Acked> {
        let stdout = self.0.stdout.take().context("it has no serial line")?;
        let (sender, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        let mut end = Instant::now() + PATIENCE;
        let (mut acked, mut ended, mut is_cut) = (Acked::new(), None, false);
        loop {
            let line = match heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if is_cut => return Ok(acked),
                Err(RecvTimeoutError::Timeout) => bail!("no end after {} s", PATIENCE.as_secs()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Some((key, job)) = line.strip_prefix("acked ").and_then(|rest| rest.split_once(' ')) {
                acked.insert(key.to_owned(), job.to_owned());
            } else if let Some(code) = line.strip_prefix("end ") {
                ended = Some(code.to_owned());
            } else if let Some((test, result)) =
                line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
            {
                tally.add(&format!("{name}: {test}"), result == "ok");
            } else {
                say(&line);
            }
            if let Some(after) = cut.filter(|_| !is_cut && acked.len() >= ACKED_BEFORE_CUT) {
                (is_cut, end) = (true, Instant::now() + after);
            }
        }
        ensure!(cut.is_none(), "it ended before its power was cut");
        ensure!(ended.as_deref() == Some("0"), "its step ended with {ended:?}");
        Ok(acked)
    }
}

/// A disk's worth of lines: KEY JOB EXIT, then zeros up to a whole sector.
fn padded(acked: &Acked) -> Vec<u8> {
    let mut text = String::new();
    for (key, job) in acked {
        writeln!(text, "{key} {job}").expect("a string takes everything");
    }
    let mut bytes = text.into_bytes();
    bytes.resize((bytes.len() + 1).next_multiple_of(512), 0);
    bytes
}

/// Counts, and prints as Rust's tests do.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn add(&mut self, test: &str, passed: bool) {
        *if passed { &mut self.passed } else { &mut self.failed } += 1;
        say(&format!("test {test} ... {}", if passed { "ok" } else { "FAILED" }));
    }
}

/// Says aloud that nothing was tested, and writes it where `./dev test` counts.
fn skip(why: &str) -> Result<ExitCode> {
    say(&format!("SKIPPED: {why}"));
    if let Some(path) = std::env::var_os("FOURPLANE_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        writeln!(file, "test machine: {why}")?;
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "this is the tool's output")]
fn say(line: &str) {
    println!("{line}");
}
