//! The last steps before a user's program runs, done by the process that becomes it. Nothing
//! of the user's is touched with other rights than the user's.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use facts::{LaunchSpec, PathParts, expand_path};
use ops::ports::StartTask;
use rustix::fs::{MemfdFlags, Mode};

use crate::cgroup::Group;
use crate::shim::{Plan, Streams};
use crate::sys::Strings;
use crate::{output, rlimits, sys};

/// What went wrong, for the shim.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: &'static str,
    pub(crate) subject: String,
    pub(crate) errno: i32,
}

impl Failure {
    fn new(step: &'static str, subject: impl AsRef<[u8]>, error: &io::Error) -> Self {
        let subject = String::from_utf8_lossy(subject.as_ref()).into_owned();
        Self { step, subject, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

/// What a job's process needs and cannot make itself: its memory is the shim's, which outlives it.
pub(crate) struct Image {
    /// Where the program may be.
    programs: Vec<CString>,
    argv: Strings,
    env: Strings,
    out: Vec<u8>,
    err: Option<Vec<u8>>,
    /// The script as an unnamed file. It stays open over exec, for the interpreter to read.
    _script: Option<OwnedFd>,
}

impl Image {
    pub(crate) fn new(start: &StartTask, plan: &Plan<'_>) -> Result<Self, Failure> {
        let launch = &*start.launch;
        let program = program(launch);
        let script = launch.script.as_deref().map(script_file).transpose()?;
        let mut argv = launch.argv.clone();
        if let (Some(script), Some(name)) = (&script, argv.iter_mut().skip(1).find(|arg| *arg == b"-")) {
            *name = format!("/dev/fd/{}", script.as_raw_fd()).into_bytes();
        }
        let strings = |all: Vec<Vec<u8>>| -> Result<Vec<CString>, Failure> {
            let invalid = |_| Failure::new("exec", program, &io::Error::from_raw_os_error(libc::EINVAL));
            all.into_iter().map(CString::new).collect::<Result<_, _>>().map_err(invalid)
        };
        Ok(Self {
            programs: strings(candidates(launch, program))?,
            argv: Strings::new(strings(argv)?),
            env: Strings::new(strings(environment(start, &plan.scratch))?),
            out: output_path(start, &launch.stdout),
            err: launch.stderr.as_ref().map(|pattern| output_path(start, pattern)),
            _script: script,
        })
    }
}

fn program(launch: &LaunchSpec) -> &[u8] {
    launch.argv.first().map(Vec::as_slice).unwrap_or_default()
}

/// The step at which a job's process enters its group.
pub(crate) const JOIN: &str = "join cgroup";

/// Becomes the job. Returns only if that failed.
pub(crate) fn become_job(
    start: &StartTask,
    plan: &Plan<'_>,
    group: &Group,
    streams: &Streams,
    image: &Image,
) -> Failure {
    match try_become(start, plan, group, streams, image) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

enum Never {}

/// What it allocates is given back before the program is executed: see [`Image`].
fn try_become(
    start: &StartTask,
    plan: &Plan<'_>,
    group: &Group,
    streams: &Streams,
    image: &Image,
) -> Result<Never, Failure> {
    let launch = &*start.launch;
    // Until this has worked, nothing of the user's may run: what follows is held by the group.
    group.join().map_err(|error| Failure::new(JOIN, plan.group, &error))?;
    sys::reset_signals();
    rlimits::set().map_err(|error| Failure::new("set limits", "", &error))?;
    rustix::process::setsid().map_err(|error| Failure::new("setsid", "", &error.into()))?;
    rustix::process::umask(Mode::from_raw_mode(launch.umask & 0o777));
    sys::become_user(launch.uid, launch.gid, &launch.groups)
        .map_err(|(step, error)| Failure::new(step, launch.uid.to_string(), &error))?;
    rustix::process::chdir(launch.cwd.as_slice())
        .map_err(|error| Failure::new("open working directory", &launch.cwd, &error.into()))?;
    connect_streams(start, streams, image)?;
    if let Some(dir) = plan.witness {
        leave_witness(dir, start)?;
    }
    exec(launch, image)
}

/// Opens the user's output files and puts the three standard streams in place.
fn connect_streams(start: &StartTask, streams: &Streams, image: &Image) -> Result<(), Failure> {
    let out = open_output(start, &image.out, "open output")?;
    let err = match &image.err {
        Some(path) => Some(open_output(start, path, "open error output")?),
        None => None,
    };
    let place = |stdin: BorrowedFd<'_>, stdout: BorrowedFd<'_>, stderr: BorrowedFd<'_>| {
        rustix::stdio::dup2_stdin(stdin)?;
        rustix::stdio::dup2_stdout(stdout)?;
        rustix::stdio::dup2_stderr(stderr)
    };
    let placed = match streams {
        Streams::Terminal { user, files: (_, shim), .. } => {
            output::hand_over(shim, &[out.as_fd()])
                .map_err(|error| Failure::new("hand over output", "", &error))?;
            rustix::process::ioctl_tiocsctty(user)
                .and_then(|()| place(user.as_fd(), user.as_fd(), user.as_fd()))
        }
        Streams::Piped { out: (_, out_end), err: err_pipe, files: (_, shim) } => {
            let files: Vec<BorrowedFd<'_>> =
                [Some(out.as_fd()), err.as_ref().map(AsFd::as_fd)].into_iter().flatten().collect();
            output::hand_over(shim, &files).map_err(|error| Failure::new("hand over output", "", &error))?;
            let err_end = err_pipe.as_ref().map_or(out_end, |(_, end)| end);
            place(null()?.as_fd(), out_end.as_fd(), err_end.as_fd())
        }
        Streams::Direct => place(null()?.as_fd(), out.as_fd(), err.as_ref().unwrap_or(&out).as_fd()),
    };
    placed.map_err(|error| Failure::new("connect streams", "", &error.into()))
}

fn null() -> Result<File, Failure> {
    File::open("/dev/null").map_err(|error| Failure::new("open", "/dev/null", &error))
}

fn output_path(start: &StartTask, pattern: &[u8]) -> Vec<u8> {
    let parts = PathParts {
        name: &start.name,
        member: start.member,
        is_array: start.is_array,
        rank: start.task.rank,
    };
    expand_path(pattern, parts)
}

/// Opens one output file for appending, with a banner where it is not the first attempt's.
fn open_output(start: &StartTask, path: &[u8], step: &'static str) -> Result<File, Failure> {
    let open = || -> io::Result<File> {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o666)
            .custom_flags(libc::O_NOCTTY)
            .open(OsStr::from_bytes(path))?;
        if start.number > 1 {
            file.write_all(format!("--- fourplane: attempt {} ---\n", start.number).as_bytes())?;
        } else if path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.len() == 255) {
            file.write_all(b"--- fourplane: this file's name was cut to 255 bytes ---\n")?;
        }
        Ok(file)
    };
    open().map_err(|error| Failure::new(step, path, &error))
}

/// An unnamed file with a script. It stays open over exec.
fn script_file(text: &[u8]) -> Result<OwnedFd, Failure> {
    let make = || -> io::Result<OwnedFd> {
        let fd = rustix::fs::memfd_create("fourplane-script", MemfdFlags::empty())?;
        let mut file = File::from(fd);
        file.write_all(text)?;
        Ok(file.into())
    };
    make().map_err(|error| Failure::new("store script", "", &error))
}

/// Shows an outside witness that this attempt runs: a second run of it finds the file there.
fn leave_witness(dir: &Path, start: &StartTask) -> Result<(), Failure> {
    let path = dir.join(format!("{:032x}", u128::from_be_bytes(start.nonce)));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .map(drop)
        .map_err(|error| Failure::new("leave witness", path.as_os_str().as_bytes(), &error))
}

fn exec(launch: &LaunchSpec, image: &Image) -> Result<Never, Failure> {
    let program = program(launch);
    let mut refused = io::Error::from_raw_os_error(libc::ENOENT);
    let searched = !program.contains(&b'/');
    for candidate in &image.programs {
        let error = sys::exec(candidate, &image.argv, &image.env);
        // As shells do: go on looking, but remember that there was one. In a directory of PATH
        // that the user may not search, there is none.
        let absent = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
            || searched && Path::new(OsStr::from_bytes(candidate.as_bytes())).symlink_metadata().is_err();
        if !absent {
            refused = error;
        }
    }
    Err(Failure::new("exec", program, &refused))
}

/// Where a program may be: itself if it names a path, else in each directory of the user's PATH.
fn candidates(launch: &LaunchSpec, program: &[u8]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path = launch.env.iter().find_map(|pair| pair.strip_prefix(b"PATH="));
    let path = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    let dirs = path.split(|&byte| byte == b':').map(|dir| if dir.is_empty() { b"." } else { dir });
    if program.is_empty() {
        return Vec::new();
    }
    dirs.map(|dir| [dir, b"/", program].concat()).collect()
}

/// Variables of ours that a job may keep from its submitter: how to find the server.
const KEPT: [&[u8]; 2] = [b"FOURPLANE_SERVER", b"FOURPLANE_STATE"];

/// Set by a submitter whose script reads the variables that Slurm sets.
const WITH_SLURM: &[u8] = b"FOURPLANE_SLURM_ENV=1";

/// The user's environment with what the job is told about itself.
pub(crate) fn environment(start: &StartTask, scratch: &Path) -> Vec<Vec<u8>> {
    let indices: Vec<String> = start.devices.iter().map(|(index, _)| index.to_string()).collect();
    let indices = indices.join(",");
    let rank = start.task.rank.0.to_string();
    let mut own: Vec<(&str, Vec<u8>)> = vec![
        ("FOURPLANE_JOB_ID", start.member.job.0.to_string().into_bytes()),
        ("FOURPLANE_ATTEMPT", start.number.to_string().into_bytes()),
        ("FOURPLANE_TASK_RANK", rank.clone().into_bytes()),
        ("FOURPLANE_SCRATCH", scratch.as_os_str().as_bytes().to_vec()),
        ("RANK", rank.clone().into_bytes()),
        ("LOCAL_RANK", rank.into_bytes()),
        ("NODE_RANK", b"0".to_vec()),
        ("WORLD_SIZE", start.world_size.to_string().into_bytes()),
        ("MASTER_ADDR", b"127.0.0.1".to_vec()),
        ("MASTER_PORT", start.rendezvous_port.to_string().into_bytes()),
        ("CUDA_VISIBLE_DEVICES", indices.clone().into_bytes()),
        ("ROCR_VISIBLE_DEVICES", indices.into_bytes()),
    ];
    if let Some(port) = start.port {
        own.push(("PORT", port.to_string().into_bytes()));
    }
    if start.is_array {
        own.push(("FOURPLANE_ARRAY_INDEX", start.member.index.0.to_string().into_bytes()));
    }
    if start.launch.env.iter().any(|pair| pair == WITH_SLURM) {
        own.extend(slurm_environment(start));
    }
    let kept = |pair: &&Vec<u8>| {
        let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
        let ours = name.starts_with(b"FOURPLANE_") && !KEPT.contains(&name);
        !ours && own.iter().all(|(own_name, _)| own_name.as_bytes() != name)
    };
    let mut env: Vec<Vec<u8>> = start.launch.env.iter().filter(kept).cloned().collect();
    env.extend(own.iter().map(|(name, value)| [name.as_bytes(), b"=", value].concat()));
    env
}

/// What only the one who starts a task knows of the variables that Slurm sets; its submitter has
/// set the others.
fn slurm_environment(start: &StartTask) -> impl Iterator<Item = (&'static str, Vec<u8>)> + use<> {
    let (job, index) = (start.member.job.to_string(), start.member.index.to_string());
    let rank = start.task.rank.to_string();
    let mut own = vec![
        ("SLURM_JOB_ID", job.clone()),
        ("SLURM_JOBID", job.clone()),
        ("SLURM_PROCID", rank.clone()),
        ("SLURM_LOCALID", rank),
        ("SLURM_NODEID", "0".to_owned()),
        ("SLURM_RESTART_COUNT", (start.number - 1).to_string()),
    ];
    if start.is_array {
        own.extend([("SLURM_ARRAY_JOB_ID", job), ("SLURM_ARRAY_TASK_ID", index)]);
    }
    own.into_iter().map(|(name, value)| (name, value.into_bytes()))
}
