//! A vendor, a platform and machines on it, all in memory; and test data of others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cloister_app_compose::AppId;
use cloister_development_tee::{CollateralOptions, Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::{
    EventLog, ImageMeasurement, Measurement, PlatformEvidence, Registers, RuntimeEvent, VersionedAttestation,
};
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralSource, CollateralSources, InProcess,
    TrustRoot, TrustRoots, Verifier,
};
use jiff::{SignedDuration, Timestamp};

use crate::{AttestedCertificate, AttestedKey, Evidence, Subject};

pub(super) const APP: u8 = 7;

pub(super) fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

pub(super) fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

pub(super) fn app(number: u8) -> AppId {
    AppId::from_bytes([number; 20])
}

pub(super) struct Lab {
    pub(super) vendor: Vendor,
    platform: Platform,
}

/// A key with its certificate.
pub(super) struct Holder {
    pub(super) key: AttestedKey,
    pub(super) certificate: AttestedCertificate,
}

pub(super) fn events(number: u8) -> Vec<RuntimeEvent> {
    vec![
        RuntimeEvent::new("system-preparing", []),
        RuntimeEvent::new("app-id", [number; 20]),
        RuntimeEvent::new("compose-hash", [number; 32]),
        RuntimeEvent::new("instance-id", [9; 20]),
        RuntimeEvent::new("boot-mr-done", []),
        RuntimeEvent::new("key-provider", *br#"{"name":"none","id":""}"#),
        RuntimeEvent::new("system-ready", []),
        RuntimeEvent::new("app-id", [0xEE; 20]),
    ]
}

/// The log of a machine that measured `events`, and its registers.
pub(super) fn measured(events: &[RuntimeEvent]) -> (EventLog, Registers) {
    let image = ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: "console=hvc0".to_owned(),
    };
    let launch = image.launch(2, 1 << 30);
    let log =
        EventLog::new(launch.events.into_iter().chain(events.iter().map(RuntimeEvent::entry)).collect());
    let [rtmr0, rtmr1, rtmr2, rtmr3] = log.replay().unwrap();
    (log, Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 })
}

pub(super) fn json(log: &EventLog) -> String {
    serde_json::to_string(log).unwrap()
}

impl Lab {
    pub(super) fn new() -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
        let key = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
        Self { platform: Platform::new(key, &chain).unwrap(), vendor }
    }

    pub(super) fn quote(&self, registers: Registers, key: &AttestedKey) -> Vec<u8> {
        self.platform.quote(&TdReport::new(registers, [0; 48], key.report_data())).unwrap()
    }

    pub(super) fn report(&self, report: &TdReport) -> Vec<u8> {
        self.platform.quote(report).unwrap()
    }

    /// Evidence of a machine that runs application `number`, for `key`, in all forms.
    pub(super) fn evidence(&self, key: &AttestedKey, number: u8) -> Evidence {
        let events = events(number);
        let (log, registers) = measured(&events);
        let quote = self.quote(registers, key);
        let attestation = VersionedAttestation {
            evidence: PlatformEvidence::Tdx { quote: quote.clone(), event_log: log.entries().to_vec() },
            runtime_events: events,
            report_data: key.report_data(),
            config: r#"{"spec_version":1}"#.to_owned(),
        };
        Evidence {
            quote: Some(quote),
            event_log: json(&log),
            attestation: Some(attestation.encode().unwrap()),
        }
    }

    pub(super) fn holder(&self, number: u8) -> Holder {
        let key = AttestedKey::generate().unwrap();
        let evidence = self.evidence(&key, number);
        Holder::with(key, &evidence)
    }

    /// A holder whose log says something else than its registers.
    pub(super) fn holder_with_log(
        &self,
        change: impl FnOnce(&mut Vec<cloister_evidence::EventLogEntry>),
    ) -> Holder {
        let key = AttestedKey::generate().unwrap();
        let (log, registers) = measured(&events(APP));
        let mut entries = log.entries().to_vec();
        change(&mut entries);
        let evidence = Evidence {
            quote: Some(self.quote(registers, &key)),
            event_log: json(&EventLog::new(entries)),
            attestation: None,
        };
        Holder::with(key, &evidence)
    }

    pub(super) fn collateral(&self, change: impl FnOnce(&mut CollateralOptions)) -> Collateral {
        let mut options = CollateralOptions::at(now());
        change(&mut options);
        let collateral = self.vendor.collateral_with(&options).unwrap();
        serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap()
    }

    pub(super) fn verifier(&self) -> Verifier {
        self.verifier_at(Clock::fixed(now()))
    }

    pub(super) fn verifier_at(&self, clock: Clock) -> Verifier {
        let collateral = self.collateral(|_| {});
        self.verifier_with(InProcess::new(move |_| Ok::<_, CollateralError>(collateral.clone())), clock)
    }

    pub(super) fn verifier_with(&self, source: impl CollateralSource, clock: Clock) -> Verifier {
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache: Arc<CollateralCache> = CollateralCache::start(sources, clock.clone()).unwrap();
        Verifier::new(
            TrustRoots::vendors().with_development_root(self.vendor.root_der()).unwrap(),
            cache,
            clock,
        )
    }
}

pub(super) fn subject() -> Subject {
    Subject::new("a machine", vec!["app.example".to_owned()], now() - days(1), now() + days(1))
}

impl Holder {
    pub(super) fn with(key: AttestedKey, evidence: &Evidence) -> Self {
        let certificate = key.certificate(evidence, &subject(), None).unwrap();
        Self { key, certificate }
    }
}

/// The folder of minted test data that does not belong to this repository; `None`, loudly, without it.
pub(super) fn minted() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata");
    let folder = std::env::var_os("CLOISTER_TESTDATA").map_or_else(beside, PathBuf::from).join("tdx/minted");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no test data at {}; name it by CLOISTER_TESTDATA", folder.display());
    None
}
