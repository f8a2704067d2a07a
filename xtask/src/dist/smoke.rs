//! Installs an archive as a user would, and runs a job with what it installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{done, output, say};
use crate::processes::supervisors;

/// Fails where anything of it does not work.
pub(super) fn run(archive: &Path, out: &Path) -> Result<()> {
    let dir = out.join("smoke");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(dir.join("prefix"))?;
    let dir = dir.canonicalize()?;
    done(
        Command::new("tar").arg("-xzf").arg(archive).arg("--strip-components=1").arg("--directory").arg(&dir),
    )?;
    done(Command::new(dir.join("install.sh")).arg(dir.join("prefix")))?;
    let state = dir.join("state");
    let fourplane = |args: &[&str]| {
        let mut command = Command::new(dir.join("prefix/bin/fourplane"));
        command.args(args).current_dir(&dir).env("FOURPLANE_STATE", &state);
        output(&mut command)
    };
    let told = fourplane(&["up", "--detach", "--allow-root", "--json", "--listen", "127.0.0.1:0"])?;
    let told: Value = serde_json::from_str(&told)?;
    let server = told["pid"].as_u64().context("up tells its process")?;
    let tried = jobs(&fourplane);
    let mut pids = vec![server.to_string()];
    pids.extend(supervisors(&state));
    done(Command::new("kill").args(&pids))?;
    tried?;
    let page = dir.join("prefix/share/man/man1/fourplane-run.1");
    ensure!(page.exists(), "{} is missing", page.display());
    units(&dir.join("prefix/lib/systemd/system"))?;
    say("test result: ok. 1 passed; 0 failed; 0 ignored");
    Ok(())
}

fn jobs(fourplane: &dyn Fn(&[&str]) -> Result<String>) -> Result<()> {
    let ran = fourplane(&["run", "--", "echo", "hello"])?;
    ensure!(ran == "hello\n", "run said {ran:?}");
    let listed = fourplane(&["jobs", "--all", "--output", "name,state", "--no-headers"])?;
    ensure!(listed == "echo  completed\n", "jobs said {listed:?}");
    // It needs the names of users, which a static program reads itself.
    let owner = fourplane(&["jobs", "--all", "--output", "user", "--no-headers"])?;
    let me = output(Command::new("id").arg("-un"))?;
    ensure!(owner == me, "the owner is {owner:?}, not {me:?}");
    Ok(())
}

/// Where systemd is, it must understand the units.
fn units(dir: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for entry in entries {
        verify.arg(entry?.path());
    }
    match verify.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(verified) => {
            let said = String::from_utf8_lossy(&verified.stderr);
            let ours: Vec<&str> = said.lines().filter(|line| line.contains("fourplane")).collect();
            ensure!(ours.is_empty(), "{}", ours.join("\n"));
            Ok(())
        }
    }
}
