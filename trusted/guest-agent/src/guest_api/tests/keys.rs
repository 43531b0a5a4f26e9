//! The key calls of an application that has keys, checked as a client checks them: up to the root.

use std::pin::Pin;
use std::time::Duration;

use cloister_app_compose::AppId;
use cloister_key_derivation::RootSecrets;
use cloister_kms_api::statements::{K256Public, verify_key_chain};
use cloister_kms_api::{AppKeyResponse, FormerKeys};
use cloister_ra_tls::{AuthoritySubject, CertificateIssuer, CertificateRequest, Evidence, Subject, inspect};
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use super::*;
use crate::attestation::testing::booted_with;
use crate::attestation::{KeyProviderInfo, Keys};
use crate::keys::{AppKeys, CertificateSigner, SignerError};

const NOW: i64 = 1_760_000_000;

pub(super) fn app() -> AppId {
    "6f809b3214eb9a69571ad008289d9551fa9a4272".parse().unwrap()
}

/// The root of the published vectors, and one that came before it.
pub(super) fn root() -> RootSecrets {
    RootSecrets::from_bytes(&[1; 32], &[2; 32]).unwrap()
}

fn former_root() -> RootSecrets {
    RootSecrets::from_bytes(&[3; 32], &[4; 32]).unwrap()
}

/// What a KMS answers whose current root is the second one.
fn released() -> AppKeyResponse {
    let (app, current, former) = (app(), root(), former_root());
    let instance = "836a333a23811140f86b94c3c8a7cb0deef0a6d5".parse().unwrap();
    AppKeyResponse {
        ca_cert: String::new(),
        disk_crypt_key: current.disk_key(&app, Some(&instance)).unwrap().to_vec().into(),
        env_crypt_key: current.env_key(&app).unwrap().to_vec().into(),
        k256_key: current.app_key(&app).unwrap().secret().to_vec().into(),
        k256_signature: current.sign_app_key(&app).unwrap().into(),
        gateway_app_id: String::new(),
        tproxy_app_id: String::new(),
        os_image_hash: [0xE6; 32].into(),
        root_version: 2,
        former: vec![FormerKeys {
            root_version: 1,
            disk_crypt_key: former.disk_key(&app, Some(&instance)).unwrap().to_vec().into(),
            env_crypt_key: former.env_key(&app).unwrap().to_vec().into(),
            k256_key: former.app_key(&app).unwrap().secret().to_vec().into(),
            k256_signature: former.sign_app_key(&app).unwrap().into(),
        }],
    }
}

/// Signs as the KMS does, without looking at the evidence.
#[derive(Debug)]
struct PlayedKms;

impl CertificateSigner for PlayedKms {
    fn sign(
        &self,
        request: Vec<u8>,
        signature: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, SignerError>> + Send + '_>> {
        Box::pin(async move {
            let request = CertificateRequest::decode(&request, &signature)
                .map_err(|error| SignerError(error.to_string()))?;
            Ok(issued(&request))
        })
    }
}

fn issued(request: &CertificateRequest) -> Vec<String> {
    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let authority = |name: &str, path_length| AuthoritySubject {
        organization: None,
        common_name: name.to_owned(),
        app_id: None,
        usage: None,
        path_length: Some(path_length),
        not_before: at(NOW - 1000),
        not_after: at(NOW + 1000),
    };
    let key = root().ca_key_pkcs8().unwrap();
    let above = CertificateIssuer::authority(&key, &authority("root", 1), None).unwrap();
    let key = root().app_ca_key(&app()).unwrap();
    let app_ca = CertificateIssuer::authority(&key, &authority("app", 0), Some(&above)).unwrap();
    let asked = request.certificate();
    let mut subject =
        Subject::new(asked.subject.clone(), asked.alternative_names.clone(), at(NOW - 1000), at(NOW + 1000));
    (subject.server, subject.client) = (asked.server, asked.client);
    subject.usage = Some("app:custom".to_owned());
    let evidence = asked.with_evidence.then(|| Evidence {
        quote: None,
        event_log: String::new(),
        attestation: Some(request.attestation().to_vec()),
    });
    app_ca.issue(request.public_key(), evidence.as_ref(), &subject).unwrap().chain_pem()
}

