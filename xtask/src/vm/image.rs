//! What the test machine boots: Debian's cloud kernel, unpacked and not installed, and a file system
//! in memory with busybox, the binary and the steps.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The package that depends on the newest cloud kernel.
const KERNEL: &str = "linux-image-cloud-amd64";

/// What must be there to build and boot.
const TOOLS: [&str; 5] = ["qemu-system-x86_64", "busybox", "mkfs.ext4", "apt-get", "dpkg-deb"];

/// What the disk needs of the kernel, in the order of loading.
const MODULES: [&str; 6] =
    ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"];

/// The users besides root: one.
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/tmp:/bin/sh\n";
const GROUP: &str = "root:x:0:\nann:x:1000:\n";

/// Everything that a boot needs but a disk.
pub(super) struct Image {
    pub(super) dir: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
}

/// Finds the unpacked kernel package, or gets it. Fails where this host cannot have a test machine.
pub(super) fn kernel(dir: &Path) -> Result<PathBuf> {
    for tool in TOOLS {
        find_tool(tool).with_context(|| format!("{tool} is not installed"))?;
    }
    let unpacked = dir.join("kernel");
    if !unpacked.exists() {
        let depends = output(Command::new("apt-cache").args(["depends", "--important", KERNEL]))?;
        let package = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "))
            .with_context(|| format!("apt knows no {KERNEL}"))?;
        let partial = dir.join("kernel.partial");
        std::fs::remove_dir_all(&partial).ok();
        std::fs::create_dir_all(&partial)?;
        output(Command::new("apt-get").args(["download", package]).current_dir(&partial))?;
        let archive =
            find(&partial, &|name| name.starts_with(package)).context("apt-get brought no package")?;
        output(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&partial))?;
        std::fs::rename(&partial, &unpacked)?;
    }
    Ok(unpacked)
}

impl Image {
    /// Packs the machine's first file system.
    pub(super) fn build(dir: &Path, kernel: &Path, binary: &Path) -> Result<Self> {
        let root = dir.join("root");
        std::fs::remove_dir_all(&root).ok();
        for name in ["bin", "dev", "disk", "etc", "lib/modules", "proc", "run", "sys", "tests", "tmp"] {
            std::fs::create_dir_all(root.join(name))?;
        }
        std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777))?;
        std::fs::write(root.join("etc/passwd"), PASSWD)?;
        std::fs::write(root.join("etc/group"), GROUP)?;
        for (at, module) in MODULES.iter().enumerate() {
            let file = format!("{module}.ko");
            let from = find(kernel, &|name| name == file).with_context(|| format!("no {file}"))?;
            std::fs::copy(from, root.join(format!("lib/modules/{at}-{file}")))?;
        }
        let busybox = find_tool("busybox").context("busybox is not installed")?;
        std::fs::copy(busybox, root.join("bin/busybox"))?;
        output(Command::new("strip").arg("-o").arg(root.join("bin/fourplane")).arg(binary))?;
        copy_libraries(binary, &root)?;
        for entry in std::fs::read_dir("tests/vm")? {
            let file = entry?.path();
            let name = file.file_name().context("an entry has a name")?;
            let to = if name == "init" { root.join(name) } else { root.join("tests").join(name) };
            std::fs::copy(&file, to)?;
        }
        let pack = "find . | busybox cpio -o -H newc -R 0:0 >../initramfs";
        output(Command::new("sh").args(["-c", pack]).current_dir(&root))?;
        let image = find(kernel, &|name| name.starts_with("vmlinuz")).context("no vmlinuz")?;
        Ok(Self { initramfs: dir.join("initramfs"), kernel: image, dir: dir.to_owned() })
    }

    /// An empty disk, which keeps what is written over boots.
    pub(super) fn new_disk(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(format!("{name}.disk"));
        std::fs::File::create(&path)?.set_len(256 << 20)?;
        let mkfs = find_tool("mkfs.ext4").context("mkfs.ext4 is not installed")?;
        output(Command::new(mkfs).args(["-q", "-F"]).arg(&path))?;
        Ok(path)
    }

    /// Where the kernel's messages go.
    pub(super) fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// The kernel's last messages.
    pub(super) fn last_words(&self) -> String {
        let bytes = std::fs::read(self.console()).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2_000)..]).into_owned()
    }
}

/// Copies the shared libraries of a program to the same places below `root`.
fn copy_libraries(program: &Path, root: &Path) -> Result<()> {
    let listed = output(Command::new("ldd").arg(program))?;
    for path in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().context("a library is in a folder")?)?;
        std::fs::copy(path, to)?;
    }
    Ok(())
}

/// A program on the path, or where only root looks.
fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// The first file below `dir` whose name is wanted.
fn find(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() && !path.is_symlink() {
            return find(&path, wanted);
        }
        path.file_name()?.to_str().is_some_and(wanted).then_some(path)
    })
}

/// Runs a program and returns what it printed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
