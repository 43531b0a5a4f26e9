//! A machine of the development TEE.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_development_tee::{CollateralOptions, Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::{
    EventLog, ImageMeasurement, LaunchMeasurement, Measurement, Registers, RuntimeEvent, VmConfig,
};
use cloister_verifier::appraisal::ExpectedRegisters;
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, TrustRoot, TrustRoots,
    Verifier,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

const CPUS: u32 = 2;
const MEMORY: u64 = 2 << 30;
/// Public key of the certificate authority of the KMS that keys come from, hex.
pub(crate) const KEY_PROVIDER: &str = "3059301306072a8648ce3d0201";

/// A platform, its vendor, and the image that it boots.
pub(crate) struct Machine {
    pub(crate) vendor: Vendor,
    /// What the vendor says of the platform.
    pub(crate) collateral: Mutex<CollateralOptions>,
    platform: Platform,
    pub(crate) image: ImageMeasurement,
}

/// Its evidence.
pub(crate) struct Minted {
    /// Hex.
    pub(crate) quote: String,
    /// JSON.
    pub(crate) event_log: String,
    /// JSON.
    pub(crate) vm_config: String,
}

/// What a platform measures of an application whose keys come from the KMS.
pub(crate) fn events(app_id: &AppId, app_compose: &str) -> Vec<RuntimeEvent> {
    vec![
        RuntimeEvent::new("system-preparing", []),
        RuntimeEvent::new("app-id", *app_id.as_bytes()),
        RuntimeEvent::new("compose-hash", *ComposeHash::of(app_compose.as_bytes()).as_bytes()),
        RuntimeEvent::new("instance-id", [0x1D; 20]),
        RuntimeEvent::new("boot-mr-done", []),
        RuntimeEvent::new("key-provider", key_provider("kms", KEY_PROVIDER)),
        RuntimeEvent::new("system-ready", []),
    ]
}

/// What is measured of a provider of keys.
pub(crate) fn key_provider(name: &str, id: &str) -> Vec<u8> {
    format!(r#"{{"name":"{name}","id":"{id}"}}"#).into_bytes()
}

/// The launch configuration that names a compose document.
pub(crate) fn mr_config_id(app_compose: &str) -> [u8; 48] {
    *cloister_evidence::mr_config_id_v1(&ComposeHash::of(app_compose.as_bytes())).as_bytes()
}

pub(crate) fn image(kernel: &str) -> ImageMeasurement {
    ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of(kernel),
        initrd: Measurement::of("initrd"),
        cmdline: "console=ttyS0".to_owned(),
    }
}

/// The hash by which an image is accepted.
pub(crate) fn image_hash(image: &ImageMeasurement) -> String {
    vm_config(image).os_image_hash.to_string()
}

/// The registers by which a boot of an image is accepted.
pub(crate) fn boot(image: &ImageMeasurement) -> ExpectedRegisters {
    let launch = image.launch(CPUS, MEMORY);
    let [rtmr0, rtmr1, rtmr2] = launch.rtmr.map(Some);
    ExpectedRegisters { mrtd: Some(launch.mrtd), rtmr0, rtmr1, rtmr2 }
}

impl Machine {
    pub(crate) fn new(now: Timestamp) -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), now).unwrap();
        let key = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now).unwrap();
        Self {
            platform: Platform::new(key, &chain).unwrap(),
            collateral: Mutex::new(CollateralOptions::at(now)),
            vendor,
            image: image("kernel"),
        }
    }

    /// Evidence over `report_data` of a machine that booted an image and measured these events. `change` sets what
    /// else its quote says.
    pub(crate) fn evidence(
        &self,
        image: &ImageMeasurement,
        events: &[RuntimeEvent],
        report_data: [u8; 64],
        change: impl FnOnce(&mut TdReport),
    ) -> Minted {
        let launch = image.launch(CPUS, MEMORY);
        let entries = launch.events.into_iter().chain(events.iter().map(RuntimeEvent::entry));
        let log = EventLog::new(entries.collect());
        let [rtmr0, rtmr1, rtmr2, rtmr3] = log.replay().unwrap();
        let registers = Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 };
        let mut body = TdReport::new(registers, [0; 48], report_data);
        change(&mut body);
        Minted {
            quote: hex::encode(self.platform.quote(&body).unwrap()),
            event_log: serde_json::to_string(&log).unwrap(),
            vm_config: serde_json::to_string(&vm_config(image)).unwrap(),
        }
    }

    /// A verifier that trusts the vendor.
    pub(crate) fn verifier(self: &Arc<Self>, clock: Clock) -> Verifier {
        let this = Arc::clone(self);
        let source = InProcess::new(move |_| Ok::<_, CollateralError>(this.made()));
        let cache = CollateralCache::start(
            CollateralSources::new().with(TrustRoot::Development, source),
            clock.clone(),
        );
        let roots = TrustRoots::vendors().with_development_root(self.vendor.root_der()).unwrap();
        Verifier::new(roots, cache.unwrap(), clock)
    }

    fn made(&self) -> Collateral {
        let collateral = self.vendor.collateral_with(&self.collateral.lock()).unwrap();
        serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap()
    }
}

fn vm_config(image: &ImageMeasurement) -> VmConfig {
    let measurement = serde_json::to_vec(image).unwrap();
    let checksums = format!("{}  measurement.json\n", hex::encode(Sha256::digest(&measurement)));
    VmConfig {
        spec_version: 1,
        os_image_hash: OsImageHash::from_bytes(Sha256::digest(&checksums).into()),
        cpu_count: CPUS,
        memory_size: MEMORY,
        image: None,
        launch_measurement: Some(LaunchMeasurement {
            checksum_file: BASE64_STANDARD.encode(checksums),
            measurement: BASE64_STANDARD.encode(measurement),
        }),
    }
}
