//! A tree of small files, `/` or a copy of parts of it. Reading never leaves it, never blocks on a
//! pipe, and a bad file is no reason to stop.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use facts::inventory::{Seen, sentinel};

/// The largest file that is read, in bytes. The mount table of a busy node is the longest.
const MOST: u64 = 4 << 20;
/// How much of a text that was not understood is kept, in characters.
const RAW: usize = 120;

/// Where files are read.
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.canonicalize()? })
    }

    /// Whether this is the machine itself, which can also be asked by system calls.
    pub(super) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The path behind all links, which must not lead out of the tree.
    fn real(&self, path: &str) -> io::Result<PathBuf> {
        let real = self.root.join(path).canonicalize()?;
        if real.starts_with(&self.root) {
            return Ok(real);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "leads out of the tree"))
    }

    /// The path behind all links, from the root on.
    pub(super) fn place(&self, path: &str) -> Seen<String> {
        let real = self.real(path);
        let place = real.map(|real| {
            let below = real.strip_prefix(&self.root).unwrap_or(&real);
            below.to_string_lossy().into_owned()
        });
        seen(path, place)
    }

    /// Whether a class's link leads to the device of its own name, as every sound one does.
    pub(super) fn leads_to_itself(&self, path: &str) -> bool {
        let name = path.rsplit('/').next();
        self.place(path).value().is_some_and(|place| place.rsplit('/').next() == name)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.real(path).is_ok()
    }

    /// The first of some paths that is there.
    pub(super) fn first(&self, paths: &[&str]) -> Option<String> {
        paths.iter().find(|path| self.exists(path)).map(|path| (*path).to_owned())
    }

    /// All of a file.
    pub(super) fn text(&self, path: &str) -> Seen<String> {
        let read = || -> io::Result<Vec<u8>> {
            // A pipe in place of a file must not hold us up.
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.real(path)?)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("is no file"));
            }
            let mut bytes = Vec::new();
            file.take(MOST).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        seen(path, read()).then(|bytes| {
            String::from_utf8(bytes).map_err(|error| {
                format!("is no text: {}", raw(&error.into_bytes().escape_ascii().to_string()))
            })
        })
    }

    /// All of a file that the kernel writes: its last line ends, or it was cut short.
    pub(super) fn whole(&self, path: &str) -> Seen<String> {
        self.text(path).then(|text| {
            let is_whole = text.ends_with(['\n', '\0']);
            if is_whole { Ok(text) } else { Err(format!("{:?} was cut short", raw(&text))) }
        })
    }

    /// A file of one line, trimmed. A text that stands for nothing is absent.
    pub(super) fn line(&self, path: &str) -> Seen<String> {
        match self.whole(path) {
            Seen::Value { value, source } if sentinel(trim(&value)).is_err() => {
                Seen::absent(format!("{source} says {:?}", raw(trim(&value))))
            }
            text => text.then(|text| one_line(&text)),
        }
    }

    /// A file of one line, trimmed, in which a zero is a value.
    pub(super) fn word(&self, path: &str) -> Seen<String> {
        self.whole(path).then(|text| one_line(&text))
    }

    /// A file that holds one number. A negative one stands for "none".
    pub(super) fn number<T: FromStr<Err: Display>>(&self, path: &str) -> Seen<T> {
        match self.whole(path) {
            Seen::Value { value, source } if value.trim().starts_with('-') => {
                Seen::absent(format!("{source} says {:?}", raw(value.trim())))
            }
            text => text.then(|text| number(&text)),
        }
    }

    /// A file that holds one number after `0x`.
    pub(super) fn hex(&self, path: &str) -> Seen<u32> {
        self.whole(path).then(|text| {
            let digits = text.trim().strip_prefix("0x").unwrap_or("");
            u32::from_str_radix(digits, 16).map_err(|error| format!("{:?}: {error}", raw(text.trim())))
        })
    }

    /// What a directory holds, shorter names first so that numbers at the end are in order.
    pub(super) fn listing(&self, path: &str) -> Seen<Vec<String>> {
        seen(path, self.real(path).and_then(std::fs::read_dir)).map(|entries| {
            let mut names: Vec<String> =
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
            names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
            names
        })
    }

    /// The same, and nothing where it cannot be listed.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        self.listing(path).value().cloned().unwrap_or_default()
    }

    /// What a link says, which need not be there.
    pub(super) fn link(&self, path: &str) -> Seen<String> {
        let parent = Path::new(path).parent().and_then(Path::to_str).unwrap_or("");
        let name = Path::new(path).file_name().unwrap_or_default();
        let target = self.real(parent).and_then(|real| std::fs::read_link(real.join(name)));
        seen(path, target.map(|target| target.to_string_lossy().into_owned()))
    }

    /// The last name that a link says: a driver's, for example.
    pub(super) fn link_name(&self, path: &str) -> Seen<String> {
        self.link(path).then(|target| match target.rsplit('/').next() {
            Some(name) if !name.is_empty() && name != ".." => Ok(name.to_owned()),
            _ => Err(format!("{target:?} names nothing")),
        })
    }
}