pub(super) async fn socket() -> Socket {
    let keys = Keys {
        app: AppKeys::from_answer(&released()).unwrap(),
        provider: KeyProviderInfo::kms(root().ca_public_key_der()),
        signer: Box::new(PlayedKms),
    };
    Socket::of(booted_with(keys).await)
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

pub(super) fn chain(value: &Value) -> Vec<Vec<u8>> {
    value.as_array().unwrap().iter().map(bytes).collect()
}

pub(super) fn trusted() -> K256Public {
    root().k256_public()
}

#[tokio::test]
async fn get_key_answers_the_published_vector() {
    let socket = socket().await;
    let body = json!({"path": "storage/main", "purpose": "signing", "algorithm": ""});
    let answer = socket.post("/GetKey", &body).await.json();
    assert_eq!(
        answer,
        json!({
            "key": "12471a991e8a8f0d20524e90126f1a310f7cb4ee2979185967e0c147e751c5ff",
            "signature_chain": [
                "019f199500fc1dd46d64937f0f17cc019fa5371618199a671530768beee54dc2567c941d517ccfa0909d1cb4cd2edefdef9984bc912986b94155217c67dd4df000",
                "00d1a678c71a920e41d53a5e673e5a2c686a34a36612231f30139fe5cc871f7c1351e396549e753bb9a46a37432ad170fb021ce8fca81f5bb095ad32139518c001",
            ],
            "root_version": 2,
        })
    );
    let legacy = json!({"path": "storage/main", "purpose": "signing"});
    let legacy = socket.post("/prpc/Tappd.DeriveK256Key?json", &legacy).await.json();
    assert_eq!(legacy["k256_key"], answer["key"]);
    assert_eq!(legacy["k256_signature_chain"], answer["signature_chain"]);
    let ed25519 = json!({"path": "storage/main", "purpose": "signing", "algorithm": "ed25519"});
    let ed25519 = socket.post("/GetKey", &ed25519).await.json();
    assert_eq!(ed25519["key"], answer["key"]);
    assert_eq!(
        ed25519["signature_chain"][0],
        "a1a9f1956cd1a80c254f1f63192284c8649a0f3f91a3500df80a76d6199b14d577b836b30a90b3300a845e20bfd4e99d587e379478dddf54680066aefe84438d00"
    );
}

#[tokio::test]
async fn chains_lead_to_the_root_for_every_algorithm_and_path() {
    let socket = socket().await;
    for algorithm in ["secp256k1", "k256", "ed25519"] {
        for path in ["", "a", "ü/\n", &"long".repeat(1000)] {
            let body = json!({"path": path, "purpose": "tls", "algorithm": algorithm});
            let answer = socket.post("/GetKey", &body).await.json();
            let key = bytes(&answer["key"]);
            let public_key = if algorithm == "ed25519" {
                let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(&key).unwrap();
                ring::signature::KeyPair::public_key(&pair).as_ref().to_vec()
            } else {
                cloister_key_derivation::AppKey::from_bytes(&key.try_into().unwrap())
                    .unwrap()
                    .public_key()
                    .to_vec()
            };
            let chain = chain(&answer["signature_chain"]);
            assert!(verify_key_chain(&app(), "tls", &public_key, &chain, &trusted()).is_ok());
            assert!(verify_key_chain(&app(), "signing", &public_key, &chain, &trusted()).is_err());
        }
    }
}

#[tokio::test]
async fn signatures_verify_with_a_chain_to_the_root() {
    let socket = socket().await;
    let data = hex::encode([5; 32]);
    for algorithm in ["ed25519", "secp256k1", "k256", "secp256k1_prehashed"] {
        let signed = socket.post("/Sign", &json!({"algorithm": algorithm, "data": data})).await.json();
        let check = async |data: &str| {
            let body = json!({
                "algorithm": algorithm, "data": data,
                "signature": signed["signature"], "public_key": signed["public_key"],
            });
            socket.post("/Verify", &body).await.json()
        };
        assert_eq!(check(&data).await, json!({"valid": true}), "{algorithm}");
        assert_eq!(check(&hex::encode([6; 32])).await, json!({"valid": false}), "{algorithm}");
        let whole = chain(&signed["signature_chain"]);
        assert_eq!(whole[0], bytes(&signed["signature"]));
        let public_key = bytes(&signed["public_key"]);
        verify_key_chain(&app(), "signing", &public_key, &whole[1..], &trusted()).unwrap();
    }
    let at = async |path: Value| {
        let body = json!({"algorithm": "ed25519", "data": data, "path": path});
        socket.post("/Sign", &body).await.json()["public_key"].clone()
    };
    assert_eq!(at(Value::Null).await, at(json!("vms")).await);
    assert_ne!(at(json!("vms")).await, at(json!("other")).await);
}

#[tokio::test]
async fn keys_of_a_former_root_are_there_when_they_are_asked_for() {
    let socket = socket().await;
    let at = async |version: Value| {
        socket.post("/GetKey", &json!({"path": "p", "purpose": "x", "root_version": version})).await
    };
    let (current, newest, former) = (at(Value::Null).await, at(json!(2)).await, at(json!(1)).await);
    assert_eq!(current.json(), newest.json());
    let former = former.json();
    assert_eq!(
        (current.json()["root_version"].clone(), former["root_version"].clone()),
        (json!(2), json!(1))
    );
    let expected = former_root().named_key(&app(), "p");
    assert_eq!(bytes(&former["key"]), expected.to_vec());
    let public_key = former_root().app_key(&app()).unwrap().derive("p");
    let public_key = public_key.public_key(cloister_key_derivation::Algorithm::Secp256k1).unwrap();
    let chain = chain(&former["signature_chain"]);
    verify_key_chain(&app(), "x", &public_key, &chain, &former_root().k256_public()).unwrap();
    for version in [json!(0), json!(3), json!(u64::MAX)] {
        let refused = at(version).await;
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains("there are those under 2, 1"), "{}", refused.body);
    }
    assert_eq!(at(json!(-1)).await.status, 400);
}

