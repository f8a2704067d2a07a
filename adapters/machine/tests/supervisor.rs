//! A supervisor alone: `test-supervisor supervisor --dir DIR`; or the process that asks NVIDIA's
//! library: `test-supervisor nvml-probe`.

use std::path::PathBuf;
use std::process::ExitCode;

use fourplane_machine::{SupervisorConfig, nvml_main, supervisor_main};

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "nvml-probe") {
        return nvml_main();
    }
    let dir = std::env::args_os().nth(3).map(PathBuf::from).unwrap_or_default();
    let mut config = SupervisorConfig::new(dir);
    config.leak_after = 300_000_000;
    config.doubt = 1_000_000_000;
    config.pids_max = 64;
    if let Some(devices) = std::env::var_os("FOURPLANE_TEST_DEVICES") {
        config.devices = PathBuf::from(devices);
        config.nvidia = PathBuf::new();
    }
    supervisor_main(config)
}
