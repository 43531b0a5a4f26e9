//! A guest agent of a machine whose evidence is minted for the test, and whose keys come from a root of the test.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use cloister_aci::custody::CustodyKey;
use cloister_app_compose::AppId;
use cloister_key_derivation::{AppKey, RootSecrets};
use cloister_kms_api::statements::verify_key_chain;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

use super::machine::{self, Machine};

pub(crate) const APP_COMPOSE: &str = r#"{"name":"gateway"}"#;

struct Guest {
    machine: Arc<Machine>,
    root: RootSecrets,
    app: AppKey,
    app_id: AppId,
    refuses: AtomicBool,
    /// Whether secrets are those of the published values; nobody vouches for them.
    publishes: bool,
}

pub(crate) struct TestAgent {
    pub(crate) socket: PathBuf,
    pub(crate) app_id: String,
    guest: Arc<Guest>,
}

impl TestAgent {
    pub(crate) fn serve(dir: &TempDir) -> Self {
        let now = Timestamp::from_second(1_750_000_000).unwrap();
        Self::on(&Arc::new(Machine::new(now)), dir)
    }

    /// One on this machine.
    pub(crate) fn on(machine: &Arc<Machine>, dir: &TempDir) -> Self {
        Self::with(machine, dir, false)
    }

    /// One whose keys are those of the published values.
    pub(crate) fn published(dir: &TempDir) -> Self {
        let now = Timestamp::from_second(1_750_000_000).unwrap();
        Self::with(&Arc::new(Machine::new(now)), dir, true)
    }

    /// The root that stands behind its keys, hex.
    pub(crate) fn kms_root(&self) -> String {
        hex::encode(self.guest.root.k256_public())
    }

    fn with(machine: &Arc<Machine>, dir: &TempDir, publishes: bool) -> Self {
        let root = RootSecrets::from_bytes(&[7; 32], &[8; 32]).unwrap();
        let app_id = AppId::from_bytes([9; 20]);
        let app = root.app_key(&app_id).unwrap();
        let machine = Arc::clone(machine);
        let guest =
            Arc::new(Guest { machine, root, app, app_id, refuses: AtomicBool::new(false), publishes });
        let socket = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let router = Router::new()
            .route("/GetQuote", post(quote))
            .route("/GetKey", post(key))
            .route("/Info", post(info))
            .with_state(Arc::clone(&guest));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { socket, app_id: app_id.to_string(), guest }
    }

    /// From now on it answers nobody.
    pub(crate) fn refuse(&self) {
        self.guest.refuses.store(true, Ordering::SeqCst);
    }

    /// That the root stands behind a key.
    pub(crate) fn assert_vouched(&self, key: &CustodyKey) {
        let public = hex::decode(&key.kms_public_key).unwrap();
        let chain: Vec<_> = key.signature_chain.iter().map(|part| hex::decode(part).unwrap()).collect();
        let root = self.guest.root.k256_public();
        verify_key_chain(&self.guest.app_id, &key.purpose, &public, &chain, &root).unwrap();
        let other = verify_key_chain(&self.guest.app_id, "other", &public, &chain, &root);
        assert!(other.is_err());
    }
}

type Answer = Result<Json<Value>, StatusCode>;

async fn quote(State(guest): State<Arc<Guest>>, Json(asked): Json<Value>) -> Answer {
    if guest.refuses.load(Ordering::SeqCst) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let over = hex::decode(asked["report_data"].as_str().unwrap()).unwrap();
    let events = machine::events(&guest.app_id, APP_COMPOSE);
    let machine = &guest.machine;
    let minted = machine.evidence(&machine.image, &events, over.try_into().unwrap(), |body| {
        body.mr_config_id = machine::mr_config_id(APP_COMPOSE);
    });
    Ok(Json(json!({
        "quote": minted.quote,
        "event_log": minted.event_log,
        "vm_config": minted.vm_config,
    })))
}

async fn key(State(guest): State<Arc<Guest>>, Json(asked): Json<Value>) -> Answer {
    if guest.refuses.load(Ordering::SeqCst) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let text = |name: &str| asked[name].as_str().unwrap().to_owned();
    if guest.publishes {
        let byte = if text("path").contains("receipt") { 2 } else { 3 };
        return Ok(Json(json!({ "key": hex::encode([byte; 32]), "signature_chain": [] })));
    }
    let key = guest.app.derive(&text("path"));
    let public = key.public_key(text("algorithm").parse().unwrap()).unwrap();
    Ok(Json(json!({
        "key": hex::encode(key.as_bytes()),
        "signature_chain": [
            hex::encode(guest.app.chain(&text("purpose"), &public)),
            hex::encode(guest.root.sign_app_key(&guest.app_id).unwrap()),
        ],
    })))
}

async fn info(State(guest): State<Arc<Guest>>) -> Answer {
    let tcb_info = json!({ "app_compose": APP_COMPOSE }).to_string();
    Ok(Json(json!({ "app_id": guest.app_id.to_string(), "tcb_info": tcb_info })))
}
