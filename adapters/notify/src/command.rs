//! A program of a user's, run with the user's rights and never the server's.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ops::notify::{Parcel, Rights, Setback};
use rustix::process::{Gid, Pid, Resource, Rlimit, Signal, Uid};

use crate::{later, message, never};

/// Then it and what it started are killed.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The end of a process that could not become who it should.
const REFUSED: u8 = 125;

/// Runs the program with the notice on its standard input.
pub(crate) fn run(parcel: &Parcel, program: &Path) -> Result<String, Setback> {
    let delivery = &parcel.delivery;
    let Some(rights) = &delivery.rights else { return Err(never("nobody knows whose rights it would get")) };
    let mut command = Command::new(program);
    command
        .args(arguments(rights, &delivery.target.to))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("FOURPLANE_EVENT", delivery.notice.occasion.word())
        .env("FOURPLANE_JOB_ID", delivery.notice.job.to_string())
        .env("FOURPLANE_DELIVERY", delivery.id.to_string())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().map_err(|error| later(format!("it was not started: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It fits into the pipe, and a program need not read it.
        drop(stdin.write_all(message::json(delivery).as_bytes()));
    }
    let status = within(&mut child, TIMEOUT).map_err(|error| later(error.to_string()))?;
    match status {
        None => Err(never(format!("it was killed after {} s", TIMEOUT.as_secs()))),
        Some(status) if status.success() => Ok("it ended with code 0".to_owned()),
        Some(status) => Err(failed(status)),
    }
}

fn failed(status: ExitStatus) -> Setback {
    match status.code().map(u8::try_from) {
        Some(Ok(REFUSED)) => never("it could not be run with the rights of the job's owner"),
        Some(Ok(126)) => never("it is there, and cannot be run"),
        Some(Ok(127)) => never("there is no such program"),
        Some(Ok(code)) => later(format!("it ended with code {code}")),
        _ => later(status.to_string()),
    }
}

/// Waits; whoever takes longer is killed, with all of its group.
fn within(child: &mut Child, most: Duration) -> std::io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + most;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    // Its group is its own, and nobody waited for it yet: the number is still its.
    rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL)?;
    child.wait().map(|_| None)
}

/// Whom this program is told to become, and what to run then.
fn arguments(rights: &Rights, to: &str) -> Vec<OsString> {
    let groups: Vec<String> = rights.groups.iter().map(ToString::to_string).collect();
    let texts = [
        "run-as".to_owned(),
        format!("--uid={}", rights.uid),
        format!("--gid={}", rights.gid),
        "--cwd".to_owned(),
    ];
    let cwd = OsStr::from_bytes(&rights.cwd).to_owned();
    let texts = texts.into_iter().map(OsString::from).chain([cwd]);
    let groups = (!groups.is_empty()).then(|| format!("--groups={}", groups.join(",")).into());
    texts.chain(groups).chain(["--".into(), to.into()]).collect()
}

/// Whom to become.
#[derive(Clone, Debug)]
pub struct As {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// The directory to run in.
    pub cwd: PathBuf,
}

/// What did not work.
enum Step {
    Rights,
    Program(std::io::Error),
}

impl From<rustix::io::Errno> for Step {
    fn from(_: rustix::io::Errno) -> Self {
        Self::Rights
    }
}

/// Gives up the rights of this process for a user's and becomes the program. Returns only if that
/// failed, with the exit code to end with. The process must have one thread.
pub fn become_and_run(user: &As, program: &Path) -> u8 {
    match run_as(user, program) {
        Ok(never) => match never {},
        Err(Step::Rights) => REFUSED,
        Err(Step::Program(error)) if error.kind() == std::io::ErrorKind::NotFound => 127,
        Err(Step::Program(_)) => 126,
    }
}

fn run_as(user: &As, program: &Path) -> Result<Infallible, Step> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let own = rustix::process::geteuid();
    // Without root there is only one whom this server serves.
    if own.is_root() || own != uid {
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    let at_most = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(Resource::Cpu, at_most(TIMEOUT.as_secs()))?;
    rustix::process::setrlimit(Resource::Core, at_most(0))?;
    // A directory that is gone, or not the user's to enter, is no reason to tell nobody.
    drop(std::env::set_current_dir(&user.cwd));
    Err(Step::Program(Command::new(program).exec()))
}
