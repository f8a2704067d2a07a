//! `up`: the server on this machine.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use facts::event::DeviceV1;
use machine::{CgroupKind, HostClock, Inventory, LocalNode};
use ops::core::{NodeFacts, Opening};
use ops::ports::Clock;
use ops::{Inbox, Parts, Running};
use server::ServeOptions;
use server::wire::LoginLink;
use store::{Options, SqliteLog, SqliteView};
use tokio::signal::unix::{SignalKind, signal};
use units::{Bytes, Cores};

use crate::cli::{Common, UpArgs};
use crate::client::Client;
use crate::failure::{Doing, Failure};
use crate::locate::Surroundings;
use crate::output::Printer;

/// Starts the server in the background and returns when it answers.
pub(crate) fn detach(state: &Path, printer: Printer) -> Result<u8, Failure> {
    make_state(state)?;
    let log_path = state.join("server.log");
    let mut log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(&log_path)
        .doing(|| format!("cannot open {}", log_path.display()))?;
    let start = log.seek(SeekFrom::End(0)).doing(|| format!("cannot read {}", log_path.display()))?;
    let program = std::env::current_exe().doing(|| "cannot tell this program's path".to_owned())?;
    let flags =
        std::env::args_os().skip(1).map(|flag| if is_detach(&flag) { "--detached".into() } else { flag });
    let own_log = log.try_clone().doing(|| "cannot share the log".to_owned())?;
    let mut child = Command::new(program)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(own_log)
        .spawn()
        .doing(|| "cannot start the server".to_owned())?;
    // The server closes this when it answers; its end without a word means that it failed.
    let mut told = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut told).doing(|| "cannot hear from the server".to_owned())?;
    }
    if !told.is_empty() {
        printer.data(&told);
        return Ok(0);
    }
    let status = child.wait().doing(|| "cannot wait for the server".to_owned())?;
    let mut said = String::new();
    let read = log.seek(SeekFrom::Start(start)).and_then(|_| log.read_to_string(&mut said));
    read.doing(|| format!("cannot read {}", log_path.display()))?;
    printer.say(said.trim_end());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure {
        code: code.unwrap_or(crate::failure::FAILED),
        message: format!("the server did not start ({status})"),
        hints: vec![format!("its log is {}", log_path.display())],
    })
}

fn is_detach(flag: &std::ffi::OsStr) -> bool {
    flag == "--detach" || flag == "-d"
}

/// Runs the server until it is told to stop.
pub(crate) fn serve(common: &Common, state: &Path, printer: Printer, args: &UpArgs) -> Result<u8, Failure> {
    if args.detached {
        rustix::process::setsid().doing(|| "cannot leave the terminal".to_owned())?;
    }
    let is_new = !state.join("log.db").exists();
    make_state(state)?;
    // Whatever the server makes is for itself, unless it says otherwise.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let tcp = TcpListener::bind(args.listen).map_err(|error| {
        Failure::failed(format!("cannot listen on {}: {error}", args.listen))
            .hint("choose another address with --listen, for example --listen 127.0.0.1:0")
    })?;
    let address = tcp.local_addr().doing(|| "cannot tell the address".to_owned())?;
    let mut found = machine::inventory(Path::new("/"), args.simulate_gpus)
        .doing(|| "cannot tell what this machine has".to_owned())?;
    found.cores = args.cores.unwrap_or(found.cores);
    let running = start(state, &found)?;
    let (socket, unix) = listen(state)?;
    let banner = Banner { state, is_new, found: &found, socket: &socket, address, args };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(http_threads())
        .enable_all()
        .build()
        .doing(|| "cannot start".to_owned())?;
    let options = ServeOptions {
        handle: running.handle.clone(),
        tcp: Some(tcp),
        unix: Some(unix),
        admin_uid: rustix::process::geteuid().as_raw(),
        allow_root: args.allow_root,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hosts: Vec::new(),
    };
    let client = Client::new(&Common { server: None, state: Some(state.to_owned()), ..common.clone() })?;
    let served = runtime.block_on(run(options, running, client, printer, &banner));
    drop(std::fs::remove_file(&socket));
    served.map(|()| 0)
}

/// Threads that read requests and write answers. Half of the cores, as the writer and the jobs
/// need some: with more, a request is handed from one to the next and each hand-over costs a
/// wake-up. One takes some 40,000 requests a second.
fn http_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, 4))
}

