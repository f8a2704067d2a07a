//! Names: each given once, each use naming something.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rules, at};
use crate::decode::Step;
use crate::finding::Code;
use crate::model::{Cluster, Team};
use crate::nearest::nearest;
use crate::scalar::Name;

/// Names of one kind.
struct Known<'c> {
    what: &'static str,
    /// Where such names are given, for the hint.
    section: &'static str,
    names: BTreeSet<&'c str>,
    /// Not all names could be read, so none can be said to be missing.
    has_gap: bool,
}

impl<'c> Known<'c> {
    /// Gathers names, reporting those that are given twice.
    fn gather<'p>(
        rules: &mut Rules<'_, '_>,
        what: &'static str,
        section: &'static str,
        names: impl IntoIterator<Item = (&'c Name, Vec<Step<'p>>)>,
    ) -> Self {
        let mut known = Self { what, section, names: BTreeSet::new(), has_gap: false };
        for (name, path) in names {
            if name.as_str().is_empty() {
                known.has_gap = true;
            } else if !known.names.insert(name.as_str()) {
                let message = format!("there are two {what}s called '{name}'");
                rules.report(Code::NameTwice, &path, message, Some("give each a name of its own".to_owned()));
            }
        }
        known.has_gap |= known.names.is_empty() && !rules.is_whole(at![section]);
        known
    }

    /// Reports a use that names nothing.
    fn expect(&self, rules: &mut Rules<'_, '_>, name: &Name, path: &[Step<'_>]) {
        let is_unread = name.as_str().is_empty() || self.has_gap;
        if is_unread || self.names.contains(name.as_str()) || rules.findings.count_only(Code::Dangling) {
            return;
        }
        let hint = match nearest(name.as_str(), self.names.iter().copied()) {
            Some(meant) => format!("did you mean '{meant}'?"),
            None if self.names.is_empty() => format!("declare it under '{}'", self.section),
            None => {
                let some: Vec<_> = self.names.iter().take(8).copied().collect();
                let more = if self.names.len() > some.len() { ", ..." } else { "" };
                format!("the {}s are {}{more}", self.what, some.join(", "))
            }
        };
        let message = format!("there is no {} called '{name}'", self.what);
        rules.report(Code::Dangling, path, message, Some(hint));
    }
}

