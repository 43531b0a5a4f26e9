//! `cloister verify gateway`: whether a gateway is what it should be and TLS ends at it, before anything is sent there.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cloister_development_tee::HostProcessAgent;
use reqwest::Certificate;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::guest::{Guest, serve};
use crate::inference::{KEY, Part, echo};
use crate::receipts::{UNVERIFIED, agent, tls_server};
use crate::support::{bare, tunnel_to};

const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// Code where nobody answers who is believed.
const UNREACHABLE: i32 = 7;
const KEPT: &str = "gateway.pem";

struct Lab {
    home: TempDir,
    gateway: Part,
    pccs: String,
    _upstream: Part,
    _agent: HostProcessAgent,
}

struct Found {
    code: Option<i32>,
    document: Value,
    words: String,
}

impl Found {
    fn outcome(&self, check: &str) -> &str {
        let checks = self.document["checks"].as_array().unwrap_or_else(|| panic!("{}", self.words));
        checks.iter().find(|found| found["id"] == check).unwrap()["outcome"].as_str().unwrap()
    }

    fn is_refused(&self, words: &str) {
        assert_eq!(self.code, Some(UNVERIFIED), "{}", self.words);
        assert!(self.words.contains(words), "{words}: {}", self.words);
    }
}

impl Lab {
    fn new(tls: &Value) -> Self {
        // The client wants a provider where the test has no other TLS to do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let home = tempfile::tempdir().unwrap();
        let guest = Arc::new(Guest::new());
        let pccs = format!("http://{}", serve(&guest, None));
        fs::write(home.path().join("root.pem"), guest.vendor.root_pem()).unwrap();
        fs::write(home.path().join("key"), KEY).unwrap();
        let (agent, _) = agent(&home, &guest);
        let upstream = echo(&home, 0);
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": home.path().join("state"),
            "agent_socket": home.path().join("agent/agent.sock"),
            "tls": tls,
            "keys": [{ "name": "test", "sha256": hex::encode(Sha256::digest(KEY)) }],
            "upstreams": [{ "name": "echo", "base_url": format!("http://{}", upstream.address), "models": { "m": "echo" } }],
        });
        fs::write(home.path().join("gateway.json"), config.to_string()).unwrap();
        let gateway = Part::start(&home, "serve inference-gateway --config gateway.json", "gateway.log");
        Self { home, gateway, pccs, _upstream: upstream, _agent: agent }
    }

    fn run(&self, line: &str) -> Found {
        self.through(None, line)
    }

    /// By a proxy.
    fn through(&self, proxy: Option<String>, line: &str) -> Found {
        let line = format!("--json verify {line} --development-root root.pem --pccs {}", self.pccs);
        let output = bare(&self.home, &line).envs(proxy.map(|url| ("https_proxy", url))).output().unwrap();
        Found {
            code: output.status.code(),
            document: serde_json::from_slice(&output.stdout).unwrap_or_default(),
            words: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Keeps the certificate of the application that is there.
    fn keep(&self, url: &str) -> Found {
        let found = self.run(&format!("gateway {url}"));
        let app_id = found.document["evidence"]["subject"]["app_id"].as_str();
        let app_id = app_id.unwrap_or_else(|| panic!("{}", found.words));
        self.run(&format!("gateway {url} --app-id {app_id} --save-certificate {KEPT}"))
    }

    fn kept(&self) -> PathBuf {
        self.home.path().join(KEPT)
    }

    fn url(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://{host}:{}", self.gateway.address.port())
    }

    /// A client that trusts the kept certificate and nothing else, and finds both names here.
    fn client(&self) -> reqwest::Client {
        let kept = Certificate::from_pem(&fs::read(self.kept()).unwrap()).unwrap();
        let here = self.gateway.address;
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([kept]);
        builder.resolve("gateway.localhost", here).resolve("other.localhost", here).build().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_proven_is_kept_and_nobody_else_is_trusted_by_it() {
    let lab = Lab::new(&json!({ "self_signed": true }));
    let url = lab.url("https", "gateway.localhost");
    let keep = format!("gateway {url}/v1 --save-certificate {KEPT}");
    lab.run(&format!("{keep} --compose-hash {}", "0".repeat(64)))
        .is_refused("the evidence is refused: compose");
    let unknown = lab.run(&keep);
    unknown.is_refused("nothing is kept: the application could be any");
    assert_eq!(unknown.document["certificate_kept"], false);
    assert!(!lab.kept().exists());

    let found = lab.keep(&url);
    assert_eq!((found.code, &found.document["verified"]), (Some(0), &json!(true)), "{}", found.words);
    for check in ["keyset", "subject", "tls"] {
        assert_eq!(found.outcome(check), "holds", "{check}: {}", found.document);
    }
    assert_eq!(found.document["url"], url);
    assert_eq!(found.document["certificate_kept"], true);

    // Clients need no more than the certificate.
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    let ask = |url: &str| {
        lab.client().post(format!("{url}/v1/chat/completions")).bearer_auth(KEY).body(body.clone()).send()
    };
    let answer = ask(&url).await.unwrap().error_for_status().unwrap();
    let receipt = answer.headers()["x-receipt-id"].to_str().unwrap().to_owned();
    assert_eq!(
        answer.headers()["x-aci-keyset-digest"].to_str().unwrap(),
        found.document["keyset_digest"].as_str().unwrap()
    );
    assert!(ask(&lab.url("https", "other.localhost")).await.is_err());

    // The command trusts it, too, and nothing else.
    let line = format!("receipt {receipt} --url {url}/v1 --key-file key");
    let receipt = lab.run(&format!("{line} --certificate {KEPT}"));
    assert_eq!(receipt.outcome("signature"), "holds", "{}", receipt.words);
    assert_eq!(receipt.outcome("request"), "not-checked", "{}", receipt.words);
    lab.run(&format!("{line} --certificate root.pem"))
        .is_refused("its certificate is not the one that was kept");
    let found = lab.run(&line);
    assert_eq!(found.code, Some(UNREACHABLE), "{}", found.words);
    assert!(found.words.contains("is believed by --certificate"), "{}", found.words);
    fs::write(lab.home.path().join("empty"), "").unwrap();
    let found = lab.run(&format!("{line} --certificate empty"));
    assert!(found.words.contains("empty holds no certificate"), "{}", found.words);
    let found = lab.run(&format!("{} --certificate {KEPT}", line.replace("https:", "http:")));
    assert!(found.words.contains("--url has to be https"), "{}", found.words);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_between_is_seen_whatever_he_passes_on() {
    let lab = Lab::new(&json!({ "self_signed": true }));
    let url = lab.url("https", "gateway.localhost");
    assert_eq!(lab.keep(&url).code, Some(0));
    let kept = fs::read(lab.kept()).unwrap();
    let report = lab.client().get(format!("{url}/v1/aci/attestation?nonce={NONCE}")).send().await.unwrap();
    let report = report.error_for_status().unwrap().text().await.unwrap();
    let (address, _) = tls_server(format!("content-type: application/json\r\n\r\n{report}"));
    let between = format!("https://gateway.localhost:{}", address.port());
    let found = lab.run(&format!("gateway {between} --nonce {NONCE} --save-certificate {KEPT}"));
    found.is_refused("the gateway is refused: tls");
    assert!(found.words.contains("somebody may sit between"), "{}", found.words);
    assert_eq!(found.document["verified"], false);
    assert_eq!(found.document["evidence"]["verified"], true, "{}", found.document);
    assert_eq!(fs::read(lab.kept()).unwrap(), kept);
    // A proxy that he has changes nothing, nor does a genuine one.
    let named = "gateway https://gateway.example.test";
    let found = lab.through(Some(tunnel_to(address)), &format!("{named} --nonce {NONCE} --any-tls"));
    found.is_refused("the gateway is refused: tls");
    let found = lab.through(Some(format!("https://{address}")), named);
    assert!(found.words.contains("a proxy that is reached by TLS itself"), "{}", found.words);
    let found = lab.through(Some(tunnel_to(lab.gateway.address)), named);
    assert_eq!((found.code, found.outcome("tls")), (Some(0), "holds"), "{}", found.words);
    // A report that was kept for later is of no use to him.
    lab.run(&format!("gateway {between}")).is_refused("the report does not bind its keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_proves_whom_tls_ends_at_that_has_to_be_accepted() {
    let lab = Lab::new(&Value::Null);
    let url = lab.url("http", "gateway.localhost");
    for option in [String::new(), format!("--save-certificate {KEPT}")] {
        let found = lab.run(&format!("gateway {url} {option}"));
        found.is_refused("the gateway is not proven: tls");
        assert!(found.words.contains("--any-tls"), "{}", found.words);
        assert_eq!((found.outcome("tls"), &found.document["verified"]), ("not-checked", &json!(false)));
    }
    assert!(!lab.kept().exists());
    let found = lab.run(&format!("gateway {url} --any-tls"));
    assert_eq!((found.code, &found.document["verified"]), (Some(0), &json!(true)), "{}", found.words);
}

/// Of an authority, or for a name that clients do not ask for.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_clients_would_not_take_alone_is_not_kept() {
    let lab = Lab::new(&json!({ "self_signed": true }));
    let found = lab.keep(&lab.url("https", "127.0.0.1"));
    assert!(found.words.contains("name the gateway by a host name"), "{}", found.words);
    assert_eq!(found.document["verified"], true);
    assert!(!lab.kept().exists());

    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    let (authority, key) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::new(params, authority);
    let own = rcgen::CertificateParams::new(vec!["gateway.localhost".to_owned()]).unwrap();
    fs::write(path("cert.pem"), own.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    let lab = Lab::new(&json!({ "certificate": path("cert.pem"), "key": path("key.pem") }));
    let url = lab.url("https", "gateway.localhost");
    let found = lab.run(&format!("gateway {url}"));
    assert_eq!((found.code, found.outcome("tls")), (Some(0), "holds"), "{}", found.words);
    let found = lab.keep(&url);
    assert!(found.code == Some(1) && found.words.contains("tls.self_signed"), "{}", found.words);
    assert!(!lab.kept().exists());
}

#[test]
fn what_is_called_like_a_command_is_verified_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let code = |line| bare(&home, line).output().unwrap().status.code();
    // Nobody is logged in.
    assert_eq!(code("verify -- gateway"), code("verify inference"));
    assert_eq!(code("verify gateway"), Some(2));
    assert_eq!(code("verify gateway https://gateway.localhost --https-port 1"), Some(2));
}
