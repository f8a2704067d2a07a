//! NVIDIA's library, asked in a process of its own: it may hang in the driver or bring its process
//! down, and a server must survive both. The child writes one JSON document.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::tree::raw;

/// Version of what the child says; another one is not understood.
const VERSION: u32 = 1;
/// The most that a child may say, in bytes.
const MOST: usize = 4 << 20;
/// Links that are asked for: `NVML_NVLINK_MAX_LINKS` of the newest library.
const LINKS: u32 = 36;
/// How long a child may take to die once it was killed.
const GRACE: Duration = Duration::from_millis(300);

/// How the error begins where the library is not there.
pub(super) const NO_LIBRARY: &str = "the library cannot be loaded";

/// An answer, or the error in words.
pub(super) type Answer<T> = Result<T, String>;

/// What the library says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    version: u32,
    /// The driver's version.
    pub(super) driver: Answer<String>,
    /// The newest CUDA that the driver runs, as 1000 x major + 10 x minor.
    pub(super) cuda: Answer<i32>,
    /// All GPUs. One that was lost answers with an error.
    pub(super) gpus: Vec<Answer<Card>>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) address: String,
    pub(super) uuid: Answer<String>,
    pub(super) model: Answer<String>,
    pub(super) serial: Answer<String>,
    pub(super) minor: Answer<u32>,
    /// Bytes.
    pub(super) memory: Answer<u64>,
    /// Whether each link that the GPU has is active.
    pub(super) links: Answer<Vec<bool>>,
    /// Whether MIG is on; an error where the GPU has none.
    pub(super) mig: Answer<bool>,
    /// The most MIG devices that it may be cut into: its slices.
    pub(super) slices: Answer<u32>,
    pub(super) parts: Vec<Answer<Part>>,
    pub(super) users: Answer<Vec<User>>,
}

/// One MIG device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) uuid: String,
    pub(super) name: String,
    /// Compute slices of it.
    pub(super) slices: u32,
    /// Megabytes of 1,048,576 bytes.
    pub(super) memory_mb: u64,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct User {
    pub(super) pid: u32,
    /// Bytes, where the library tells them.
    pub(super) memory: Option<u64>,
}

/// How to ask.
#[derive(Clone, Debug)]
pub struct NvmlProbe {
    /// The program whose main function ends in [`nvml_main`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// How long it may take. A driver without persistence needs seconds a GPU.
    pub timeout: Duration,
}

impl NvmlProbe {
    /// Asks by `program`, given these arguments.
    pub fn new(program: PathBuf, args: &[&str]) -> Self {
        let args = args.iter().map(OsString::from).collect();
        Self { program, args, timeout: Duration::from_secs(30) }
    }

    /// Asks, in no more than the time allowed.
    pub(super) fn ask(&self) -> Answer<Report> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let deadline = Instant::now() + self.timeout;
        let said = listen(&mut child, deadline);
        let ended = end(&mut child, deadline);
        let said = match (said, ended) {
            (Ok(said), Some(status)) if status.success() => said,
            (Ok(_), Some(status)) => return Err(format!("the process that asked it ended badly ({status})")),
            (Err(error), _) if error.kind() != io::ErrorKind::TimedOut => return Err(error.to_string()),
            (_, Some(_)) => return Err(format!("no answer within {:?}", self.timeout)),
            (_, None) => {
                let pid = child.id();
                return Err(format!(
                    "no answer within {:?}; process {pid} hangs in the driver",
                    self.timeout
                ));
            }
        };
        let text = String::from_utf8_lossy(&said);
        let not_understood = |error: String| format!("answer not understood: {error}: {:?}", raw(&text));
        let answer: Answer<Report> =
            serde_json::from_str(&text).map_err(|e| not_understood(e.to_string()))?;
        answer.and_then(|report| match report.version {
            VERSION => Ok(report),
            other => Err(not_understood(format!("version {other}"))),
        })
    }
}

/// Reads what a child says until it closes its output.
fn listen(child: &mut Child, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    let Some(mut stdout) = child.stdout.take() else { return Ok(said) };
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match stdout.read(&mut buffer)? {
            0 => return Ok(said),
            count => said.extend_from_slice(&buffer[..count]),
        }
        if said.len() > MOST {
            return Err(io::Error::other("the process that asked it does not stop talking"));
        }
    }
}

