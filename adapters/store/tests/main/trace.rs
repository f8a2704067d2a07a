//! Reads what `strace -f -y -xx` recorded of one directory.

use std::collections::BTreeMap;
use std::path::Path;

use units::Seq;

/// What a process did to the files of the recorded directory, by their names in it.
#[derive(Debug)]
pub(crate) enum Call {
    Open {
        name: String,
        create: bool,
    },
    Write {
        name: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    Length {
        name: String,
        length: u64,
    },
    /// The first `started` unsynced changes are on the disk: those made before the sync began.
    Sync {
        name: String,
        started: usize,
    },
    /// The directory itself.
    SyncNames,
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    Acknowledge(Seq),
}

/// Puts the lines of interrupted calls together and keeps what concerns `dir`.
pub(crate) fn read_trace(trace: &[u8], dir: &Path) -> Vec<Call> {
    let text = std::str::from_utf8(trace).unwrap();
    let mut reader = Reader { dir: dir.to_str().unwrap(), ..Reader::default() };
    let mut unfinished = BTreeMap::new();
    for line in text.lines() {
        let (thread, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim_start();
        if let Some(start) = rest.strip_suffix(" <unfinished ...>") {
            // Data counts as written from the start on; a sync counts from its end on.
            let begun = reader.begin(start);
            unfinished.insert(thread.to_owned(), (start.to_owned(), begun));
        } else if rest.starts_with("<... ") {
            let Some((start, begun)) = unfinished.remove(thread) else { continue };
            let Some((_, end)) = rest.split_once(" resumed>") else { continue };
            reader.finish(&format!("{start}{end}"), begun);
        } else {
            let begun = reader.begin(rest);
            reader.finish(rest, begun);
        }
    }
    reader.calls
}

#[derive(Default)]
struct Reader<'a> {
    dir: &'a str,
    calls: Vec<Call>,
    changes: BTreeMap<String, Changes>,
    /// Lengths by name: all plain `write`s here continue at the end.
    ends: BTreeMap<String, u64>,
}

/// Changes to a file since it was first seen: `synced` of those `made` are on the disk.
#[derive(Default)]
struct Changes {
    made: usize,
    synced: usize,
}

/// A sync that began: its file and how many changes had been made to it.
type Begun = Option<(String, usize)>;

impl Reader<'_> {
    /// What takes effect when a call begins.
    fn begin(&mut self, call: &str) -> Begun {
        let (verb, rest) = call.split_once('(')?;
        match verb {
            "write" | "pwrite64" => {
                let path = descriptor(rest)?;
                let (bytes, rest) = quoted(rest.split_once(", ")?.1)?;
                if path == "/dev/null" {
                    let said = String::from_utf8(bytes).ok()?;
                    let seq = said.trim().strip_prefix("ACK ")?.parse().ok()?;
                    self.calls.push(Call::Acknowledge(Seq(seq)));
                    return None;
                }
                let name = self.name(&path)?;
                let offset = if verb == "write" {
                    self.ends.get(&name).copied().unwrap_or(0)
                } else {
                    rest.rsplit(", ").next()?.split(')').next()?.parse().ok()?
                };
                let end = offset + bytes.len() as u64;
                let length = self.ends.entry(name.clone()).or_default();
                *length = end.max(*length);
                self.changes.entry(name.clone()).or_default().made += 1;
                self.calls.push(Call::Write { name, offset, bytes });
                None
            }
            "fsync" | "fdatasync" => {
                let path = descriptor(rest)?;
                let name = if path == self.dir { String::new() } else { self.name(&path)? };
                let made = self.changes.get(&name).map_or(0, |changes| changes.made);
                Some((name, made))
            }
            _ => None,
        }
    }

    /// What takes effect when a call has succeeded.
    fn finish(&mut self, call: &str, begun: Begun) {
        let Some((_, result)) = call.rsplit_once(" = ") else { return };
        // `-1` failed; `?` never came back.
        if !result.starts_with(|first: char| first.is_ascii_digit()) {
            return;
        }
        if let Some((name, covered)) = begun {
            if name.is_empty() {
                self.calls.push(Call::SyncNames);
            } else if let Some(changes) = self.changes.get_mut(&name) {
                // Another thread's sync may have covered the same changes meanwhile.
                let started = covered.saturating_sub(changes.synced);
                changes.synced += started;
                self.calls.push(Call::Sync { name, started });
            }
            return;
        }
        // None: a call on files elsewhere.
        let _: Option<()> = self.finish_named(call);
    }

