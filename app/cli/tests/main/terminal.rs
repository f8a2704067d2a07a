//! `shell` on a real terminal, and without one.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::world::{World, finish, signal};

#[test]
fn a_shell_takes_piped_input_and_returns_its_code() {
    let world = World::new();
    let mut command = world.command(&["shell", "--mem", "64MiB", "--", "/bin/sh"]);
    std::fs::write(world.work().join("typed"), "echo $((6 * 7)); exit 3\n").unwrap();
    command.stdin(std::fs::File::open(world.work().join("typed")).unwrap());
    let ran = finish(command);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("\n42\r\n"), "{ran:?}");
    assert!(ran.err.contains("fourplane attach 1"), "{ran:?}");
    assert_eq!(world.run(&["attach", "1"]).code, 3);
    assert_eq!(world.run(&["attach", "99"]).code, 3);
}

/// The other end of a terminal that a command runs on.
pub(crate) struct Desk {
    master: std::fs::File,
    child: Child,
    seen: String,
}

impl Desk {
    pub(crate) fn open(world: &World, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let size = Winsize { ws_row: 50, ws_col: 132, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let side: OwnedFd = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap().into();
        let mut command = world.command(args);
        command.stdin(side.try_clone().unwrap()).stdout(side.try_clone().unwrap()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        Self { master: master.into(), child, seen: String::new() }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn see(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&patience)).unwrap();
            let count = if ready == 0 { 0 } else { self.master.read(&mut buffer).unwrap_or(0) };
            assert!(count > 0, "{text:?} is not in {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// Waits for the command, and tells its exit code.
    pub(crate) fn end(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}

#[test]
fn a_shell_is_a_terminal_that_outlives_client_and_server() {
    let mut world = World::new();
    let mut first = Desk::open(&world, &["shell", "--mem", "64MiB", "--", "/bin/sh"]);
    first.type_in("stty size; test -t 0 && echo ter''minal\n");
    first.see("50 132");
    first.see("terminal");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    world.kill_server();
    world.up();
    let mut second = Desk::open(&world, &["attach", "1"]);
    // What was shown before is shown again.
    second.see("terminal");
    second.type_in("echo still' 'here; exit 5\n");
    second.see("still here");
    assert_eq!(second.child.wait().unwrap().code(), Some(5));
}

#[test]
fn ctrl_c_on_a_terminal_asks_first() {
    let world = World::new();
    let mut desk = Desk::open(&world, &["run", "--", "sh", "-c", "echo star''ted; sleep 60"]);
    desk.see("started");
    signal(&desk.child, Signal::INT);
    // Longer than a second: the next one asks again.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    signal(&desk.child, Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(world.job("1")["state"], "running");
    signal(&desk.child, Signal::INT);
    assert_eq!(desk.child.wait().unwrap().code(), Some(143));
    assert_eq!(world.job("1")["state"], "cancelled");
}
