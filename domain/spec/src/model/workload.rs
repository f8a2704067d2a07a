//! The workload brief (B1 to B9, B11, B12): what the cluster is for.

use units::{Bytes, BytesPerSec, Frequency, GpuModel, GpuSeconds, Nanos, Share, Watts};

use super::network::{Egress, Isolation, Placement};
use crate::scalar::{Count, Name, Ratio};
use crate::shape::{choice, record};

record! {
    /// One kind of work that the cluster is for.
    pub struct Workload {
        /// Its name, unique among workloads.
        name: Name { required, [B1], Checked, "pretrain" },
        /// What kind of work it is.
        kind: WorkloadKind { required, [B1], Later, "pretraining" },
        /// What it is written with.
        framework: Vec<Framework> { optional, [B2], Later, "[pytorch]" },
        /// Which GPUs suit it, and how many at once.
        gpus: Option<GpuTarget> { optional, [B3], Checked, "{accept: [H100-SXM-80GB], each: 64}" },
        /// What it needs of a node.
        node: Option<NodeNeeds> { optional, [B4], Later, "{cpus: 96, ram: 1 TiB}" },
        /// How it spreads over nodes.
        scale: Option<Scale> { optional, [B5], Later, "multi-node-training" },
        /// What it needs of the network.
        network: Option<WorkloadNetwork> { optional, [B6], Later, "{placement: same-spine, isolation: tenant}" },
        /// What it reads and writes.
        storage: Option<WorkloadStorage> { optional, [B7], Checked, "{dataset: 40 TiB, weights: 140 GiB}" },
        /// What counts as one accepted result.
        unit: Option<UnitOfWork> { optional, [B9 Z9], Later, "{name: checkpoint, accepted_when: exit == 0}" },
        /// How many accepted units are wanted.
        target: Option<Frequency> { optional, [B9 Z1], Later, "40 per month" },
        /// GPU time that one unit takes when nothing goes wrong.
        work: Option<GpuSeconds> { optional, [Z1], Later, "12000 GPU-hours" },
        /// The part of paid GPU time that the team commits to use.
        utilisation: Option<Share> { optional, [B11 Z2], Later, "65%" },
        /// The models that are trained or served.
        models: Vec<Model> { optional, [B11], Later, "[{name: llama-70b, parameters: 70 billion, precision: [bf16]}]" },
        /// Why a cluster at all; without a reason a model API is measured first.
        reasons: Vec<Reason> { optional, [B12 V1], Later, "[long-training, custom-weights]" },
        /// When jobs come and how large they are, for simulation and sizing.
        arrivals: Option<Arrivals> { optional, [Z1 Z3], Checked, "{jobs: 40 per day, runtime: {median: 2 h, mean: 6 h}}" },
        /// Requests, where it serves.
        serving: Option<Serving> { optional, [N12 B9], Later, "{requests: 50 per second, first_token: 500 ms}" },
        /// The longest acceptable wait in the queue.
        longest_wait: Option<Nanos> { optional, [Z3], Later, "4 h" },
        /// Whether it may move to another GPU class, and which.
        alternatives: Vec<GpuModel> { optional, [Z5], Later, "[H200-SXM-141GB]" },
    }
}

choice! {
    /// What kind of work a workload is.
    pub enum WorkloadKind {
        /// Training a model from the start.
        Pretraining = "pretraining",
        /// Training a model further.
        FineTuning = "fine-tuning",
        /// Answers computed in bulk.
        BatchInference = "batch-inference",
        /// Answers computed while somebody waits.
        OnlineInference = "online-inference",
        /// Vectors computed from texts or images.
        Embeddings = "embeddings",
        /// Indexes built and searched.
        Retrieval = "retrieval",
        /// Images or video made.
        MediaGeneration = "media-generation",
        /// Physics, chemistry, weather.
        Simulation = "simulation",
        /// People at terminals and notebooks.
        Notebooks = "notebooks",
    }
}

