//! What is handed out for machines of this kind: a static program, its units, completions and manual
//! pages, as an archive that installs without root, and as a Debian package.

mod smoke;

use std::env::consts::ARCH;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

/// `cargo xtask dist`
#[derive(Args)]
pub(crate) struct Options {
    /// Cargo's profile
    #[arg(long, default_value = "release")]
    profile: String,
    /// Install the archive, and run a job with what it installed
    #[arg(long)]
    smoke: bool,
    /// Where it all goes
    #[arg(long, default_value = "target/dist")]
    out: PathBuf,
}

struct Kit<'a> {
    options: &'a Options,
    version: &'static str,
    cargo_target: PathBuf,
}

/// Builds the packages.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cargo_target = crate::metadata()?.target_directory.into_std_path_buf();
    let kit = Kit { options, version: env!("CARGO_PKG_VERSION"), cargo_target };
    let program = kit.build("fourplane-cli", "fourplane", Some(&format!("{ARCH}-unknown-linux-musl")))?;
    ensure!(is_static(&program)?, "{} needs a loader: it is not static", program.display());
    // NVIDIA's library is loaded at run time, which no static program can do.
    let helper = kit.build("fourplane-machine", "fourplane-nvml", None)?;
    let tree = kit.tree(&program, &helper)?;
    let archive = kit.archive(&tree)?;
    let package = kit.package(&tree)?;
    kit.checksums(&[&archive, &package])?;
    say(&format!("{}\n{}", archive.display(), package.display()));
    if options.smoke {
        smoke::run(&archive, &options.out)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Kit<'_> {
    /// Builds a program for a target or this machine, and tells where it is.
    fn build(&self, package: &str, name: &str, target: Option<&str>) -> Result<PathBuf> {
        let profile = &self.options.profile;
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--profile", profile, "--package", package, "--bin", name]);
        cargo.args(target.iter().flat_map(|target| ["--target", target]));
        done(&mut cargo)?;
        let folder = if profile == "dev" { "debug" } else { profile };
        Ok(self.cargo_target.join(target.unwrap_or_default()).join(folder).join(name))
    }

    /// The files as they lie below a prefix.
    fn tree(&self, program: &Path, helper: &Path) -> Result<PathBuf> {
        let tree = self.options.out.join(format!("fourplane-{}-{}-linux", self.version, ARCH));
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        Self::put_program(program, &tree.join("bin/fourplane"))?;
        Self::put_program(helper, &tree.join("lib/fourplane/fourplane-nvml"))?;
        for unit in ["fourplane.service", "fourplane-supervisor.service"] {
            put(&Path::new("packaging/systemd").join(unit), &tree.join("lib/systemd/system").join(unit))?;
        }
        let documents = tree.join("share/doc/fourplane");
        for document in ["LICENSE", "README.md", "CHANGELOG.md"] {
            put(Path::new(document), &documents.join(document))?;
        }
        put(Path::new("packaging/install.sh"), &tree.join("install.sh"))?;
        done(Command::new(program).arg("man").arg(tree.join("share/man/man1")))?;
        for (shell, path) in [
            ("bash", "share/bash-completion/completions/fourplane"),
            ("zsh", "share/zsh/site-functions/_fourplane"),
            ("fish", "share/fish/vendor_completions.d/fourplane.fish"),
        ] {
            let script = output(Command::new(program).args(["completions", shell]))?;
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap_or(&tree))?;
            fs::write(path, script)?;
        }
        Ok(tree)
    }

    /// Without the lines of the sources, but with the names of functions.
    fn put_program(from: &Path, to: &Path) -> Result<()> {
        put(from, to)?;
        done(Command::new("strip").arg("--strip-debug").arg(to))
    }

    fn archive(&self, tree: &Path) -> Result<PathBuf> {
        let path = tree.with_added_extension("tar.gz");
        let name = tree.file_name().context("a tree has a name")?;
        // The same sources give the same bytes.
        let at = output(Command::new("git").args(["log", "-1", "--format=@%ct"]))?;
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime", at.trim()]);
        tar.arg("--directory").arg(&self.options.out).arg("-czf").arg(&path).arg(name);
        done(&mut tar)?;
        Ok(path)
    }

    fn package(&self, tree: &Path) -> Result<PathBuf> {
        let arch = match ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let root = self.options.out.join("deb");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(root.join("DEBIAN"))?;
        done(Command::new("cp").args(["-R", "--"]).arg(tree).arg(root.join("usr")))?;
        fs::remove_file(root.join("usr/install.sh"))?;
        fs::rename(
            root.join("usr/share/doc/fourplane/LICENSE"),
            root.join("usr/share/doc/fourplane/copyright"),
        )?;
        let control = format!(
            "Package: fourplane\nVersion: {}\nArchitecture: {arch}\nMaintainer: Fourplane maintainers\n\
             Section: admin\nPriority: optional\nSuggests: libc6\n\
             Description: runs GPU jobs, explains every wait, accounts for every second\n \
             Start it by: systemctl enable --now fourplane\n",
            self.version
        );
        fs::write(root.join("DEBIAN/control"), control)?;
        let path = self.options.out.join(format!("fourplane_{}_{arch}.deb", self.version));
        done(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&root).arg(&path))?;
        fs::remove_dir_all(root)?;
        Ok(path)
    }

    fn checksums(&self, files: &[&Path]) -> Result<()> {
        let names = files.iter().filter_map(|file| file.file_name());
        let sums = output(Command::new("sha256sum").current_dir(&self.options.out).args(names))?;
        Ok(fs::write(self.options.out.join(format!("SHA256SUMS-{ARCH}")), sums)?)
    }
}

/// Whether a program runs without a loader and shared libraries.
fn is_static(program: &Path) -> Result<bool> {
    let headers = output(Command::new("readelf").args(["--program-headers", "--wide"]).arg(program))?;
    Ok(!headers.contains("INTERP"))
}

fn put(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("files lie in folders")?)?;
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display())).map(drop)
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    ensure!(status.success(), "{}: {status}", name(command));
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", name(command)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}: {said}", name(command), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::print_stdout, reason = "this is the tool's output")]
fn say(text: &str) {
    println!("{text}");
}
