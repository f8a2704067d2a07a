//! `up`: the server on this machine.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use facts::event::DeviceV1;
use facts::inventory::{GpuMaker, Inventory};
use machine::{CgroupKind, HostClock, LocalNode};
use ops::core::Opening;
use ops::ports::Clock;
use ops::{Inbox, Parts, Running};
use server::ServeOptions;
use server::wire::LoginLink;
use store::{Options, SqliteLog, SqliteView};
use tokio::signal::unix::{SignalKind, signal};
use units::Bytes;

use crate::cli::{Common, UpArgs};
use crate::client::Client;
use crate::commands::spec::usable;
use crate::commands::{self, apply};
use crate::failure::{Doing, Failure};
use crate::locate::Surroundings;
use crate::offer::{self, Offer};
use crate::output::Printer;
use crate::outside;
use crate::values::SIMULATED;

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
    let file = args.spec.as_deref();
    let spec = file.map(|file| usable(printer, file, "fourplane up --spec FILE")).transpose()?;
    let is_new = !state.join("log.db").exists();
    make_state(state)?;
    // Whatever the server makes is for itself, unless it says otherwise.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let tcp = TcpListener::bind(args.listen).map_err(|error| {
        Failure::failed(format!("cannot listen on {}: {error}", args.listen))
            .hint("choose another address with --listen, for example --listen 127.0.0.1:0")
    })?;
    let address = tcp.local_addr().doing(|| "cannot tell the address".to_owned())?;
    let found = commands::inventory::of_this_machine(state)?;
    let offer = offer::offer(&found, args.cores, args.simulate_gpus.as_ref())?;
    let (running, rehearsal) = start(state, &found, &offer)?;
    let (socket, unix) = listen(state)?;
    let banner = Banner { state, is_new, spec, found: &found, offer: &offer, socket: &socket, address, args };
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
        rehearsal,
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
    let applied = match (&banner.args.spec, &banner.spec) {
        (Some(file), Some(spec)) => {
            let applied = apply::at_start(client, printer, file, spec.clone(), banner.state).await?;
            Some(format!("{}: {applied}", file.display()))
        }
        _ => None,
    };
    banner.print(printer, &link, applied.as_deref());
    if banner.args.detached {
        // Whoever started us reads until this closes.
        rustix::stdio::dup2_stdout(std::io::stderr()).doing(|| "cannot let go of the terminal".to_owned())?;
    }
    Ok(())
}

/// Opens the log, finds or starts the supervisor, and starts the writer. Tells whether this is a
/// rehearsal.
fn start(state: &Path, found: &Inventory, offer: &Offer) -> Result<(Running, bool), Failure> {
    let store = SqliteLog::open(state, Options::default()).map_err(|error| store_failure(&error))?;
    let rehearsal = settle_rehearsal(state, &offer.node.devices)?;
    let view = SqliteView::open(state).map_err(|error| store_failure(&error))?;
    let program = std::env::current_exe().doing(|| "cannot tell this program's path".to_owned())?;
    let node_dir = state.join("node");
    machine::ensure_supervisor(&program, &node_dir).map_err(|error| Failure::failed(error.to_string()))?;
    let_pass(&node_dir)?;
    let_pass(&node_dir.join("tty"))?;
    let inbox = Inbox::new();
    outside::watch(state, found, &offer.node.devices, inbox.node_events())?;
    let courier = Arc::new(notify::Post::new(program.clone(), offer.node.name.clone()));
    let node = LocalNode::new(&node_dir, Some(&program), inbox.node_events());
    let clock = HostClock::new().doing(|| "cannot read the boot id".to_owned())?;
    let opening = Opening {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: clock.boot_id(),
        entropy: entropy()?,
        reading: clock.read(),
        node: offer.node.clone(),
        policy: control::Policy::default(),
    };
    let running = ops::start(Parts { store, view: Box::new(view), node, clock, courier, inbox, opening });
    Ok((running.map_err(|error| store_failure(&error))?, rehearsal))
}

/// Whether the GPUs of this state directory are simulated, which they are for ever or never: a
/// history in which only some jobs had real ones proves nothing.
fn settle_rehearsal(state: &Path, devices: &[DeviceV1]) -> Result<bool, Failure> {
    let path = state.join("gpus");
    let known = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text.trim() == SIMULATED),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
    };
    let kind = |simulated| if simulated { SIMULATED } else { "real" };
    match (known, devices.first().map(|device| device.simulated)) {
        (Some(before), Some(now)) if before != now => {
            let message =
                format!("the GPUs of {} are {}, and these are {}", state.display(), kind(before), kind(now));
            Err(Failure::usage(message)
                .hint("keep rehearsals and real work apart: choose another --state")
                .hint(if before {
                    "or start it with --simulate-gpus again"
                } else {
                    "or start it without --simulate-gpus"
                }))
        }
        (None, Some(now)) => {
            let write = || -> std::io::Result<()> {
                let mut file = std::fs::File::create(&path)?;
                file.write_all(kind(now).as_bytes())?;
                file.sync_all()
            };
            write().doing(|| format!("cannot write {}", path.display()))?;
            Ok(now)
        }
        (before, _) => Ok(before.unwrap_or(false)),
    }
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
    /// The text of the specification that is applied.
    spec: Option<String>,
    found: &'a Inventory,
    offer: &'a Offer,
    socket: &'a Path,
    address: SocketAddr,
    args: &'a UpArgs,
}