/// That a chain leads to the root, and is for a server of this name.
fn verify_chain(chain: &Value, name: &str) -> Vec<CertificateDer<'static>> {
    let chain: Vec<_> =
        chain.as_array().unwrap().iter().map(|pem| pem.as_str().unwrap().as_bytes()).collect();
    let chain: Vec<_> = chain.into_iter().map(|pem| CertificateDer::from_pem_slice(pem).unwrap()).collect();
    let [leaf, app_ca, top] = &chain[..] else { panic!("{} certificates", chain.len()) };
    let mut roots = RootCertStore::empty();
    roots.add(top.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW.unsigned_abs()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    rustls::client::danger::ServerCertVerifier::verify_server_cert(
        &*verifier,
        leaf,
        std::slice::from_ref(app_ca),
        &name,
        &[],
        now,
    )
    .unwrap();
    assert!(contains(top, root().ca_public_key_der()));
    chain
}

fn contains(der: &[u8], part: &[u8]) -> bool {
    der.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn tls_keys_have_certificates_up_to_the_root() {
    let socket = socket().await;
    let body = json!({"subject": "app.example", "alt_names": ["app.example"], "usage_server_auth": true});
    let first = socket.post("/GetTlsKey", &body).await.json();
    let chain = verify_chain(&first["certificate_chain"], "app.example");
    let key = PrivatePkcs8KeyDer::from_pem_slice(first["key"].as_str().unwrap().as_bytes()).unwrap();
    let pair = rcgen::KeyPair::try_from(key.secret_pkcs8_der()).unwrap();
    let public_key = rcgen::PublicKeyData::subject_public_key_info(&pair);
    assert!(contains(&chain[0], &public_key));
    assert_ne!(socket.post("/GetTlsKey", &body).await.json()["key"], first["key"]);
    // With evidence for the key.
    let attested = json!({"alt_names": ["app.example"], "usage_server_auth": true, "usage_ra_tls": true});
    let attested = socket.post("/GetTlsKey", &attested).await.json();
    let leaf = inspect(&verify_chain(&attested["certificate_chain"], "app.example")[0]).unwrap();
    let cloister_ra_tls::CarriedEvidence::Tdx { quote, .. } = &leaf.evidence;
    let bound = cloister_evidence::report_data::of_tls_key(&leaf.public_key);
    assert_eq!(Quote::parse(quote).unwrap().report_data(), &bound);
}

#[tokio::test]
async fn a_derived_tls_key_is_the_same_again_and_certified_for_it() {
    let socket = socket().await;
    let derive = async |path: &str, version: Value| {
        let body = json!({
            "path": path, "subject": "x", "alt_names": ["app.example"],
            "usage_server_auth": true, "root_version": version,
        });
        let answer = socket.post("/prpc/Tappd.DeriveKey?json", &body).await.json();
        verify_chain(&answer["certificate_chain"], "app.example");
        answer["key"].as_str().unwrap().to_owned()
    };
    let key = derive("/", Value::Null).await;
    assert_eq!(derive("/", Value::Null).await, key);
    assert_ne!(derive("/other", Value::Null).await, key);
    assert_ne!(derive("/", json!(1)).await, key);
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let expected = root().app_key(&app()).unwrap().derive_p256("/").unwrap();
    assert_eq!(der.secret_pkcs8_der(), expected.as_slice());
}

#[tokio::test]
async fn evidence_for_the_signing_key_is_over_its_public_side() {
    let socket = socket().await;
    for (algorithm, kind) in [("ed25519", "ed25519"), ("secp256k1", "secp256k1c"), ("", "secp256k1c")] {
        let body = json!({"algorithm": algorithm});
        let answer = socket.post("/prpc/Worker.GetAttestationForAppKey?json", &body).await.json();
        let sign = if algorithm.is_empty() { "k256" } else { algorithm };
        let signed = socket.post("/Sign", &json!({"algorithm": sign, "data": ""})).await.json();
        let public_key =
            base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, bytes(&signed["public_key"]));
        let mut expected = format!("dip1::{kind}-pk:{public_key}").into_bytes();
        assert!(expected.len() <= 64);
        expected.resize(64, 0);
        assert_eq!(bytes(&answer["report_data"]), expected);
        assert_eq!(Quote::parse(&bytes(&answer["quote"])).unwrap().report_data().to_vec(), expected);
    }
    let refused = json!({"algorithm": "secp256k1_prehashed"});
    assert_eq!(socket.post("/prpc/Worker.GetAttestationForAppKey?json", &refused).await.status, 400);
}

