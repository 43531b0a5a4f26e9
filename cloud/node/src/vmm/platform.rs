//! Which hypervisor the host has, and how it can run VMs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cloister_node_api::Platform;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::files;

/// Longest time that the probe guest may take; a usable host needs a few hundredths of a second.
const PROBE_LIMIT: Duration = Duration::from_secs(4);
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// Exit status of the probe guest: it writes 0x10 to the exit device, which answers `value * 2 + 1`.
const PROBE_STATUS: i32 = 0x21;

/// Why no hypervisor could be found.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The program is not there.
    #[error("{} is not installed: install the package qemu-system-x86 (Debian: apt-get install qemu-system-x86)", .0.display())]
    Missing(PathBuf),
    /// It is there and does not run.
    #[error("{} does not run; reinstall the package qemu-system-x86", .0.display())]
    Broken(PathBuf),
    /// The operator asks for a platform that this host does not have.
    #[error(
        "the host cannot run {0:?} guests: check the firmware's settings and the kernel's support, or configure another platform"
    )]
    Unavailable(Platform),
    /// The answer or the probe could not be written.
    #[error("cannot probe the host")]
    Io(#[from] io::Error),
}

/// The hypervisor of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hypervisor {
    /// Program to start.
    pub(crate) program: PathBuf,
    /// First line of what it says about its version.
    pub(crate) version: String,
    /// How it runs VMs here.
    pub(crate) platform: Platform,
}

/// A probe's answer and what it depends on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    kernel: String,
    version: String,
    platform: Platform,
}

impl Hypervisor {
    /// Finds the hypervisor `program`. The best platform is taken, or `wanted` if the operator named one;
    /// the probe's answer is remembered in `memory` for as long as kernel and program are the same.
    pub(crate) async fn find(
        program: &Path,
        wanted: Option<Platform>,
        memory: &Path,
    ) -> Result<Self, PlatformError> {
        let version = version(program).await?;
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let platform = match wanted {
            Some(wanted) if is_available(wanted, program, memory).await? => wanted,
            Some(wanted) => return Err(PlatformError::Unavailable(wanted)),
            None => {
                let known = files::read_json::<Answer>(memory).ok().flatten();
                let known = known.filter(|answer| answer.kernel == kernel && answer.version == version);
                if let Some(answer) = known {
                    answer.platform
                } else {
                    let platform = best(program, memory).await?;
                    files::write_json(memory, &Answer { kernel, version: version.clone(), platform })?;
                    platform
                }
            }
        };
        Ok(Self { program: program.to_owned(), version, platform })
    }
}

async fn best(program: &Path, memory: &Path) -> Result<Platform, PlatformError> {
    for platform in [Platform::Tdx, Platform::SevSnp, Platform::Kvm] {
        if is_available(platform, program, memory).await? {
            return Ok(platform);
        }
    }
    Ok(Platform::Emulation)
}

async fn is_available(platform: Platform, program: &Path, memory: &Path) -> Result<bool, PlatformError> {
    let module_has = |parameter: &str| {
        fs::read_to_string(Path::new("/sys/module").join(parameter))
            .is_ok_and(|value| matches!(value.trim(), "Y" | "1"))
    };
    Ok(match platform {
        Platform::Tdx => module_has("kvm_intel/parameters/tdx") && has_object(program, "tdx-guest").await,
        Platform::SevSnp => {
            module_has("kvm_amd/parameters/sev_snp") && has_object(program, "sev-snp-guest").await
        }
        // The device may exist where no guest runs, or none at a usable speed.
        Platform::Kvm => {
            Path::new("/dev/kvm").exists()
                && runs_probe(program, &["-accel", "kvm", "-cpu", "host"], memory).await?
        }
        Platform::Emulation => true,
    })
}

async fn version(program: &Path) -> Result<String, PlatformError> {
    let broken = || PlatformError::Broken(program.to_owned());
    let run = Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match tokio::time::timeout(VERSION_LIMIT, run).await.map_err(|_| broken())? {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(PlatformError::Missing(program.to_owned()));
        }
        other => other.map_err(|_| broken())?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().filter(|_| output.status.success()).map(str::to_owned).ok_or_else(broken)
}

async fn has_object(program: &Path, name: &str) -> bool {
    let run =
        Command::new(program).args(["-object", "help"]).stdin(Stdio::null()).kill_on_drop(true).output();
    match tokio::time::timeout(VERSION_LIMIT, run).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim() == name),
        _ => false,
    }
}

/// A 64 KiB firmware whose reset vector counts down from fifty million and leaves through the exit
/// device. Without usable virtualisation the count takes longer than the limit.
fn probe_firmware() -> Vec<u8> {
    const RESET_VECTOR: [u8; 16] = [
        0x66, 0xb9, 0x80, 0xf0, 0xfa, 0x02, // mov ecx, 50_000_000
        0x66, 0x49, // dec ecx
        0x75, 0xfc, // jnz the line above
        0xb0, 0x10, // mov al, 0x10
        0xe6, 0xf4, // out 0xf4, al
        0xf4, 0xf4, // hlt
    ];
    let mut firmware = vec![0xf4; 64 * 1024 - RESET_VECTOR.len()];
    firmware.extend(RESET_VECTOR);
    firmware
}

async fn runs_probe(program: &Path, accelerator: &[&str], memory: &Path) -> io::Result<bool> {
    let firmware = memory.with_extension("probe");
    fs::write(&firmware, probe_firmware())?;
    let probe = Command::new(program)
        .args(accelerator)
        .args(["-machine", "q35", "-m", "64", "-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-bios"])
        .arg(&firmware)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    let answer = tokio::time::timeout(PROBE_LIMIT, probe).await;
    fs::remove_file(&firmware)?;
    Ok(matches!(answer, Ok(Ok(status)) if status.code() == Some(PROBE_STATUS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_program_names_the_package() {
        let dir = tempfile::tempdir().unwrap();
        let error = Hypervisor::find(Path::new("/nowhere/qemu"), None, &dir.path().join("platform.json"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("apt-get install qemu-system-x86"), "{error}");
    }

    #[tokio::test]
    async fn the_probe_guest_runs_under_emulation_and_not_on_a_broken_accelerator() {
        let program = Path::new("qemu-system-x86_64");
        if version(program).await.is_err() {
            println!("SKIPPED: qemu-system-x86_64 is not installed");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("platform.json");
        assert!(runs_probe(program, &["-accel", "tcg", "-cpu", "max"], &memory).await.unwrap());
        assert!(!runs_probe(program, &["-accel", "none-such"], &memory).await.unwrap());
    }
}
