//! Starting, and what keeps from it.

use sha2::{Digest, Sha256};

use super::*;
use crate::inference::InferenceConfig;
use crate::kms::{KmsConfig, KmsContract};

async fn stands_for_an_administrator(control_plane: &ControlPlane, key: &FirstKey) -> bool {
    let hash = hex::encode(Sha256::digest(key.reveal()));
    let caller = control_plane.app.store.caller(&hash, control_plane.app.clock.now_ms()).await.unwrap();
    caller.is_some_and(|caller| caller.is_admin())
}

#[tokio::test]
async fn a_contract_on_a_chain_that_nobody_can_ask_is_refused() {
    let (dir, any) = (tempfile::tempdir().unwrap(), "127.0.0.1:0".parse().unwrap());
    let kms = KmsConfig {
        slug: "main".to_owned(),
        guest_url: "https://10.0.2.2:12001".parse().unwrap(),
        directory_url: "https://127.0.0.1:9".parse().unwrap(),
        ca_file: "/nonexistent/root-ca.pem".into(),
        admin_token_file: "/nonexistent/token".into(),
        contract: Some(KmsContract { chain_id: 8453, address: [1; 20] }),
    };
    let config = Config { kms: vec![kms], ..Config::embedded(dir.path().to_owned(), any, any) };
    let refused = ControlPlane::start(config).await.err().unwrap();
    let words = "the contract of KMS main is on chain 8453, which is not configured; add the chain";
    assert_eq!(refused.to_string(), words);
}

#[tokio::test]
async fn the_first_key_is_shown_once_and_a_lost_one_can_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let config = Config::embedded(dir.path().to_owned(), any, any);
    let control_plane = ControlPlane::start(config.clone()).await.unwrap();
    let first = control_plane.first_key().unwrap().clone();
    assert!(stands_for_an_administrator(&control_plane, &first).await);
    control_plane.stop().await;

    let control_plane = ControlPlane::start(config).await.unwrap();
    assert!(control_plane.first_key().is_none());
    let recovered = control_plane.recover_key().await.unwrap();
    assert!(stands_for_an_administrator(&control_plane, &recovered).await);
    assert!(stands_for_an_administrator(&control_plane, &first).await);
}

#[tokio::test]
async fn gateways_are_served_only_where_they_have_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
    let with = |inference: Option<InferenceConfig>| Config {
        inference,
        ..Config::embedded(dir.path().join("data"), any, any)
    };
    let served = |control_token_file| Some(InferenceConfig { control_token_file, requests_per_minute: None });
    for (config, status) in [(with(None), 404), (with(served(token)), 401)] {
        let control_plane = ControlPlane::start(config).await.unwrap();
        for hook in ["pre", "post"] {
            let url = format!("http://{}/internal/inference/consult/{hook}", control_plane.api_address());
            let answer = reqwest::Client::new().post(url).body("{}").send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{hook}");
        }
        control_plane.stop().await;
    }
    let refused = ControlPlane::start(with(served(dir.path().join("none")))).await.err().unwrap();
    assert!(matches!(refused, StartError::ControlToken(_)), "{refused}");
}
