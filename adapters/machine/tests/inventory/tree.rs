//! Machines as text, laid out as files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

/// All trees, by name.
pub(crate) const ALL: [(&str, &str); 7] = [
    ("dgx-h100", include_str!("../data/trees/dgx-h100.tree")),
    ("mi300x", include_str!("../data/trees/mi300x.tree")),
    ("mi300x-cpx", include_str!("../data/trees/mi300x-cpx.tree")),
    ("l40s-pcie", include_str!("../data/trees/l40s-pcie.tree")),
    ("p5-efa", include_str!("../data/trees/p5-efa.tree")),
    ("h100-mig", include_str!("../data/trees/h100-mig.tree")),
    ("laptop", include_str!("../data/trees/laptop.tree")),
];

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File(Vec<u8>),
    Link(String),
    Directory,
}

/// Reads a tree's text: `path: line`, `path:` with lines after tabs, `path -> target`.
pub(crate) fn parse(name: &str) -> Vec<(String, Entry)> {
    let (_, text) = ALL.iter().find(|(known, _)| *known == name).unwrap();
    let mut entries: Vec<(String, Entry)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(more) = line.strip_prefix('\t') {
            let Some((_, Entry::File(bytes))) = entries.last_mut() else { panic!("{name}: {line:?}") };
            bytes.extend_from_slice(format!("{more}\n").as_bytes());
        } else if let Some((path, target)) = line.split_once(" -> ") {
            entries.push((path.to_owned(), Entry::Link(target.to_owned())));
        } else if let Some(path) = line.strip_suffix(':') {
            entries.push((path.to_owned(), Entry::File(Vec::new())));
        } else {
            let (path, content) = line.split_once(": ").unwrap_or_else(|| panic!("{name}: {line:?}"));
            entries.push((path.to_owned(), Entry::File(format!("{content}\n").into_bytes())));
        }
    }
    entries
}

/// Lays a tree out.
pub(crate) fn build(entries: &[(String, Entry)]) -> TempDir {
    // Hundreds of small files a case: memory takes them faster than a disk.
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    for (path, entry) in entries {
        put(root.path(), path, entry);
    }
    root
}

fn put(root: &Path, path: &str, entry: &Entry) {
    let path = root.join(path);
    // Damage may have put a file where a directory was.
    if fs::create_dir_all(path.parent().unwrap()).is_err() {
        return;
    }
    // For the same reason some of it cannot be laid out.
    drop(match entry {
        Entry::File(bytes) => fs::write(path, bytes),
        Entry::Link(target) => symlink(target, path),
        Entry::Directory => fs::create_dir_all(path),
    });
}
