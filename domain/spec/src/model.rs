//! The file's types, section by section. Field names are the keys; docs are what `explain` prints.
#![expect(clippy::doc_markdown, reason = "the docs are shown to users as they are")]

mod compute;
mod engines;
mod failures;
mod money;
mod network;
mod operations;
mod policy;
mod security;
mod storage;
mod teams;
mod workload;

pub use compute::{Compute, Intra, Mig, Nics, Nvme, Pool, Replacement, Runtime, Shape, Sharing, Stack};
pub use engines::{Engine, EngineKind, Queueing};
pub use failures::{Correlated, FailureClass, FailureModel, Lemons, Part, Repair};
pub use money::{
    ApiBaseline, Baseline, Baselines, Commitment, PoolPrice, Prices, Purchase, SharedCost, Shares,
};
pub use network::{ContainerNetwork, Domain, Egress, Fabric, Hop, Isolation, Network, Placement, Telemetry};
pub use operations::{Delivery, Duty, Exit, Notification, NotificationKind, Occasion, Operations, Support};
pub use policy::{
    Backfill, Estimate, FairShare, Order, Policy, Preemption, PriorityClass, Queue, Reclaim, Retries,
    RetryClass,
};
pub use security::{
    Audit, BreakGlass, Deletion, EgressPolicy, EgressRule, Identity, IdentitySource, Images, Isolate,
    SecretStore, Secrets, Security, Ssh, SshPolicy, VendorAccess,
};
pub use storage::{
    CacheTier, Checkpoints, Dataset, Direct, FileSystem, FileSystemKind, ObjectStore, Outputs, Snapshots,
    Storage, Weights,
};
pub use teams::{Budget, Exhausted, LabelLimit, Member, Project, Quota, Role, Team};
pub use workload::{
    Arrivals, BusBandwidth, Framework, GpuTarget, Model, NodeNeeds, Precision, Reason, Scale, Serving,
    UnitOfWork, Workload, WorkloadCheckpoint, WorkloadKind, WorkloadNetwork, WorkloadStorage,
};

use crate::scalar::Name;
use crate::shape::record;

record! {
    /// The whole file: what a cluster is for, what it is made of, who may use it and what it costs.
    pub struct Cluster {
        /// The version of this format.
        fourplane: u32 { required, [], Applied, "1" },
        /// The name of the cluster.
        cluster: Name { required, [], Applied, "aurora" },
        /// What the cluster is for, one entry for each kind of work.
        workload: Vec<Workload> { optional, [B1 R1], Checked, "[{name: train, kind: pretraining}]" },
        /// The machines.
        compute: Option<Compute> { optional, [R2], Applied, "{pools: [{name: train, engine: hpc, nodes: 1, shape: {cpus: 8, ram: 64 GiB}}]}" },
        /// The links between machines and to the world.
        network: Option<Network> { optional, [R3], Checked, "{fabric: ethernet}" },
        /// Where data lies and how fast it moves.
        storage: Option<Storage> { optional, [R4], Checked, "{outputs: {retention: 90 d}}" },
        /// The systems that start and stop jobs.
        engines: Vec<Engine> { optional, [K19], Applied, "[{name: hpc, kind: slurm}]" },
        /// Who may use the cluster, and how much of it.
        teams: Vec<Team> { optional, [K7], Applied, "[{name: research, quota: {gpus: 8}}]" },
        /// Where jobs wait.
        queues: Vec<Queue> { optional, [K11 R5], Checked, "[{name: batch, pools: [train]}]" },
        /// Classes of urgency.
        priorities: Vec<PriorityClass> { optional, [K11], Applied, "[{name: high, value: 100}]" },
        /// What happens to a failed job that does not say it itself.
        retries: Option<Retries> { optional, [K17], Applied, "{most: 2, classes: [failure]}" },
        /// How waiting jobs are chosen.
        policy: Option<Policy> { optional, [K6 K11 Z3], Applied, "{preemption: {protect: 2 h}}" },
        /// How often things break and how long they stay broken, for simulation and sizing.
        failures: Option<FailureModel> { optional, [Z4], Checked, "{hardware: 4.18 per 1000 node-days, source: own records}" },
        /// Who owns what.
        operations: Option<Operations> { optional, [B8], Later, "{drivers: {owner: platform}}" },
        /// Who gets in, and what is kept apart.
        security: Option<Security> { optional, [R7], Later, "{isolation: namespace}" },
        /// What everything costs, dated and with its source.
        prices: Option<Prices> { optional, [O7 Z8], Checked, "{version: 2026-a, currency: USD, as_of: 2026-11-01, source: contract}" },
        /// What the same work costs elsewhere.
        baselines: Option<Baselines> { optional, [R9 V8], Checked, "{rental: {price: 2.35 USD per GPU-hour, as_of: 2026-11-01, source: quote}}" },
        /// Who is told when something happens.
        notifications: Vec<Notification> { optional, [K20], Applied, "[{name: ops, kind: webhook, to: 'https://example.org/hook', when: [failed]}]" },
        /// How what is told goes out, also what users ask for with `run --notify`.
        delivery: Option<Delivery> { optional, [K20], Applied, "{relay: 'mail.example.org:25'}" },
    }
}