choice! {
    /// What a workload is written with.
    pub enum Framework {
        /// PyTorch.
        Pytorch = "pytorch",
        /// JAX.
        Jax = "jax",
        /// TensorFlow.
        Tensorflow = "tensorflow",
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// TensorRT-LLM.
        TensorrtLlm = "tensorrt-llm",
        /// Ray.
        Ray = "ray",
        /// Slurm batch scripts.
        Slurm = "slurm",
        /// Kubernetes Jobs.
        KubernetesJobs = "kubernetes-jobs",
        /// MPI programs.
        Mpi = "mpi",
        /// A service of one's own.
        Own = "own",
    }
}

record! {
    /// Which GPUs suit a workload.
    pub struct GpuTarget {
        /// The models that will do, best first.
        accept: Vec<GpuModel> { required, [B3], Checked, "[H100-SXM-80GB, H200-SXM-141GB]" },
        /// GPUs of one job or one replica.
        each: Option<Count> { optional, [B3 B5], Checked, "64" },
        /// The least memory of one GPU.
        memory: Option<Bytes> { optional, [B4], Later, "80 GB" },
    }
}

record! {
    /// What a workload needs of each node.
    pub struct NodeNeeds {
        /// GPUs of a node.
        gpus: Option<Count> { optional, [B4], Later, "8" },
        /// CPU cores.
        cpus: Option<Count> { optional, [B4], Later, "96" },
        /// Main memory.
        ram: Option<Bytes> { optional, [B4], Later, "1 TiB" },
        /// Local flash memory.
        nvme: Option<Bytes> { optional, [B4], Later, "10 TiB" },
        /// Network cards for traffic between GPUs.
        nics: Option<Count> { optional, [B4], Later, "8" },
        /// The most power a node may draw.
        power: Option<Watts> { optional, [B4], Later, "10.2 kW" },
    }
}

choice! {
    /// How a workload spreads over nodes.
    pub enum Scale {
        /// On one node.
        SingleNode = "single-node",
        /// Many nodes in step.
        MultiNodeTraining = "multi-node-training",
        /// One model over several nodes that answer together.
        ShardedInference = "sharded-inference",
        /// Many jobs that know nothing of each other.
        BatchQueue = "batch-queue",
        /// Several of these.
        Mixed = "mixed",
    }
}

record! {
    /// What a workload needs of the network.
    pub struct WorkloadNetwork {
        /// The all-reduce bandwidth it needs between nodes.
        allreduce_busbw: Option<BusBandwidth> { optional, [B6 N9], Later, "{at: 8 GiB, least: 350 GB/s}" },
        /// The longest latency that it tolerates between two GPUs.
        latency: Option<Nanos> { optional, [B6], Later, "10 us" },
        /// How close its nodes must be.
        placement: Option<Placement> { optional, [B6 N4], Later, "same-spine" },
        /// Whom its traffic is kept apart from.
        isolation: Option<Isolation> { optional, [B6], Later, "tenant" },
        /// What of the world it may reach.
        egress: Option<Egress> { optional, [B6 X6], Later, "none" },
    }
}

record! {
    /// A bandwidth as nccl-tests reports it.
    pub struct BusBandwidth {
        /// The message size it is measured at.
        at: Bytes { required, [B6], Later, "8 GiB" },
        /// The least bus bandwidth.
        least: BytesPerSec { required, [B6 N9], Later, "350 GB/s" },
    }
}

record! {
    /// What a workload reads and writes.
    pub struct WorkloadStorage {
        /// The size of its data set.
        dataset: Option<Bytes> { optional, [B7 S1], Later, "40 TiB" },
        /// The size of the weights it loads.
        weights: Option<Bytes> { optional, [B7 S2], Later, "140 GiB" },
        /// Its checkpoints.
        checkpoint: Option<WorkloadCheckpoint> { optional, [B7 S3], Checked, "{size: 1.1 TiB, every: 30 min}" },
        /// What a file system must be able to do for it.
        filesystem: Vec<String> { optional, [B7], Later, "[posix, shared]" },
        /// The region of the object store it reads from.
        region: Option<String> { optional, [B7], Later, "eu-west-1" },
    }
}

