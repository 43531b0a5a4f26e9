//! The virtual machines that the operating system really runs.

use std::fs;

/// Process ids of the QEMU processes that run the VM with this UUID.
#[must_use]
pub fn processes_of(vm_uuid: &str) -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut arguments = command_line.split(|byte| *byte == 0);
            let is_qemu = arguments
                .next()
                .is_some_and(|program| program.windows(11).any(|window| window == b"qemu-system"));
            is_qemu && arguments.any(|argument| String::from_utf8_lossy(argument).contains(vm_uuid))
        })
        .collect()
}
