//! A confidential inference service of the development TEE on loopback TLS, whose every part a test can choose.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use cloister_aci::report::{Nonce, report_data};
use cloister_aci::{Keyset, PublicKey, TlsKey};
use cloister_app_compose::AppId;
use cloister_evidence::{ImageMeasurement, RuntimeEvent};
use cloister_kms_api::statements::{app_key_digest, purpose_digest};
use cloister_verifier::{Clock, Verifier};
use jiff::Timestamp;
use k256::ecdsa::SigningKey;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::lab::machine::{self, Machine};

pub(super) const COMPOSE: &str = r#"{"docker_compose_file":"services:\n  gateway:\n    image: gateway@sha256:1111111111111111111111111111111111111111111111111111111111111111\n","manifest_version":2,"name":"gateway","pre_launch_script":"","runner":"docker-compose"}"#;
pub(super) const IMAGE: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
pub(super) const APP_ID: AppId = AppId::from_bytes([0xA5; 20]);
const RECEIPT_KEY: [u8; 32] = [0x81; 32];

pub(super) fn begin() -> Timestamp {
    "2026-11-21T14:00:00Z".parse().unwrap()
}

/// A clock that a test moves.
#[derive(Clone)]
pub(super) struct Time(Arc<AtomicI64>);

impl Time {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(begin().as_second())))
    }

    pub(super) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::SeqCst)).unwrap()
    }

    pub(super) fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.0);
        Clock::from_fn(move || Timestamp::from_second(seconds.load(Ordering::SeqCst)).unwrap())
    }
}

/// A secp256k1 key and its compressed public side.
fn key(number: u8) -> (SigningKey, [u8; 33]) {
    let key = SigningKey::from_slice(&[number; 32]).unwrap();
    let public = key.verifying_key().to_sec1_point(true).as_bytes().try_into().unwrap();
    (key, public)
}

fn sign(key: &SigningKey, digest: &[u8; 32]) -> String {
    let (signature, recovery) = key.sign_prehash_recoverable(digest);
    hex::encode([signature.to_bytes().as_slice(), &[recovery.to_byte()]].concat())
}

/// The root of the KMS that gave the keys.
pub(super) fn kms_root() -> String {
    hex::encode(key(2).1)
}

/// What the service is made of. Changes hold from the next report.
pub(super) struct Parts {
    /// What the machine booted.
    pub(super) image: ImageMeasurement,
    pub(super) events: Vec<RuntimeEvent>,
    pub(super) keyset: Keyset,
    pub(super) custody: Value,
    pub(super) compose: String,
    pub(super) mr_config_id: [u8; 48],
    pub(super) td_attributes: u64,
    /// What the quote is made over instead of what it should be.
    pub(super) report_data: Option<[u8; 64]>,
    /// The nonce that is answered instead of the one that was sent.
    pub(super) nonce: Option<Nonce>,
    /// What happens to the report on its way.
    pub(super) on_the_way: Box<dyn Fn(&mut Value) + Send>,
    /// Answered instead of a report: status line and body.
    pub(super) answer: Option<(&'static str, Vec<u8>)>,
}

/// The custody of a receipt key, with the chain over `signed`.
pub(super) fn custody(app_id: &AppId, purpose: &str, signed: &[u8], more: &Value) -> Value {
    let ((root, _), (app, app_public)) = (key(2), key(3));
    let mut entry = json!({
        "role": "receipt",
        "path": "aci/receipt-ed25519/v1",
        "purpose": purpose,
        "algo": "ed25519",
        "public_key": hex::encode(RECEIPT_KEY),
        "signature_chain": [
            sign(&app, &purpose_digest(purpose, signed)),
            sign(&root, &app_key_digest(app_id, &app_public)),
        ],
    });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"provider": "dstack-kms", "keys": [entry]})
}

/// The chain over the secp256k1 key of the same secret.
pub(super) fn custody_of_secret() -> Value {
    let public = key(4).1;
    custody(&APP_ID, "aci.receipt.ed25519.v1", &public, &json!({"kms_public_key": hex::encode(public)}))
}

impl Parts {
    pub(super) fn new(spki: &[u8; 32]) -> Self {
        Self {
            image: machine::image("kernel"),
            events: machine::events(&APP_ID, COMPOSE),
            keyset: Keyset {
                e2ee_public_keys: Vec::new(),
                not_after: u64::try_from(begin().as_second()).unwrap() + 30 * 86_400,
                receipt_signing_keys: vec![PublicKey {
                    algo: "ed25519".to_owned(),
                    key_id: "receipt-1".to_owned(),
                    public_key: hex::encode(RECEIPT_KEY),
                }],
                subject: Some(format!("app-id:0x{}", hex::encode(APP_ID.as_bytes()))),
                tls_public_keys: vec![TlsKey { domain: None, spki_sha256: hex::encode(spki) }],
            },
            custody: custody(&APP_ID, "aci.receipt.ed25519.v1", &RECEIPT_KEY, &json!({})),
            compose: COMPOSE.to_owned(),
            mr_config_id: machine::mr_config_id(COMPOSE),
            td_attributes: cloister_development_tee::SEPT_VE_DISABLE,
            report_data: None,
            nonce: None,
            on_the_way: Box::new(|_| {}),
            answer: None,
        }
    }