#[tokio::test]
async fn info_names_the_key_provider() {
    let info = socket().await.post("/Info", &json!({})).await.json();
    let provider: Value = serde_json::from_str(info["key_provider_info"].as_str().unwrap()).unwrap();
    assert_eq!(provider, json!({"name": "kms", "id": hex::encode(root().ca_public_key_der())}));
}

#[tokio::test]
async fn wrong_requests_are_refused_with_and_without_keys() {
    for (socket, has_keys) in [(socket().await, true), (Socket::open().await, false)] {
        for (path, body, error) in [
            ("/GetKey", json!({"algorithm": "secp256k1_prehashed"}), "Unsupported algorithm"),
            ("/GetKey", json!({"algorithm": "rsa"}), "Unsupported algorithm"),
            ("/GetKey", json!({"path": 1}), "path must be a text"),
            ("/Sign", json!({"algorithm": "", "data": ""}), "Unsupported algorithm"),
            ("/Sign", json!({"algorithm": "ed25519", "data": "xx"}), "data must be hex"),
            ("/Sign", json!({"algorithm": "secp256k1_prehashed", "data": "00"}), "Digest must be 32 bytes"),
            ("/Verify", json!({"algorithm": "rsa"}), "Unsupported algorithm"),
            ("/Verify", json!({"algorithm": "k256", "public_key": "02"}), "public_key is not a key"),
        ] {
            let reply = socket.post(path, &body).await;
            assert_eq!(reply.status, 400, "{path} {body}");
            assert!(reply.body.contains(error), "{path} {body}: {}", reply.body);
        }
        for path in ["/GetKey", "/DeriveK256Key", "/DeriveKey", "/GetAttestationForAppKey"] {
            let reply = socket.post(path, &json!({})).await;
            assert_eq!(reply.status, if has_keys { 200 } else { 400 }, "{path}: {}", reply.body);
            assert_eq!(reply.body.contains("no key provider"), !has_keys, "{path}");
        }
    }
}
