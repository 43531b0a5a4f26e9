//! A gateway's view of a confidential service: what it takes to be verified, for how long that holds, and who shares it.

mod attackers;
mod freshness;
mod hardware;
mod own;
mod programs;
mod routes;
mod service;
mod tampering;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{KeepSessions, Trust, Unverified, Verifications, Verified};
use crate::config::GatewayConfig;
use crate::lab::machine;
use crate::record::StoreError;
use crate::routing::{Catalogue, Route};
use service::{APP_ID, Service, Time, kms_root};

/// Id, document and end of a record.
type Record = (String, Vec<u8>, u64);

/// Keeps records in memory.
#[derive(Clone, Default)]
struct Records {
    kept: Arc<Mutex<Vec<Record>>>,
    broken: Arc<AtomicBool>,
}

impl KeepSessions for Records {
    fn keep<'a>(
        &'a self,
        id: &'a str,
        document: Vec<u8>,
        expires_at: u64,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>> {
        Box::pin(async move {
            if self.broken.load(Ordering::SeqCst) {
                return Err(StoreError("no disk".to_owned()));
            }
            self.kept.lock().push((id.to_owned(), document, expires_at));
            Ok(())
        })
    }
}

/// A gateway that verifies one service.
struct World {
    service: Arc<Service>,
    time: Time,
    records: Records,
    verifications: Verifications,
    files: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let (service, time) = (Service::start().await, Time::new());
        let trust = Trust::of_verifier(service.verifier(time.clock()));
        Self::trusting(service, time, trust)
    }

    fn trusting(service: Arc<Service>, time: Time, trust: Trust) -> Self {
        let records = Records::default();
        let files = tempfile::tempdir().unwrap();
        service.write_authority(&files.path().join("ca.pem"));
        let verifications = Verifications::new(trust, records.clone(), time.clock());
        Self { service, time, records, verifications, files }
    }

    /// The upstream's configuration, with other members.
    fn config(&self, more: &Value) -> GatewayConfig {
        let mut upstream = json!({
            "name": "service",
            "provider": "aci-service",
            "base_url": self.service.url(),
            "models": {"public": "own"},
            "ca_file": self.files.path().join("ca.pem"),
            "accepted_subjects": [format!("app-id:0x{}", hex::encode(APP_ID.as_bytes()))],
            "accepted_os_image_hashes": ["02".repeat(32), machine::image_hash(&machine::image("kernel"))],
            "accepted_key_provider_ids": ["02".repeat(59), machine::KEY_PROVIDER],
            "accepted_kms_root_public_keys": ["02".repeat(33), kms_root()],
        });
        upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config = json!({
            "state_dir": self.files.path().join("state"),
            "upstreams": [upstream],
            "trust": {"development_root": "/root.pem", "development_pccs_url": "http://127.0.0.1:1"},
        });
        GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap()
    }

    fn route_with(&self, more: &Value) -> Arc<Route> {
        Arc::clone(&Catalogue::new(&self.config(more)).model("public").unwrap().routes[0])
    }

    fn route(&self) -> Arc<Route> {
        self.route_with(&json!({}))
    }

    /// Why the service as it is now is not verified, by a rule with other members.
    async fn refusal(&self, more: &Value) -> String {
        // What was found before has ended.
        self.time.advance(600);
        match self.channel(&self.route_with(more)).await {
            Err(Unverified::Failed(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    async fn channel(&self, route: &Route) -> Result<Arc<Verified>, Unverified> {
        self.verifications.channel(route, &[]).await
    }

    /// Ids of the sessions that are told of.
    fn listed(&self) -> Vec<String> {
        self.verifications.sessions().iter().map(|kept| kept.id.clone()).collect()
    }
}

/// Looks until something holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_mins(2), "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
