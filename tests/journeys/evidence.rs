//! What a CVM proves, as a relying party and as the application in it see it.

use std::fs;

use cloister_tests::command::{Ran, Up};
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, guest_images, paths};
use serde_json::{Value, json};

/// `cloister verify` found a claim that fails.
const REFUTED: i32 = 8;

fn data_dir() -> DataDir {
    let _ = rustls::crypto::ring::default_provider().install_default();
    DataDir::new()
}

/// Runs `cloister --json verify` with the root of this installation.
async fn verify(up: &Up, arguments: &[&str]) -> Ran {
    let root = up.data_dir().join("control-plane/development-root.pem");
    let https_port = up.document["https_port"].to_string();
    let mut line = vec!["--json", "verify"];
    line.extend(arguments);
    if !arguments.contains(&"--bundle") {
        line.extend(["--https-port", &https_port]);
    }
    line.extend(["--development-root", root.to_str().unwrap()]);
    up.run(&line).await
}

/// The outcome of one claim.
fn outcome<'a>(document: &'a Value, id: &str) -> &'a str {
    let claims = document["claims"].as_array().unwrap_or_else(|| panic!("no claims: {document}"));
    let claim = claims.iter().find(|claim| claim["id"] == id);
    claim.and_then(|claim| claim["outcome"].as_str()).unwrap_or_else(|| panic!("no claim {id}: {document}"))
}

/// What `cloister verify` said of evidence in which this claim must fail.
fn refuted(ran: &Ran, id: &str) {
    assert_eq!(ran.code, REFUTED, "{ran:?}");
    assert_eq!(outcome(&ran.json(), id), "fails", "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_can_tell_what_runs_and_notices_every_change() {
    let dir = data_dir();
    // An image that is the usual one but for a byte of its kernel: as good, and not to be taken for the other.
    let images = dir.path().join("images");
    fs::create_dir(&images).unwrap();
    let original = guest_images::newest(&paths::guest_images());
    let image = guest_images::with_another_kernel(&original, &images, "0.1.0");
    let (original, image) = (original.to_str().unwrap(), image.to_str().unwrap());
    let up = Up::start_with_images(dir.path(), &images, Some(&paths::hello())).await;

    let composition = up.run(&["--json", "cvms", "get", "hello"]).await.json();
    let app_id = composition["app_id"].as_str().unwrap();
    let bundle = dir.path().join("bundle.json");
    let bundle = bundle.to_str().unwrap();
    let ran = verify(&up, &["hello", "--image", image, "--app-id", app_id, "--save-bundle", bundle]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let verdict = ran.json();
    for claim in [
        "certificate",
        "freshness",
        "signature",
        "tcb",
        "debug",
        "boot",
        "event-log",
        "event-names",
        "compose",
        "app-id",
        "os-image",
    ] {
        assert_eq!(outcome(&verdict, claim), "holds", "{claim}: {verdict}");
    }
    assert_eq!(verdict["hardware"], false, "nobody may take this for hardware: {verdict}");
    let device = verdict["subject"]["device_id"].as_str().unwrap().to_owned();
    the_management_api_says_the_same(&up, app_id, &device).await;

    refuted(&verify(&up, &["hello", "--image", original]).await, "os-image");

    // Without the root, and in production, the same evidence proves nothing.
    assert_eq!(up.run(&["--json", "verify", "hello"]).await.code, REFUTED);
    assert_ne!(verify(&up, &["hello", "--production"]).await.code, 0);

    // The tenant's own document, and the same with one byte changed.
    let text = read_bundle(bundle)["document"]["app_compose"].as_str().unwrap().to_owned();
    let compose = dir.path().join("app-compose.json");
    fs::write(&compose, &text).unwrap();
    let compose = compose.to_str().unwrap();
    assert_eq!(verify(&up, &["hello", "--compose", compose]).await.code, 0);
    fs::write(compose, text.replacen("hello", "hellO", 1)).unwrap();
    refuted(&verify(&up, &["hello", "--compose", compose]).await, "compose");

    // Offline: as it was recorded, and with one digit of the event log changed.
    let offline = ["--bundle", bundle, "--image", image];
    assert_eq!(verify(&up, &offline).await.code, 0);
    let mut changed = read_bundle(bundle);
    let log = changed["document"]["event_log"].as_str().unwrap();
    let at = log.find("compose-hash").unwrap();
    let digit = log[at..].find("\"event_payload\":\"").unwrap() + at + "\"event_payload\":\"".len();
    let other = if &log[digit..=digit] == "0" { "1" } else { "0" };
    let log = format!("{}{other}{}", &log[..digit], &log[digit + 1..]);
    changed["document"]["event_log"] = Value::from(log);
    fs::write(bundle, changed.to_string()).unwrap();
    assert_eq!(
        verify(&up, &offline).await.code,
        REFUTED,
        "the two forms of the evidence contradict each other"
    );
    changed["document"]["attestation"] = Value::Null;
    fs::write(bundle, changed.to_string()).unwrap();
    refuted(&verify(&up, &offline).await, "event-log");

    assert_eq!(up.interrupt().await, 0);
}

/// The app's own address, `/attestations` and the CVM's attestation, over the really running CVM.
async fn the_management_api_says_the_same(up: &Up, app_id: &str, device: &str) {
    let app_url = up.document["app_url"].as_str().unwrap();
    let shown = get_text(&format!("{app_url}/attestation")).await.expect("the guest agent's answer");
    let shown: Value = serde_json::from_str(&shown).unwrap();

    let api = up.api();
    let quote = json!({ "hex": shown["quote"] });
    let judged = api.post("/attestations/verify", quote).await;
    assert_eq!(judged["success"], true, "{judged}");
    let checksum = judged["checksum"].as_str().unwrap();
    let recent = api.get("/attestations/recent").await;
    assert_eq!(recent[0]["checksum"], checksum, "{recent}");

    let cvm = api.get(&format!("/cvms/app_{app_id}/attestation")).await;
    assert_eq!((&cvm["is_online"], &cvm["verification"]["verified"]), (&json!(true), &json!(true)), "{cvm}");
    eventually("the node's device is known from a verified quote", PATIENCE, async || {
        (api.get("/attestations/nodes").await[0]["device_id"] == device).then_some(())
    })
    .await;
}

fn read_bundle(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What the program in the guest got for a call of the SDK.
fn answer<'a>(answers: &'a Value, call: &str) -> &'a Value {
    let answer = &answers[call]["answer"];
    assert!(!answer.is_null(), "{call}: {}", answers[call]);
    answer
}

fn error<'a>(answers: &'a Value, call: &str) -> &'a str {
    answers[call]["error"].as_str().unwrap_or_else(|| panic!("{call} was not refused: {}", answers[call]))
}

