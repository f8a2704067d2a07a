//! Where jobs wait and how they are chosen (K6, K11, K14, K17): one meaning for the scheduler of one
//! machine, for what Slurm and Kubernetes are told, and for simulation.

use units::{Nanos, Share};

use crate::scalar::{Count, Name};
use crate::shape::{choice, record};

record! {
    /// A place where jobs wait.
    pub struct Queue {
        /// Its name, unique among queues.
        name: Name { required, [K11], Checked, "batch" },
        /// The pools its jobs run on; all when none is named.
        pools: Vec<Name> { optional, [K11], Checked, "[train]" },
        /// The priority of a job that asks for none.
        priority: Option<Name> { optional, [K11], Checked, "normal" },
        /// The longest a job may run.
        longest: Option<Nanos> { optional, [K11], Later, "2 d" },
        /// The most GPUs of one job.
        most_gpus: Option<Count> { optional, [K11], Later, "128" },
        /// The most waiting jobs of one user.
        most_waiting: Option<Count> { optional, [K11], Later, "1000" },
        /// Whether its jobs may be stopped for more urgent ones.
        preemptible: bool { default "false", [K11], Later, "true" },
    }
}

record! {
    /// A class of urgency.
    pub struct PriorityClass {
        /// Its name, unique among classes.
        name: Name { required, [K11], Applied, "high" },
        /// Higher starts earlier; 0 is usual. Everybody may ask for the class by its name.
        value: i32 { required, [K11], Applied, "100" },
        /// Whether its jobs may stop less urgent, preemptible ones of their team, whatever their priority.
        preempts: bool { default "false", [K11], Applied, "true" },
    }
}

record! {
    /// What happens to a failed job that does not say it itself. Services and terminals are not tried again.
    pub struct Retries {
        /// Further attempts after the first.
        most: u32 { default "0", [K17], Applied, "2" },
        /// The ends after which it is tried again; failure, out-of-memory and unknown when absent.
        classes: Vec<RetryClass> { optional, [K17], Applied, "[failure, out-of-memory]" },
        /// The wait before the first retry; it doubles each time.
        backoff: Nanos { default "1 s", [K17], Applied, "10 s" },
        /// The longest wait.
        longest_backoff: Nanos { default "5 min", [K17], Applied, "10 min" },
    }
}

choice! {
    /// An end after which a job is tried again.
    pub enum RetryClass {
        /// Its program failed.
        Failure = "failure",
        /// It needed more memory than it asked for.
        OutOfMemory = "out-of-memory",
        /// Its time was over.
        TimeLimit = "time-limit",
        /// It never ran.
        StartFailed = "start-failed",
        /// Its node failed. Such a job is put back anyway, uncounted, unless it asks not to be.
        NodeFailure = "node-failure",
        /// It was stopped for another. Such a job is put back anyway, uncounted, unless it asks not to be.
        Preempted = "preempted",
        /// How it ended is not known.
        Unknown = "unknown",
    }
}

record! {
    /// How waiting jobs are chosen.
    pub struct Policy {
        /// Which goes first among equally urgent ones.
        order: Order { default "submit-time", [K6 K11], Later, "fair-share" },
        /// Whether small jobs may pass a large one that waits.
        backfill: Backfill { default "easy", [K11], Later, "easy" },
        /// What a job's run time is taken for before it is over.
        estimate: Estimate { default "time-limit", [K11], Later, "time-limit" },
        /// How much each waiting hour counts against a class's value.
        ageing_per_hour: u32 { default "0", [K11], Later, "10" },
        /// How past use counts.
        fair_share: Option<FairShare> { optional, [K6], Later, "{half_life: 7 d}" },
        /// When a running job is stopped for another.
        preemption: Option<Preemption> { optional, [K11], Applied, "{protect: 2 h, grace: 2 min}" },
        /// Jobs examined in one pass; a pass that ends early is recorded.
        most_examined: Count { default "1000", [K11], Later, "1000" },
        /// The share of GPUs kept free for jobs of people who wait at a terminal.
        interactive_reserve: Option<Share> { optional, [Z3], Later, "5%" },
    }
}

choice! {
    /// Which waiting job goes first among equally urgent ones.
    pub enum Order {
        /// The one that came first.
        SubmitTime = "submit-time",
        /// The one whose team used least of its share.
        FairShare = "fair-share",
        /// The shortest.
        ShortestFirst = "shortest-first",
    }
}

choice! {
    /// Whether small jobs may pass a large one that waits.
    pub enum Backfill {
        /// Never.
        None = "none",
        /// When the first waiting job starts no later for it.
        Easy = "easy",
        /// When no waiting job starts later for it.
        Conservative = "conservative",
    }
}

choice! {
    /// What a job's run time is taken for before it is over.
    pub enum Estimate {
        /// Its time limit.
        TimeLimit = "time-limit",
        /// What its user's jobs took before.
        History = "history",
        /// The truth, which only a simulation knows.
        Exact = "exact",
    }
}

record! {
    /// How past use counts.
    pub struct FairShare {
        /// The time after which use counts half.
        half_life: Nanos { required, [K6], Later, "7 d" },
        /// The weight of past use against waiting time.
        weight: u32 { default "1000", [K6], Later, "1000" },
    }
}

record! {
    /// When a running job is stopped for another.
    pub struct Preemption {
        /// Time in which a started job is left alone.
        protect: Nanos { default "0 s", [K11], Applied, "2 h" },
        /// Time between the warning and the kill.
        grace: Nanos { default "30 s", [K11], Later, "2 min" },
        /// Whose GPUs a team takes back first.
        reclaim: Reclaim { default "borrowed-first", [K6], Applied, "borrowed-first" },
        /// Jobs of at least this priority stop preemptible ones of their team; no job does when absent.
        preempts_from: Option<i32> { optional, [K11], Applied, "100" },
        /// A job that was put back so often is left alone.
        most: u32 { default "10", [K11], Applied, "3" },
    }
}

choice! {
    /// Whose GPUs are taken back first.
    pub enum Reclaim {
        /// Nobody's: what was lent stays until its job ends.
        Never = "never",
        /// Those beyond their team's quota, youngest job first.
        BorrowedFirst = "borrowed-first",
        /// Those of the least urgent jobs.
        LowestPriority = "lowest-priority",
    }
}
