//! Which crate may use which (ARCHITECTURE.md, "Edges").

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata};

/// A crate may use crates of earlier layers only, so crates of one layer never see each other.
const LAYERS: &[&[&str]] = &[
    &["fourplane-units"],
    &["fourplane-spec", "fourplane-facts"],
    &["fourplane-network", "fourplane-storage"],
    &["fourplane-compute"],
    &["fourplane-cost"],
    &["fourplane-control"],
    &["fourplane-sim", "fourplane-accept", "fourplane-review"],
    &["fourplane-render"],
    &["fourplane-ops"],
    &[
        "fourplane-machine",
        "fourplane-notify",
        "fourplane-slurm",
        "fourplane-kubernetes",
        "fourplane-datapath",
        "fourplane-store",
        "fourplane-server",
    ],
    &["fourplane-cli"],
];

/// The last layer whose crates are pure: values in, values out.
const LAST_PURE: &str = "fourplane-render";

/// Uses no crate of the workspace and is used by none.
const TOOL: &str = "xtask";

/// What a pure crate must not reach, however indirectly: I/O, clocks, randomness.
const IMPURE: &[&str] = &[
    "axum",
    "getrandom",
    "hyper",
    "kube",
    "libsqlite3-sys",
    "mio",
    "nix",
    "rand",
    "reqwest",
    "rusqlite",
    "rustix",
    "socket2",
    "tempfile",
    "tokio",
];

/// Names of crates and of what each uses.
#[derive(Default)]
pub(crate) struct Graph {
    members: BTreeSet<String>,
    /// Normal dependencies, of every crate.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// Dependencies of build scripts only: they are not in the program.
    builds_use: BTreeMap<String, BTreeSet<String>>,
    /// Test dependencies, of members.
    tests_use: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let mut graph = Self::default();
        let resolve = metadata.resolve.as_ref().expect("cargo metadata without --no-deps resolves");
        for node in &resolve.nodes {
            let name = metadata[&node.id].name.to_string();
            if metadata.workspace_members.contains(&node.id) {
                graph.members.insert(name.clone());
            }
            for dep in &node.deps {
                let used = metadata[&dep.pkg].name.to_string();
                let is = |wanted| dep.dep_kinds.iter().any(|kind| kind.kind == wanted);
                let edges = match (is(DependencyKind::Normal), is(DependencyKind::Build)) {
                    (true, _) => &mut graph.uses,
                    (false, true) => &mut graph.builds_use,
                    (false, false) => &mut graph.tests_use,
                };
                edges.entry(name.clone()).or_default().insert(used);
            }
        }
        graph
    }

    fn uses(&self, name: &str) -> impl Iterator<Item = &str> {
        self.uses.get(name).into_iter().flatten().map(String::as_str)
    }

    /// A chain of uses from `from` to the nearest impure crate.
    fn way_to_impure(&self, from: &str) -> Option<String> {
        let mut came_from = BTreeMap::from([(from, None)]);
        let mut open = std::collections::VecDeque::from([from]);
        while let Some(at) = open.pop_front() {
            if IMPURE.contains(&at) {
                let chain: Vec<_> = std::iter::successors(Some(at), |name| came_from[name]).collect();
                return Some(chain.into_iter().rev().collect::<Vec<_>>().join(" -> "));
            }
            for next in self.uses(at) {
                came_from.entry(next).or_insert_with(|| {
                    open.push_back(next);
                    Some(at)
                });
            }
        }
        None
    }
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&name))
}

/// One line for each thing that breaks the table.
pub(crate) fn check(graph: &Graph) -> Vec<String> {
    let pure = layer(LAST_PURE).expect("LAST_PURE is in LAYERS");
    let mut problems = Vec::new();
    for name in &graph.members {
        let of_workspace = |used: &&str| graph.members.contains(*used);
        let own = layer(name);
        if own.is_none() && name != TOOL {
            problems.push(format!("{name} is in no layer; add it to LAYERS in xtask/src/edges.rs"));
            continue;
        }
        let built = graph.builds_use.get(name).into_iter().flatten().map(String::as_str);
        for used in graph.uses(name).chain(built).filter(of_workspace) {
            if layer(used).is_none() || layer(used) >= own {
                problems.push(format!("{name} must not use {used}"));
            }
        }
        // Tests of outer crates may use any crate; tests of pure ones stay pure.
        for used in graph.tests_use.get(name).into_iter().flatten() {
            if own <= Some(pure) && of_workspace(&used.as_str()) && layer(used) > Some(pure) {
                problems.push(format!("tests of {name} must not use {used}"));
            }
        }
        if let Some(chain) = graph.way_to_impure(name).filter(|_| own.is_some_and(|own| own <= pure)) {
            problems.push(format!("{name} must stay pure, yet: {chain}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)], members: &[&str]) -> Graph {
        let mut graph = Graph::default();
        graph.members.extend(members.iter().map(ToString::to_string));
        for (user, used) in edges {
            graph.uses.entry((*user).to_owned()).or_default().insert((*used).to_owned());
        }
        graph
    }

    #[test]
    fn names_each_forbidden_edge() {
        let members = [
            "fourplane-units",
            "fourplane-facts",
            "fourplane-store",
            "fourplane-server",
            "fourplane-cli",
            "xtask",
        ];
        let check = |edges: &[(&str, &str)], expect: &[&str]| {
            assert_eq!(check(&graph(edges, &members)), expect, "{edges:?}");
        };
        check(&[("fourplane-facts", "fourplane-units"), ("fourplane-cli", "fourplane-store")], &[]);
        check(&[("fourplane-units", "fourplane-facts")], &["fourplane-units must not use fourplane-facts"]);
        check(&[("fourplane-server", "fourplane-store")], &["fourplane-server must not use fourplane-store"]);
        check(&[("xtask", "fourplane-units")], &["xtask must not use fourplane-units"]);
        check(&[("fourplane-cli", "xtask")], &["fourplane-cli must not use xtask"]);
        check(
            &[
                ("fourplane-facts", "serde"),
                ("serde", "rand"),
                ("rand", "getrandom"),
                ("fourplane-store", "rand"),
            ],
            &["fourplane-facts must stay pure, yet: fourplane-facts -> serde -> rand"],
        );
    }

    #[test]
    fn every_crate_is_in_the_table() {
        assert_eq!(
            check(&graph(&[], &["fourplane-new"])),
            ["fourplane-new is in no layer; add it to LAYERS in xtask/src/edges.rs"]
        );
    }

    #[test]
    fn tests_of_pure_crates_stay_pure() {
        let mut graph = graph(&[], &["fourplane-control", "fourplane-store", "fourplane-server"]);
        graph.tests_use.insert("fourplane-control".into(), ["fourplane-store".into()].into());
        graph.tests_use.insert("fourplane-server".into(), ["fourplane-store".into()].into());
        assert_eq!(check(&graph), ["tests of fourplane-control must not use fourplane-store"]);
    }
}
