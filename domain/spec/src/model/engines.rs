//! The systems that start and stop jobs (K1 to K19).

use crate::scalar::Name;
use crate::shape::{choice, record};

record! {
    /// A system that starts and stops jobs.
    pub struct Engine {
        /// Its name, unique among engines.
        name: Name { required, [K19], Applied, "hpc" },
        /// What it is.
        kind: EngineKind { required, [K18 K19], Applied, "slurm" },
        /// The context of a Kubernetes client's configuration.
        context: Option<String> { optional, [K16], Checked, "prod" },
        /// What queues jobs on Kubernetes.
        queueing: Option<Queueing> { optional, [K6], Checked, "kueue" },
        /// Where its API answers, where that is not found by itself.
        endpoint: Option<String> { optional, [K16], Later, "https://slurm.example.org:6820" },
        /// The name of the cluster as Slurm's accounting knows it.
        slurm_cluster: Option<String> { optional, [K13], Checked, "aurora" },
        /// Who keeps its policy.
        owner: Option<String> { optional, [B8 R5], Later, "platform" },
    }
}

choice! {
    /// What an engine is.
    pub enum EngineKind {
        /// Fourplane's own, for one machine.
        Local = "local",
        /// Slurm.
        Slurm = "slurm",
        /// Kubernetes.
        Kubernetes = "kubernetes",
    }
}

choice! {
    /// What queues jobs on Kubernetes.
    pub enum Queueing {
        /// Kueue.
        Kueue = "kueue",
        /// Volcano.
        Volcano = "volcano",
        /// KAI Scheduler.
        Kai = "kai",
        /// Nothing: pods wait at the scheduler.
        None = "none",
    }
}
