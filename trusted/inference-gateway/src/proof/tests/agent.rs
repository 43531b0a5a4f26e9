//! A guest agent of a machine whose evidence is minted for the test, and whose keys come from a root of the test.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use cloister_aci::custody::CustodyKey;
use cloister_app_compose::AppId;
use cloister_development_tee::{Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::{EventLog, Measurement, Registers};
use cloister_key_derivation::{AppKey, RootSecrets};
use cloister_kms_api::statements::verify_key_chain;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

pub(super) const APP_COMPOSE: &str = r#"{"name":"gateway"}"#;

struct Machine {
    platform: Platform,
    root: RootSecrets,
    app: AppKey,
    app_id: AppId,
    refuses: AtomicBool,
    /// Whether secrets are those of the published values; nobody vouches for them.
    publishes: bool,
}

pub(super) struct TestAgent {
    pub(super) socket: PathBuf,
    pub(super) app_id: String,
    machine: Arc<Machine>,
}

impl TestAgent {
    pub(super) fn serve(dir: &TempDir) -> Self {
        Self::with(dir, false)
    }

    /// One whose keys are those of the published values.
    pub(super) fn published(dir: &TempDir) -> Self {
        Self::with(dir, true)
    }

    fn with(dir: &TempDir, publishes: bool) -> Self {
        let root = RootSecrets::from_bytes(&[7; 32], &[8; 32]).unwrap();
        let app_id = AppId::from_bytes([9; 20]);
        let app = root.app_key(&app_id).unwrap();
        let now = Timestamp::from_second(1_750_000_000).unwrap();
        let vendor = Vendor::in_memory(VendorOptions::default(), now).unwrap();
        let own = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(own.ppid(), own.public_key(), now).unwrap();
        let platform = Platform::new(own, &chain).unwrap();
        let machine =
            Arc::new(Machine { platform, root, app, app_id, refuses: AtomicBool::new(false), publishes });
        let socket = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let router = Router::new()
            .route("/GetQuote", post(quote))
            .route("/GetKey", post(key))
            .route("/Info", post(info))
            .with_state(Arc::clone(&machine));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { socket, app_id: app_id.to_string(), machine }
    }

    /// From now on it answers nobody.
    pub(super) fn refuse(&self) {
        self.machine.refuses.store(true, Ordering::SeqCst);
    }

    /// That the root stands behind a key.
    pub(super) fn assert_vouched(&self, key: &CustodyKey) {
        let public = hex::decode(&key.kms_public_key).unwrap();
        let chain: Vec<_> = key.signature_chain.iter().map(|part| hex::decode(part).unwrap()).collect();
        let root = self.machine.root.k256_public();
        verify_key_chain(&self.machine.app_id, &key.purpose, &public, &chain, &root).unwrap();
        let other = verify_key_chain(&self.machine.app_id, "other", &public, &chain, &root);
        assert!(other.is_err());
    }
}

type Answer = Result<Json<Value>, StatusCode>;

async fn quote(State(machine): State<Arc<Machine>>, Json(asked): Json<Value>) -> Answer {
    if machine.refuses.load(Ordering::SeqCst) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let over = hex::decode(asked["report_data"].as_str().unwrap()).unwrap();
    let nothing = Measurement::ZERO;
    let registers =
        Registers { mrtd: nothing, rtmr0: nothing, rtmr1: nothing, rtmr2: nothing, rtmr3: nothing };
    let report = TdReport::new(registers, [0; 48], over.try_into().unwrap());
    Ok(Json(json!({
        "quote": hex::encode(machine.platform.quote(&report).unwrap()),
        "event_log": serde_json::to_string(&EventLog::new(Vec::new())).unwrap(),
        "vm_config": "{}",
    })))
}

async fn key(State(machine): State<Arc<Machine>>, Json(asked): Json<Value>) -> Answer {
    if machine.refuses.load(Ordering::SeqCst) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let text = |name: &str| asked[name].as_str().unwrap().to_owned();
    if machine.publishes {
        let byte = if text("path").contains("receipt") { 2 } else { 3 };
        return Ok(Json(json!({ "key": hex::encode([byte; 32]), "signature_chain": [] })));
    }
    let key = machine.app.derive(&text("path"));
    let public = key.public_key(text("algorithm").parse().unwrap()).unwrap();
    Ok(Json(json!({
        "key": hex::encode(key.as_bytes()),
        "signature_chain": [
            hex::encode(machine.app.chain(&text("purpose"), &public)),
            hex::encode(machine.root.sign_app_key(&machine.app_id).unwrap()),
        ],
    })))
}

async fn info(State(machine): State<Arc<Machine>>) -> Answer {
    let tcb_info = json!({ "app_compose": APP_COMPOSE }).to_string();
    Ok(Json(json!({ "app_id": machine.app_id.to_string(), "tcb_info": tcb_info })))
}
