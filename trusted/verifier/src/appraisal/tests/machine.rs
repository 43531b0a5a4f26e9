//! A machine of the development TEE, whose every part a test can choose.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_development_tee::{CollateralOptions, Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::report_data::{ReportData, of_tls_key};
use cloister_evidence::{
    AttestationDocument, EventLog, EventLogEntry, ImageMeasurement, LaunchMeasurement, Measurement,
    PlatformEvidence, Registers, RuntimeEvent, VersionedAttestation, VmConfig,
};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::appraisal::{
    Appraisal, AttestedCertificate, Connection, Evidence, Expectations, ExpectedCompose, Nonce, appraise_with,
};
use crate::{Clock, Collateral, TrustRoots, Verifier};

pub(super) static NOW: LazyLock<Timestamp> = LazyLock::new(|| "2026-11-21T14:00:00Z".parse().unwrap());

pub(super) const COMPOSE: &str = r#"{"docker_compose_file":"services:\n  web:\n    image: hello\n","manifest_version":2,"name":"hello","pre_launch_script":"","runner":"docker-compose"}"#;
pub(super) const COMPOSE_FILE: &str = "services:\n  web:\n    image: hello\n";
pub(super) const APP_ID: AppId = AppId::from_bytes([0xA5; 20]);
pub(super) const KEY: &[u8] = b"the SubjectPublicKeyInfo of a TLS key";
pub(super) const NONCE: [u8; 32] = [0x4E; 32];

pub(super) struct Machine {
    pub(super) vendor: Vendor,
    pub(super) platform: Platform,
    pub(super) image: ImageMeasurement,
    pub(super) cpu_count: u32,
    pub(super) memory_size: u64,
    pub(super) mr_config_id: [u8; 48],
    pub(super) td_attributes: u64,
    pub(super) events: Vec<RuntimeEvent>,
    /// How many of the events were measured when the certificate was made.
    pub(super) certified_events: usize,
    pub(super) collateral: CollateralOptions,
}

