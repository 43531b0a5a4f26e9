//! A KMS that speaks the wire of a real one and answers what a test wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cloister_attester::Attester;
use cloister_development_tee::{CollateralOptions, Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::RUNTIME_EVENT_TYPE;
use cloister_kms_api::{AppKeyResponse, KmsError, KmsErrorCode};
use cloister_ra_tls::{
    AttestedKey, AuthoritySubject, CertificateIssuer, JudgingAcceptor, PeerPolicy, PeerVerifier, Subject,
    public_key_of_pem,
};
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, Policy, TrustRoot,
    TrustRoots, Verifier,
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use crate::attestation::testing;
use crate::keys::material;

/// When all of this happens.
pub(super) fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

/// A platform whose quotes verify, and who verifies them.
pub(super) struct Lab {
    vendor: Vendor,
    platform: Arc<Platform>,
}

impl Lab {
    pub(super) fn new() -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
        let key = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
        Self { platform: Arc::new(Platform::new(key, &chain).unwrap()), vendor }
    }

    /// The attester of a guest on this platform.
    pub(super) fn attester(&self) -> Attester {
        let platform = Arc::clone(&self.platform);
        let quoting = move |rtmr3, report_data: &[u8]| {
            let report = TdReport::new(testing::registers(rtmr3), [0; 48], report_data.try_into().unwrap());
            platform.quote(&report).unwrap()
        };
        testing::attester_with(Box::new(quoting), 0)
    }

    fn peers(&self) -> PeerVerifier {
        let collateral = self.vendor.collateral_with(&CollateralOptions::at(now())).unwrap();
        let collateral: Collateral =
            serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap();
        let source = InProcess::new(move |_| Ok::<_, CollateralError>(collateral.clone()));
        let clock = Clock::fixed(now());
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache = CollateralCache::start(sources, clock.clone()).unwrap();
        let roots = TrustRoots::vendors().with_development_root(self.vendor.root_der()).unwrap();
        let policy = Policy::default();
        PeerVerifier::new(Verifier::new(roots, cache, clock), PeerPolicy::any_app(policy))
    }
}

/// Roots of a KMS, newest last.
pub(super) struct Roots(Vec<CertificateIssuer>);

impl Roots {
    /// So many versions, each signed by the one before it.
    pub(super) fn new(versions: usize) -> Self {
        let mut roots: Vec<CertificateIssuer> = Vec::new();
        for version in 1..=versions {
            let key = rcgen::KeyPair::generate().unwrap();
            let subject = AuthoritySubject {
                organization: None,
                common_name: format!("KMS root {version}"),
                app_id: None,
                usage: None,
                path_length: None,
                not_before: now() - SignedDuration::from_hours(1),
                not_after: now() + SignedDuration::from_hours(1000),
            };
            roots.push(CertificateIssuer::authority(&key.serialize_der(), &subject, roots.last()).unwrap());
        }
        Self(roots)
    }

    fn current(&self) -> &CertificateIssuer {
        self.0.last().unwrap()
    }

    /// `SubjectPublicKeyInfo` of a version.
    pub(super) fn key(&self, version: usize) -> Vec<u8> {
        public_key_of_pem(&self.0[version - 1].certificate_pem()).unwrap()
    }

    /// What a KMS with these roots answers.
    pub(super) fn answer(&self) -> AppKeyResponse {
        let versions: Vec<_> = (1..=u32::try_from(self.0.len()).unwrap()).rev().collect();
        AppKeyResponse { ca_cert: self.current().certificate_pem(), ..material::testing::answer(&versions) }
    }
}

/// What a KMS saw of a call.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) body: Value,
    /// Names of the runtime events of the caller's evidence, which verified; or why it did not.
    pub(super) events: Result<Vec<String>, String>,
}

/// What it answers.
pub(super) type Reply = (u16, Vec<u8>);

pub(super) fn ok(answer: &impl Serialize) -> Reply {
    (200, serde_json::to_vec(answer).unwrap())
}

pub(super) fn refusal(code: KmsErrorCode, words: &str) -> Reply {
    (code.http_status(), serde_json::to_vec(&KmsError::new(code, words)).unwrap())
}

type Answering = Box<dyn FnMut(&Seen) -> Reply + Send>;

/// A KMS on a port of its own, for as long as the test runs.
pub(super) struct PlayedKms {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl PlayedKms {
    pub(super) async fn start(
        lab: &Lab,
        roots: &Roots,
        answering: impl FnMut(&Seen) -> Reply + Send + 'static,
    ) -> Self {
        Self::start_for(lab, roots, "kms:rpc", answering).await
    }

    /// One whose certificate is for `usage`.
    pub(super) async fn start_for(
        lab: &Lab,
        roots: &Roots,
        usage: &str,
        answering: impl FnMut(&Seen) -> Reply + Send + 'static,
    ) -> Self {
        let key = AttestedKey::generate().unwrap();
        let hour = SignedDuration::from_hours(1);
        let mut subject = Subject::new("kms", vec!["kms.example".to_owned()], now() - hour, now() + hour);
        subject.usage = Some(usage.to_owned());
        let certificate = roots.current().issue(key.public_key(), None, &subject).unwrap();
        let acceptor = JudgingAcceptor::new(&key, &certificate, &["http/1.1"], lab.peers()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answering: Arc<Mutex<Answering>> = Arc::new(Mutex::new(Box::new(answering)));
        let witness = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&witness), Arc::clone(&answering)));
            }
        });
        Self { address, seen }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// All calls so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: JudgingAcceptor,
    witness: Arc<Mutex<Vec<Seen>>>,
    answering: Arc<Mutex<Answering>>,
) {
    let Ok(judged) = acceptor.accept(stream).await else { return };
    let events = judged.peer.map_err(|error| crate::failure::chain(&error)).map(|peer| {
        let entries = peer.event_log.entries().iter();
        entries
            .filter(|entry| entry.event_type == RUNTIME_EVENT_TYPE)
            .map(|entry| entry.event.clone())
            .collect()
    });
    let service = service_fn(|request: Request<Incoming>| {
        let (events, witness, answering) = (events.clone(), Arc::clone(&witness), Arc::clone(&answering));
        async move {
            let method = request.uri().to_string();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let seen = Seen { method, body: serde_json::from_slice(&body).unwrap(), events };
            witness.lock().unwrap().push(seen.clone());
            let (status, answer) = (answering.lock().unwrap())(&seen);
            Response::builder().status(status).body(Full::new(Bytes::from(answer)))
        }
    });
    // A client that goes away is its own affair.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(judged.stream), service).await;
}

/// An address at which nobody listens.
pub(super) async fn dead() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("https://{}", listener.local_addr().unwrap())
}

/// Long enough for every answer on one machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
