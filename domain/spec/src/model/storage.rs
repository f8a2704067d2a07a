//! The storage plane (S1 to S10).

use std::collections::BTreeMap;

use units::{Bytes, BytesPerSec, Nanos};

use crate::scalar::{Count, Name};
use crate::shape::{choice, record};

record! {
    /// Where data lies and how fast it moves.
    pub struct Storage {
        /// Data sets, by name.
        datasets: BTreeMap<Name, Dataset> { optional, [S1], Later, "{corpus: {source: 's3://data/corpus', size: 40 TiB}}" },
        /// Model weights, by name.
        weights: BTreeMap<Name, Weights> { optional, [S2 S6], Later, "{llama: {source: 's3://models/llama', size: 140 GiB}}" },
        /// Where checkpoints go.
        checkpoints: Option<Checkpoints> { optional, [S3 S5], Checked, "{to: scratch, write: 80 GB/s, read: 120 GB/s}" },
        /// Artefacts, metrics and logs.
        outputs: Option<Outputs> { optional, [S4], Later, "{retention: 90 d}" },
        /// File systems that nodes share.
        filesystems: Vec<FileSystem> { optional, [S10 B7], Checked, "[{name: scratch, kind: lustre, mount: /scratch}]" },
        /// Object stores.
        object_stores: Vec<ObjectStore> { optional, [S1], Checked, "[{name: lake, endpoint: 'https://s3.example.org'}]" },
        /// Whether GPUs read storage without the CPU: decided, not left open.
        gpudirect_storage: Option<Direct> { optional, [S7], Later, "ordinary" },
        /// Copies that are kept.
        snapshots: Option<Snapshots> { optional, [S8], Later, "{every: 1 d, keep: 14}" },
        /// The time after a job's end in which its scratch data is deleted, provably.
        delete_within: Option<Nanos> { optional, [S9 X7], Later, "1 h" },
    }
}

record! {
    /// A data set.
    pub struct Dataset {
        /// Where it comes from.
        source: String { required, [S1], Later, "s3://data/corpus" },
        /// Its size.
        size: Option<Bytes> { optional, [S1 B7], Later, "40 TiB" },
        /// The longest time to bring it to the nodes.
        stage_within: Option<Nanos> { optional, [S1], Later, "2 h" },
        /// Where it is kept near the nodes.
        cache: Option<CacheTier> { optional, [S1], Later, "node" },
    }
}

record! {
    /// Model weights, with tokenizer and engine artefacts.
    pub struct Weights {
        /// Where they come from.
        source: String { required, [S2], Later, "s3://models/llama" },
        /// Their size.
        size: Option<Bytes> { optional, [S2 B7], Later, "140 GiB" },
        /// Where they are kept near the nodes.
        cache: Option<CacheTier> { optional, [S2 S6], Later, "node" },
        /// The longest time to load them into GPU memory.
        load_within: Option<Nanos> { optional, [S6], Later, "90 s" },
    }
}

choice! {
    /// Where data is kept near the nodes.
    pub enum CacheTier {
        /// Flash memory of the node.
        Node = "node",
        /// A file system that nodes share.
        Shared = "shared",
        /// Nowhere: it is read from its source each time.
        None = "none",
    }
}

record! {
    /// Where checkpoints go, and how fast.
    pub struct Checkpoints {
        /// A file system or object store of this file.
        to: Name { required, [S3], Checked, "scratch" },
        /// How fast all nodes together write.
        write: Option<BytesPerSec> { optional, [S5], Checked, "80 GB/s" },
        /// How fast all nodes together read.
        read: Option<BytesPerSec> { optional, [S5], Checked, "120 GB/s" },
        /// How many are kept.
        keep: Option<Count> { optional, [S3], Later, "3" },
    }
}

record! {
    /// Artefacts, metrics, traces and logs of jobs.
    pub struct Outputs {
        /// A file system or object store of this file.
        to: Option<Name> { optional, [S4], Checked, "lake" },
        /// How long artefacts are kept.
        retention: Option<Nanos> { optional, [S4], Later, "90 d" },
        /// How long logs are kept.
        logs: Option<Nanos> { optional, [S4], Later, "365 d" },
    }
}

record! {
    /// A file system that nodes share.
    pub struct FileSystem {
        /// Its name, unique among file systems and object stores.
        name: Name { required, [S10], Checked, "scratch" },
        /// What serves it.
        kind: FileSystemKind { required, [S10 B7], Later, "lustre" },
        /// Where nodes see it.
        mount: String { required, [S10], Later, "/scratch" },
        /// How much fits.
        capacity: Option<Bytes> { optional, [S10], Later, "2 PB" },
        /// How fast all nodes together read.
        read: Option<BytesPerSec> { optional, [S5], Later, "120 GB/s" },
        /// How fast all nodes together write.
        write: Option<BytesPerSec> { optional, [S5], Later, "80 GB/s" },
    }
}

choice! {
    /// What serves a file system.
    pub enum FileSystemKind {
        /// Lustre.
        Lustre = "lustre",
        /// NFS.
        Nfs = "nfs",
        /// WEKA.
        Weka = "weka",
        /// VAST.
        Vast = "vast",
        /// IBM Storage Scale.
        StorageScale = "storage-scale",
        /// BeeGFS.
        Beegfs = "beegfs",
        /// CephFS.
        Cephfs = "cephfs",
        /// DeepSeek's 3FS.
        ThreeFs = "3fs",
        /// A disk of the node.
        Local = "local",
        /// Another.
        Other = "other",
    }
}

record! {
    /// An object store.
    pub struct ObjectStore {
        /// Its name, unique among file systems and object stores.
        name: Name { required, [S1], Checked, "lake" },
        /// Its address.
        endpoint: String { required, [S1], Later, "https://s3.example.org" },
        /// Its region.
        region: Option<String> { optional, [B7], Later, "eu-west-1" },
    }
}

choice! {
    /// Whether GPUs read storage without the CPU.
    pub enum Direct {
        /// By the CPU, and that is fast enough.
        Ordinary = "ordinary",
        /// Without the CPU, set up and proven.
        Optimised = "optimised",
        /// By the CPU, which slows the work, and that is accepted.
        AcceptedBottleneck = "accepted-bottleneck",
    }
}

record! {
    /// Copies that are kept.
    pub struct Snapshots {
        /// The time between two.
        every: Nanos { required, [S8], Later, "1 d" },
        /// How many are kept.
        keep: Count { required, [S8], Later, "14" },
        /// Where a copy goes outside the cluster.
        backup_to: Option<String> { optional, [S8], Later, "s3://backup/aurora" },
    }
}