    fn finish_named(&mut self, call: &str) -> Option<()> {
        let (verb, rest) = call.split_once('(')?;
        match verb {
            "openat" => {
                let (path, rest) = quoted(rest.split_once(", ")?.1)?;
                let name = self.name(std::str::from_utf8(&path).ok()?)?;
                let create = rest.contains("O_CREAT");
                self.calls.push(Call::Open { name: name.clone(), create });
                if rest.contains("O_TRUNC") {
                    self.set_length(name, 0);
                }
            }
            "ftruncate" => {
                let name = self.name(&descriptor(rest)?)?;
                let length = rest.rsplit_once(')')?.0.rsplit(", ").next()?.parse().ok()?;
                self.set_length(name, length);
            }
            "rename" => {
                let (from, rest) = quoted(rest)?;
                let (to, _) = quoted(rest.strip_prefix(", ")?)?;
                let name = |path: &[u8]| self.name(std::str::from_utf8(path).ok()?);
                let (from, to) = (name(&from)?, name(&to)?);
                let changes = self.changes.remove(&from).unwrap_or_default();
                let end = self.ends.remove(&from).unwrap_or(0);
                self.changes.insert(to.clone(), changes);
                self.ends.insert(to.clone(), end);
                self.calls.push(Call::Rename { from, to });
            }
            "unlink" => {
                let name = self.name(std::str::from_utf8(&quoted(rest)?.0).ok()?)?;
                self.changes.remove(&name);
                self.ends.remove(&name);
                self.calls.push(Call::Remove { name });
            }
            _ => {}
        }
        Some(())
    }

    fn set_length(&mut self, name: String, length: u64) {
        self.ends.insert(name.clone(), length);
        self.changes.entry(name.clone()).or_default().made += 1;
        self.calls.push(Call::Length { name, length });
    }

    /// A file's name in the recorded directory; none for files elsewhere.
    fn name(&self, path: &str) -> Option<String> {
        path.strip_prefix(self.dir)?.strip_prefix('/').map(str::to_owned)
    }
}

/// The path of the first argument, a descriptor that strace names: `5</path>`.
fn descriptor(arguments: &str) -> Option<String> {
    let (_, named) = arguments.split_once('<')?;
    let (path, _) = named.split_once('>')?;
    Some(String::from_utf8(unescape(path)).ok()?.trim_end_matches(" (deleted)").to_owned())
}

/// The bytes of a quoted argument and what follows it.
fn quoted(arguments: &str) -> Option<(Vec<u8>, &str)> {
    let (inside, rest) = arguments.strip_prefix('"')?.split_once('"')?;
    Some((unescape(inside), rest))
}

/// `\x41` is a byte; with `-xx` all of a string is written so.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        match more {
            [b'x', high, low, ..] if *first == b'\\' => {
                let digit = |c: &u8| u8::try_from(char::from(*c).to_digit(16).unwrap()).unwrap();
                bytes.push(digit(high) << 4 | digit(low));
                rest = &more[3..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    bytes
}

/// Each sync makes durable what was written before it began and no other sync has covered.
#[test]
fn syncs_of_one_file_may_overlap() {
    let trace = r#"
1 pwrite64(5</d/a>, "\x01", 1, 0) = 1
1 fdatasync(5</d/a> <unfinished ...>
2 fdatasync(6</d/a> <unfinished ...>
1 <... fdatasync resumed>) = 0
1 pwrite64(5</d/a>, "\x02", 1, 1) = 1
2 <... fdatasync resumed>) = 0
1 fdatasync(5</d/a>) = -1 EIO (Input/output error)
2 fdatasync(6</d/a>) = ?
1 fdatasync(5</d/a>) = 0
"#;
    let calls = read_trace(trace.trim().as_bytes(), Path::new("/d"));
    let covered: Vec<usize> = calls
        .iter()
        .filter_map(|call| match call {
            Call::Sync { started, .. } => Some(*started),
            _ => None,
        })
        .collect();
    assert_eq!(covered, [1, 0, 1]);
}
