//! An OpenID provider on loopback, with keys of its own, which does as it is told.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use url::{Url, form_urlencoded};

use super::{CLIENT, SECRET};
use crate::clock::Clock;

/// ring makes no RSA keys. This one is published: it signs nothing but tokens of tests.
const RSA_KEY: &[u8] = include_bytes!("../fixtures/signing-key.pk8");

/// What signs tokens.
pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    /// With a secret that everybody has, such as a public key.
    Hmac(Vec<u8>),
    /// With nothing.
    None,
}

impl Signer {
    pub(crate) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(RSA_KEY).unwrap())
    }

    pub(crate) fn ec() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    pub(crate) fn ed() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(_) => "ES256",
            Self::Ed(_) => "EdDSA",
            Self::Hmac(_) => "HS256",
            Self::None => "none",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Hmac(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
            Self::None => Vec::new(),
        }
    }

    /// The key that others have (RFC 7517).
    pub(crate) fn jwk(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(key) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(key.public_key());
                json!({"kty": "RSA", "kid": id, "use": "sig", "n": text(&public.n), "e": text(&public.e)})
            }
            Self::Ec(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": text(&point[1..33]), "y": text(&point[33..])})
            }
            Self::Ed(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(key.public_key().as_ref())})
            }
            Self::Hmac(secret) => json!({"kty": "oct", "kid": id, "k": text(secret)}),
            Self::None => json!({"kty": "none", "kid": id}),
        }
    }
}

/// How an address misbehaves.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It never answers.
    Hangs,
    /// It answers with a status and a body.
    Answers(u16, String),
    /// It sends more than anybody wants to read.
    Floods,
    /// It sends whoever asks elsewhere.
    Redirects(String),
}

/// What the provider does.
pub(crate) struct Script {
    pub(crate) signer: Signer,
    /// The name of the key in tokens.
    pub(crate) key_id: Option<String>,
    pub(crate) keys: Vec<Value>,
    /// Members of the discovery document; null takes one away.
    pub(crate) document: Value,
    /// Claims of tokens; null takes one away.
    pub(crate) claims: Value,
    /// More members of the header of tokens.
    pub(crate) header: Value,
    pub(crate) faults: HashMap<&'static str, Fault>,
    /// What was asked for.
    pub(crate) asked: Vec<String>,
    /// What the last token was.
    pub(crate) last_token: String,
    /// Codes, and the requests that they are for.
    codes: HashMap<String, HashMap<String, String>>,
}

/// The provider.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    issuer: String,
    clock: Clock,
    script: Mutex<Script>,
}

/// What a browser is sent back with.
pub(crate) struct SentBack {
    pub(crate) code: String,
    pub(crate) state: String,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn merge(into: &mut Value, changes: &Value) {
    let into = into.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            into.remove(name);
        } else {
            into.insert(name.clone(), value.clone());
        }
    }
}

impl Provider {
    pub(crate) async fn start(clock: &Clock) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}/realms/a", listener.local_addr().unwrap());
        let signer = Signer::ed();
        let script = Script {
            keys: vec![signer.jwk("first")],
            signer,
            key_id: Some("first".into()),
            document: json!({}),
            claims: json!({"sub": "248289761001"}),
            header: json!({}),
            faults: HashMap::new(),
            asked: Vec::new(),
            last_token: String::new(),
            codes: HashMap::new(),
        };
        let shared = Shared { issuer: issuer.clone(), clock: clock.clone(), script: Mutex::new(script) };
        let shared = Arc::new(shared);
        let router = Router::new().route("/realms/a/{*what}", any(answer)).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { issuer, shared, task }
    }

    /// Changes what it does.
    pub(crate) fn does<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.shared.script.lock())
    }

    /// How often something was asked for.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.does(|script| script.asked.iter().filter(|asked| *asked == what).count())
    }

    /// Lets the person at the browser through who was sent to an address.
    pub(crate) fn authorize(&self, location: &str) -> SentBack {
        let url = Url::parse(location).unwrap();
        assert_eq!(url.path(), "/realms/a/authorize");
        let query: HashMap<String, String> = url.query_pairs().into_owned().collect();
        assert_eq!(query.len(), url.query_pairs().count(), "each once: {location}");
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", CLIENT),
            ("code_challenge_method", "S256"),
            ("scope", "openid profile email"),
        ] {
            assert_eq!(query[name], value);
        }
        for name in ["state", "nonce", "code_challenge"] {
            assert_eq!(query[name].len(), 43, "{name}");
        }
        let state = query["state"].clone();
        self.does(|script| {
            let code = format!("code+{}", script.codes.len());
            script.codes.insert(code.clone(), query);
            SentBack { code, state }
        })
    }
}

