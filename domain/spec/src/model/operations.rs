//! Who owns what (B8), how to leave (P6, Z7), and who is told.

use units::{Money, Nanos};

use crate::scalar::{Date, Name};
use crate::shape::{choice, record};

record! {
    /// Who owns what. An area without an owner is nobody's.
    pub struct Operations {
        /// Drivers and firmware.
        drivers: Option<Duty> { optional, [B8], Later, "{owner: platform}" },
        /// Images of nodes and containers.
        images: Option<Duty> { optional, [B8], Later, "{owner: platform}" },
        /// The scheduler's policy.
        scheduler: Option<Duty> { optional, [B8 R5], Later, "{owner: platform}" },
        /// Telemetry.
        telemetry: Option<Duty> { optional, [B8], Later, "{owner: platform}" },
        /// Questions of users.
        support: Option<Duty> { optional, [B8], Later, "{owner: platform, hours: business}" },
        /// Security updates.
        patching: Option<Duty> { optional, [B8], Later, "{owner: provider}" },
        /// Accounts of users.
        access: Option<Duty> { optional, [B8], Later, "{owner: it}" },
        /// Incidents.
        incidents: Option<Duty> { optional, [B8 K20], Later, "{owner: platform, hours: always}" },
        /// Full-time people who run the cluster, in tenths.
        staff_tenths: Option<u32> { optional, [V3 Z8], Later, "15" },
        /// The time between ordering more capacity and having it.
        lead_time: Option<Nanos> { optional, [Z6], Later, "90 d" },
        /// How the cluster is left again.
        exit: Option<Exit> { optional, [P6 Z7], Later, "{contract_end: 2029-12-31}" },
    }
}

record! {
    /// An area and its owner.
    pub struct Duty {
        /// Who answers for it.
        owner: String { required, [B8], Later, "platform" },
        /// How to reach them.
        contact: Option<String> { optional, [B8], Later, "platform@example.org" },
        /// When they answer.
        hours: Option<Support> { optional, [B8], Later, "business" },
    }
}

choice! {
    /// When somebody answers.
    pub enum Support {
        /// On working days.
        Business = "business",
        /// At any time.
        Always = "always",
        /// When they can.
        BestEffort = "best-effort",
    }
}

record! {
    /// How the cluster is left again.
    pub struct Exit {
        /// The day the contract ends.
        contract_end: Option<Date> { optional, [Z7], Later, "2029-12-31" },
        /// What the machines are sold for then.
        resale: Option<Money> { optional, [Z7], Later, "500000 USD" },
        /// What moving the data out costs.
        migration: Option<Money> { optional, [Z7 P6], Later, "20000 USD" },
        /// The time in which data is deleted, provably.
        cleanup_within: Option<Nanos> { optional, [Z7 X7], Later, "30 d" },
    }
}

record! {
    /// Somebody who is told when something happens.
    pub struct Notification {
        /// Its name, unique among notifications.
        name: Name { required, [K20], Applied, "ops" },
        /// How they are told.
        kind: NotificationKind { required, [K20], Applied, "webhook" },
        /// Where to: a web address, an address of mail, the absolute path of a program. It stands in the
        /// event log: write no person's address, and no address that is a secret.
        to: String { required, [K20], Applied, "https://example.org/hook" },
        /// When.
        when: Vec<Occasion> { required, [K20], Applied, "[failed, preempted]" },
        /// Only of the jobs of these teams.
        teams: Vec<Name> { optional, [K20], Applied, "[research]" },
    }
}

choice! {
    /// How somebody is told.
    pub enum NotificationKind {
        /// By a POST of JSON.
        Webhook = "webhook",
        /// By mail.
        Email = "email",
        /// By a program that is run with the rights of the job's owner, for at most a minute.
        Command = "command",
    }
}

choice! {
    /// When somebody is told.
    pub enum Occasion {
        /// A job started.
        Started = "started",
        /// A job ended well.
        Completed = "completed",
        /// A job failed.
        Failed = "failed",
        /// A job was cancelled.
        Cancelled = "cancelled",
        /// A job was stopped to make room for another.
        Preempted = "preempted",
        /// A budget is nearly used up, or is.
        Budget = "budget",
        /// A node or device went away.
        Hardware = "hardware",
        /// A hold that cannot be proven ended.
        Leaked = "leaked",
    }
}

record! {
    /// How what is told goes out.
    pub struct Delivery {
        /// The mail server that takes mail for delivery, without encryption or a password; without it no mail is sent.
        relay: Option<String> { optional, [K20], Applied, "mail.example.org:25" },
        /// The address that mail comes from; fourplane at this machine when absent.
        from: Option<String> { optional, [K20], Applied, "fourplane@example.org" },
        /// The absolute path of a file with the key that webhooks are signed with; without it they are not signed.
        key_file: Option<String> { optional, [K20 X3], Applied, "/etc/fourplane/webhook.key" },
        /// Networks that webhooks may reach although they are not public.
        allow: Vec<String> { optional, [K20 X6], Applied, "[10.2.0.0/16]" },
    }
}
