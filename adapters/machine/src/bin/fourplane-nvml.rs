//! Asks NVIDIA's library, for a `fourplane` that is linked statically and cannot load it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fourplane_machine::nvml_main()
}
