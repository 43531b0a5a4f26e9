//! The development TEE that the tests' CVMs run in, and its vendor.

use std::sync::Arc;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_development_tee::{CollateralOptions, Platform, PlatformKey, TdReport, Vendor};
use cloister_evidence::{AttestationDocument, EventLog, Measurement, Registers, RuntimeEvent};
use cloister_verifier::{
    Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, TrustRoot, TrustRoots,
    Verifier,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::clock::Clock;

/// What the vendor says.
#[derive(Clone)]
pub(super) struct Says {
    pub(super) status: &'static str,
    pub(super) advisories: Vec<String>,
    pub(super) is_down: bool,
    /// What Intel says about its platforms, if it is asked.
    pub(super) intel: Option<Collateral>,
}

pub(super) struct Tee {
    /// Where the vendor keeps what it is; removed with this.
    _dir: tempfile::TempDir,
    pub(super) vendor: Arc<Vendor>,
    platform: Mutex<Platform>,
    clock: Clock,
    pub(super) says: Arc<Mutex<Says>>,
}

impl Tee {
    pub(super) fn new(clock: &Clock) -> Self {
        // Before everything that is ever asked of it.
        let then = clock.now() - SignedDuration::from_hours(24 * 7);
        let dir = tempfile::tempdir().unwrap();
        let vendor = Vendor::load_or_create(dir.path(), then).unwrap();
        let platform = registered_platform(&vendor, "local", then);
        let says = Says { status: "UpToDate", advisories: Vec::new(), is_down: false, intel: None };
        Self {
            _dir: dir,
            vendor: Arc::new(vendor),
            platform: Mutex::new(platform),
            clock: clock.clone(),
            says: Arc::new(Mutex::new(says)),
        }
    }

    fn time(&self) -> cloister_verifier::Clock {
        let clock = self.clock.clone();
        cloister_verifier::Clock::from_fn(move || clock.now())
    }

    pub(super) fn collateral(&self) -> Arc<CollateralCache> {
        let (vendor, says, clock) = (Arc::clone(&self.vendor), Arc::clone(&self.says), self.clock.clone());
        let source = InProcess::new(move |_| {
            let says = says.lock().clone();
            if says.is_down {
                return Err(CollateralError::Unreachable("it is down".into()));
            }
            Ok(collateral(&vendor, &says, clock.now()))
        });
        let says = Arc::clone(&self.says);
        let intel = InProcess::new(move |_| {
            says.lock().intel.clone().ok_or(CollateralError::Unreachable("nobody asks Intel here".into()))
        });
        let sources = CollateralSources::new()
            .with(TrustRoot::Development, source)
            .with(TrustRoot::IntelSgxRootCa, intel);
        CollateralCache::start(sources, self.time()).unwrap()
    }

    pub(super) fn verifier(&self, collateral: &Arc<CollateralCache>) -> Verifier {
        let roots = TrustRoots::vendors().with_development_root(self.vendor.root_der()).unwrap();
        Verifier::new(roots, Arc::clone(collateral), self.time())
    }

    /// Another platform of the node.
    pub(super) fn further_platform(&self, node: &str) -> Arc<Platform> {
        Arc::new(registered_platform(&self.vendor, node, self.clock.now()))
    }

    pub(super) fn ppid(&self) -> String {
        hex::encode(self.platform.lock().ppid())
    }

    /// Quotes come from the platform of this node from now on.
    pub(super) fn move_to(&self, node: &str) {
        *self.platform.lock() = registered_platform(&self.vendor, node, self.clock.now());
    }

    /// A quote of a machine that measured nothing.
    pub(super) fn quote(&self, report_data: [u8; 64]) -> Vec<u8> {
        let registers = Registers {
            mrtd: Measurement::of("firmware"),
            rtmr0: Measurement::ZERO,
            rtmr1: Measurement::ZERO,
            rtmr2: Measurement::ZERO,
            rtmr3: Measurement::ZERO,
        };
        self.platform.lock().quote(&TdReport::new(registers, [0; 48], report_data)).unwrap()
    }

    /// What a guest agent answers whose application has this compose document.
    pub(super) fn document(
        &self,
        app_compose: &str,
        app_id: AppId,
        instance: [u8; 20],
        report_data: [u8; 64],
    ) -> AttestationDocument {
        let compose_hash = ComposeHash::of(app_compose.as_bytes());
        let events = [
            RuntimeEvent::new("system-preparing", []),
            RuntimeEvent::new("app-id", *app_id.as_bytes()),
            RuntimeEvent::new("compose-hash", *compose_hash.as_bytes()),
            RuntimeEvent::new("instance-id", instance),
            RuntimeEvent::new("boot-mr-done", []),
            RuntimeEvent::new("system-ready", []),
        ];
        let log = EventLog::new(events.iter().map(RuntimeEvent::entry).collect());
        let rtmr3 = log.replay().unwrap()[3];
        let registers = Registers {
            mrtd: Measurement::of("firmware"),
            rtmr0: Measurement::ZERO,
            rtmr1: Measurement::ZERO,
            rtmr2: Measurement::ZERO,
            rtmr3,
        };
        let quote = self.platform.lock().quote(&TdReport::new(registers, [0; 48], report_data)).unwrap();
        AttestationDocument {
            quote: Some(hex::encode(quote)),
            event_log: serde_json::to_string(&log).unwrap(),
            report_data: hex::encode(report_data),
            app_compose: Some(app_compose.to_owned()),
            ..AttestationDocument::default()
        }
    }
}

fn registered_platform(vendor: &Vendor, node: &str, now: Timestamp) -> Platform {
    let key = PlatformKey::generate().unwrap();
    let issued = vendor.register_platform(node, &key.registration().unwrap(), now).unwrap();
    Platform::new(key, &issued.certificate_chain).unwrap()
}

fn collateral(vendor: &Vendor, says: &Says, now: Timestamp) -> Collateral {
    let options = CollateralOptions {
        status: says.status.to_owned(),
        advisory_ids: says.advisories.clone(),
        ..CollateralOptions::at(now)
    };
    let made = vendor.collateral_with(&options).unwrap();
    serde_json::from_value(serde_json::to_value(made).unwrap()).unwrap()
}