async fn answer(State(shared): State<Arc<Shared>>, Path(what): Path<String>, request: Request) -> Response {
    let fault = {
        let mut script = shared.script.lock();
        script.asked.push(what.clone());
        script.faults.get(what.as_str()).cloned()
    };
    match fault {
        Some(Fault::Hangs) => std::future::pending().await,
        Some(Fault::Answers(status, body)) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        Some(Fault::Floods) => {
            let chunks = std::iter::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 16])));
            Body::from_stream(futures_util::stream::iter(chunks)).into_response()
        }
        Some(Fault::Redirects(to)) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, to)]).into_response(),
        None => match what.as_str() {
            ".well-known/openid-configuration" => Json(shared.document()).into_response(),
            "keys" => Json(json!({"keys": shared.script.lock().keys})).into_response(),
            "token" => shared.token(request).await,
            _ => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

impl Shared {
    fn document(&self) -> Value {
        let at = |what: &str| format!("{}/{what}", self.issuer);
        let mut document = json!({
            "issuer": self.issuer, "authorization_endpoint": at("authorize"), "token_endpoint": at("token"),
            "jwks_uri": at("keys"), "id_token_signing_alg_values_supported": ["EdDSA"],
        });
        merge(&mut document, &self.script.lock().document);
        document
    }

    async fn token(&self, request: Request) -> Response {
        let refused =
            |error: &str| (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response();
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
        let form: HashMap<_, _> = form_urlencoded::parse(&body).into_owned().collect();
        let post = self.document()["token_endpoint_auth_methods_supported"] == json!(["client_secret_post"]);
        let (client, secret) = match parts.headers.get(AUTHORIZATION) {
            Some(header) if !post => {
                let basic = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
                let basic = String::from_utf8(BASE64_STANDARD.decode(basic).unwrap()).unwrap();
                let (client, secret) = basic.split_once(':').unwrap();
                let decoded = |text: &str| {
                    let pairs: Vec<_> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
                    pairs[0].0.clone()
                };
                (decoded(client), decoded(secret))
            }
            None if post => (form["client_id"].clone(), form["client_secret"].clone()),
            _ => return refused("invalid_client"),
        };
        if (client.as_str(), secret.as_str()) != (CLIENT, SECRET) {
            return refused("invalid_client");
        }
        let asked = self.script.lock().codes.remove(&form["code"]);
        let Some(asked) = asked else { return refused("invalid_grant") };
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
        let fits = challenge == asked["code_challenge"]
            && form["redirect_uri"] == asked["redirect_uri"]
            && form["grant_type"] == "authorization_code";
        if !fits {
            return refused("invalid_grant");
        }
        let token = self.id_token(&asked["nonce"]);
        Json(json!({"access_token": "at", "token_type": "Bearer", "id_token": token})).into_response()
    }

    fn id_token(&self, nonce: &str) -> String {
        let mut script = self.script.lock();
        let now_s = self.clock.now_ms() / 1000;
        let mut claims = json!({
            "iss": self.issuer, "aud": CLIENT, "exp": now_s + 300, "iat": now_s, "nonce": nonce,
        });
        merge(&mut claims, &script.claims);
        let mut header = Value::Object(Map::new());
        merge(&mut header, &json!({"alg": script.signer.algorithm(), "typ": "JWT", "kid": script.key_id}));
        merge(&mut header, &script.header);
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(script.signer.sign(message.as_bytes()));
        script.last_token = format!("{message}.{signature}");
        script.last_token.clone()
    }
}
