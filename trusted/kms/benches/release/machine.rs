//! A machine that boots and asks for keys.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::OsImageHash;
use cloister_evidence::{
    EventLog, ImageMeasurement, LaunchMeasurement, Measurement, Registers, RuntimeEvent, VmConfig,
};
use cloister_ra_tls::{AttestedCertificate, AttestedKey, Evidence, Subject};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::Outcome;

/// Application and compose hash of all machines.
pub(crate) const APP: [u8; 20] = [7; 20];
pub(crate) const COMPOSE_HASH: [u8; 32] = [7; 32];

pub(crate) struct Machine {
    image: ImageMeasurement,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let image = ImageMeasurement {
            firmware: Measurement::of("firmware"),
            kernel: Measurement::of("kernel"),
            initrd: Measurement::of("initrd"),
            cmdline: "console=hvc0 root=/dev/dm-0".to_owned(),
        };
        Self { image }
    }

    /// What its node says of it.
    pub(crate) fn vm_config(&self) -> Outcome<String> {
        let measurement = serde_json::to_vec(&self.image)?;
        let checksums = format!("{}  measurement.json\n", hex::encode(Sha256::digest(&measurement)));
        Ok(serde_json::to_string(&VmConfig {
            spec_version: 1,
            os_image_hash: OsImageHash::from_bytes(Sha256::digest(&checksums).into()),
            cpu_count: 2,
            memory_size: 1 << 30,
            image: Some("cloister-0.1.0".to_owned()),
            launch_measurement: Some(LaunchMeasurement {
                checksum_file: BASE64_STANDARD.encode(&checksums),
                measurement: BASE64_STANDARD.encode(&measurement),
            }),
        })?)
    }

    /// What it measured, and its registers.
    pub(crate) fn measured(&self) -> Outcome<(EventLog, Registers)> {
        let launch = self.image.launch(2, 1 << 30);
        let events = [
            RuntimeEvent::new("system-preparing", []),
            RuntimeEvent::new("app-id", APP),
            RuntimeEvent::new("compose-hash", COMPOSE_HASH),
            RuntimeEvent::new("instance-id", [9; 20]),
            RuntimeEvent::new("boot-mr-done", []),
        ];
        let entries = launch.events.into_iter().chain(events.iter().map(RuntimeEvent::entry));
        let log = EventLog::new(entries.collect());
        let [rtmr0, rtmr1, rtmr2, rtmr3] = log.replay()?;
        Ok((log, Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 }))
    }
}

/// A certificate for `key` that carries this quote.
pub(crate) fn evidence_of(
    machine: &Machine,
    key: &AttestedKey,
    quote: Vec<u8>,
) -> Outcome<AttestedCertificate> {
    let event_log = serde_json::to_string(&machine.measured()?.0)?;
    let evidence = Evidence { quote: Some(quote), event_log, attestation: None };
    let (now, day) = (Timestamp::now(), SignedDuration::from_hours(24));
    let subject = Subject::new("a machine", vec!["guest".to_owned()], now - day, now + day);
    Ok(key.certificate(&evidence, &subject, None)?)
}
