//! Who gets in, and what is kept apart (X1 to X11).

use units::Nanos;

use super::network::Egress;
use crate::shape::{choice, record};

record! {
    /// Who gets in, and what is kept apart.
    pub struct Security {
        /// Where people's identity comes from.
        identity: Option<Identity> { optional, [X1], Later, "{source: oidc, issuer: 'https://id.example.org'}" },
        /// What separates teams.
        isolation: Option<Isolate> { optional, [X2], Later, "namespace" },
        /// Who may log in to nodes.
        ssh: Option<Ssh> { optional, [X3], Later, "{policy: own-jobs}" },
        /// Which images may run.
        images: Option<Images> { optional, [X4 K9], Later, "{registries: [registry.example.org], signed: true}" },
        /// Where secrets are kept.
        secrets: Option<Secrets> { optional, [X5], Later, "{store: vault}" },
        /// What of the world jobs may reach.
        egress: Option<EgressPolicy> { optional, [X6], Later, "{default: listed}" },
        /// What becomes of data after a job.
        deletion: Option<Deletion> { optional, [X7 S9], Later, "{within: 1 h}" },
        /// The audit log.
        audit: Option<Audit> { optional, [X8], Later, "{retention: 2555 d}" },
        /// Access in an emergency.
        break_glass: Option<BreakGlass> { optional, [X9], Later, "{who: [ada], review_within: 1 d}" },
        /// Access of vendors, and hands of others on the machines.
        vendor_access: Option<VendorAccess> { optional, [X10], Later, "{approval: platform, recorded: true}" },
    }
}

record! {
    /// Where people's identity comes from.
    pub struct Identity {
        /// What kind of source.
        source: IdentitySource { required, [X1 K16], Later, "oidc" },
        /// Its address.
        issuer: Option<String> { optional, [X1], Later, "https://id.example.org" },
    }
}

choice! {
    /// A source of identity.
    pub enum IdentitySource {
        /// The users of the machine.
        Local = "local",
        /// OpenID Connect.
        Oidc = "oidc",
        /// LDAP.
        Ldap = "ldap",
        /// SAML.
        Saml = "saml",
    }
}

choice! {
    /// What separates teams.
    pub enum Isolate {
        /// Nothing.
        None = "none",
        /// Users and accounts.
        Account = "account",
        /// Namespaces.
        Namespace = "namespace",
        /// Nodes of their own.
        Nodes = "nodes",
        /// Clusters of their own.
        Cluster = "cluster",
    }
}

record! {
    /// Who may log in to nodes.
    pub struct Ssh {
        /// The rule.
        policy: SshPolicy { required, [X3], Later, "own-jobs" },
    }
}

choice! {
    /// Who may log in to nodes.
    pub enum SshPolicy {
        /// Nobody.
        Nobody = "nobody",
        /// Administrators.
        Admins = "admins",
        /// Whoever has a job there, and only into it.
        OwnJobs = "own-jobs",
        /// Every user.
        Users = "users",
    }
}

record! {
    /// Which images may run.
    pub struct Images {
        /// Registries they may come from.
        registries: Vec<String> { optional, [X4], Later, "[registry.example.org]" },
        /// Whether they must be signed.
        signed: bool { default "false", [X4], Later, "true" },
        /// Whether they are scanned for known faults.
        scanned: bool { default "false", [X4], Later, "true" },
        /// Whether containers may be privileged.
        privileged: bool { default "false", [K9], Later, "false" },
        /// Directories of the node that containers may mount.
        host_mounts: Vec<String> { optional, [K9], Later, "[/scratch]" },
    }
}

record! {
    /// Where secrets are kept.
    pub struct Secrets {
        /// The store.
        store: SecretStore { required, [X5], Later, "vault" },
        /// The longest life of one.
        rotate: Option<Nanos> { optional, [X5], Later, "90 d" },
    }
}

choice! {
    /// A store of secrets.
    pub enum SecretStore {
        /// Files that only the server reads.
        File = "file",
        /// HashiCorp Vault or OpenBao.
        Vault = "vault",
        /// Kubernetes Secrets.
        Kubernetes = "kubernetes",
        /// A cloud's secret manager.
        Cloud = "cloud",
    }
}

record! {
    /// What of the world jobs may reach.
    pub struct EgressPolicy {
        /// The rule for what is not listed.
        default: Egress { required, [X6], Later, "listed" },
        /// What is allowed all the same.
        allow: Vec<EgressRule> { optional, [X6], Later, "[{host: pypi.org, ports: [443]}]" },
    }
}

record! {
    /// Something of the world that may be reached.
    pub struct EgressRule {
        /// A host name or an address range.
        host: String { required, [X6], Later, "pypi.org" },
        /// Its ports; all when none is named.
        ports: Vec<u32> { optional, [X6], Later, "[443]" },
    }
}

record! {
    /// What becomes of data after a job.
    pub struct Deletion {
        /// The time in which it is deleted.
        within: Nanos { required, [X7], Later, "1 h" },
        /// Whether a receipt is kept that it is gone.
        proof: bool { default "false", [X7 S9], Later, "true" },
    }
}

record! {
    /// The audit log.
    pub struct Audit {
        /// How long it is kept.
        retention: Nanos { required, [X8], Later, "2555 d" },
        /// Where its chain heads are written besides.
        export_to: Option<String> { optional, [X8], Later, "s3://audit/heads" },
    }
}

record! {
    /// Access in an emergency.
    pub struct BreakGlass {
        /// Who may take it.
        who: Vec<String> { required, [X9], Later, "[ada]" },
        /// The time in which its use is looked at.
        review_within: Nanos { required, [X9], Later, "1 d" },
    }
}

record! {
    /// Access of vendors, and hands of others on the machines.
    pub struct VendorAccess {
        /// Who allows it.
        approval: String { required, [X10], Later, "platform" },
        /// Whether sessions are recorded.
        recorded: bool { default "false", [X10], Later, "true" },
        /// How remote hands are asked for.
        remote_hands: Option<String> { optional, [X10], Later, "ticket to the provider" },
    }
}
