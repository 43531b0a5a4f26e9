//! The official pre-launch script.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{CvmStatus, Site};

const STATUS: &str = "/pre-launch-script/upgrade-status";
const UPGRADE: &str = "/pre-launch-script/upgrade-to-latest-official";

async fn status(site: &Site) -> Value {
    site.call("GET", STATUS, Value::Null).await.expect(200).json()
}

#[tokio::test]
async fn a_cvm_without_a_script_gets_it_and_keeps_it() {
    let site = Site::new().await;
    let before = status(&site).await;
    let latest = before["latest_official_hash"].as_str().unwrap().to_owned();
    let expected = |current: Value, [is_official, is_latest, can_upgrade]: [bool; 3]| {
        json!({
            "current_hash": current, "latest_official_hash": latest, "is_official": is_official,
            "is_latest": is_latest, "can_upgrade": can_upgrade,
        })
    };
    assert_eq!(before, expected(Value::Null, [false, false, true]));
    let program = site.document().await["docker_compose_file"].clone();
    let accepted = site.call("POST", UPGRADE, Value::Null).await.expect(202).json();
    assert_eq!(accepted["status"], "in_progress");
    site.at_rest(CvmStatus::Running).await;
    assert_eq!(status(&site).await, expected(json!(latest), [true, true, false]));
    let script = site.call("GET", "/pre-launch-script", Value::Null).await.expect(200).text;
    assert_eq!(hex::encode(Sha256::digest(&script)), latest);
    assert_eq!(site.call("GET", "", Value::Null).await.json()["pre_launch_script_hash"], json!(latest));
    assert_eq!(site.document().await["docker_compose_file"], program);
    assert_eq!(site.history().await[0], "compose_update completed");

    let again = site.call("POST", UPGRADE, Value::Null).await.expect(200).json();
    assert_eq!((&again["status"], &again["correlation_id"]), (&json!("no_change"), &json!("")));

    // What a tenant wrote is the tenant's.
    let own = "echo mine\n";
    site.send("PATCH", "/pre-launch-script", &[("content-type", "text/plain")], own).await.expect(200);
    site.at_rest(CvmStatus::Running).await;
    let current = json!(hex::encode(Sha256::digest(own)));
    assert_eq!(status(&site).await, expected(current, [false, false, false]));
    let refused = site.call("POST", UPGRADE, Value::Null).await;
    assert_eq!(refused.summary(), "400 ERR-02-009");
    assert!(refused.text.contains("of its own"));
    assert_eq!(site.call("GET", "/pre-launch-script", Value::Null).await.text, own);
}
