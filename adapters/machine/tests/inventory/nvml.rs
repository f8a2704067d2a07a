//! The process that asks NVIDIA's library, over a stand-in of the library that is built here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use facts::inventory::{Evidence, GpuFabric, Inventory, Seen};
use fourplane_machine::{Look, NvmlProbe, inventory};
use tempfile::TempDir;
use units::Bytes;

use super::tree::{build, parse};
use super::{missing, value};
use crate::world::skip;

/// The directory with the stand-in; none where it cannot be built.
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<TempDir>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/standin_nvml.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(dir.path().join("libnvidia-ml.so.1"));
        match cc.arg(source).status() {
            Ok(status) => assert!(status.success(), "the stand-in does not build"),
            Err(_) => return None,
        }
        Some(dir)
    });
    built.as_ref().map(TempDir::path)
}

/// Asks a stand-in that behaves in this way, beside a tree.
fn ask(tree: &str, way: &str, timeout: Duration) -> Option<Inventory> {
    let Some(library) = library() else {
        skip("nvml", "there is no C compiler for the stand-in of NVIDIA's library");
        return None;
    };
    let mut setting = OsString::from("LD_LIBRARY_PATH=");
    setting.push(library);
    let args = vec![
        setting,
        format!("STANDIN={way}").into(),
        env!("CARGO_BIN_EXE_test-supervisor").into(),
        "nvml-probe".into(),
    ];
    let probe = NvmlProbe { program: PathBuf::from("env"), args, timeout };
    let root = build(&parse(tree));
    Some(inventory(&Look { root: root.path(), nvml: Some(&probe), own: None }).unwrap())
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn the_librarys_word_is_joined_by_pci_address() {
    let Some(seen) = ask("dgx-h100", "whole", LONG) else { return };
    let gpu = &seen.gpus[1];
    assert_eq!(gpu.key, Seen::new("GPU-5f1e0a11-0b1c-4d2e-8f30-a1b2c3d4e501".to_owned(), "NVML"));
    assert_eq!(value(&gpu.memory), Some(Bytes(85_520_809_984)));
    assert_eq!(value(&gpu.serial).unwrap(), "1650522003821");
    assert_eq!(value(&gpu.fabric), Some(GpuFabric { kind: "nvlink".to_owned(), active: 18, links: 18 }));
    assert_eq!(missing(&gpu.partition), "NVML: MIG is off");
    assert!(seen.gpus.iter().all(|gpu| gpu.unusable.is_none()), "{:?}", seen.findings);
    let cuda = seen.drivers.iter().find(|driver| driver.name == "cuda").unwrap();
    assert_eq!(value(&cuda.version).unwrap(), "12.2");
    let held = seen.outside.iter().find(|held| held.gpu.as_deref() == Some("0000:1b:00.0")).unwrap();
    assert_eq!((held.pid, &held.memory), (4711, &Seen::new(Bytes(1 << 30), "NVML")));
    assert_eq!(held.evidence, [Evidence::DriverList, Evidence::OpenFile]);
}

#[test]
fn mig_devices_are_children_with_whole_shares() {
    let Some(seen) = ask("h100-mig", "mig", LONG) else { return };
    assert_eq!(seen.gpus.len(), 1, "a part is no GPU");
    let gpu = &seen.gpus[0];
    assert_eq!(value(&gpu.key).unwrap(), "GPU-5f1e0a10-0b1c-4d2e-8f30-a1b2c3d4e500");
    let partition = value(&gpu.partition).unwrap();
    let parts: Vec<_> = partition
        .parts
        .iter()
        .map(|part| (value(&part.profile).unwrap(), part.share, value(&part.memory).unwrap().0 >> 20))
        .collect();
    assert_eq!(parts, [("3g.40gb".to_owned(), 428_572, 40_448), ("1g.10gb".to_owned(), 142_857, 9_856)]);
    assert_eq!(partition.partition_remainder, 428_571);
}

#[test]
fn a_lost_gpu_is_not_given_out() {
    let Some(seen) = ask("dgx-h100", "lost", LONG) else { return };
    let lost: Vec<_> = seen.gpus.iter().filter(|gpu| gpu.unusable.is_some()).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].pci.address, "0000:61:00.0");
    assert_eq!(lost[0].unusable.as_deref(), Some("NVML does not list 0000:61:00.0"));
    assert!(seen.findings.iter().any(|finding| finding.starts_with("NVML: GPU 3:")), "{:?}", seen.findings);
}

/// What is found where the library gives nothing: the driver's own files still name the GPUs.
fn nothing_from(way: &str, timeout: Duration) -> Option<(Inventory, String)> {
    let seen = ask("dgx-h100", way, timeout)?;
    assert_eq!(seen.gpus.len(), 8);
    assert!(seen.gpus.iter().all(|gpu| gpu.key.value().is_some() && gpu.memory.value().is_none()));
    let finding = seen.findings.iter().find(|finding| finding.starts_with("NVML: ")).unwrap().clone();
    Some((seen, finding))
}

#[test]
fn a_hung_driver_hangs_nobody() {
    let start = Instant::now();
    let Some((seen, finding)) = nothing_from("hang", Duration::from_millis(300)) else { return };
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(finding, "NVML: no answer within 300ms");
    assert!(seen.gpus.iter().all(|gpu| gpu.unusable.is_some()), "it would hang a job as well");
}

#[test]
fn whatever_ends_the_asking_process_is_told() {
    let check = |way: &str, expect: &str| {
        if let Some((seen, finding)) = nothing_from(way, LONG) {
            assert!(finding.contains(expect), "{way}: {finding}");
            assert!(seen.gpus.iter().all(|gpu| gpu.unusable.is_some()), "{way}: it would meet a job as well");
        }
    };
    check("crash", "signal: 11");
    check("refuse", "NVIDIA driver is not loaded");
    check("mumble", "answer not understood");
}

#[test]
fn a_missing_library_is_told() {
    let probe = NvmlProbe::new(env!("CARGO_BIN_EXE_test-supervisor").into(), &["nvml-probe"]);
    let root = build(&parse("dgx-h100"));
    let seen = inventory(&Look { root: root.path(), nvml: Some(&probe), own: None }).unwrap();
    // A machine with the library answers with its own GPUs, if it has any.
    if !seen.findings.iter().any(|finding| finding.contains("libnvidia-ml.so.1")) {
        skip("a_missing_library_is_told", "this machine has NVIDIA's library");
    }
}
