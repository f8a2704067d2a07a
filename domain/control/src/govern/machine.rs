//! What a specification says of the machine against what the server found.

use spec::Cluster;
use spec::model::{EngineKind, Pool};

use crate::rows::Node;
use crate::state::State;

/// What of the pools of the local engine is not as the server's nodes are, in words. An apply cannot
/// change a machine.
pub fn misfits(state: &State, cluster: &Cluster) -> Vec<String> {
    let is_local = |pool: &&Pool| {
        cluster.engines.iter().any(|one| one.name == pool.engine && one.kind == EngineKind::Local)
    };
    let pools = cluster.compute.iter().flat_map(|compute| &compute.pools).filter(is_local);
    let nodes: Vec<&Node> = state.nodes().map(|(_, node)| node).collect();
    // The local engine has one machine, which `check` sees to.
    pools.zip(nodes).flat_map(|(pool, node)| misfits_of(pool, node)).collect()
}

fn misfits_of(pool: &Pool, node: &Node) -> Vec<String> {
    let shape = &pool.shape;
    let mut found = Vec::new();
    let mut differ = |what: &str, said: String, has: String| {
        found.push(format!(
            "pool {} has {said} {what} a node here, and {} offers {has}",
            pool.name, node.name
        ));
    };
    if u64::from(shape.cpus.0) != node.capacity.cores {
        differ("cores", shape.cpus.0.to_string(), node.capacity.cores.to_string());
    }
    // Some of the memory is kept back.
    let (said, has) = (shape.ram.0, node.capacity.memory);
    if has > said || has < said / 8 * 7 {
        differ("of memory", shape.ram.to_string(), units::Bytes(has).to_string());
    }
    let count = node.devices.len() as u64;
    if u64::from(shape.gpus) != count {
        differ("GPUs", shape.gpus.to_string(), count.to_string());
    }
    let other =
        node.devices.iter().find(|device| shape.gpu.is_some_and(|model| model.name() != device.model));
    if let (Some(model), Some(device)) = (shape.gpu, other) {
        found.push(format!("pool {} is of {model} here, and {} has {}", pool.name, node.name, device.model));
    }
    found
}
