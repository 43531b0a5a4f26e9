//! Counters, in the text form of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use cloister_kms_api::KmsErrorCode;
use cloister_kms_api::log::Released;

const KINDS: [(Released, &str); 5] = [
    (Released::AppKeys, "app_keys"),
    (Released::NamedKey, "named_key"),
    (Released::Certificate, "certificate"),
    (Released::Roots, "roots"),
    (Released::ResealConfirmed, "reseal_confirmed"),
];
const OUTCOMES: [&str; 7] = [
    "released",
    "UNAUTHORIZED",
    "MEASUREMENT_NOT_FOUND",
    "KEY_NOT_FOUND",
    "INTERNAL_ERROR",
    "BAD_REQUEST",
    "TOO_MANY_REQUESTS",
];

/// What is counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    releases: [[AtomicU64; OUTCOMES.len()]; KINDS.len()],
    /// Connections that are open: of the release port, of the directory.
    open: [AtomicU64; 2],
    /// Connections that were accepted.
    accepted: [AtomicU64; 2],
    /// Connections that were dropped because there were too many.
    dropped: [AtomicU64; 2],
    /// Handshakes that failed.
    failed: [AtomicU64; 2],
    /// Callers without good evidence.
    refused: AtomicU64,
    /// Answers that came later than their request's place in the second.
    throttled: AtomicU64,
    /// Whether the server certificate could not be remade when it was time.
    stale_certificate: AtomicU64,
}

/// Which listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// For attested callers.
    Release,
    /// For anybody.
    Directory,
}

const PORTS: [(Port, &str); 2] = [(Port::Release, "release"), (Port::Directory, "directory")];

/// A connection that is open, until it is dropped.
pub(crate) struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn release(&self, kind: Released, outcome: Result<(), KmsErrorCode>) {
        let outcome = match outcome {
            Ok(()) => 0,
            Err(KmsErrorCode::Unauthorized) => 1,
            Err(KmsErrorCode::MeasurementNotFound) => 2,
            Err(KmsErrorCode::KeyNotFound) => 3,
            Err(KmsErrorCode::InternalError) => 4,
            Err(KmsErrorCode::BadRequest) => 5,
            Err(KmsErrorCode::TooManyRequests) => 6,
            // Of the administration: no release ends so.
            Err(KmsErrorCode::ApprovalsRequired | KmsErrorCode::ContractDecides) => return,
        };
        let kind = KINDS.iter().position(|(known, _)| *known == kind);
        if let Some(counter) = kind.and_then(|kind| self.releases.get(kind)?.get(outcome)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn opened(&self, port: Port) -> Open<'_> {
        of(&self.accepted, port).fetch_add(1, Ordering::Relaxed);
        let open = of(&self.open, port);
        open.fetch_add(1, Ordering::Relaxed);
        Open(open)
    }

    pub(crate) fn dropped(&self, port: Port) {
        of(&self.dropped, port).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, port: Port) {
        of(&self.failed, port).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn certificate_is_stale(&self, stale: bool) {
        self.stale_certificate.store(u64::from(stale), Ordering::Relaxed);
    }

    /// Whether everything works that is kept up in the background.
    pub(crate) fn is_healthy(&self) -> bool {
        self.stale_certificate.load(Ordering::Relaxed) == 0
    }

    /// Everything, with `log_size` records in the log and these versions of the root (version, has keys).
    pub(crate) fn text(&self, log_size: u64, roots: impl Iterator<Item = (u32, bool)>) -> String {
        let mut text = String::new();
        head(&mut text, "cloister_kms_releases_total", "counter", "Requests for something to be released");
        for ((_, kind), counters) in KINDS.iter().zip(&self.releases) {
            for (outcome, counter) in OUTCOMES.iter().zip(counters) {
                let value = counter.load(Ordering::Relaxed);
                let _ = writeln!(
                    text,
                    "cloister_kms_releases_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} {value}"
                );
            }
        }
        for (name, kind, help, counters) in [
            ("cloister_kms_connections", "gauge", "Open connections", &self.open),
            ("cloister_kms_connections_total", "counter", "Accepted connections", &self.accepted),
            ("cloister_kms_dropped_total", "counter", "Connections over a limit", &self.dropped),
            ("cloister_kms_failed_handshakes_total", "counter", "Failed TLS handshakes", &self.failed),
        ] {
            head(&mut text, name, kind, help);
            for ((_, port), counter) in PORTS.iter().zip(counters) {
                let _ = writeln!(text, "{name}{{port=\"{port}\"}} {}", counter.load(Ordering::Relaxed));
            }
        }
        for (name, kind, help, counter) in [
            ("cloister_kms_refused_callers_total", "counter", "Callers without good evidence", &self.refused),
            ("cloister_kms_throttled_total", "counter", "Requests over a limit", &self.throttled),
            (
                "cloister_kms_certificate_stale",
                "gauge",
                "Certificate not remade in time",
                &self.stale_certificate,
            ),
        ] {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "{name} {}", counter.load(Ordering::Relaxed));
        }
        head(&mut text, "cloister_kms_log_records", "gauge", "Records of the release log");
        let _ = writeln!(text, "cloister_kms_log_records {log_size}");
        head(&mut text, "cloister_kms_root", "gauge", "Versions of the root; 1 has keys, 0 is retired");
        for (version, live) in roots {
            let _ = writeln!(text, "cloister_kms_root{{version=\"{version}\"}} {}", u8::from(live));
        }
        text
    }
}

fn of(counters: &[AtomicU64; 2], port: Port) -> &AtomicU64 {
    let [release, directory] = counters;
    match port {
        Port::Release => release,
        Port::Directory => directory,
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}