async fn run(
    options: ServeOptions,
    running: Running,
    mut client: Client,
    printer: Printer,
    banner: &Banner<'_>,
) -> Result<(), Failure> {
    let handle = running.handle.clone();
    let mut terminate = signal(SignalKind::terminate()).doing(|| "cannot catch signals".to_owned())?;
    let mut interrupt = signal(SignalKind::interrupt()).doing(|| "cannot catch signals".to_owned())?;
    let mut writer = tokio::task::spawn_blocking(move || running.join().map_err(|error| error.to_string()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = tokio::spawn(server::serve(options, async move { drop(stopped.await) }));
    let told_to_stop = async {
        greet(&mut client, printer, banner).await?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            ended = &mut writer => Err(Failure::failed(match ended {
                Ok(Ok(())) => "the writer stopped".to_owned(),
                Ok(Err(error)) => error,
                Err(error) => error.to_string(),
            })),
        }
    };
    let ended = tokio::select! {
        ended = &mut serving => Err(Failure::failed(match ended {
            Ok(Ok(())) => "the server stopped on its own".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        })),
        ended = told_to_stop => ended,
    };
    drop(stop);
    ended?;
    serving
        .await
        .doing(|| "the server panicked".to_owned())?
        .map_err(|error| Failure::failed(error.to_string()))?;
    handle.stop();
    let flushed = writer.await.doing(|| "the writer panicked".to_owned())?;
    flushed.map_err(Failure::failed)
}

/// Says that the server answers, which asking it for a login link proves.
async fn greet(client: &mut Client, printer: Printer, banner: &Banner<'_>) -> Result<(), Failure> {
    let link: LoginLink = client.post("/login-link", &serde_json::json!({})).await?;
    banner.print(printer, &link);
    if banner.args.detached {
        // Whoever started us reads until this closes.
        rustix::stdio::dup2_stdout(std::io::stderr()).doing(|| "cannot let go of the terminal".to_owned())?;
    }
    Ok(())
}

/// Opens the log, finds or starts the supervisor, and starts the writer.
fn start(state: &Path, found: &Inventory) -> Result<Running, Failure> {
    let store = SqliteLog::open(state, Options::default()).map_err(|error| store_failure(&error))?;
    let view = SqliteView::open(state).map_err(|error| store_failure(&error))?;
    let program = std::env::current_exe().doing(|| "cannot tell this program's path".to_owned())?;
    let node_dir = state.join("node");
    machine::ensure_supervisor(&program, &node_dir).map_err(|error| Failure::failed(error.to_string()))?;
    let_pass(&node_dir)?;
    let_pass(&node_dir.join("tty"))?;
    let inbox = Inbox::new();
    let node = LocalNode::new(&node_dir, Some(&program), inbox.node_events());
    let clock = HostClock::new().doing(|| "cannot read the boot id".to_owned())?;
    let opening = Opening {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: clock.boot_id(),
        entropy: entropy()?,
        reading: clock.read(),
        node: offered(found),
        policy: control::Policy::default(),
    };
    ops::start(Parts { store, view: Box::new(view), node, clock, inbox, opening })
        .map_err(|error| store_failure(&error))
}

fn store_failure(error: &store::StoreError) -> Failure {
    use store::StoreError as E;
    let hint = match error {
        E::InUse { .. } => "talk to that server, or stop it, or choose another --state",
        E::Damaged { .. } => {
            "keep this directory as it is; restore a copy, or look with: fourplane audit verify"
        }
        E::Newer { .. } => "use the newer fourplane; going back to an older one is refused",
        E::DiskFull { .. } => "free space there; running jobs go on",
        E::Failed { .. } => "running jobs go on; their ends are kept by the supervisor",
    };
    Failure::failed(error.to_string()).hint(hint)
}

/// What jobs may use: every core, and the memory less a reserve for the system and ourselves.
fn offered(found: &Inventory) -> NodeFacts {
    let device = |gpu: &machine::Gpu| DeviceV1 {
        key: gpu.key.clone(),
        model: gpu.model.clone(),
        // Not measured without NVML.
        memory: Bytes(0),
        simulated: gpu.simulated,
    };
    NodeFacts {
        name: found.hostname.clone(),
        cores: Cores(found.cores),
        memory: Bytes(found.memory.0 - reserve(found.memory).0),
        devices: found.gpus.iter().map(device).collect(),
    }
}

/// A sixteenth of the memory, at most 4 GiB.
fn reserve(memory: Bytes) -> Bytes {
    Bytes((memory.0 / 16).min(4 << 30))
}

/// Makes the state directory. Its files are the server's own; root's server lets others pass
/// through it, but not look around, on their way to their jobs' scratch.
fn make_state(state: &Path) -> Result<(), Failure> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .doing(|| format!("cannot make the state directory {}", state.display()))
        .map_err(|failure| failure.hint("choose another one with --state"))?;
    let_pass(state)
}

