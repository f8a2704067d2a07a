//! What a machine was seen to have. Nothing here is asked for and nothing is guessed: each figure
//! says where it was read, or why there is none.

mod identity;
mod pcie;
mod shares;

use serde::{Deserialize, Serialize};
use units::{Bytes, Timestamp};

pub use identity::{Sentinel, gpu_uuid, identity, sentinel};
pub use pcie::{PciPlace, PciePath, pcie_path};
pub use shares::{SHARES, Shares, shares};

/// The version of the inventory's JSON; it grows when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// A figure and where it was read, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seen<T> {
    /// It was read.
    Value {
        /// The figure.
        value: T,
        /// The file or the call that told it.
        source: String,
    },
    /// There is no such thing here, which is no zero.
    Absent {
        /// What was looked for.
        absent: String,
    },
    /// It is there and was not understood: an error, a sentinel, a text out of its form.
    Failed {
        /// What went wrong, with the raw text.
        failed: String,
    },
}

impl<T> Seen<T> {
    /// A figure that was read.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self::Value { value, source: source.into() }
    }

    /// There is no such thing.
    pub fn absent(what: impl Into<String>) -> Self {
        Self::Absent { absent: what.into() }
    }

    /// It could not be read.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed { failed: what.into() }
    }

    /// The figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Why there is no figure.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Self::Value { .. } => None,
            Self::Absent { absent: why } | Self::Failed { failed: why } => Some(why),
        }
    }

    /// Another figure from the same source.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Seen<U> {
        self.then(|value| Ok(change(value)))
    }

    /// Another figure from the same source, or why it is none.
    pub fn then<U>(self, read: impl FnOnce(T) -> Result<U, String>) -> Seen<U> {
        match self {
            Self::Value { value, source } => match read(value) {
                Ok(value) => Seen::Value { value, source },
                Err(why) => Seen::failed(format!("{source}: {why}")),
            },
            Self::Absent { absent } => Seen::Absent { absent },
            Self::Failed { failed } => Seen::Failed { failed },
        }
    }

    /// This figure, else the other; of two that are missing the one that says more.
    pub fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Value { .. } => self,
            Self::Absent { .. } => other(),
            Self::Failed { .. } => match other() {
                found @ Self::Value { .. } => found,
                _ => self,
            },
        }
    }
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// [`FORMAT`] when this was written.
    pub format: u32,
    /// What it is.
    pub host: Host,
    /// Its processors.
    pub cpu: Cpu,
    /// Main memory that the kernel manages.
    pub memory: Seen<Bytes>,
    /// NUMA nodes by number.
    pub numa: Vec<NumaNode>,
    /// Whole disks by name; no partitions and nothing made of other disks.
    pub disks: Vec<Disk>,
    /// Mounted file systems that hold data.
    pub filesystems: Vec<Filesystem>,
    /// Network interfaces of hardware by name.
    pub nics: Vec<Nic>,
    /// Ports that do remote direct memory access, by device and port.
    pub rdma: Vec<RdmaPort>,
    /// GPUs by PCI address.
    pub gpus: Vec<Gpu>,
    /// Between each GPU and each network device.
    pub gpu_paths: Vec<GpuPath>,
    /// Drivers and compute stacks.
    pub drivers: Vec<Software>,
    /// Container runtimes.
    pub runtimes: Vec<Software>,
    /// Engines that run here beside Fourplane and are left alone.
    pub engines: Vec<Software>,
    /// Whether the wall clock is held to another.
    pub clock: ClockSync,
    /// Which control groups are mounted.
    pub cgroups: Seen<CgroupDriver>,
    /// Who holds a GPU and was not started here.
    pub outside: Vec<OutsideUse>,
    /// What was strange: where, and the raw text.
    pub findings: Vec<String>,
}

/// What a machine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub name: Seen<String>,
    /// Who made it.
    pub vendor: Seen<String>,
    /// What its maker calls it.
    pub product: Seen<String>,
    /// Distribution and release.
    pub os: Seen<String>,
    /// Kernel release.
    pub kernel: Seen<String>,
    /// Instruction set, as the kernel says it.
    pub architecture: Seen<String>,
}

/// Processors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Model of the first one.
    pub model: Seen<String>,
    /// Sockets.
    pub sockets: Seen<u32>,
    /// Physical cores that are online.
    pub cores: Seen<u32>,
    /// Hardware threads that are online: what is scheduled as a core.
    pub threads: Seen<u32>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its hardware threads as a list such as `0-55,112-167`.
    pub cpus: Seen<String>,
    /// Its memory.
    pub memory: Seen<Bytes>,
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Kernel name.
    pub name: String,
    /// Model.
    pub model: Seen<String>,
    /// Capacity.
    pub size: Seen<Bytes>,
    /// Whether it turns.
    pub rotational: Seen<bool>,
    /// The NUMA node that it is near to.
    pub numa: Seen<u32>,
}

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Where it is mounted.
    pub mount: String,
    /// Its type.
    pub kind: String,
    /// What is mounted.
    pub device: String,
    /// Its capacity. One over a network is not asked: it may hang.
    pub size: Seen<Bytes>,
    /// What an unprivileged user may still write.
    pub free: Seen<Bytes>,
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Kernel name.
    pub name: String,
    /// Kernel driver.
    pub driver: Seen<String>,
    /// Line rate in bits per second, while the link is up.
    pub bits_per_second: Seen<u64>,
    /// `up`, `down` and what else the kernel says.
    pub state: Seen<String>,
    /// Largest payload of a frame in bytes.
    pub mtu: Seen<u32>,
    /// Whether it is a part of another function (SR-IOV) and brings no bandwidth of its own.
    pub virtual_function: bool,
    /// Its place on the bus.
    pub pci: Seen<PciPlace>,
}