    /// Another compose document runs, and is measured honestly.
    pub(super) fn compose_is(&mut self, compose: &str) {
        let hash = cloister_app_compose::ComposeHash::of(compose.as_bytes());
        self.compose = compose.to_owned();
        self.event("compose-hash").payload = hash.as_bytes().to_vec();
        self.mr_config_id = machine::mr_config_id(compose);
    }

    pub(super) fn event(&mut self, name: &str) -> &mut RuntimeEvent {
        self.events.iter_mut().find(|event| event.name == name).unwrap()
    }
}

pub(super) struct Service {
    pub(super) parts: Mutex<Parts>,
    pub(super) machine: Arc<Machine>,
    /// Reports that were asked for.
    pub(super) asked: AtomicUsize,
    /// Permits to answer; closed when none is needed.
    pub(super) gate: Semaphore,
    pub(super) spki: [u8; 32],
    certificate: rcgen::Certificate,
    port: u16,
}

impl Service {
    pub(super) async fn start() -> Arc<Self> {
        let tls_key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
            .unwrap()
            .self_signed(&tls_key)
            .unwrap();
        let spki = {
            use x509_parser::prelude::FromDer as _;
            let (_, parsed) = x509_parser::prelude::X509Certificate::from_der(certificate.der()).unwrap();
            Sha256::digest(parsed.public_key().raw).into()
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let gate = Semaphore::new(0);
        gate.close();
        let service = Arc::new(Self {
            parts: Mutex::new(Parts::new(&spki)),
            machine: Arc::new(Machine::new(begin())),
            asked: AtomicUsize::new(0),
            gate,
            spki,
            port: listener.local_addr().unwrap().port(),
            certificate,
        });
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(
                    vec![service.certificate.der().clone()],
                    tls_key.serialize_der().try_into().unwrap(),
                )
                .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = Arc::clone(&service);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&serving), acceptor.clone(), stream));
            }
        });
        service
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Changes parts from the next report on.
    pub(super) fn change(&self, change: impl FnOnce(&mut Parts)) {
        change(&mut self.parts.lock());
    }

    /// Writes the certificate for clients that are to trust it.
    pub(super) fn write_authority(&self, path: &Path) {
        std::fs::write(path, self.certificate.pem()).unwrap();
    }

    /// A verifier that trusts the vendor of this service's platform.
    pub(super) fn verifier(&self, clock: Clock) -> Verifier {
        self.machine.verifier(clock)
    }

    fn report(&self, nonce: &Nonce) -> Vec<u8> {
        let parts = self.parts.lock();
        let digest = parts.keyset.digest();
        let hash = report_data(&digest, Some(parts.nonce.as_ref().unwrap_or(nonce)));
        let slot =
            parts.report_data.unwrap_or_else(|| cloister_evidence::report_data::padded(&hash).unwrap());
        let minted = self.machine.evidence(&parts.image, &parts.events, slot, |body| {
            body.mr_config_id = parts.mr_config_id;
            body.td_attributes = parts.td_attributes;
        });
        let mut report = json!({
            "api_version": "aci/1",
            "workload_keyset_digest": digest,
            "attestation": {
                "tee_type": "tdx",
                "workload_keyset": parts.keyset,
                "report_data": hex::encode(hash),
                "source_provenance": {
                    "repo_url": "https://git.example.com/gateway",
                    "repo_commit": "ab".repeat(20),
                    "image_digest": IMAGE,
                },
                "evidence": {
                    "quote": minted.quote,
                    "quote_report_data": hex::encode(slot),
                    "event_log": minted.event_log,
                    "vm_config": minted.vm_config,
                    "app_compose": parts.compose,
                    "key_custody": parts.custody,
                },
            },
            "service_capabilities": {"supported_e2ee_versions": ["2"], "serving": "direct"},
        });
        (parts.on_the_way)(&mut report);
        report.to_string().into_bytes()
    }

    fn answer(&self, head: &str) -> Vec<u8> {
        if let Some((status, body)) = &self.parts.lock().answer {
            return [format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n").as_bytes(), body].concat();
        }
        let asked =
            head.split_once("GET /v1/aci/attestation?nonce=").and_then(|(_, rest)| rest.split(' ').next());
        let body = self.report(&asked.unwrap().parse().unwrap());
        let length = body.len();
        [
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n").as_bytes(),
            &body,
        ]
        .concat()
    }
}

/// One connection, one answer.
async fn serve(service: Arc<Service>, acceptor: TlsAcceptor, stream: TcpStream) -> Option<()> {
    let mut stream = acceptor.accept(stream).await.ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    service.asked.fetch_add(1, Ordering::SeqCst);
    // A closed gate stands open.
    let _permit = service.gate.acquire().await;
    let answer = service.answer(std::str::from_utf8(&head).unwrap());
    stream.write_all(&answer).await.ok()?;
    stream.shutdown().await.ok()
}
