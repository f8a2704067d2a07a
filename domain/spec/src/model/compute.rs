//! The machines: pools of equal nodes (C1 to C10).

use units::{BitsPerSec, Bytes, BytesPerSec, GpuModel, MigProfile, Nanos, Watts};

use crate::scalar::{Count, Name};
use crate::shape::{choice, record};

record! {
    /// The machines of a cluster.
    pub struct Compute {
        /// Groups of equal nodes.
        pools: Vec<Pool> { required, [C1 C8], Applied, "[{name: train, engine: hpc, nodes: 1, shape: {cpus: 8, ram: 64 GiB}}]" },
    }
}

record! {
    /// Nodes that are equal in shape, stack and price.
    pub struct Pool {
        /// Its name, unique among pools.
        name: Name { required, [C8], Applied, "train" },
        /// The engine that runs its jobs.
        engine: Name { required, [K19], Applied, "hpc" },
        /// How many nodes it has.
        nodes: Count { required, [C8], Applied, "16" },
        /// What a node is made of.
        shape: Shape { required, [B4 C1 C2], Applied, "{gpu: H100-SXM-80GB, gpus: 8, cpus: 192, ram: 2 TiB}" },
        /// What is installed on a node.
        stack: Option<Stack> { optional, [C6 C9], Later, "{os: ubuntu-24.04, driver: \"570\"}" },
        /// How a GPU is shared.
        sharing: Sharing { default "whole", [C7 X11], Checked, "whole" },
        /// The MIG instances of each GPU, where it is shared by MIG.
        mig: Vec<Mig> { optional, [C7], Checked, "[{profile: 1g.10gb, count: 7}]" },
        /// Jobs that take turns on one GPU, where it is shared by time.
        slices: Option<Count> { optional, [C7], Checked, "4" },
        /// What sharing means for isolation, telemetry, scheduling and speed, as decided.
        sharing_because: Option<String> { optional, [X11], Later, "notebooks of one team" },
        /// What happens to a broken node.
        replacement: Option<Replacement> { optional, [C8], Checked, "{within: 4 h, spares: 1}" },
        /// Where it stands: a site, a region, a hall.
        site: Option<String> { optional, [], Later, "fra-2" },
    }
}

record! {
    /// What a node is made of.
    pub struct Shape {
        /// The GPU model, by its canonical name or any that drivers and labels use.
        gpu: Option<GpuModel> { optional, [C1 B3], Applied, "H100-SXM-80GB" },
        /// GPUs of a node.
        gpus: u32 { default "0", [C2 B4], Applied, "8" },
        /// How its GPUs reach each other.
        intra: Option<Intra> { optional, [C2 N1], Checked, "nvswitch" },
        /// CPU cores, as the operating system counts them.
        cpus: Count { required, [C3 B4], Applied, "192" },
        /// The CPU model.
        cpu: Option<String> { optional, [C3], Later, "Xeon 8480C" },
        /// Main memory.
        ram: Bytes { required, [C3 B4], Applied, "2 TiB" },
        /// NUMA domains.
        numa: Option<Count> { optional, [C3], Later, "2" },
        /// Local flash memory.
        nvme: Option<Nvme> { optional, [C4 B4], Later, "{capacity: 30 TiB, read: 50 GB/s}" },
        /// Network cards for traffic between GPUs and to storage.
        nics: Option<Nics> { optional, [C5 N3], Checked, "{count: 8, speed: 400 Gb/s, gpudirect: true}" },
        /// The most power a node draws.
        power: Option<Watts> { optional, [B4], Later, "10.2 kW" },
    }
}

choice! {
    /// How the GPUs of a node reach each other.
    pub enum Intra {
        /// NVLink through switches: all to all.
        Nvswitch = "nvswitch",
        /// NVLink between some.
        Nvlink = "nvlink",
        /// AMD Infinity Fabric.
        InfinityFabric = "infinity-fabric",
        /// PCI Express only.
        Pcie = "pcie",
    }
}

record! {
    /// Local flash memory of a node.
    pub struct Nvme {
        /// All of it.
        capacity: Bytes { required, [C4], Later, "30 TiB" },
        /// How fast all of it together is read.
        read: Option<BytesPerSec> { optional, [C4], Later, "50 GB/s" },
        /// How fast all of it together is written.
        write: Option<BytesPerSec> { optional, [C4], Later, "25 GB/s" },
    }
}

record! {
    /// Network cards of a node.
    pub struct Nics {
        /// How many.
        count: Count { required, [C5 N3], Later, "8" },
        /// The speed of each.
        speed: BitsPerSec { required, [C5 N3], Later, "400 Gb/s" },
        /// Whether GPUs read and write through them without the CPU.
        gpudirect: bool { default "false", [C5 N6], Checked, "true" },
    }
}

record! {
    /// What is installed on a node, and who keeps it.
    pub struct Stack {
        /// The operating system image.
        os: Option<String> { optional, [C6 K1], Later, "ubuntu-24.04" },
        /// The GPU driver's release.
        driver: Option<String> { optional, [C6 K2], Later, "\"570\"" },
        /// The CUDA or ROCm release.
        cuda: Option<String> { optional, [C6], Later, "\"12.8\"" },
        /// What starts containers.
        runtime: Option<Runtime> { optional, [C6], Later, "enroot" },
        /// Who installs and updates it.
        owner: Option<String> { optional, [B8 C6], Later, "platform" },
        /// Whether driver, toolkit, device plugin and telemetry are managed as one.
        managed_as_one: Option<bool> { optional, [C9], Later, "true" },
    }
}

choice! {
    /// What starts containers.
    pub enum Runtime {
        /// Enroot, often with Pyxis.
        Enroot = "enroot",
        /// Apptainer, formerly Singularity.
        Apptainer = "apptainer",
        /// containerd.
        Containerd = "containerd",
        /// CRI-O.
        CriO = "cri-o",
        /// Docker.
        Docker = "docker",
        /// Podman.
        Podman = "podman",
        /// No containers.
        None = "none",
    }
}

choice! {
    /// A way to share a GPU.
    pub enum Sharing {
        /// One job has the whole GPU.
        Whole = "whole",
        /// Parts with their own memory and compute, isolated by hardware.
        Mig = "mig",
        /// Virtual GPUs of a hypervisor.
        Vgpu = "vgpu",
        /// Jobs take turns; memory is not protected and use cannot be told apart.
        TimeSlice = "time-slice",
    }
}

record! {
    /// MIG instances of one profile on each GPU.
    pub struct Mig {
        /// The profile.
        profile: MigProfile { required, [C7], Checked, "1g.10gb" },
        /// How many.
        count: Count { required, [C7], Checked, "7" },
    }
}

record! {
    /// What happens to a broken node.
    pub struct Replacement {
        /// The time in which it is replaced.
        within: Nanos { required, [C8 Z4], Later, "4 h" },
        /// Nodes kept for that, out of the pool's.
        spares: u32 { default "0", [C8], Checked, "1" },
    }
}