fn let_pass(dir: &Path) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o711))
        .doing(|| format!("cannot set the mode of {}", dir.display()))
}

/// The API socket, open to every user of this machine.
fn listen(state: &Path) -> Result<(PathBuf, UnixListener), Failure> {
    let socket = Surroundings::of_process().own_socket(state)?;
    // The lock on the state directory is ours: a socket that is left over has no server.
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::failed(format!("cannot replace {}: {error}", socket.display())));
        }
        _ => {}
    }
    let listening = || format!("cannot listen on {}", socket.display());
    let unix = UnixListener::bind(&socket).doing(listening)?;
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).doing(listening)?;
    Ok((socket, unix))
}

fn entropy() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .doing(|| "cannot read /dev/urandom".to_owned())?;
    Ok(bytes)
}

/// What `up` says when it answers.
struct Banner<'a> {
    state: &'a Path,
    is_new: bool,
    found: &'a Inventory,
    socket: &'a Path,
    address: SocketAddr,
    args: &'a UpArgs,
}

impl Banner<'_> {
    fn print(&self, printer: Printer, link: &LoginLink) {
        let url = link.url.clone().unwrap_or_else(|| format!("http://{}{}", self.address, link.path));
        let age = if self.is_new { "new" } else { "found" };
        if printer.is_json() {
            printer.json(&serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "state": self.state,
                "new": self.is_new,
                "address": self.address.to_string(),
                "socket": self.socket,
                "login": url,
                "pid": std::process::id(),
            }));
            return;
        }
        let is_root = rustix::process::geteuid().is_root();
        let users = match (is_root, self.args.allow_root) {
            (true, true) => "jobs run as whoever submits them, root too (--allow-root)",
            (true, false) => "jobs run as whoever submits them; root may not submit (--allow-root lets it)",
            (false, _) => "jobs run as you; start the server as root for other users",
        };
        let gpus = self.gpus();
        let text = format!(
            "fourplane {}\n\
             state    {} ({age})\n\
             found    {} cores, {} ({} kept back), {gpus}\n\
             \x20        limits {}; clock CLOCK_BOOTTIME\n\
             listen   {url} (works once, for 10 minutes)\n\
             \x20        {}\n\
             users    {users}\n\
             try      fourplane run -- echo hi\n\
             \x20        fourplane jobs --all\n\
             \x20        fourplane nodes\n",
            env!("CARGO_PKG_VERSION"),
            self.state.display(),
            self.found.cores,
            self.found.memory,
            reserve(self.found.memory),
            self.limits(),
            self.socket.display(),
        );
        printer.data(text.as_bytes());
    }

    fn gpus(&self) -> String {
        let simulated = self.args.simulate_gpus;
        match self.found.gpus.len() - usize::from(simulated) {
            0 if simulated == 0 => {
                "no GPUs: GPU figures will say not measured (rehearse with --simulate-gpus 8)".to_owned()
            }
            real if simulated == 0 => format!("{real} GPUs"),
            real => format!("{real} GPUs and {simulated} simulated ones, of which nothing is measured"),
        }
    }

    fn limits(&self) -> String {
        let cgroups = match self.found.cgroups {
            CgroupKind::V2 => "enforced by cgroups v2",
            CgroupKind::V1 => "enforced by cgroups v1",
            CgroupKind::Hybrid => "enforced by cgroups v1 and v2",
            CgroupKind::None => "advisory, as cgroups cannot be used",
        };
        let devices = if self.found.confines_devices { "GPUs confined" } else { "GPUs advisory" };
        if self.found.gpus.is_empty() { cgroups.to_owned() } else { format!("{cgroups}, {devices}") }
    }
}