impl Machine {
    pub(super) fn new() -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), *NOW).unwrap();
        let platform = platform(&vendor);
        let compose_hash = ComposeHash::of(COMPOSE.as_bytes());
        let mut mr_config_id = [0; 48];
        mr_config_id[0] = 1;
        mr_config_id[1..33].copy_from_slice(compose_hash.as_bytes());
        Self {
            vendor,
            platform,
            image: ImageMeasurement {
                firmware: Measurement::of("firmware"),
                kernel: Measurement::of("kernel"),
                initrd: Measurement::of("initrd"),
                cmdline: "console=ttyS0 cloister.rootfs_verity=00".to_owned(),
            },
            cpu_count: 2,
            memory_size: 2 << 30,
            mr_config_id,
            td_attributes: cloister_development_tee::SEPT_VE_DISABLE,
            events: vec![
                RuntimeEvent::new("system-preparing", []),
                RuntimeEvent::new("app-id", *APP_ID.as_bytes()),
                RuntimeEvent::new("compose-hash", *compose_hash.as_bytes()),
                RuntimeEvent::new("instance-id", [0x1D; 20]),
                RuntimeEvent::new("boot-mr-done", []),
                RuntimeEvent::new("key-provider", *br#"{"name":"none","id":""}"#),
                RuntimeEvent::new("storage-fs", *b"zfs"),
                RuntimeEvent::new("system-ready", []),
                RuntimeEvent::new("my-event", *b"hello"),
            ],
            certified_events: 5,
            collateral: CollateralOptions::at(*NOW),
        }
    }

    pub(super) fn at(&self, name: &str) -> usize {
        self.events.iter().position(|event| event.name == name).unwrap()
    }

    /// What the platform measured, with the events up to a number.
    fn log(&self, events: usize) -> (Vec<EventLogEntry>, Registers) {
        let launch = self.image.launch(self.cpu_count, self.memory_size);
        let mut entries = launch.events;
        entries.extend(self.events.iter().take(events).map(RuntimeEvent::entry));
        let [rtmr0, rtmr1, rtmr2, rtmr3] = EventLog::new(entries.clone()).replay().unwrap();
        (entries, Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 })
    }

    pub(super) fn quote(&self, events: usize, report_data: ReportData) -> Vec<u8> {
        let mut report = TdReport::new(self.log(events).1, self.mr_config_id, report_data);
        report.td_attributes = self.td_attributes;
        self.platform.quote(&report).unwrap()
    }

    pub(super) fn event_log(&self, events: usize) -> Vec<EventLogEntry> {
        self.log(events).0
    }

    pub(super) fn certificate(&self) -> AttestedCertificate {
        AttestedCertificate {
            public_key_info: KEY.to_vec(),
            quote: self.quote(self.certified_events, of_tls_key(KEY)),
            event_log: serde_json::to_string(&self.event_log(self.certified_events)).unwrap(),
            not_before: *NOW - SignedDuration::from_hours(1),
            not_after: *NOW + SignedDuration::from_hours(1),
        }
    }

    pub(super) fn evidence(&self) -> Evidence {
        let report_data = cloister_evidence::report_data::padded(&NONCE).unwrap();
        let quote = self.quote(self.events.len(), report_data);
        let attestation = VersionedAttestation {
            evidence: PlatformEvidence::Tdx {
                quote: quote.clone(),
                event_log: self.event_log(self.events.len()),
            },
            runtime_events: self.events.clone(),
            report_data,
            config: String::new(),
        };
        let document = AttestationDocument {
            attestation: Some(hex::encode(attestation.encode().unwrap())),
            quote: Some(hex::encode(quote)),
            event_log: serde_json::to_string(&self.event_log(self.events.len())).unwrap(),
            report_data: hex::encode(report_data),
            vm_config: serde_json::to_string(&vm_config(&self.image, self.cpu_count, self.memory_size))
                .unwrap(),
            app_compose: Some(COMPOSE.to_owned()),
            ..AttestationDocument::default()
        };
        Evidence { document, connection: Connection::Attested(self.certificate()) }
    }

    pub(super) fn expectations(&self) -> Expectations {
        let report_data = cloister_evidence::report_data::padded(&NONCE).unwrap();
        Expectations {
            app_id: Some(APP_ID),
            compose: Some(ExpectedCompose::Document(COMPOSE.as_bytes().to_vec())),
            os_image_hash: Some(os_image_hash(&self.image)),
            instance_id: Some(InstanceId::from_bytes([0x1D; 20])),
            nonce: Some(Nonce::Own(report_data)),
            ..Expectations::default()
        }
    }

    pub(super) fn verifier(&self) -> Verifier {
        let roots = TrustRoots::vendors().with_development_root(self.vendor.root_der()).unwrap();
        Verifier::offline(roots, Clock::fixed(*NOW))
    }

    pub(super) fn collateral(&self) -> Collateral {
        let collateral = self.vendor.collateral_with(&self.collateral).unwrap();
        serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap()
    }

    pub(super) fn appraise(&self, evidence: &Evidence, expectations: &Expectations) -> Appraisal {
        appraise_with(&self.verifier(), evidence, expectations, &self.collateral(), *NOW).appraisal
    }
}

pub(super) fn platform(vendor: &Vendor) -> Platform {
    let key = PlatformKey::generate().unwrap();
    let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), *NOW).unwrap();
    Platform::new(key, &chain).unwrap()
}

fn documents(image: &ImageMeasurement) -> (Vec<u8>, Vec<u8>) {
    let measurement = serde_json::to_vec(image).unwrap();
    let checksums = format!("{}  measurement.json\n", hex::encode(Sha256::digest(&measurement)));
    (checksums.into_bytes(), measurement)
}

pub(super) fn os_image_hash(image: &ImageMeasurement) -> OsImageHash {
    OsImageHash::from_bytes(Sha256::digest(documents(image).0).into())
}

/// What an honest node says about a machine.
pub(super) fn vm_config(image: &ImageMeasurement, cpu_count: u32, memory_size: u64) -> VmConfig {
    let (checksums, measurement) = documents(image);
    VmConfig {
        spec_version: 1,
        os_image_hash: os_image_hash(image),
        cpu_count,
        memory_size,
        image: Some("cloister-0.1.0".to_owned()),
        launch_measurement: Some(LaunchMeasurement {
            checksum_file: BASE64_STANDARD.encode(checksums),
            measurement: BASE64_STANDARD.encode(measurement),
        }),
    }
}
