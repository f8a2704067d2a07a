//! What confines devices on v2: a program that the kernel asks at each use of a device. It gets
//! `struct bpf_cgroup_dev_ctx { u32 access_type, major, minor }` and answers 1 for yes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::sys;

/// Kind of device in the lower half of `access_type` (`BPF_DEVCG_DEV_CHAR`).
const CHARACTER: i32 = 2;
/// Opcodes. Jumps count instructions from the next one; these compare 32 bits.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x57;
const IF_EQUAL: u8 = 0x16;
const IF_NOT_EQUAL: u8 = 0x56;
const SET: u8 = 0xb7;
const EXIT: u8 = 0x95;

/// One instruction: registers 0 to 10, a jump or field offset, a constant.
fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let [low, high] = offset.to_ne_bytes();
    let [a, b, c, d] = constant.to_ne_bytes();
    // The bit fields of the registers follow the byte order.
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    u64::from_ne_bytes([code, registers, low, high, a, b, c, d])
}

/// Answers `answer`.
fn say(answer: i32) -> [u64; 2] {
    [instruction(SET, 0, 0, 0, answer), instruction(EXIT, 0, 0, 0, 0)]
}

/// A number as the 32 bits that an instruction compares with.
fn bits(number: u32) -> i32 {
    i32::from_ne_bytes(number.to_ne_bytes())
}

/// Refuses the character devices of `devices` that are not allowed, and nothing else: what the
/// others are protected by are their files' modes.
fn build(devices: &[(u32, u32, bool)]) -> Vec<u64> {
    let mut program = vec![
        instruction(LOAD_WORD, 2, 1, 0, 0),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(LOAD_WORD, 3, 1, 4, 0),
        instruction(LOAD_WORD, 4, 1, 8, 0),
        instruction(IF_EQUAL, 2, 0, 2, CHARACTER),
    ];
    program.extend(say(1));
    for (major, minor, _) in devices.iter().filter(|(.., allowed)| !allowed) {
        program.push(instruction(IF_NOT_EQUAL, 3, 0, 3, bits(*major)));
        program.push(instruction(IF_NOT_EQUAL, 4, 0, 2, bits(*minor)));
        program.extend(say(0));
    }
    program.extend(say(1));
    program
}

/// Confines the group `dir`, in place of what confined it before.
pub(super) fn confine(dir: &Path, devices: &[(u32, u32, bool)]) -> io::Result<()> {
    let program = sys::load_device_program(&build(devices))?;
    sys::attach_device_program(File::open(dir)?.as_fd(), program.as_fd())
}

/// Whether the kernel lets us confine a group, tried on `dir`, which is left as it was.
pub(super) fn works(dir: &Path) -> bool {
    confine(dir, &[]).and_then(|()| sys::detach_device_program(File::open(dir)?.as_fd())).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A group of the v2 tree, wherever that is; none where it cannot be had.
    fn group() -> Option<tempfile::TempDir> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?)).filter(|(_, kind)| *kind == "cgroup2")
        })?;
        let dir = tempfile::Builder::new().prefix("fourplane-test-").tempdir_in(root.0).ok()?;
        works(dir.path()).then_some(dir)
    }

    /// Which devices of memory a process of the group can open.
    fn opened(dir: &Path) -> String {
        let line = "echo $$ >$0/cgroup.procs && for d in null zero full random; do \
                    (: </dev/$d) 2>/dev/null && echo $d; done | xargs";
        let output = Command::new("sh").args(["-c", line]).arg(dir).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn only_what_is_listed_is_refused_and_the_last_list_counts() {
        let Some(dir) = group() else {
            crate::skip("only_what_is_listed_is_refused_and_the_last_list_counts", "no device programs here");
            return;
        };
        let dir_path = dir.path().to_owned();
        let (zero, full) = ((1, 5), (1, 7));
        let file = |(major, minor), allowed| (major, minor, allowed);
        for (devices, expect) in [
            (vec![], "null zero full random"),
            (vec![file(zero, false), file(full, true)], "null full random"),
            (vec![file(full, false), file(zero, false), file((195, u32::MAX), false)], "null random"),
            (vec![file(zero, true), file(full, false)], "null zero random"),
        ] {
            confine(&dir_path, &devices).unwrap();
            assert_eq!(opened(&dir_path), expect, "{devices:?}");
        }
        std::fs::remove_dir(dir.keep()).unwrap();
    }
}
