//! A gateway in a confidential VM, with the model beside it: what it proves before it is asked, what it answers, and what
//! another gateway makes of it.

use std::fs;

use cloister_tests::command::{Ran, Up};
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::client_trusting;
use cloister_tests::inference::{Inference, KEY};
use cloister_tests::{PATIENCE, eventually, paths};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// `cloister verify` found a claim that fails.
const REFUTED: i32 = 8;

/// A cloud with the CVM of the example.
struct Lab {
    dir: DataDir,
    up: Up,
    compose_hash: String,
}

impl Lab {
    async fn start() -> Self {
        let dir = DataDir::new();
        let up = Up::start(dir.path(), None).await;
        let pushed = done(&up, &["--json", "image", "push", paths::cloister_image().to_str().unwrap()]).await;
        let compose = fs::read_to_string(paths::confidential_inference().join("compose.yaml")).unwrap();
        let compose = compose.replace("KEY_SHA256", &hex::encode(Sha256::digest(KEY)));
        let compose = compose.replace("IMAGE_DIGEST", text(&pushed["nodes"][0]["digest"]));
        let mut lab = Self { dir, up, compose_hash: String::new() };
        let compose = lab.file("compose.yaml", compose.as_bytes());
        let authority = lab.kms_roots("ca_pubkey").await;
        let line =
            ["--json", "deploy", "-n", "inference", "-c", &compose, "--key-provider-id", text(&authority[0])];
        let deployed = lab.up.run(&line).await;
        if deployed.code != 0 {
            // Only the machine itself knows why it ended.
            let serial = lab.up.run(&["cvms", "logs", "inference", "--serial"]).await;
            panic!("{deployed:?}\n{}", serial.stdout);
        }
        let cvm = done(&lab.up, &["--json", "cvms", "get", "inference"]).await;
        text(&cvm["compose_hash"]).clone_into(&mut lab.compose_hash);
        lab
    }

    /// Writes a file of the test; its path.
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn root(&self) -> String {
        self.up.data_dir().join("control-plane/development-root.pem").to_str().unwrap().to_owned()
    }

    fn https_port(&self) -> String {
        self.up.document["https_port"].to_string()
    }

    /// One of the keys of each root of the cloud's KMS.
    async fn kms_roots(&self, key: &str) -> Vec<Value> {
        let status = done(&self.up, &["--json", "kms", "status"]).await;
        status["meta"]["roots"].as_array().unwrap().iter().map(|root| root[key].clone()).collect()
    }

    /// Judges something by the evidence of a machine that runs this document.
    async fn verify(&self, arguments: &[&str], compose_hash: &str) -> Ran {
        let root = self.root();
        let demanded = ["--compose-hash", compose_hash, "--development-root", &root];
        self.up.run(&[&["--json", "verify"], arguments, &demanded].concat()).await
    }

    /// The receipt and the answer, a stream, of a gateway that the client trusts.
    async fn ask(&self, client: &reqwest::Client, url: &str, model: &str) -> Asked {
        let request = json!({
            "model": model, "stream": true, "messages": [{"role": "user", "content": "say hello"}],
            "provider": {"aci_verified": true},
        });
        let request = request.to_string();
        let asked = client.post(format!("{url}/v1/chat/completions")).bearer_auth(KEY);
        let asked = asked.header("content-type", "application/json").body(request.clone());
        let answer = asked.send().await.unwrap();
        let status = answer.status();
        let receipt = answer.headers()["x-receipt-id"].to_str().unwrap().to_owned();
        let answer = answer.bytes().await.unwrap();
        let said = String::from_utf8_lossy(&answer);
        assert!(status == 200 && said.contains("hello") && said.ends_with("data: [DONE]\n\n"), "{said}");
        let request = self.file("request.json", request.as_bytes());
        Asked { receipt, request, answer: self.file("answer.sse", &answer) }
    }
}

/// A request that was answered: id of its receipt, and files with what went in and what came.
struct Asked {
    receipt: String,
    request: String,
    answer: String,
}

impl Asked {
    fn line<'a>(&'a self, url: &'a str, key: &'a str) -> [&'a str; 10] {
        let Self { receipt, request, answer } = self;
        ["receipt", receipt, "--url", url, "--key-file", key, "--request", request, "--response", answer]
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

async fn done(up: &Up, arguments: &[&str]) -> Value {
    let ran = up.run(arguments).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json()
}

fn outcome(judged: &Ran, id: &str) -> String {
    let document = judged.json();
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == id);
    text(&check.unwrap_or_else(|| panic!("no {id}: {document}"))["outcome"]).to_owned()
}

