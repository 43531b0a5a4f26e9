//! The published SDKs for guests, unmodified, at the agent's socket: what `tests/install-clients.sh` installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use cloister_sealed_env::{Environment, open};

use super::keys::{app, chain, root, socket, trusted};
use super::*;

/// Longest that an SDK takes for all its calls.
const PATIENCE: Duration = Duration::from_mins(2);
/// The key of the published vector, as accounts of two chains.
const ETHEREUM: &str = "0x4c3cd718a1bA0Fb4EA8FcE042590b16D8d278AEF";
const SOLANA: &str = "2JWKDSx7jzeaYaaECyVfuVhFt8b5EaAvrV5Ccw9MDLHj";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a program with an SDK against the socket of a machine with keys; what it got, by call.
async fn seen(program: &str, arguments: &[&Path], with_seal: bool) -> Value {
    let socket = socket().await;
    let packages = workspace().join("target/public-clients");
    let installed = packages.join("installed").is_file();
    assert!(
        installed,
        "the published clients are not installed; run tests/install-clients.sh public-clients"
    );
    let mut command = tokio::process::Command::from(Command::new(program));
    command.args(arguments).arg(&socket.path).stderr(Stdio::inherit()).kill_on_drop(true);
    if with_seal {
        command.arg(seal().to_string()).arg(&packages);
    }
    command.env("PYTHONPATH", packages.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = timeout(PATIENCE, command.output()).await.expect("it ends in time").expect("it starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The application's key for environments, and who signs it.
#[expect(
    clippy::disallowed_methods,
    reason = "the SDK compares the time of the signature with the machine's clock"
)]
fn seal() -> Value {
    let (root, app) = (root(), app());
    let public = root.env_public_key(&app).unwrap();
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    json!({
        "publicKey": hex::encode(public), "appId": app.to_string(), "timestamp": timestamp,
        "signature": hex::encode(root.sign_env_public_key(&app, &public, None)),
        "signatureNow": hex::encode(root.sign_env_public_key(&app, &public, Some(timestamp))),
    })
}

fn answer<'a>(seen: &'a Value, call: &str) -> &'a Value {
    assert_eq!(seen[call].get("error"), None, "{call}");
    seen[call].get("answer").unwrap_or_else(|| panic!("no {call}"))
}

/// What all of them have: quotes whose registers their own replay builds, keys, signatures.
fn check(seen: &Value) {
    assert_eq!(answer(seen, "version")["version"], env!("CARGO_PKG_VERSION"));
    let info = answer(seen, "info");
    assert_eq!(info["app_id"], app().to_string());
    assert!(info["tcb_info"]["app_compose"].as_str().unwrap().contains("grüße"), "{info}");
    let mut last = Value::Null;
    for call in ["quote", "event", "legacy_quote"] {
        let answered = answer(seen, call);
        let quote = hex::decode(answered["quote"].as_str().unwrap()).unwrap();
        let registers = Quote::parse(&quote).unwrap().td_report().unwrap().registers();
        let is =
            [registers.rtmr0, registers.rtmr1, registers.rtmr2, registers.rtmr3].map(|rtmr| rtmr.to_string());
        assert_eq!(answered["replayed"], json!(is), "{call}");
        assert!(call != "event" || json!(is) != last, "the event was measured");
        last = json!(is);
    }
    assert!(answer(seen, "attest").is_string() || answer(seen, "attest")["attestation"].is_string());
    let key = answer(seen, "key");
    assert_eq!(key["key"], "12471a991e8a8f0d20524e90126f1a310f7cb4ee2979185967e0c147e751c5ff");
    assert_eq!(chain(&key["chain"]).len(), 2);
    assert_eq!(answer(seen, "tls_key")["chain"], 3);
    for algorithm in ["secp256k1", "ed25519", "secp256k1_prehashed"] {
        assert_eq!(
            answer(seen, algorithm),
            &json!({"valid": true, "forged": false, "chain": 3}),
            "{algorithm}"
        );
    }
    assert_eq!(answer(seen, "legacy_info")["app_id"], app().to_string());
}

/// The environment that an SDK sealed.
fn check_sealed(seen: &Value) {
    let blob = hex::decode(answer(seen, "sealed").as_str().unwrap()).unwrap();
    let secret = root().env_key(&app()).unwrap();
    let environment = Environment::parse(&open(&secret, &blob).unwrap()).unwrap();
    assert_eq!(environment.iter().collect::<Vec<_>>(), [("SECRET", "ä=b")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_javascript_sdk_does_all_that_it_can() {
    let seen = seen("node", &[&workspace().join("tests/public-clients/guest.mjs")], true).await;
    check(&seen);
    check_sealed(&seen);
    for call in ["reachable", "legacy_reachable"] {
        assert_eq!(answer(&seen, call), true);
    }
    assert!(seen["long_quote"]["error"].as_str().unwrap().contains("64 bytes"));
    assert_eq!(answer(&seen, "ed25519_key"), &answer(&seen, "key")["key"]);
    for call in ["ethereum_account", "ethereum_account_plain"] {
        assert_eq!(answer(&seen, call), ETHEREUM);
    }
    assert_eq!(answer(&seen, "solana_account"), SOLANA);
    assert_eq!(answer(&seen, "legacy_key"), 32);
    assert!(answer(&seen, "legacy_quote_of_hash")["quote"].is_string());
    for call in ["seal_signer", "seal_signer_now"] {
        assert_eq!(answer(&seen, call), &json!(format!("0x{}", hex::encode(trusted()))), "{call}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_asynchronous_python_sdk_does_all_that_it_can() {
    let seen = seen("python3", &[&workspace().join("tests/public-clients/guest.py")], true).await;
    check(&seen);
    check_sealed(&seen);
    assert_eq!(answer(&seen, "reachable"), true);
    assert!(seen["long_quote"]["error"].is_string());
    assert!(answer(&seen, "legacy_key")["certificate_chain"].is_array());
    assert!(answer(&seen, "legacy_quote_of_hash")["quote"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_sdk_does_all_that_it_can() {
    let program = workspace().join("target/public-clients/guest-rs/debug/guest");
    let seen = seen(program.to_str().unwrap(), &[], false).await;
    check(&seen);
    assert_eq!(answer(&seen, "ethereum_account"), ETHEREUM);
    assert_eq!(answer(&seen, "tls_key")["is_pem"], true);
    assert_eq!(answer(&seen, "legacy_key"), 3);
}