/// RTMR 0 to 3 of a TDX quote of version 4, hex.
fn rtmrs(quote: &str) -> Vec<&str> {
    (0..4).map(|index| &quote[(376 + 48 * index) * 2..(424 + 48 * index) * 2]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_sdk_reads_quote_and_info_inside_the_cvm() {
    let dir = data_dir();
    let up = Up::start(dir.path(), None).await;
    let pushed = up.run(&["image", "push", paths::guest_sdk().to_str().unwrap()]).await;
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let compose = paths::workspace().join("tests/guest-sdk/compose.yaml");
    let deployed = up.run(&["--json", "deploy", "-c", compose.to_str().unwrap(), "-n", "guest-sdk"]).await;
    assert_eq!(deployed.code, 0, "{deployed:?}");
    let cvm = up.run(&["--json", "cvms", "get", "guest-sdk"]).await.json();
    let url = cvm["endpoints"][0]["app"].as_str().unwrap().to_owned();
    let answers =
        eventually("the program in the guest answers", PATIENCE, async || get_text(&url).await).await;
    let answers: Value = serde_json::from_str(&answers).unwrap();

    assert_eq!(answer(&answers, "reachable"), true);
    let info = answer(&answers, "info");
    assert_eq!(info["app_id"], cvm["app_id"]);
    assert_eq!(info["instance_id"], cvm["instance_id"]);
    assert_eq!(info, answer(&answers, "own_info"), "the same under every name of the socket");
    assert_eq!(info["tcb_info"]["compose_hash"], info["compose_hash"]);

    let quote = answer(&answers, "quote");
    let replayed: Vec<_> =
        (0..4).map(|index| quote["replayed"][index.to_string()].as_str().unwrap()).collect();
    assert_eq!(replayed, rtmrs(quote["quote"].as_str().unwrap()), "the SDK's replay builds the registers");
    assert!(error(&answers, "long_quote").contains("64") || error(&answers, "long_quote").contains("400"));

    let after = answer(&answers, "event");
    let rtmrs_after = rtmrs(after["quote"].as_str().unwrap());
    assert_ne!(rtmrs_after[3], replayed[3], "the event was measured");
    assert_eq!(after["replayed"]["3"], rtmrs_after[3]);
    error(&answers, "platform_event");
    assert!(
        answer(&answers, "tls_key")["certificate_chain"][0].as_str().unwrap().contains("BEGIN CERTIFICATE")
    );
    error(&answers, "secret");
    assert_eq!(answer(&answers, "legacy_info")["app_id"], info["app_id"]);
    assert!(answer(&answers, "legacy_quote")["quote"].is_string());

    // What the application measured is its own word, and leaves every other claim as it was.
    let verdict = verify(&up, &["guest-sdk"]).await;
    assert_eq!(verdict.code, 0, "{verdict:?}");
    let words = verdict.json().to_string();
    assert!(words.contains("probe"), "{words}");
    assert_eq!(up.interrupt().await, 0);
}
