//! The public log that a receipt has to be in.

use std::fs;

use axum::Router;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::routing::get;
use cloister_aci::log::{Inclusion, Proof, Record};
use cloister_transparency_log::{Log, SigningKey};
use serde_json::{Value, json};

use super::{Lab, serving};
use crate::inference::KEY;

/// Code of a command line that is wrong.
const USAGE: i32 = 2;

fn write(lab: &Lab, name: &str, text: &str) {
    fs::write(lab.path(name), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_in_the_log_of_the_gateway_and_the_log_goes_on() {
    let lab = Lab::new().await;
    let id = lab.receipt["receipt_id"].as_str().unwrap();
    write(&lab, "key", KEY);
    let url = format!("--url {} --key-file key", lab.client.base);
    let first = lab.run(id, &format!("{url} --save-log-checkpoint first.note"));
    assert_eq!((first.code, first.outcome("log")), (0, "holds"), "{}", first.words);
    // Who keeps the proof and the key needs no gateway.
    write(&lab, "log.key", &lab.client.text("/v1/aci/log/key").await);
    write(&lab, "proof.json", &lab.client.text(&format!("/v1/aci/receipts/{id}/inclusion")).await);
    let kept = lab.verify(&lab.receipt, "--inclusion proof.json --log-key log.key");
    assert_eq!((kept.code, kept.outcome("log")), (0, "holds"), "{}", kept.words);
    // The log has grown, and begins with what it was.
    lab.client.ask(&lab.request).await;
    let more =
        format!("{url} --log-key log.key --log-checkpoint first.note --save-log-checkpoint second.note");
    let second = lab.run(id, &more);
    assert_eq!((second.code, second.outcome("log")), (0, "holds"), "{}", second.words);
    // A proof that was kept is older than what was seen last, and does not make that forgotten.
    let saved = fs::read(lab.path("second.note")).unwrap();
    let seen = "--log-checkpoint second.note --save-log-checkpoint second.note";
    let older = lab.verify(&lab.receipt, &format!("{url} --inclusion proof.json {seen}"));
    assert_eq!((older.code, older.outcome("log")), (0, "holds"), "{}", older.words);
    assert_eq!(fs::read(lab.path("second.note")).unwrap(), saved);
    let lost = lab.verify(&lab.receipt, &format!("{url} --save-log-checkpoint second.note"));
    assert!(lost.code == USAGE && lost.words.contains("--log-checkpoint"), "{}", lost.words);
    // A gateway that has another log by now.
    write(&lab, "foreign.note", &log(&lab, "foreign", &[]).await.checkpoint().unwrap());
    let foreign = lab.verify(&lab.receipt, &format!("{url} --log-checkpoint foreign.note"));
    foreign.is_refused_for(&["log"], "its key is another");
    // The log of a receipt that is at hand is not looked at, nor does the gateway get a key, but for who asks for it.
    let url = format!("--url {}", lab.client.base);
    let open = lab.verify(&lab.receipt, &url);
    assert_eq!((open.code, open.outcome("log")), (0, "not-checked"), "{}", open.words);
    let asked = lab.verify(&lab.receipt, &format!("{url} --log-key log.key"));
    assert!(asked.code == 4 && asked.words.contains("--key-file FILE"), "{}", asked.words);

    // What does not prove it.
    let proof: Inclusion =
        serde_json::from_str(&fs::read_to_string(lab.path("proof.json")).unwrap()).unwrap();
    let mut forged = json!(proof);
    forged["record"] = json!(proof.record.replace("served_at", "served_on"));
    let mut cut = json!(proof);
    cut["hashes"] = json!(["00"]);
    let (other, _) = lab.client.ask(&lab.request).await;
    // Waits until it is logged.
    lab.run(&other, &format!("--url {} --key-file key", lab.client.base));
    let others = lab.client.fetch(&format!("/v1/aci/receipts/{other}/inclusion")).await;
    for (proof, words) in [
        (forged, "does not contain the record"),
        (cut, "does not contain the record"),
        (others, "the log has another receipt there"),
        (json!({}), "cannot be read"),
    ] {
        lab.write("other.json", &proof);
        let found = lab.verify(&lab.receipt, "--inclusion other.json --log-key log.key");
        found.is_refused_for(&["log"], words);
    }
    let key = SigningKey::from_seed(&[1; 32]).verifier_key("cloister/receipt-log");
    write(&lab, "other.key", &key);
    let found = lab.verify(&lab.receipt, "--inclusion proof.json --log-key other.key");
    found.is_refused_for(&["log"], "not signed by the expected key");
    write(&lab, "no.key", "no key");
    for (more, words) in [
        ("--inclusion proof.json", "--log-key FILE"),
        ("--log-key log.key", "--inclusion FILE"),
        ("--inclusion proof.json --log-key no.key", "has no key of a log"),
    ] {
        let found = lab.verify(&lab.receipt, more);
        assert!(found.code == USAGE && found.words.contains(words), "{more}: {}", found.words);
    }
    let line = format!("{url} --key-file key --log-key other.key --log-checkpoint first.note");
    let found = lab.verify(&lab.receipt, &line);
    assert!(found.code == USAGE && found.words.contains("another log"), "{}", found.words);
}

/// A log with receipts of these names, and the one of the lab at its end, by the key that all logs of the test have.
async fn log(lab: &Lab, dir: &str, names: &[&str]) -> Log {
    let log = Log::open(&lab.path(dir), SigningKey::from_seed(&[7; 32]), "test/log").unwrap();
    for name in names {
        log.append(name.as_bytes().to_vec()).await.unwrap();
    }
    log.append(Record::of(&lab.receipt).unwrap().text().into_bytes()).await.unwrap();
    log
}

/// A gateway that shows this log, and the receipt in it at this place.
async fn showing(lab: &Lab, log: Log, index: u64) -> String {
    let (key, checkpoint, record) =
        (log.verifier_key(), log.checkpoint().unwrap(), Record::of(&lab.receipt).unwrap().text());
    let hashes = |hashes: Vec<[u8; 32]>| hashes.into_iter().map(hex::encode).collect::<Vec<_>>();
    let proof =
        Inclusion { index, record, checkpoint, hashes: hashes(log.inclusion(index, log.size()).unwrap()) };
    let consistency = move |Query(sizes): Query<Value>| async move {
        let size = |name: &str| sizes[name].as_str().unwrap().parse().unwrap();
        let proof = log.consistency(size("from"), size("to")).map_err(|_| StatusCode::BAD_REQUEST)?;
        Ok::<_, StatusCode>(json!(Proof { hashes: hashes(proof) }).to_string())
    };
    let router = Router::new()
        .route("/v1/aci/log/key", get(|| async { key }))
        .route("/v1/aci/log/consistency", get(consistency))
        .route("/v1/aci/receipts/{id}/inclusion", get(|| async move { json!(proof).to_string() }));
    serving(router).await
}

/// A gateway that takes something out of its log, or writes another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_changed_is_found() {
    let lab = Lab::new().await;
    write(&lab, "key", KEY);
    let check = async |log: Log, index: u64, more: &str| {
        let url = showing(&lab, log, index).await;
        lab.verify(&lab.receipt, &format!("--url {url} --key-file key {more}"))
    };
    let seen = "--log-checkpoint seen.note";
    let found = check(log(&lab, "a", &["1", "2"]).await, 2, "--save-log-checkpoint seen.note").await;
    assert_eq!((found.code, found.outcome("log")), (0, "holds"), "{}", found.words);
    let found = check(log(&lab, "b", &["1", "2"]).await, 2, seen).await;
    assert_eq!((found.code, found.outcome("log")), (0, "holds"), "{}", found.words);
    let saved = fs::read(lab.path("seen.note")).unwrap();
    let again = format!("{seen} --save-log-checkpoint seen.note");
    let changed = check(log(&lab, "c", &["1", "other", "3"]).await, 3, &again).await;
    changed.is_refused_for(&["log"], "does not begin with what it was before");
    let shorter = check(log(&lab, "d", &["1"]).await, 1, &again).await;
    shorter.is_refused_for(&["log"], "does not show that its log of 3 records begins with the 2");
    assert_eq!(fs::read(lab.path("seen.note")).unwrap(), saved, "what does not hold is not kept");
}

/// A gateway without a log, and one that keeps the receipt out of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_asked_for_has_to_be_shown() {
    let lab = Lab::new().await;
    write(&lab, "key", KEY);
    let id = lab.receipt["receipt_id"].as_str().unwrap();
    let given = lab.receipt.to_string();
    let shows = Router::new().route("/v1/aci/receipts/{id}", get(|| async { given }));
    let none = format!("--url {} --key-file key", serving(shows.clone()).await);
    let found = lab.run(id, &none);
    assert_eq!((found.code, found.outcome("log")), (0, "not-checked"), "{}", found.words);
    let found = lab.run(id, &format!("{none} --save-log-checkpoint seen.note"));
    found.is_refused_for(&["log"], "keeps no log");
    assert!(!lab.path("seen.note").exists());

    let key = SigningKey::from_seed(&[7; 32]).verifier_key("test/log");
    let hides = shows
        .route("/v1/aci/log/key", get(|| async { key }))
        .route("/v1/aci/receipts/{id}/inclusion", get(|| async { StatusCode::NOT_FOUND }));
    let hides = format!("--url {} --key-file key", serving(hides).await);
    let found = lab.run(id, &hides);
    assert_eq!((found.code, found.outcome("log")), (0, "not-checked"), "{}", found.words);
    assert!(found.document.to_string().contains("does not show that the receipt is in its log"));
    let found = lab.run(id, &format!("{hides} --save-log-checkpoint seen.note"));
    found.is_refused_for(&["log"], "does not show that the receipt is in its log");
    assert!(found.words.contains("in the log that you know"), "{}", found.words);
}

