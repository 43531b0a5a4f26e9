//! What the tests share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cloister_development_tee::{
    CollateralOptions, Platform, PlatformKey, TdReport, Vendor, VendorCollateral, VendorOptions,
};
use cloister_evidence::{Measurement, Registers};
use cloister_verifier::{Clock, Collateral, TrustRoots, Verifier};
use jiff::{SignedDuration, Timestamp};

/// The time of tests that mint their own evidence.
pub(crate) fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A clock that a test moves.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn standing_at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.as_second())))
    }

    pub(crate) fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.0);
        Clock::from_fn(move || at(seconds.load(Ordering::SeqCst)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, by: SignedDuration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

/// A verifier without network that accepts `development` beside the vendors.
pub(crate) fn offline(development: Option<&[u8]>) -> Verifier {
    let mut roots = TrustRoots::vendors();
    if let Some(der) = development {
        roots = roots.with_development_root(der).unwrap();
    }
    Verifier::offline(roots, Clock::fixed(now()))
}

/// A development vendor and one platform of it.
pub(crate) struct Minted {
    pub(crate) vendor: Vendor,
    pub(crate) platform: Platform,
}

impl Minted {
    pub(crate) fn new() -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
        let platform = platform_of(&vendor);
        Self { vendor, platform }
    }

    pub(crate) fn another_platform(&self) -> Platform {
        platform_of(&self.vendor)
    }

    pub(crate) fn report() -> TdReport {
        let registers = Registers {
            mrtd: Measurement::of("firmware"),
            rtmr0: Measurement::of("shape"),
            rtmr1: Measurement::of("kernel"),
            rtmr2: Measurement::of("command line"),
            rtmr3: Measurement::of("application"),
        };
        TdReport::new(registers, [1; 48], [7; 64])
    }

    pub(crate) fn quote(&self) -> Vec<u8> {
        self.platform.quote(&Self::report()).unwrap()
    }

    pub(crate) fn collateral(&self) -> Collateral {
        collateral(&self.vendor.collateral(now()).unwrap())
    }

    pub(crate) fn collateral_with(&self, change: impl FnOnce(&mut CollateralOptions)) -> Collateral {
        let mut options = CollateralOptions::at(now());
        change(&mut options);
        collateral(&self.vendor.collateral_with(&options).unwrap())
    }

    pub(crate) fn verifier(&self) -> Verifier {
        offline(Some(self.vendor.root_der()))
    }
}

fn platform_of(vendor: &Vendor) -> Platform {
    let key = PlatformKey::generate().unwrap();
    let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
    Platform::new(key, &chain).unwrap()
}

pub(crate) fn collateral(of_vendor: &VendorCollateral) -> Collateral {
    serde_json::from_value(serde_json::to_value(of_vendor).unwrap()).unwrap()
}

/// The directory of published vectors: `CLOISTER_TESTDATA`, or beside the repository. `None`, said loudly,
/// when it is absent.
pub(crate) fn testdata() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata");
    let dir = std::env::var_os("CLOISTER_TESTDATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let tdx = dir.join("tdx");
    if tdx.is_dir() {
        return Some(tdx);
    }
    eprintln!("SKIPPED: no published vectors in {} (set CLOISTER_TESTDATA)", dir.display());
    None
}

pub(crate) fn read(path: &str) -> Option<Vec<u8>> {
    Some(std::fs::read(testdata()?.join(path)).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// A quote: raw, or hex text by its ending.
pub(crate) fn read_quote(path: &str) -> Option<Vec<u8>> {
    let bytes = read(path)?;
    if path.strip_suffix(".hex").is_none() {
        return Some(bytes);
    }
    Some(hex::decode(bytes.trim_ascii().strip_prefix(b"0x").unwrap_or(bytes.trim_ascii())).unwrap())
}

pub(crate) fn read_collateral(path: &str) -> Option<Collateral> {
    Some(serde_json::from_slice(&read(path)?).unwrap())
}
