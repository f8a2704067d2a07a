//! How often things break (Z4). Hardware faults grow with the nodes of a job, interruptions by software
//! and people do not: two rates, never one. Repairs are heavy-tailed and faults come in bursts, so a
//! mean alone is not enough.

use units::{Nanos, Share};

use crate::scalar::{Date, FailureRate, Ratio};
use crate::shape::{choice, record};

record! {
    /// How often things break and how long they stay broken.
    pub struct FailureModel {
        /// Faults of hardware that end what runs on a node.
        hardware: FailureRate { required, [Z4], Checked, "4.18 per 1000 node-days" },
        /// The lowest rate that is believable.
        hardware_low: Option<FailureRate> { optional, [Z4], Checked, "2.34 per 1000 node-days" },
        /// The highest rate that is believable.
        hardware_high: Option<FailureRate> { optional, [Z4], Checked, "6.5 per 1000 node-days" },
        /// Ends of a job by software, users or operators, whatever its size.
        software: Option<FailureRate> { optional, [Z4], Checked, "0.5 per job-day" },
        /// How long a faulty node is away.
        repair: Option<Repair> { optional, [Z4 C8], Checked, "{median: 20 h, mean: 133 h}" },
        /// How faults bunch: the standard deviation of the time between two against its mean.
        burstiness: Option<Ratio> { optional, [Z4], Later, "\"1.76:1\"" },
        /// The few nodes that have most of the faults.
        lemons: Option<Lemons> { optional, [Z4], Later, "{nodes: 10%, faults: 41%}" },
        /// What the faults are, in parts of all; together at most 100%.
        mix: Vec<Part> { optional, [Z4], Checked, "[{class: gpu, share: 64%}, {class: network, share: 12%}]" },
        /// Faults that take a whole failure domain.
        domains: Option<Correlated> { optional, [Z4 N4], Checked, "{rate: 1 per 1000 domain-days, repair: {median: 4 h, mean: 9 h}}" },
        /// The time until a fault is noticed.
        detection: Nanos { default "5 min", [Z4], Later, "5 min" },
        /// The time to start a job again once its nodes are there, without reading its checkpoint.
        restart: Nanos { default "10 min", [Z4], Later, "10 min" },
        /// Where the figures come from.
        source: String { required, [Z4], Later, "own records of 2026" },
        /// The day they are from.
        as_of: Option<Date> { optional, [Z4], Later, "2026-11-01" },
    }
}

record! {
    /// A length of time that varies: half are shorter than the median, and a few long ones lift the mean.
    /// The two fix a log-normal distribution.
    pub struct Repair {
        /// Half are shorter.
        median: Nanos { required, [Z4], Checked, "20 h" },
        /// The sum of all over their number; at least the median.
        mean: Nanos { required, [Z4], Checked, "133 h" },
    }
}

record! {
    /// The few nodes that have most of the faults.
    pub struct Lemons {
        /// Their share of the nodes.
        nodes: Share { required, [Z4], Later, "10%" },
        /// Their share of the faults.
        faults: Share { required, [Z4], Later, "41%" },
    }
}

record! {
    /// A class of faults and its part of all.
    pub struct Part {
        /// The class.
        class: FailureClass { required, [Z4 O5], Later, "gpu" },
        /// Its part.
        share: Share { required, [Z4], Checked, "64%" },
        /// How long its repair takes, where it differs.
        repair: Option<Repair> { optional, [Z4], Checked, "{median: 24 h, mean: 155 h}" },
    }
}

choice! {
    /// What broke.
    pub enum FailureClass {
        /// A GPU or its memory.
        Gpu = "gpu",
        /// A network card, cable or switch.
        Network = "network",
        /// A CPU, a board, main memory.
        Host = "host",
        /// A power supply, a fan, cooling.
        Power = "power",
        /// A disk.
        Disk = "disk",
        /// Wrong results without a sign.
        SilentCorruption = "silent-corruption",
        /// Nobody knows.
        Unknown = "unknown",
    }
}

record! {
    /// Faults that take a whole failure domain: a leaf switch, a rack.
    pub struct Correlated {
        /// How often.
        rate: FailureRate { required, [Z4 N4], Checked, "1 per 1000 domain-days" },
        /// How long the domain is away.
        repair: Repair { required, [Z4], Checked, "{median: 4 h, mean: 9 h}" },
    }
}
