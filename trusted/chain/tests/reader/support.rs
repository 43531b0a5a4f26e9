use std::time::Duration;

use cloister_chain::{
    Address, AllowanceQuestion, AppBootInfo, B256, Chain, ChainConfig, Clock, Receipt, Sender, Signer,
    Transaction,
};
use cloister_contracts::abi::{App, Kms};
use cloister_contracts::{NewApp, SolCall};
use cloister_development_chain::{ACCOUNTS, CHAIN_ID, Config, DevelopmentChain};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};
use url::Url;

pub(crate) const HASH: [u8; 32] = [1; 32];
pub(crate) const DEVICE: [u8; 32] = [2; 32];
pub(crate) const IMAGE: [u8; 32] = [3; 32];

/// One transaction of the owner at a time: its nonces are counted.
static TURN: Mutex<()> = Mutex::const_new(());

/// The node of this test process.
pub(crate) async fn shared() -> &'static DevelopmentChain {
    static SHARED: OnceCell<DevelopmentChain> = OnceCell::const_new();
    SHARED.get_or_init(|| node(Config::default())).await
}

/// A node of the test's own.
pub(crate) async fn node(config: Config) -> DevelopmentChain {
    DevelopmentChain::start(config, Clock::system()).await.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn reader(urls: &[Url], change: impl FnOnce(&mut ChainConfig)) -> Chain {
    let mut config = ChainConfig {
        endpoints: urls.to_vec(),
        request_timeout: Duration::from_secs(5),
        ..ChainConfig::development(CHAIN_ID, urls[0].clone())
    };
    change(&mut config);
    Chain::new(config, Clock::system()).unwrap()
}

/// The owner of everything acts.
pub(crate) async fn send(node: &DevelopmentChain, to: Address, call: impl SolCall) -> Receipt {
    let _turn = TURN.lock().await;
    // Of this test's own runtime: connections do not outlive theirs.
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let sender = Sender::new(chain, Signer::Local(ACCOUNTS[0].key().unwrap()));
    sender.send(&Transaction::call(to, call.abi_encode().into()), |_| {}).await.unwrap()
}

/// A new application of the owner.
pub(crate) async fn new_app(
    node: &DevelopmentChain,
    hash: Option<[u8; 32]>,
    device: Option<[u8; 32]>,
) -> Address {
    let _turn = TURN.lock().await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let sender = Sender::new(chain, Signer::Local(ACCOUNTS[0].key().unwrap()));
    let data = NewApp {
        owner: sender.address(),
        disable_upgrades: false,
        require_tcb_up_to_date: false,
        allow_any_device: false,
        device_id: device.map(B256::from),
        compose_hash: hash.map(B256::from),
    }
    .call_data();
    let receipt = sender.send(&Transaction::call(node.kms_contract(), data), |_| {}).await.unwrap();
    let logs = receipt.logs.iter().map(|log| cloister_contracts::events::Log {
        address: log.address,
        topics: &log.topics,
        data: &log.data,
    });
    let mut deployed = logs.filter_map(|log| match cloister_contracts::events::decode_event(log) {
        Ok(cloister_contracts::events::Event::Kms(Kms::KmsEvents::AppDeployedViaFactory(event))) => {
            Some(event.appId)
        }
        _ => None,
    });
    deployed.next().unwrap()
}

pub(crate) async fn add_hash(node: &DevelopmentChain, app: Address, hash: [u8; 32]) -> Receipt {
    send(node, app, App::addComposeHashCall { composeHash: hash.into() }).await
}

pub(crate) async fn remove_hash(node: &DevelopmentChain, app: Address, hash: [u8; 32]) -> Receipt {
    send(node, app, App::removeComposeHashCall { composeHash: hash.into() }).await
}

/// Any method of the node.
pub(crate) async fn rpc(url: &Url, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let body = serde_json::to_vec(&request).unwrap();
    let sent = Client::builder().no_proxy().build().unwrap().post(url.clone());
    let sent = sent.header("content-type", "application/json").body(body).send();
    let answer: Value = serde_json::from_slice(&sent.await.unwrap().bytes().await.unwrap()).unwrap();
    assert!(answer.get("error").is_none(), "{method}: {answer}");
    answer["result"].clone()
}

pub(crate) async fn mine(node: &DevelopmentChain, blocks: u64) {
    rpc(node.rpc_url(), "anvil_mine", json!([format!("{blocks:#x}")])).await;
}

pub(crate) fn question() -> [AllowanceQuestion; 1] {
    [AllowanceQuestion { compose_hash: HASH, device_id: DEVICE }]
}

/// Whether the one pair is allowed.
pub(crate) async fn is_allowed(chain: &Chain, app: Address) -> bool {
    chain.allowances(app, &question()).await.unwrap().results[0].is_allowed
}

pub(crate) fn boot(app: Address) -> AppBootInfo {
    AppBootInfo {
        appId: app,
        composeHash: HASH.into(),
        deviceId: DEVICE.into(),
        osImageHash: IMAGE.into(),
        tcbStatus: "UpToDate".to_owned(),
        ..AppBootInfo::default()
    }
}
