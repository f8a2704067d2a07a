//! The network plane (N1 to N13).

use units::{Nanos, Price};

use crate::scalar::{Name, Nodes, Ratio};
use crate::shape::{choice, record};

record! {
    /// The links between machines and to the world.
    pub struct Network {
        /// What links the nodes.
        fabric: Option<Fabric> { optional, [N2], Later, "infiniband" },
        /// Nodes under one leaf switch.
        leaf: Option<Nodes> { optional, [N4], Later, "8 nodes" },
        /// Bandwidth below a leaf switch against above it.
        oversubscription: Option<Ratio> { optional, [N5], Later, "\"1:1\"" },
        /// Whether GPUs reach the network without the CPU.
        gpudirect_rdma: Option<bool> { optional, [N6], Checked, "true" },
        /// What fails as a whole, smallest first.
        failure_domains: Vec<Domain> { optional, [N4], Later, "[rack, leaf]" },
        /// What is promised about where a job's nodes are.
        placement: Option<Placement> { optional, [N4], Later, "same-spine" },
        /// How containers reach the network.
        containers: Option<ContainerNetwork> { optional, [N7], Later, "host" },
        /// What of the fabric is observed.
        telemetry: Vec<Telemetry> { optional, [N8 T3], Later, "[errors, retransmits]" },
        /// The topology as the provider's quote states it.
        quoted: Option<String> { optional, [N11], Later, "rail-optimised, 8 rails of 400 Gb/s" },
        /// What a request crosses on its way to a model, in order.
        request_path: Vec<Hop> { optional, [N12 N13], Later, "[{name: ingress, adds: 2 ms}]" },
        /// What data that leaves costs.
        egress: Option<Price> { optional, [B6 N12], Checked, "0.02 USD per GB" },
    }
}

choice! {
    /// What links the nodes.
    pub enum Fabric {
        /// InfiniBand.
        Infiniband = "infiniband",
        /// RDMA over Ethernet.
        Roce = "roce",
        /// Amazon's Elastic Fabric Adapter.
        Efa = "efa",
        /// Ethernet without RDMA.
        Ethernet = "ethernet",
        /// One node only.
        None = "none",
    }
}

choice! {
    /// What fails as a whole.
    pub enum Domain {
        /// A node.
        Node = "node",
        /// A chassis.
        Chassis = "chassis",
        /// A rack.
        Rack = "rack",
        /// A leaf switch.
        Leaf = "leaf",
        /// A spine switch.
        Spine = "spine",
        /// A power feed.
        Power = "power",
        /// A site.
        Site = "site",
    }
}

choice! {
    /// How close the nodes of a job are.
    pub enum Placement {
        /// Anywhere.
        Any = "any",
        /// On one node.
        SameNode = "same-node",
        /// In one NVLink domain of several nodes.
        SameNvlinkDomain = "same-nvlink-domain",
        /// Under one leaf switch.
        SameLeaf = "same-leaf",
        /// Under one spine.
        SameSpine = "same-spine",
        /// In one rack.
        SameRack = "same-rack",
        /// Apart, so that one fault does not stop all.
        Spread = "spread",
    }
}

choice! {
    /// Whom traffic is kept apart from.
    pub enum Isolation {
        /// Nobody.
        None = "none",
        /// Other jobs.
        Job = "job",
        /// Other teams.
        Team = "team",
        /// Other customers.
        Tenant = "tenant",
    }
}

choice! {
    /// What of the world may be reached.
    pub enum Egress {
        /// Nothing.
        None = "none",
        /// What a list allows.
        Listed = "listed",
        /// Everything.
        Open = "open",
    }
}

choice! {
    /// How containers reach the network.
    pub enum ContainerNetwork {
        /// By the node's own interfaces.
        Host = "host",
        /// By virtual functions of the node's cards.
        SrIov = "sr-iov",
        /// By interfaces of their own on the node's network.
        Macvlan = "macvlan",
        /// By an overlay of the cluster.
        Overlay = "overlay",
    }
}

choice! {
    /// What of the fabric is observed.
    pub enum Telemetry {
        /// Errors of links.
        Errors = "errors",
        /// Packets sent again.
        Retransmits = "retransmits",
        /// Congestion marks and pauses.
        Congestion = "congestion",
        /// Links and nodes that went away.
        Failures = "failures",
        /// Benchmarks, and how they change.
        Benchmarks = "benchmarks",
    }
}

record! {
    /// A boundary that a request crosses.
    pub struct Hop {
        /// What it is: DNS, ingress, mesh, gateway.
        name: Name { required, [N13], Later, "ingress" },
        /// The time it adds.
        adds: Option<Nanos> { optional, [N13], Later, "2 ms" },
        /// What crossing it costs.
        price: Option<Price> { optional, [N13], Later, "0.008 USD per GB" },
        /// Who runs it.
        owner: Option<String> { optional, [B8], Later, "platform" },
    }
}
