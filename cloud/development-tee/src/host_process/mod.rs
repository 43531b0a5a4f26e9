//! A process of the host that is measured as if it were a confidential machine of its own, so that
//! services which run as applications in production run as plain processes in development, with the same
//! code and the same verification on the other side.
//!
//! The machine's image is the process's executable: it stands where the firmware stands, and the image
//! has nothing else. The way from `os_image_hash` to the registers is that of every image.

mod agent;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{
    Aggregates, EventLogEntry, ImageMeasurement, LaunchIdentity, LaunchMeasurement, Measurement,
    PlatformEvidence, Registers, RuntimeEvent, VersionedAttestation, VmConfig, event_name, mr_config_id_v1,
};
use sha2::{Digest as _, Sha256, Sha384};
use zeroize::Zeroizing;

use crate::TeeError;
use crate::platform::Platform;
use crate::report::TdReport;
use crate::sealing::SealingSecret;

pub use agent::HostProcessAgent;

/// The application of such a machine: there is no compose file, the executable is everything.
const DOCUMENT: &str = r#"{"manifest_version":2,"name":"host-process","runner":"host-process"}"#;
/// Nobody gave this application its keys.
const KEY_PROVIDER: &str = r#"{"name":"none","id":""}"#;
/// How much of an executable is read at a time, in bytes.
const READ_BYTES: usize = 256 << 10;
/// Name of the image in the machine's description.
const IMAGE: &str = "host-process";

/// The machine that one process of the host passes for.
#[derive(Debug)]
pub struct HostProcess {
    registers: Registers,
    mr_config_id: Measurement,
    event_log: Vec<EventLogEntry>,
    runtime_events: Vec<RuntimeEvent>,
    app_id: AppId,
    compose_hash: ComposeHash,
    os_image_hash: OsImageHash,
    vm_config: String,
    sealing: SealingSecret,
}

impl HostProcess {
    /// Measures an executable file. Its sealing keys come from a secret in `dir`, which is made at first
    /// use and belongs to the platform. Reads the whole file: blocks for as long as that takes.
    pub fn measure(dir: &Path, executable: &Path) -> Result<Self, TeeError> {
        let firmware =
            digest(executable).map_err(|source| TeeError::File { path: executable.to_owned(), source })?;
        let nothing = Measurement::of([]);
        let image = ImageMeasurement { firmware, kernel: nothing, initrd: nothing, cmdline: String::new() };
        let (vm_config, os_image_hash) = describe(&image)?;
        let compose_hash = ComposeHash::from_bytes(Sha256::digest(DOCUMENT).into());
        let app_id = AppId::from_compose_hash(&compose_hash);
        let runtime_events = vec![
            RuntimeEvent::new(event_name::SYSTEM_PREPARING, []),
            RuntimeEvent::new(event_name::APP_ID, *app_id.as_bytes()),
            RuntimeEvent::new(event_name::COMPOSE_HASH, *compose_hash.as_bytes()),
            RuntimeEvent::new(event_name::INSTANCE_ID, []),
            RuntimeEvent::new(event_name::BOOT_MR_DONE, []),
            RuntimeEvent::new(event_name::KEY_PROVIDER, KEY_PROVIDER),
            RuntimeEvent::new(event_name::SYSTEM_READY, []),
        ];
        let launch = image.launch(vm_config.cpu_count, vm_config.memory_size);
        let [rtmr0, rtmr1, rtmr2] = launch.rtmr;
        let rtmr3 =
            runtime_events.iter().fold(Measurement::ZERO, |rtmr, event| rtmr.extended_by(&event.digest()));
        let mut event_log = launch.events;
        event_log.extend(runtime_events.iter().map(RuntimeEvent::entry));
        Ok(Self {
            registers: Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 },
            mr_config_id: mr_config_id_v1(&compose_hash),
            event_log,
            runtime_events,
            app_id,
            compose_hash,
            os_image_hash,
            vm_config: serde_json::to_string(&vm_config).map_err(TeeError::Document)?,
            sealing: SealingSecret::load_or_create(dir)?,
        })
    }

    /// The machine's description, as its evidence goes with it: JSON text of a
    /// [`VmConfig`] with the documents of the image.
    #[must_use]
    pub fn vm_config(&self) -> &str {
        &self.vm_config
    }

    /// What was measured, launch and runtime.
    #[must_use]
    pub fn event_log(&self) -> &[EventLogEntry] {
        &self.event_log
    }

    /// The registers; they do not change while the process runs.
    #[must_use]
    pub const fn registers(&self) -> &Registers {
        &self.registers
    }

    /// One hash for everything that was measured: what a policy names this machine by.
    #[must_use]
    pub fn mr_aggregated(&self) -> [u8; 32] {
        let launch = LaunchIdentity { config_id: self.mr_config_id, ..LaunchIdentity::NONE };
        Aggregates::new(&self.registers, &launch, Some(KEY_PROVIDER.as_bytes())).mr_aggregated
    }

    /// A quote over `report_data`.
    pub fn quote(&self, platform: &Platform, report_data: &ReportData) -> Result<Vec<u8>, TeeError> {
        platform.quote(&TdReport::new(self.registers, *self.mr_config_id.as_bytes(), *report_data))
    }

    /// The same as a versioned attestation.
    pub fn attest(&self, platform: &Platform, report_data: &ReportData) -> Result<Vec<u8>, TeeError> {
        let evidence = PlatformEvidence::Tdx {
            quote: self.quote(platform, report_data)?,
            event_log: self.event_log.clone(),
        };
        let attestation = VersionedAttestation {
            evidence,
            runtime_events: self.runtime_events.clone(),
            report_data: *report_data,
            config: self.vm_config.clone(),
        };
        attestation.encode().map_err(|_| TeeError::Malformed("the evidence makes no versioned attestation"))
    }

    /// A key to seal secrets with, the same for every executable on this platform; path and purpose have
    /// at most 256 bytes.
    pub fn sealing_key(&self, path: &str, purpose: &str) -> Result<Zeroizing<[u8; 32]>, TeeError> {
        self.sealing.key(path, purpose)
    }
}

/// SHA-384 of a file.
fn digest(path: &Path) -> io::Result<Measurement> {
    let mut reader = BufReader::with_capacity(READ_BYTES, File::open(path)?);
    let mut hasher = Sha384::new();
    loop {
        let read = reader.fill_buf()?;
        if read.is_empty() {
            break;
        }
        hasher.update(read);
        let length = read.len();
        reader.consume(length);
    }
    Ok(Measurement::from_bytes(hasher.finalize().into()))
}

/// The documents that lead from a hash to the registers. A process has no CPUs and no memory of its own,
/// so its measurement is the same on every host.
fn describe(image: &ImageMeasurement) -> Result<(VmConfig, OsImageHash), TeeError> {
    let measurement = serde_json::to_vec(image).map_err(TeeError::Document)?;
    let checksums = format!("{}  measurement.json\n", hex::encode(Sha256::digest(&measurement)));
    let os_image_hash = OsImageHash::from_bytes(Sha256::digest(&checksums).into());
    let documents = LaunchMeasurement {
        checksum_file: BASE64_STANDARD.encode(checksums),
        measurement: BASE64_STANDARD.encode(measurement),
    };
    let vm_config = VmConfig {
        spec_version: 1,
        os_image_hash,
        cpu_count: 1,
        memory_size: 0,
        image: Some(IMAGE.to_owned()),
        launch_measurement: Some(documents),
    };
    Ok((vm_config, os_image_hash))
}