record! {
    /// The checkpoints of a workload.
    pub struct WorkloadCheckpoint {
        /// The size of one.
        size: Bytes { required, [B7 S3], Checked, "1.1 TiB" },
        /// The time between two.
        every: Nanos { required, [B7 S3], Checked, "30 min" },
        /// The time after a failure in which one must be read back.
        restore_within: Option<Nanos> { optional, [B7 S3 S5], Checked, "10 min" },
    }
}

record! {
    /// One accepted result: what cost is divided by.
    pub struct UnitOfWork {
        /// What it is called.
        name: Name { required, [B9], Later, "checkpoint" },
        /// When a result counts: a condition over the job's exit and its metrics.
        accepted_when: String { required, [B9], Later, "exit == 0 && metric.eval_loss < 2.1" },
    }
}

record! {
    /// A model that is trained or served.
    pub struct Model {
        /// Its name.
        name: String { required, [B11], Later, "llama-70b" },
        /// Its size in parameters, in words.
        parameters: Option<String> { optional, [B11], Later, "70 billion" },
        /// The number formats it runs in.
        precision: Vec<Precision> { optional, [B11], Later, "[bf16]" },
        /// The size of its weights as stored.
        size: Option<Bytes> { optional, [B11], Later, "140 GiB" },
    }
}

choice! {
    /// A number format.
    pub enum Precision {
        /// 64-bit floating point.
        Fp64 = "fp64",
        /// 32-bit floating point.
        Fp32 = "fp32",
        /// TensorFloat-32.
        Tf32 = "tf32",
        /// bfloat16.
        Bf16 = "bf16",
        /// 16-bit floating point.
        Fp16 = "fp16",
        /// 8-bit floating point.
        Fp8 = "fp8",
        /// 4-bit floating point.
        Fp4 = "fp4",
        /// 8-bit integers.
        Int8 = "int8",
        /// 4-bit integers.
        Int4 = "int4",
    }
}

choice! {
    /// Why a cluster at all.
    pub enum Reason {
        /// Weights of one's own.
        CustomWeights = "custom-weights",
        /// Control over where work runs.
        PlacementControl = "placement-control",
        /// Training that runs for long.
        LongTraining = "long-training",
        /// Serving that nobody else may see.
        PrivateServing = "private-serving",
    }
}

record! {
    /// When jobs come and how large they are.
    pub struct Arrivals {
        /// How many come.
        jobs: Frequency { required, [Z1], Later, "40 per day" },
        /// How long they run when nothing goes wrong.
        runtime: super::failures::Repair { required, [Z1], Checked, "{median: 2 h, mean: 6 h}" },
        /// GPUs of a typical job.
        gpus: Option<Count> { optional, [Z1], Later, "8" },
        /// GPUs of the largest job.
        largest: Option<Count> { optional, [Z1], Later, "128" },
        /// The busiest hour against the mean.
        peak: Option<Ratio> { optional, [V4], Later, "\"4:1\"" },
        /// The share of GPU time that ends in jobs that failed.
        failed: Option<Share> { optional, [O5], Later, "12%" },
        /// A trace to replay in place of these figures.
        trace: Option<String> { optional, [Z1], Later, "traces/march.swf" },
    }
}

record! {
    /// Requests to a service.
    pub struct Serving {
        /// How many come.
        requests: Frequency { required, [N12], Later, "50 per second" },
        /// Tokens that come with a request.
        tokens_in: Option<Count> { optional, [N12], Later, "1155" },
        /// Tokens of an answer.
        tokens_out: Option<Count> { optional, [N12], Later, "211" },
        /// The longest time to the first token.
        first_token: Option<Nanos> { optional, [N12], Later, "500 ms" },
        /// The longest time between tokens.
        next_token: Option<Nanos> { optional, [N12], Later, "50 ms" },
    }
}
