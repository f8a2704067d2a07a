//! This machine: supervisor, shims, cgroups, slots, devices, clock.
//!
//! The **supervisor** ([`supervisor_main`]) is one small single-threaded process a machine, in
//! its own session and cgroup, so that jobs outlive the server. For each task it forks, without
//! exec, a **shim**: a privileged process that starts the job's own process, waits for it and
//! appends one exit record to the journal. The server talks to it through [`LocalNode`].
//!
//! A task is *free* when its slot's lock is free (no shim, and no child of it that has not
//! yet become the user's program) and its cgroup is empty, looked at in this order.

mod cgroup;
mod clock;
mod devices;
mod idle;
mod inventory;
mod job;
mod journal;
mod node;
mod output;
mod rlimits;
mod shim;
mod slot;
mod supervisor;
mod sys;
mod tasks;
mod wire;

/// Says that a test was not run, also where `./dev test` counts.
#[cfg(test)]
fn skip(test: &str, why: &str) {
    use std::io::Write;
    let line = format!("{test}: {why}\n");
    // Not `eprintln`, which the harness swallows.
    let _ = write!(std::io::stderr(), "SKIPPED {line}");
    if let Some(path) = std::env::var_os("FOURPLANE_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

pub use cgroup::CgroupKind;
pub use clock::{HostClock, boot_id};
pub use inventory::{Look, NvmlProbe, enforcement, inventory, nvml_main};
pub use node::{EnsureError, LocalNode, ensure_supervisor};
pub use supervisor::{SupervisorConfig, remove_cgroups, supervisor_main};
