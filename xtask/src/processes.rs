//! What servers leave running by design.

use std::path::Path;

/// Pids of the supervisors and shims whose directory is in `state`.
pub(crate) fn supervisors(state: &Path) -> Vec<String> {
    let dir = state.join("node");
    let is_ours = |pid: &str| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = command.split(|byte| *byte == 0);
        words.any(|word| word == b"supervisor")
            && words.any(|word| word == dir.as_os_str().as_encoded_bytes())
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().into_string().ok()).filter(|pid| is_ours(pid)).collect()
}
