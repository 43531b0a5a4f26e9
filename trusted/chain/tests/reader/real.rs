use cloister_chain::{Address, AllowanceQuestion, B256};
use cloister_contracts::abi::{App, Kms};
use cloister_development_chain::{ACCOUNTS, Config};
use serde_json::json;

use crate::support::{
    DEVICE, HASH, IMAGE, add_hash, boot, is_allowed, mine, new_app, node, question, reader, remove_hash, rpc,
    send, shared,
};

#[tokio::test]
async fn what_owners_allow_and_take_back_counts_at_once() {
    let node = shared().await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let app = new_app(node, None, Some(DEVICE)).await;
    assert!(!is_allowed(&chain, app).await);
    add_hash(node, app, HASH).await;
    let answer = chain.allowances(app, &question()).await.unwrap();
    assert!(answer.is_contract && !answer.allow_any_device && answer.results[0].is_allowed);
    remove_hash(node, app, HASH).await;
    let answer = chain.allowances(app, &question()).await.unwrap().results[0];
    assert!(answer.device_id_allowed && !answer.compose_hash_allowed && !answer.is_allowed);

    // Any device is not this device.
    add_hash(node, app, HASH).await;
    send(node, app, App::removeDeviceCall { deviceId: DEVICE.into() }).await;
    assert!(!is_allowed(&chain, app).await);
    send(node, app, App::setAllowAnyDeviceCall { allowAnyDevice: true }).await;
    let answer = chain.allowances(app, &question()).await.unwrap();
    assert!(answer.allow_any_device && answer.results[0].is_allowed && !answer.results[0].device_id_allowed);
}

#[tokio::test]
async fn where_nothing_is_nothing_is_allowed() {
    let node = shared().await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    for nobody in [Address::ZERO, Address::repeat_byte(9), ACCOUNTS[1].address()] {
        let answer = chain.allowances(nobody, &question()).await.unwrap();
        assert!(!answer.is_contract && !answer.allow_any_device && !answer.results[0].is_allowed, "{nobody}");
        let decision = chain.is_app_allowed(nobody, &boot(nobody)).await.unwrap();
        assert!(!decision.is_allowed && !decision.reason.is_empty());
    }
    // A contract of another kind.
    let answer = chain.allowances(node.kms_contract(), &question()).await.unwrap();
    assert!(answer.is_contract && !answer.results[0].is_allowed);
    assert!(chain.allowances(Address::ZERO, &[]).await.unwrap().results.is_empty());
}

#[tokio::test]
async fn a_grant_counts_when_it_is_confirmed_and_a_revocation_at_once() {
    let node = shared().await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |config| config.confirmations = 4);
    let app = new_app(node, None, Some(DEVICE)).await;
    mine(node, 4).await;
    assert!(!is_allowed(&chain, app).await);
    let granted = add_hash(node, app, HASH).await.block.number;
    loop {
        let answer = chain.allowances(app, &question()).await.unwrap();
        // Other tests make blocks, too: what counts is the block that was decided at.
        assert_eq!(answer.results[0].is_allowed, answer.at.number >= granted, "{answer:?}");
        if answer.results[0].is_allowed {
            break;
        }
        mine(node, 1).await;
    }
    remove_hash(node, app, HASH).await;
    let answer = chain.allowances(app, &question()).await.unwrap();
    assert!(!answer.results[0].is_allowed);
}

#[tokio::test]
async fn the_kms_contract_decides_in_words() {
    let node = node(Config::default()).await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let kms = node.kms_contract();
    let app = new_app(&node, Some(HASH), Some(DEVICE)).await;
    let reason = async |boot| {
        let decision = chain.is_app_allowed(kms, &boot).await.unwrap();
        assert_eq!(decision.is_allowed, decision.reason.is_empty());
        decision.reason
    };
    assert_eq!(reason(boot(app)).await, "OS image is not allowed");
    send(&node, kms, Kms::addOsImageHashCall { osImageHash: IMAGE.into() }).await;
    assert_eq!(reason(boot(app)).await, "");
    assert_eq!(reason(boot(Address::repeat_byte(9))).await, "App not registered");
    let mut other = boot(app);
    other.deviceId = B256::repeat_byte(9);
    assert_eq!(reason(other).await, "Device not allowed");
    remove_hash(&node, app, HASH).await;
    assert_eq!(reason(boot(app)).await, "Compose hash not allowed");

    let mut kms_boot = boot(app);
    kms_boot.mrAggregated = B256::repeat_byte(4);
    let decision = chain.is_kms_allowed(kms, &kms_boot).await.unwrap();
    assert_eq!((decision.is_allowed, decision.reason.as_str()), (false, "Aggregated MR not allowed"));
    send(&node, kms, Kms::addKmsAggregatedMrCall { mrAggregated: B256::repeat_byte(4) }).await;
    send(&node, kms, Kms::addKmsDeviceCall { deviceId: DEVICE.into() }).await;
    assert!(chain.is_kms_allowed(kms, &kms_boot).await.unwrap().is_allowed);

    let view = chain.kms_contract(kms, &[DEVICE, [9; 32]], &[IMAGE], &[[4; 32], [5; 32]]).await.unwrap();
    assert!(view.has_code && view.owner == Some(ACCOUNTS[0].address()));
    assert_eq!(view.devices_allowed, [true, false]);
    assert_eq!(view.os_images_allowed, [true]);
    assert_eq!(view.aggregated_mrs_allowed, [true, false]);
    assert_eq!(view.app_implementation, Some(node.deployment().app_implementation));

    let view = chain.app_contract(kms, app).await.unwrap();
    assert!(view.has_code && view.registered && !view.owner_has_code);
    assert_eq!((view.owner, view.pending_owner, view.version), (Some(ACCOUNTS[0].address()), None, Some(2)));
    assert_eq!((view.allow_any_device, view.upgrades_disabled), (Some(false), Some(false)));
    let view = chain.app_contract(kms, Address::repeat_byte(9)).await.unwrap();
    assert!(!view.has_code && !view.registered && view.owner.is_none() && view.version.is_none());
}