pub(super) fn check(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    let engines = cluster.engines.iter().enumerate();
    let engines = engines.map(|(at, engine)| (&engine.name, at!["engines", at, "name"].to_vec()));
    let engines = Known::gather(rules, "engine", "engines", engines);
    let pools = cluster.compute.iter().flat_map(|compute| compute.pools.iter().enumerate());
    let pools = pools.map(|(at, pool)| (&pool.name, at!["compute", "pools", at, "name"].to_vec()));
    let pools = Known::gather(rules, "pool", "compute", pools);
    let queues = cluster.queues.iter().enumerate();
    let queues = queues.map(|(at, queue)| (&queue.name, at!["queues", at, "name"].to_vec()));
    let queues = Known::gather(rules, "queue", "queues", queues);
    let classes = cluster.priorities.iter().enumerate();
    let classes = classes.map(|(at, class)| (&class.name, at!["priorities", at, "name"].to_vec()));
    let classes = Known::gather(rules, "priority", "priorities", classes);
    let teams = cluster.teams.iter().enumerate();
    let teams = teams.map(|(at, team)| (&team.name, at!["teams", at, "name"].to_vec()));
    let teams = Known::gather(rules, "team", "teams", teams);
    let stores = stores(cluster, rules);
    let workloads = cluster.workload.iter().enumerate();
    let workloads = workloads.map(|(at, workload)| (&workload.name, at!["workload", at, "name"].to_vec()));
    Known::gather(rules, "workload", "workload", workloads);
    let told = cluster.notifications.iter().enumerate();
    let told = told.map(|(at, one)| (&one.name, at!["notifications", at, "name"].to_vec()));
    Known::gather(rules, "notification", "notifications", told);

    uses(cluster, rules, &engines);
    for (at, queue) in cluster.queues.iter().enumerate() {
        for (of, pool) in queue.pools.iter().enumerate() {
            pools.expect(rules, pool, at!["queues", at, "pools", of]);
        }
        if let Some(class) = &queue.priority {
            classes.expect(rules, class, at!["queues", at, "priority"]);
        }
    }
    for (at, team) in cluster.teams.iter().enumerate() {
        for (of, queue) in team.queues.iter().enumerate() {
            queues.expect(rules, queue, at!["teams", at, "queues", of]);
        }
        projects(team, at, rules);
    }
    for (at, one) in cluster.notifications.iter().enumerate() {
        for (of, team) in one.teams.iter().enumerate() {
            teams.expect(rules, team, at!["notifications", at, "teams", of]);
        }
    }
    if let Some(storage) = &cluster.storage {
        if let Some(checkpoints) = &storage.checkpoints {
            stores.expect(rules, &checkpoints.to, at!["storage", "checkpoints", "to"]);
        }
        if let Some(to) = storage.outputs.as_ref().and_then(|outputs| outputs.to.as_ref()) {
            stores.expect(rules, to, at!["storage", "outputs", "to"]);
        }
    }
    if let Some(prices) = &cluster.prices {
        for (at, price) in prices.pools.iter().enumerate() {
            pools.expect(rules, &price.pool, at!["prices", "pools", at, "pool"]);
        }
        for (at, commitment) in prices.commitments.iter().enumerate() {
            pools.expect(rules, &commitment.pool, at!["prices", "commitments", at, "pool"]);
        }
        let shared = prices.shared.iter().enumerate();
        let shared = shared.map(|(at, cost)| (&cost.name, at!["prices", "shared", at, "name"].to_vec()));
        Known::gather(rules, "shared cost", "prices", shared);
    }
}

/// Engines that pools name, and engines that none does.
fn uses(cluster: &Cluster, rules: &mut Rules<'_, '_>, engines: &Known<'_>) {
    let mut used = BTreeSet::new();
    for (at, pool) in cluster.compute.iter().flat_map(|compute| compute.pools.iter().enumerate()) {
        engines.expect(rules, &pool.engine, at!["compute", "pools", at, "engine"]);
        used.insert(pool.engine.as_str());
    }
    // A name that is misspelt elsewhere is not unused.
    if rules.findings.has_errors {
        return;
    }
    for (at, engine) in cluster.engines.iter().enumerate() {
        if !used.contains(engine.name.as_str()) {
            let message = format!("no pool uses the engine '{}'", engine.name);
            rules.report(Code::Unused, at!["engines", at, "name"], message, None);
        }
    }
}

fn stores<'c>(cluster: &'c Cluster, rules: &mut Rules<'_, '_>) -> Known<'c> {
    let storage = cluster.storage.iter();
    let names = storage.flat_map(|storage| {
        let files = storage.filesystems.iter().enumerate();
        let files = files.map(|(at, one)| (&one.name, at!["storage", "filesystems", at, "name"].to_vec()));
        let objects = storage.object_stores.iter().enumerate();
        files
            .chain(objects.map(|(at, one)| (&one.name, at!["storage", "object_stores", at, "name"].to_vec())))
    });
    Known::gather(rules, "file system or object store", "storage", names)
}

fn projects(team: &Team, at: usize, rules: &mut Rules<'_, '_>) {
    let mut seen = BTreeMap::new();
    for (of, project) in team.projects.iter().enumerate() {
        if seen.insert(&project.name, of).is_some() && !project.name.as_str().is_empty() {
            let message = format!("the team '{}' has two projects called '{}'", team.name, project.name);
            let hint = Some("give each a name of its own".to_owned());
            rules.report(Code::NameTwice, at!["teams", at, "projects", of, "name"], message, hint);
        }
    }
}