/// How remote direct memory access is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RdmaKind {
    /// `InfiniBand`.
    InfiniBand,
    /// RDMA over converged Ethernet.
    Roce,
    /// iWARP: RDMA over TCP.
    Iwarp,
    /// AWS Elastic Fabric Adapter.
    Efa,
}

/// One RDMA port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaPort {
    /// Device, for example `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u32,
    /// How it is carried.
    pub kind: Seen<RdmaKind>,
    /// Logical state, for example `ACTIVE`.
    pub state: Seen<String>,
    /// Physical state, for example `LinkUp`.
    pub physical_state: Seen<String>,
    /// Line rate in bits per second; only an active port has one.
    pub bits_per_second: Seen<u64>,
    /// Adapter type, for example `MT4129`.
    pub adapter: Seen<String>,
    /// Firmware version.
    pub firmware: Seen<String>,
    /// Parameter set of the adapter, for example `MT_0000000838`.
    pub board: Seen<String>,
    /// The network interfaces of the same function.
    pub interfaces: Vec<String>,
    /// Whether it is a part of another function (SR-IOV) and brings no bandwidth of its own.
    pub virtual_function: bool,
    /// Its place on the bus.
    pub pci: Seen<PciPlace>,
}

/// Who makes a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuMaker {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}

/// One physical GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// What identifies it for ever ([`identity`]).
    pub key: Seen<String>,
    /// Who makes it.
    pub maker: GpuMaker,
    /// Its model as the driver says it.
    pub model: Seen<String>,
    /// The canonical name of that model.
    pub canonical: Seen<String>,
    /// Its place on the bus.
    pub pci: PciPlace,
    /// The link to it.
    pub link: PcieLink,
    /// The kernel driver that has it.
    pub driver: Seen<String>,
    /// Number in the name of its device file: `/dev/nvidiaN`, `/dev/dri/renderDN`.
    pub minor: Seen<u32>,
    /// Serial number of its board.
    pub serial: Seen<String>,
    /// Memory on the device.
    pub memory: Seen<Bytes>,
    /// Links to other GPUs or to a switch between them.
    pub fabric: Seen<GpuFabric>,
    /// How it is cut into parts; absent where it is whole.
    pub partition: Seen<Partition>,
    /// Why no work may be given to it.
    pub unusable: Option<String>,
}

/// A PCI Express link: what it runs at, and what the device could do. A resting device may run
/// slower until it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// Transfers per second and lane, in millions, now.
    pub megatransfers: Seen<u32>,
    /// Lanes now.
    pub lanes: Seen<u32>,
    /// Transfers per second and lane, in millions, at best.
    pub max_megatransfers: Seen<u32>,
    /// Lanes at best.
    pub max_lanes: Seen<u32>,
}

/// Direct links of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFabric {
    /// `nvlink` or `xgmi`.
    pub kind: String,
    /// Links that are active.
    pub active: u32,
    /// Links that are there.
    pub links: u32,
}

/// How a GPU is cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// `mig` or a compute partition mode such as `CPX`.
    pub mode: String,
    /// Its parts.
    pub parts: Vec<GpuPart>,
    /// What no part has, in shares of [`SHARES`].
    pub partition_remainder: u32,
}

/// A part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPart {
    /// What identifies it while it exists.
    pub key: String,
    /// What it is called, for example `1g.10gb`.
    pub profile: Seen<String>,
    /// Its part of the GPU, in shares of [`SHARES`].
    pub share: u32,
    /// Its memory.
    pub memory: Seen<Bytes>,
}

/// The way between a GPU and a network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPath {
    /// PCI address of the GPU.
    pub gpu: String,
    /// PCI address of the network device.
    pub nic: String,
    /// Its names: RDMA devices, else network interfaces.
    pub names: Vec<String>,
    /// How far they are apart.
    pub path: Seen<PciePath>,
}

/// A program or a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Software {
    /// Its name.
    pub name: String,
    /// Its version; a program is not run to be asked for it.
    pub version: Seen<String>,
    /// What shows that it is here.
    pub path: String,
}

/// Whether the wall clock is held to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSync {
    /// What the kernel counts with.
    pub clocksource: Seen<String>,
    /// Whether the kernel counts the clock as synchronised.
    pub synchronised: Seen<bool>,
    /// The largest error that the kernel admits, in microseconds.
    pub max_error_us: Seen<u64>,
}

/// Which control groups a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    /// One tree with controllers.
    V2,
    /// Controllers in trees of their own.
    V1,
    /// Version 1 controllers beside a version 2 tree.
    Hybrid,
}

/// How it is known that a process holds a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The driver lists it: it computes or draws there.
    DriverList,
    /// It has the device file open; a monitor does that too.
    OpenFile,
}

/// A process that holds a GPU and was not started here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideUse {
    /// The process.
    pub pid: u32,
    /// PCI address of the GPU; none where the file that it holds stands for all.
    pub gpu: Option<String>,
    /// Whose it is.
    pub uid: Seen<u32>,
    /// Since when it runs, in nanoseconds of the wall clock since the Unix epoch.
    pub since: Seen<Timestamp>,
    /// Its short name.
    pub command: Seen<String>,
    /// Memory that it holds on the device.
    pub memory: Seen<Bytes>,
    /// How it is known.
    pub evidence: Vec<Evidence>,
}