/// Blocks go, others come in their place: what was granted in the former ones was never granted.
#[tokio::test]
async fn a_grant_in_blocks_that_were_replaced_is_none() {
    let node = node(Config::default()).await;
    let url = node.rpc_url().clone();
    let (careful, eager) = (
        reader(std::slice::from_ref(&url), |config| config.confirmations = 3),
        reader(std::slice::from_ref(&url), |_| {}),
    );
    let app = new_app(&node, None, Some(DEVICE)).await;
    mine(&node, 5).await;
    assert!(!is_allowed(&careful, app).await && !is_allowed(&eager, app).await);
    let granted = add_hash(&node, app, HASH).await;
    mine(&node, 1).await;
    assert!(!is_allowed(&careful, app).await, "not confirmed yet");
    assert!(is_allowed(&eager, app).await);
    // The confirmed block of the eager reader is among those that go.
    rpc(&url, "anvil_rollback", json!([3])).await;
    assert!(!is_allowed(&eager, app).await);
    mine(&node, 6).await;
    for _ in 0..3 {
        assert!(!is_allowed(&careful, app).await && !is_allowed(&eager, app).await);
        mine(&node, 1).await;
    }
    assert_eq!(eager.receipt(granted.transaction).await.unwrap(), None);
    // The readers have recovered by themselves.
    add_hash(&node, app, HASH).await;
    mine(&node, 3).await;
    assert!(is_allowed(&careful, app).await && is_allowed(&eager, app).await);

    // The same blocks again, with other hashes.
    rpc(&url, "anvil_reorg", json!([6, []])).await;
    assert!(!is_allowed(&careful, app).await && !is_allowed(&eager, app).await);
}

#[tokio::test]
async fn a_node_that_starts_again_has_everything_and_readers_go_on() {
    let state = tempfile::tempdir().unwrap();
    let start = async |port| {
        let state = Some(state.path().join("chain"));
        node(Config { state, port, program: None }).await
    };
    let first = start(None).await;
    let chain = reader(std::slice::from_ref(first.rpc_url()), |config| config.confirmations = 1);
    let app = new_app(&first, Some(HASH), Some(DEVICE)).await;
    mine(&first, 1).await;
    let before = chain.allowances(app, &question()).await.unwrap();
    assert!(before.results[0].is_allowed);
    let (kms, port) = (first.kms_contract(), first.rpc_url().port());
    assert!(node_is_refused(&state.path().join("chain")).await);
    first.stop().await;
    let error = chain.allowances(app, &question()).await.unwrap_err().to_string();
    assert!(error.contains("no connection"), "{error}");
    let second = start(port).await;
    assert_eq!(second.kms_contract(), kms);
    assert!(is_allowed(&chain, app).await);
    let answer = chain.is_app_allowed(kms, &boot(app)).await.unwrap();
    assert_eq!(answer.reason, "OS image is not allowed");
}

/// Two nodes would overwrite what the other remembers.
async fn node_is_refused(state: &std::path::Path) -> bool {
    let config = Config { state: Some(state.to_owned()), ..Config::default() };
    let second = cloister_development_chain::DevelopmentChain::start(config, cloister_chain::Clock::system());
    matches!(second.await, Err(cloister_development_chain::StartError::InUse(_)))
}

#[tokio::test]
async fn a_receipt_says_what_happened_and_where() {
    let node = shared().await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let app = new_app(node, None, None).await;
    let sent = add_hash(node, app, HASH).await;
    mine(node, 2).await;
    let receipt = chain.receipt(sent.transaction).await.unwrap().unwrap();
    assert!(receipt.succeeded && receipt.confirmations >= 2);
    assert_eq!((receipt.from, receipt.to), (ACCOUNTS[0].address(), Some(app)));
    assert_eq!(receipt.block, sent.block);
    assert!(receipt.logs.iter().all(|log| log.address == app) && !receipt.logs.is_empty());
    assert_eq!(chain.receipt(B256::repeat_byte(9)).await.unwrap(), None);
}

#[tokio::test]
async fn one_pair_more_than_may_be_asked_is_refused() {
    let node = shared().await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let pairs = vec![AllowanceQuestion { compose_hash: HASH, device_id: DEVICE }; 1001];
    let error = chain.allowances(Address::ZERO, &pairs).await.unwrap_err().to_string();
    assert!(error.contains("1000"), "{error}");
}
