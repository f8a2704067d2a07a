//! What may come in from outside (docs/decisions/0001).

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{Metadata, Node, Package, PackageId};

/// Licences we may ship under. An expression passes when one of its choices is made of these.
const ALLOWED: &[&str] =
    &["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// Crates that must not come in, and why.
const BANNED: &[(&str, &str)] = &[
    ("chrono", "time is units::Timestamp, shown by jiff"),
    ("native-tls", "one TLS stack: rustls"),
    ("openssl-sys", "one TLS stack: rustls"),
    ("ring", "one crypto provider: aws-lc-rs"),
    ("serde_yaml", "unmaintained"),
];

/// Crates that come in more than once, and whose fault it is. Remove a line when it is no longer needed.
const DUPLICATES: &[(&str, &str)] = &[
    ("syn", "nvml-wrapper's macros use the one before"),
    ("thiserror", "nvml-wrapper uses the first"),
    ("thiserror-impl", "nvml-wrapper uses the first"),
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// One line for each thing that breaks a table.
pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    let compiled = compiled(metadata);
    for package in metadata.packages.iter().filter(|package| compiled.contains(&package.id)) {
        let id = format!("{} {}", package.name, package.version);
        *versions.entry(&package.name).or_default() += 1;
        match &package.license {
            Some(expression) if is_allowed(expression) => {}
            Some(expression) => problems.push(format!("{id}: licence {expression} is not allowed")),
            None => problems.push(format!("{id}: states no licence")),
        }
        if let Some((_, reason)) = BANNED.iter().find(|(name, _)| *name == package.name.as_str()) {
            problems.push(format!("{id} is banned: {reason}"));
        }
        if package.source.as_ref().is_some_and(|source| source.repr != REGISTRY) {
            problems.push(format!("{id} is not from crates.io"));
        }
    }
    let known = |name: &str| DUPLICATES.iter().any(|(known, _)| *known == name);
    for (name, count) in &versions {
        if *count > 1 && !known(name) {
            problems.push(format!("{name} comes in {count} times; see `cargo tree -d`"));
        }
    }
    for (name, _) in DUPLICATES {
        if versions.get(name).is_none_or(|count| *count < 2) {
            problems.push(format!("{name} comes in once now; remove it from DUPLICATES"));
        }
    }
    problems
}

/// What is compiled, on whatever platform. Cargo also names what features only mention, as in
/// `ring?/alloc`.
fn compiled(metadata: &Metadata) -> BTreeSet<PackageId> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata without --no-deps resolves");
    let used = |node: &Node| {
        let deps =
            node.deps.iter().filter(|dep| is_asked_for(node, &metadata[&node.id], &metadata[&dep.pkg]));
        deps.map(|dep| dep.pkg.clone()).collect::<Vec<_>>()
    };
    let uses: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (node.id.clone(), used(node))).collect();
    let mut open: Vec<&PackageId> = metadata.workspace_members.iter().collect();
    let mut compiled = BTreeSet::new();
    while let Some(id) = open.pop() {
        if compiled.insert(id.clone()) {
            open.extend(uses.get(id).into_iter().flatten());
        }
    }
    compiled
}

/// Whether a package has `used` without a choice, or one of its features in force asks for it.
fn is_asked_for(node: &Node, package: &Package, used: &Package) -> bool {
    let named = package.dependencies.iter().filter(|dep| dep.name == *used.name);
    let names: Vec<&str> = named.clone().map(|dep| dep.rename.as_deref().unwrap_or(&dep.name)).collect();
    let in_force = node.features.iter().filter_map(|feature| package.features.get(&**feature)).flatten();
    let mut asked = in_force.map(|item| item.strip_prefix("dep:").unwrap_or(item));
    let asks = |item: &str| names.iter().any(|name| item == *name || item.starts_with(&format!("{name}/")));
    named.clone().any(|dep| !dep.optional) || asked.any(asks)
}

/// Reads an SPDX expression: AND binds before OR; `a/b` is the old way to write OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any_of(&mut words);
    allowed && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>) -> bool {
    let mut allowed = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words);
    }
    allowed
}

fn all_of(words: &mut Words<'_>) -> bool {
    let mut allowed = one(words);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words);
    }
    allowed
}

fn one(words: &mut Words<'_>) -> bool {
    match words.next() {
        Some("(") => {
            let allowed = any_of(words);
            words.next() == Some(")") && allowed
        }
        Some(licence) => {
            // An exception only adds permissions.
            if words.next_if_eq(&"WITH").is_some() {
                words.next();
            }
            ALLOWED.contains(&licence)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn reads_licence_expressions() {
        let check = |expression, expect| assert_eq!(is_allowed(expression), expect, "{expression}");
        check("MIT", true);
        check("GPL-3.0", false);
        check("MIT/Apache-2.0", true);
        check("MIT AND GPL-3.0", false);
        check("GPL-3.0 OR MIT AND Zlib", true);
        check("(GPL-3.0 OR MIT) AND Unicode-3.0", true);
        check("(GPL-3.0 OR MIT) AND MPL-2.0", false);
        check("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true);
        check("(MIT", false);
        check("MIT GPL-3.0", false);
        check("", false);
    }
}
