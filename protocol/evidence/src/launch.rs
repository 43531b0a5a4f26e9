//! What a launch measures, and how a relying party computes the registers of a machine that it expects.
//!
//! Machines of the development TEE measure by these rules; each register is SHA-384-extended from zeros:
//!
//! | Register | Measured |
//! |---|---|
//! | MRTD | SHA-384 of the firmware file (not an extension) |
//! | RTMR 0 | one event of type 0x0A: SHA-384 of `{"cpu_count":N,"memory_size":BYTES}` |
//! | RTMR 1 | one event of type 0x80000003: SHA-384 of the kernel file |
//! | RTMR 2 | two events of type 6: the command line (UTF-16LE with NUL, text `<cmdline> initrd=initrd`), the initial RAM disk |
//!
//! The order and the contents of RTMR 2 are those of the platform (platform reference, section 4.1).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::OsImageHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{EventLogEntry, Measurement};

/// Name of the measurement document in an image, and in its `sha256sum.txt`.
const MEASUREMENT_FILE: &str = "measurement.json";

const PLATFORM_CONFIG_FLAGS: u32 = 0x0000_000A;
const BOOT_SERVICES_APPLICATION: u32 = 0x8000_0003;
const EVENT_TAG: u32 = 6;

/// What an image makes a launch measure: `measurement.json` of the image, which its `sha256sum.txt`, and
/// so its `os_image_hash`, covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageMeasurement {
    /// SHA-384 of the firmware.
    pub firmware: Measurement,
    /// SHA-384 of the kernel.
    pub kernel: Measurement,
    /// SHA-384 of the initial RAM disk.
    pub initrd: Measurement,
    /// Kernel command line, which names the root of the root file system's hash tree.
    pub cmdline: String,
}

/// What a launch left in the registers, and the log of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRegisters {
    /// Firmware.
    pub mrtd: Measurement,
    /// RTMR 0, 1 and 2.
    pub rtmr: [Measurement; 3],
    /// The events behind RTMR 0 to 2.
    pub events: Vec<EventLogEntry>,
}

impl ImageMeasurement {
    /// The registers of a machine that boots this image with `cpu_count` CPUs and `memory_size` bytes.
    #[must_use]
    pub fn launch(&self, cpu_count: u32, memory_size: u64) -> LaunchRegisters {
        let shape = format!(r#"{{"cpu_count":{cpu_count},"memory_size":{memory_size}}}"#);
        let cmdline: Vec<u8> =
            format!("{} initrd=initrd\0", self.cmdline).encode_utf16().flat_map(u16::to_le_bytes).collect();
        let measured = [
            (0, PLATFORM_CONFIG_FLAGS, Measurement::of(&shape), hex::encode(&shape)),
            (1, BOOT_SERVICES_APPLICATION, self.kernel, String::new()),
            (2, EVENT_TAG, Measurement::of(&cmdline), hex::encode(&cmdline)),
            (2, EVENT_TAG, self.initrd, String::new()),
        ];
        let mut rtmr = [Measurement::ZERO; 3];
        let mut events = Vec::new();
        for (imr, event_type, digest, event_payload) in measured {
            for (_, register) in rtmr.iter_mut().enumerate().filter(|(index, _)| *index == imr) {
                *register = register.extended_by(&digest);
            }
            events.push(EventLogEntry {
                imr: u32::try_from(imr).unwrap_or_default(),
                event_type,
                digest: digest.to_string(),
                event: String::new(),
                event_payload,
                version: None,
                preimage: None,
            });
        }
        LaunchRegisters { mrtd: self.firmware, rtmr, events }
    }
}

/// What the node says about a machine: untrusted, since a lie makes the comparison of registers fail
/// (platform reference, section 4.6). A JSON text on every wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmConfig {
    /// 1.
    pub spec_version: u32,
    /// The image.
    pub os_image_hash: OsImageHash,
    /// Virtual CPUs.
    pub cpu_count: u32,
    /// Memory in bytes.
    pub memory_size: u64,
    /// Name of the image, such as `cloister-0.1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The image's documents that lead from its hash to the registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_measurement: Option<LaunchMeasurement>,
}

/// Documents of an image, base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchMeasurement {
    /// `sha256sum.txt`.
    pub checksum_file: String,
    /// `measurement.json`.
    pub measurement: String,
}

/// Why a machine's description proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VmConfigError {
    /// It lacks the documents.
    #[error("the description carries no measurement of the image")]
    NoMeasurement,
    /// They cannot be read.
    #[error("{0} of the image is malformed")]
    Malformed(&'static str),
    /// `sha256sum.txt` is not that of the image.
    #[error("the list of files does not have the image's hash")]
    ChecksumFile,
    /// `measurement.json` is not the one in the list.
    #[error("the measurement of the image is not the one that its list of files covers")]
    Measurement,
}

impl VmConfig {
    /// The image's measurement, after its way from `os_image_hash` was checked: the hash covers the list
    /// of files, the list covers the measurement.
    pub fn image_measurement(&self) -> Result<ImageMeasurement, VmConfigError> {
        let documents = self.launch_measurement.as_ref().ok_or(VmConfigError::NoMeasurement)?;
        let decode =
            |text: &str, name| BASE64_STANDARD.decode(text).map_err(|_| VmConfigError::Malformed(name));
        let checksums = decode(&documents.checksum_file, "sha256sum.txt")?;
        let measurement = decode(&documents.measurement, MEASUREMENT_FILE)?;
        if Sha256::digest(&checksums).as_slice() != self.os_image_hash.as_bytes() {
            return Err(VmConfigError::ChecksumFile);
        }
        let checksums =
            std::str::from_utf8(&checksums).map_err(|_| VmConfigError::Malformed("sha256sum.txt"))?;
        let line = format!("{}  {MEASUREMENT_FILE}", hex::encode(Sha256::digest(&measurement)));
        if !checksums.lines().any(|listed| listed == line) {
            return Err(VmConfigError::Measurement);
        }
        serde_json::from_slice(&measurement).map_err(|_| VmConfigError::Malformed(MEASUREMENT_FILE))
    }
}
