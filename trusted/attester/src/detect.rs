//! Finding out what protects this machine.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cloister_guest_channel::tee;

use crate::development::Development;
use crate::hardware::{Hardware, HardwareError, Platform};
use crate::nitro::Nitro;
use crate::tsm::Tsm;

const PORTS: &str = "sys/class/virtio-ports";
/// The kernel learns about ports some time after the driver was loaded.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
const PORT_PAUSE: Duration = Duration::from_millis(5);
/// What the kernel says about CPUs; one CPU's flags are enough.
const MAX_CPU_INFO_BYTES: u64 = 16 << 10;

/// Why there is no evidence of this machine.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// The hardware is there, and its interface does not work.
    #[error("this machine runs on {platform}, which cannot be used")]
    Unusable {
        /// What was found.
        platform: Platform,
        /// What is wrong.
        source: HardwareError,
    },
    /// Nothing protects this machine.
    #[error(
        "nothing here can prove what this machine is: no TDX, SEV-SNP or Nitro device, and no development TEE port"
    )]
    Nothing,
    /// The port to the node cannot be opened.
    #[error("cannot open the port of the development TEE")]
    Port(#[source] io::Error),
    /// No thread for it.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// The hardware that is present below `root`, whether usable or not.
fn hardware(root: &Path) -> Option<Platform> {
    let exists = |path: &str| root.join(path).exists();
    if exists("dev/tdx_guest")
        || exists("sys/devices/virtual/misc/tdx_guest")
        || has_cpu_flag(root, "tdx_guest")
    {
        Some(Platform::Tdx)
    } else if exists("dev/sev-guest")
        || exists("sys/devices/virtual/misc/sev-guest")
        || exists("sys/devices/system/cpu/sev")
    {
        Some(Platform::SevSnp)
    } else if exists("dev/nsm") {
        Some(Platform::Nitro)
    } else {
        None
    }
}

fn has_cpu_flag(root: &Path, flag: &str) -> bool {
    use std::io::Read as _;
    let mut text = Vec::new();
    let read = File::open(root.join("proc/cpuinfo"))
        .and_then(|file| file.take(MAX_CPU_INFO_BYTES).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().filter(|line| line.starts_with("flags"));
    read.is_ok() && lines.any(|line| line.split_whitespace().any(|word| word == flag))
}

/// Opens what protects the machine below `root`. Blocks for at most the patience for a port.
pub(crate) fn open(root: &Path) -> Result<Box<dyn Hardware>, DetectError> {
    let Some(platform) = hardware(root) else {
        return development(root).map(|development| Box::new(development) as Box<dyn Hardware>);
    };
    let opened = match platform {
        Platform::Nitro => Nitro::open().map(|nitro| Box::new(nitro) as Box<dyn Hardware>),
        _ => Tsm::open(root, platform).map(|tsm| Box::new(tsm) as Box<dyn Hardware>),
    };
    opened.map_err(|source| DetectError::Unusable { platform, source })
}

fn development(root: &Path) -> Result<Development, DetectError> {
    let port = await_port(root).ok_or(DetectError::Nothing)?;
    let writer = OpenOptions::new().read(true).write(true).open(port).map_err(DetectError::Port)?;
    let reader = writer.try_clone().map_err(DetectError::Port)?;
    Development::start(reader, writer).map_err(DetectError::Thread)
}

fn await_port(root: &Path) -> Option<PathBuf> {
    let started = Instant::now();
    loop {
        if let Some(port) = find_port(root) {
            return Some(port);
        }
        if started.elapsed() >= PORT_PATIENCE || !root.join(PORTS).exists() {
            return None;
        }
        thread::sleep(PORT_PAUSE);
    }
}

fn find_port(root: &Path) -> Option<PathBuf> {
    let named = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == tee::PORT)
    };
    let port = fs::read_dir(root.join(PORTS)).ok()?.flatten().find(named)?;
    Some(root.join("dev").join(port.file_name()))
}