/// Trouble with the log hides no other check: it is told, and refused where the log is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn trouble_with_the_log_is_told_beside_the_other_checks() {
    let lab = Lab::new().await;
    write(&lab, "key", KEY);
    let id = lab.receipt["receipt_id"].as_str().unwrap();
    let given = lab.receipt.to_string();
    let shows = Router::new().route("/v1/aci/receipts/{id}", get(|| async { given }));
    let key = SigningKey::from_seed(&[7; 32]).verifier_key("test/log");
    let with_key = shows.clone().route("/v1/aci/log/key", get(|| async { key }));
    let later = || async { (StatusCode::NOT_FOUND, [("retry-after", "1")]) };
    let fails = || async { StatusCode::INTERNAL_SERVER_ERROR };
    let inclusion = "/v1/aci/receipts/{id}/inclusion";
    for (router, words) in [
        (shows.clone().route("/v1/aci/log/key", get(fails)), "the log cannot be looked at"),
        (with_key.clone().route(inclusion, get(fails)), "the log cannot be looked at"),
        (with_key.clone().route(inclusion, get(later)), "not in the log yet: try again"),
    ] {
        let url = format!("--url {} --key-file key", serving(router).await);
        let found = lab.run(id, &url);
        assert_eq!((found.code, found.outcome("log")), (0, "not-checked"), "{}", found.words);
        assert!(found.document.to_string().contains(words), "{}", found.document);
        lab.run(id, &format!("{url} --save-log-checkpoint seen.note")).is_refused_for(&["log"], words);
    }
    let nonsense = shows.route("/v1/aci/log/key", get(|| async { "nonsense" }));
    let url = format!("--url {} --key-file key", serving(nonsense).await);
    lab.run(id, &url).is_refused_for(&["log"], "the gateway's key of the log cannot be used");
}