impl Banner<'_> {
    fn print(&self, printer: Printer, link: &LoginLink, applied: Option<&str>) {
        let url = link.url.clone().unwrap_or_else(|| format!("http://{}{}", self.address, link.path));
        let age = if self.is_new { "new" } else { "found" };
        if printer.is_json() {
            printer.json(&serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "state": self.state,
                "new": self.is_new,
                "spec": applied,
                "address": self.address.to_string(),
                "socket": self.socket,
                "login": url,
                "pid": std::process::id(),
                "simulated": self.args.simulate_gpus.is_some(),
            }));
            return;
        }
        let is_root = rustix::process::geteuid().is_root();
        let users = match (is_root, self.args.allow_root) {
            (true, true) => "jobs run as whoever submits them, root too (--allow-root)",
            (true, false) => "jobs run as whoever submits them; root may not submit (--allow-root lets it)",
            (false, _) => "jobs run as you; start the server as root for other users",
        };
        let spec = applied.map_or_else(String::new, |applied| format!("spec     {applied}\n"));
        let text = format!(
            "fourplane {}\n\
             state    {} ({age})\n\
             {spec}\
             found    {} cores, {} ({} kept back), {}\n\
             \x20        {}; {}; limits {}\n\
             {}\
             listen   {url} (works once, for 10 minutes)\n\
             \x20        {}\n\
             users    {users}\n\
             try      fourplane run -- echo hi\n\
             \x20        fourplane jobs --all\n\
             \x20        fourplane nodes\n",
            env!("CARGO_PKG_VERSION"),
            self.state.display(),
            self.offer.node.cores,
            Bytes(self.offer.node.memory.0 + self.offer.reserve.0),
            self.offer.reserve,
            self.gpus(),
            self.network(),
            self.clock(),
            self.limits(),
            self.others(),
            self.socket.display(),
        );
        printer.data(text.as_bytes());
    }

    fn gpus(&self) -> String {
        let devices = &self.offer.node.devices;
        let models = offer::count(devices.iter().map(|device| device.model.clone()));
        match (&self.args.simulate_gpus, devices.len()) {
            (Some(_), count) => {
                let named = devices.iter().any(|device| device.model != SIMULATED);
                let models = if named { format!(" ({models})") } else { String::new() };
                format!("{count} simulated GPU{}{models}, of which nothing is measured", plural(count))
            }
            (None, 0) if self.found.gpus.is_empty() => {
                "no GPUs: GPU figures will say not measured (rehearse with --simulate-gpus 8)".to_owned()
            }
            (None, 0) => "no GPU that can be used".to_owned(),
            (None, count) => format!("{count} GPU{} ({models})", plural(count)),
        }
    }

    fn network(&self) -> String {
        let own = self.found.nics.iter().filter(|nic| !nic.virtual_function).count();
        let ports: Vec<_> = self.found.rdma.iter().filter(|port| !port.virtual_function).collect();
        let active = ports.iter().filter(|port| port.bits_per_second.value().is_some()).count();
        match ports.len() {
            0 => format!("{own} network interface{}", plural(own)),
            all => format!("{own} network interface{}, {active} of {all} RDMA ports active", plural(own)),
        }
    }

    fn clock(&self) -> &'static str {
        match self.found.clock.synchronised.value() {
            Some(true) => "clock synchronised",
            Some(false) => "clock not synchronised",
            None => "clock unknown",
        }
    }

    /// GPUs that are held by others or cannot be used, and other engines; a line each, if any.
    fn others(&self) -> String {
        let mut lines: Vec<(&str, String)> = Vec::new();
        lines.extend(offer::busy(self.found).map(|busy| ("busy", busy)));
        if let Some(first) = self.offer.withheld.first() {
            let more = match self.offer.withheld.len() {
                1 => String::new(),
                count => format!(" and {} more (fourplane inventory)", count - 1),
            };
            lines.push(("withheld", format!("GPU {first}{more}")));
        }
        let here = |name: &str| self.found.engines.iter().any(|engine| engine.name == name);
        let looks = [("slurm", "sinfo"), ("kubernetes", "kubectl get nodes")];
        lines.extend(
            looks
                .into_iter()
                .filter(|(name, _)| here(name))
                .map(|(name, look)| ("seen", format!("{name}, left alone (look with: {look})"))),
        );
        let lines: Vec<String> = lines.iter().map(|(name, text)| format!("{name:<9}{text}\n")).collect();
        lines.concat()
    }

    fn limits(&self) -> String {
        let (kind, confines) = machine::enforcement();
        let cgroups = match kind {
            CgroupKind::V2 => "enforced by cgroups v2",
            CgroupKind::V1 => "enforced by cgroups v1",
            CgroupKind::Hybrid => "enforced by cgroups v1 and v2",
            CgroupKind::None => "advisory, as cgroups cannot be used",
        };
        // Only NVIDIA's device files are kept from a job.
        let is_amd = self.found.gpus.iter().any(|gpu| gpu.maker == GpuMaker::Amd);
        let devices = if confines && !is_amd { "GPUs confined" } else { "GPUs advisory" };
        if self.offer.node.devices.is_empty() { cgroups.to_owned() } else { format!("{cgroups}, {devices}") }
    }
}

/// The ending of a word that counts so many.
fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
