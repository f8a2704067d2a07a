//! Who may use the cluster, and how much of it (K7, K16).

use units::{Bytes, Price};

use crate::scalar::{Label, Name};
use crate::shape::{choice, record};

record! {
    /// A team.
    pub struct Team {
        /// Its name, unique among teams.
        name: Name { required, [K7], Applied, "research" },
        /// What it is promised; without limits when absent.
        quota: Option<Quota> { optional, [K7], Applied, "{gpus: 64, borrow: 32}" },
        /// Its share against other teams when all want more.
        weight: u32 { default "1", [K6], Later, "2" },
        /// What it may spend.
        budget: Option<Budget> { optional, [O2 O7], Checked, "{amount: 120000 USD per month}" },
        /// Parts of the team, each with a quota of its own within the team's.
        projects: Vec<Project> { optional, [K7], Checked, "[{name: speech, quota: {gpus: 16}}]" },
        /// Quotas and budgets for a label's value, such as a customer's.
        labels: Vec<LabelLimit> { optional, [K7 O2], Checked, "[{label: customer=acme, quota: {gpus: 8}}]" },
        /// Who belongs to it.
        members: Vec<Member> { optional, [X1 X2], Later, "[{who: ada, role: admin}]" },
        /// The user whose rights its jobs get on a machine.
        run_as: Option<String> { optional, [X2], Later, "research" },
        /// The queues it may use; all when none is named.
        queues: Vec<Name> { optional, [R5], Checked, "[batch]" },
    }
}

record! {
    /// What a team or a part of it is promised, and what it may take beyond.
    pub struct Quota {
        /// GPUs; without a limit when absent.
        gpus: Option<u32> { optional, [K7], Applied, "64" },
        /// CPU cores; without a limit when absent.
        cores: Option<u32> { optional, [K7], Applied, "512" },
        /// Main memory; without a limit when absent.
        memory: Option<Bytes> { optional, [K7], Applied, "4 TiB" },
        /// GPUs that it may take from others while they do not use them; 1000000 is as many as there are.
        borrow: u32 { default "0", [K6], Applied, "32" },
        /// CPU cores that it may take so.
        borrow_cores: u32 { default "0", [K6], Applied, "256" },
        /// Main memory that it may take so.
        borrow_memory: Bytes { default "0 B", [K6], Applied, "2 TiB" },
        /// GPUs of its own that others may take; all when absent.
        lend: Option<u32> { optional, [K6], Applied, "16" },
        /// CPU cores of its own that others may take; all when absent.
        lend_cores: Option<u32> { optional, [K6], Applied, "128" },
        /// Main memory of its own that others may take; all when absent.
        lend_memory: Option<Bytes> { optional, [K6], Applied, "1 TiB" },
    }
}

record! {
    /// What may be spent in a span of time.
    pub struct Budget {
        /// How much.
        amount: Price { required, [O7], Checked, "120000 USD per month" },
        /// What happens when nothing is left.
        on_exhausted: Exhausted { default "finish", [O7], Later, "stop-new" },
    }
}

choice! {
    /// What happens when a budget is used up.
    pub enum Exhausted {
        /// Running jobs end by themselves; jobs that were admitted still start.
        Finish = "finish",
        /// No job starts.
        StopNew = "stop-new",
        /// Running jobs are stopped too.
        Preempt = "preempt",
    }
}

record! {
    /// A part of a team.
    pub struct Project {
        /// Its name, unique within the team.
        name: Name { required, [K7], Checked, "speech" },
        /// What it is promised of the team's.
        quota: Option<Quota> { optional, [K7], Checked, "{gpus: 16}" },
        /// What it may spend of the team's.
        budget: Option<Budget> { optional, [O2], Checked, "{amount: 20000 USD per month}" },
    }
}

record! {
    /// A quota or budget for jobs that carry a label.
    pub struct LabelLimit {
        /// The label and its value.
        label: Label { required, [K7], Checked, "customer=acme" },
        /// The most that such jobs hold together.
        quota: Option<Quota> { optional, [K7], Later, "{gpus: 8}" },
        /// The most that such jobs spend together.
        budget: Option<Budget> { optional, [O2], Checked, "{amount: 5000 USD per month}" },
    }
}

record! {
    /// Somebody of a team.
    pub struct Member {
        /// The name the identity source knows.
        who: String { required, [X1], Later, "ada" },
        /// What they may do.
        role: Role { default "member", [X2 X9], Later, "admin" },
    }
}

choice! {
    /// What a member may do.
    pub enum Role {
        /// Look.
        Viewer = "viewer",
        /// Run jobs.
        Member = "member",
        /// Also change the team.
        Admin = "admin",
    }
}