/// Without blanks and the zeros that firmware ends its texts with.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c == '\0' || c.is_whitespace())
}

/// A text of one line, trimmed.
pub(super) fn one_line(text: &str) -> Result<String, String> {
    let line = trim(text);
    let is_line = line.len() <= RAW && !line.is_empty() && !line.contains(char::is_control);
    if is_line { Ok(line.to_owned()) } else { Err(format!("{:?} is not one line", raw(line))) }
}

fn seen<T>(path: &str, read: io::Result<T>) -> Seen<T> {
    let source = format!("/{path}");
    match read {
        Ok(value) => Seen::new(value, source),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Seen::absent(format!("{source} is not there"))
            }
            _ => Seen::failed(format!("{source}: {error}")),
        },
    }
}

/// One number and nothing else.
pub(super) fn number<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error| format!("{:?}: {error}", raw(text.trim())))
}

/// As much of a text as a finding keeps.
pub(super) fn raw(text: &str) -> String {
    text.chars().take(RAW).collect()
}

/// Counts a list such as `0-3,8`, or lists what is in it.
pub(super) fn list(text: &str) -> Result<Vec<u32>, String> {
    /// More than any kernel is built for.
    const CPUS: u32 = 1 << 16;
    let bad = || format!("{:?} is no list of numbers", raw(text.trim()));
    let mut all = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { return Err(bad()) };
        if first > last || last >= CPUS || all.last().is_some_and(|before| *before >= first) {
            return Err(bad());
        }
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_lists_or_nothing() {
        let check = |text: &str, expect: Option<usize>| {
            assert_eq!(list(text).ok().map(|all| all.len()), expect, "{text:?}");
        };
        check("0\n", Some(1));
        check("0-3,8,10-11\n", Some(7));
        check("", None);
        check("3-1", None);
        check("0-4294967295", None);
        check("0-3,2", None);
        check("0-", None);
    }

    #[test]
    fn nothing_outside_the_tree_is_read_and_nothing_blocks() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "1\n").unwrap();
        let inside = tempfile::tempdir().unwrap();
        let link = |name: &str, to: &Path| std::os::unix::fs::symlink(to, inside.path().join(name)).unwrap();
        link("out", &outside.path().join("secret"));
        link("loop", Path::new("loop"));
        std::fs::write(inside.path().join("number"), " 7\n").unwrap();
        std::fs::write(inside.path().join("none"), "-1\n").unwrap();
        std::fs::write(inside.path().join("na"), "[N/A]\n").unwrap();
        std::fs::write(inside.path().join("junk"), b"\xff\xfe\x00").unwrap();
        let pipe = inside.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let tree = Tree::open(inside.path()).unwrap();
        assert_eq!(tree.number::<u32>("number"), Seen::new(7, "/number"));
        assert_eq!(tree.number::<u32>("none"), Seen::absent("/none says \"-1\""));
        assert_eq!(tree.line("na"), Seen::absent("/na says \"[N/A]\""));
        assert_eq!(tree.number::<u32>("out"), Seen::absent("/out is not there"));
        assert_eq!(tree.number::<u32>("missing"), Seen::absent("/missing is not there"));
        for failing in ["loop", "pipe", "junk"] {
            assert!(matches!(tree.text(failing), Seen::Failed { .. }), "{failing}");
        }
    }
}