/// The gateway of the example has its keys from the KMS and its evidence from the machine that the model is in, too. It ends
/// TLS itself, so the operator's ingress sees nothing of what is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_in_a_cvm_answers_for_the_model_beside_it() {
    let lab = Lab::start().await;
    let (https_port, certificate) = (lab.https_port(), lab.dir.path().join("gateway.pem"));
    let certificate = certificate.to_str().unwrap();
    let kms = lab.kms_roots("ca_pubkey").await;
    let any_kms = ["gateway", "inference", "--https-port", &https_port, "--save-certificate", certificate];
    let gateway = [&any_kms[..], &["--key-provider-id", text(&kms[0])]].concat();
    let proven = eventually("the gateway in the guest proves itself", PATIENCE, async || {
        let judged = lab.verify(&gateway, &lab.compose_hash).await;
        (judged.code == 0).then_some(judged)
    })
    .await;
    assert_eq!(outcome(&proven, "tls"), "holds", "{proven:?}");
    let proven = proven.json();
    let url = text(&proven["url"]);
    let pem = fs::read(certificate).unwrap();
    fs::remove_file(certificate).unwrap();
    let of_another_kms = [&any_kms[..], &["--key-provider-id", "3059"]].concat();
    for (line, compose_hash) in [
        (&gateway, &"0".repeat(64)),
        (&any_kms.to_vec(), &lab.compose_hash),
        (&of_another_kms, &lab.compose_hash),
    ] {
        let refused = lab.verify(line, compose_hash).await;
        assert_eq!(refused.code, REFUTED, "{refused:?}");
    }
    assert!(fs::metadata(certificate).is_err(), "nothing is kept of what is not proven");
    fs::write(certificate, &pem).unwrap();

    let key = lab.file("key", KEY.as_bytes());
    let inside = lab.ask(&client_trusting(&pem, url, PATIENCE), url, "demo/own").await;
    let line = [&inside.line(url, &key)[..], &["--certificate", certificate]].concat();
    let other = lab.verify(&line, &"0".repeat(64)).await;
    assert_eq!(other.code, REFUTED, "{other:?}");
    let judged = lab.verify(&line, &lab.compose_hash).await;
    assert_eq!(judged.code, 0, "{judged:?}");
    for check in ["signature", "keyset", "subject", "request", "response"] {
        assert_eq!(outcome(&judged, check), "holds", "{check}: {judged:?}");
    }
    assert_eq!(outcome(&judged, "upstream"), "not-checked", "{judged:?}");

    another_gateway_verifies_it(&lab, url, &proven).await;
    assert_eq!(lab.up.interrupt().await, 0);
}

/// For a gateway anywhere else it is an upstream that proves what it is, and gets nothing before it has.
async fn another_gateway_verifies_it(lab: &Lab, url: &str, proven: &Value) {
    let providers = lab.kms_roots("ca_pubkey").await;
    let roots = lab.kms_roots("k256_pubkey").await;
    let api = text(&lab.up.document["api_url"]).trim_end_matches("/api/v1");
    let upstream = |name: &str, compose_hash: &str| {
        json!({
            "name": name,
            "provider": "aci-service",
            "base_url": url,
            "ca_file": lab.dir.path().join("gateway.pem"),
            "bearer_token": KEY,
            "models": {name: "demo/own"},
            "accepted_compose_hashes": [compose_hash],
            "accepted_os_image_hashes": [proven["evidence"]["subject"]["os_image_hash"]],
            "accepted_key_provider_ids": providers,
            "accepted_kms_root_public_keys": roots,
        })
    };
    let directory = lab.dir.path().join("outer");
    fs::create_dir(&directory).unwrap();
    let more = json!({
        "upstreams": [upstream("own", &lab.compose_hash), upstream("other", &"0".repeat(64))],
        "trust": {
            "development_root": lab.root(),
            "development_pccs_url": format!("{api}/development-pccs"),
        },
    });
    let outer = Inference::of(&directory, &more).await;
    let asked = lab.ask(&outer.client(), &outer.url, "own").await;
    let receipt = outer.client().get(format!("{}/v1/aci/receipts/{}", outer.url, asked.receipt));
    let receipt = receipt.bearer_auth(KEY).send().await.unwrap().bytes().await.unwrap();
    let receipt: Value = serde_json::from_slice(&receipt).unwrap();
    let events = receipt["event_log"].as_array().unwrap();
    let verified = events.iter().find(|event| event["type"] == "upstream.verified").unwrap();
    assert_eq!(
        (&verified["result"], &verified["required"]),
        (&json!("verified"), &json!(true)),
        "{receipt:#}"
    );

    let request = json!({"model": "other", "messages": [{"role": "user", "content": "say hello"}]});
    let asked = outer.client().post(format!("{}/v1/chat/completions", outer.url)).bearer_auth(KEY);
    let refused = asked.body(request.to_string()).send().await.unwrap();
    let status = refused.status();
    let refused = refused.text().await.unwrap();
    assert!(status == 503 && refused.contains("upstream_verification_failed"), "{status} {refused}");
}