/// Waits for a child until the deadline, then kills it. None where it does not even die then: the
/// kernel lets nobody out of a driver that hangs.
fn end(child: &mut Child, deadline: Instant) -> Option<std::process::ExitStatus> {
    let until = |child: &mut Child, at: Instant| loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            _ if Instant::now() >= at => return None,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    until(child, deadline).or_else(|| {
        // One that is gone already is what was wanted.
        let _ = child.kill();
        until(child, Instant::now() + GRACE)
    })
}

/// Asks the library and writes what it says to standard output: the child's main function.
pub fn nvml_main() -> ExitCode {
    let answer = report();
    let written = serde_json::to_vec(&answer).map_err(io::Error::other);
    match written.and_then(|bytes| io::stdout().write_all(&bytes)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The error in the library's words and, where a symbol or a file is missing, the loader's.
fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(source) => format!("{NO_LIBRARY}: {source}"),
        NvmlError::FailedToLoadSymbol(symbol) => format!("this driver is too old: {symbol}"),
        other => other.to_string(),
    }
}

fn report() -> Answer<Report> {
    let nvml = Nvml::init().map_err(|error| words(&error))?;
    let count = nvml.device_count().map_err(|error| format!("cannot count GPUs: {}", words(&error)))?;
    Ok(Report {
        version: VERSION,
        driver: nvml.sys_driver_version().map_err(|error| words(&error)),
        cuda: nvml.sys_cuda_driver_version().map_err(|error| words(&error)),
        gpus: (0..count).map(|index| card(&nvml, index)).collect(),
    })
}

fn card(nvml: &Nvml, index: u32) -> Answer<Card> {
    let lost = |error: &NvmlError| format!("GPU {index}: {}", words(error));
    let device = nvml.device_by_index(index).map_err(|error| lost(&error))?;
    let address = device.pci_info().map_err(|error| lost(&error))?.bus_id;
    let mig = device.mig_mode().map(|mode| mode.current == 1).map_err(|error| words(&error));
    let slices = device.mig_device_count().map_err(|error| words(&error));
    Ok(Card {
        address: short(&address),
        uuid: device.uuid().map_err(|error| words(&error)),
        model: device.name().map_err(|error| words(&error)),
        serial: device.serial().map_err(|error| words(&error)),
        minor: device.minor_number().map_err(|error| words(&error)),
        memory: device.memory_info().map(|memory| memory.total).map_err(|error| words(&error)),
        links: links(&device),
        parts: if mig == Ok(true) {
            parts(&device, slices.as_ref().copied().unwrap_or(0))
        } else {
            Vec::new()
        },
        mig,
        slices,
        users: users(&device),
    })
}

/// `00000000:1B:00.0` as the kernel writes it, `0000:1b:00.0`.
fn short(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    match address.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => address,
    }
}

fn links(device: &Device<'_>) -> Answer<Vec<bool>> {
    let mut links = Vec::new();
    for link in 0..LINKS {
        match device.link_wrapper_for(link).is_active() {
            Ok(active) => links.push(active),
            // It has no more.
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) => break,
            Err(error) => return Err(format!("link {link}: {}", words(&error))),
        }
    }
    Ok(links)
}

fn parts(device: &Device<'_>, most: u32) -> Vec<Answer<Part>> {
    let part = |index| match device.mig_device_by_index(index) {
        Ok(part) => {
            let read = || {
                let attributes = part.attributes()?;
                Ok(Part {
                    uuid: part.uuid()?,
                    name: part.name()?,
                    slices: attributes.compute_instance_slice_count,
                    memory_mb: attributes.memory_size_mb,
                })
            };
            Some(read().map_err(|error: NvmlError| format!("MIG device {index}: {}", words(&error))))
        }
        // There is none at this index.
        Err(NvmlError::NotFound) => None,
        Err(error) => Some(Err(format!("MIG device {index}: {}", words(&error)))),
    };
    (0..most).filter_map(part).collect()
}

fn users(device: &Device<'_>) -> Answer<Vec<User>> {
    let user = |process: ProcessInfo| User {
        pid: process.pid,
        memory: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    let computing = device.running_compute_processes().map_err(|error| words(&error))?;
    // Drawing is nothing that a compute GPU needs to know of.
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut users: Vec<User> = computing.into_iter().chain(drawing).map(user).collect();
    users.sort();
    users.dedup_by_key(|user| user.pid);
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_kernels() {
        for (nvml, kernel) in [
            ("00000000:1B:00.0", "0000:1b:00.0"),
            ("00010000:E1:00.0", "00010000:e1:00.0"),
            ("0000:1b:00.0", "0000:1b:00.0"),
        ] {
            assert_eq!(short(nvml), kernel);
        }
    }
}
