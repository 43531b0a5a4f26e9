//! A contract decides: on a real chain of one node, which this test starts.

use std::time::Duration;

use cloister_chain::{Address, B256, ChainConfig, Clock, Sender, Transaction};
use cloister_contracts::abi::{App, Kms};
use cloister_contracts::{NewApp, SolCall, app_id, events};
use cloister_development_chain::{ACCOUNTS, CHAIN_ID, Config, DevelopmentChain};
use cloister_kms_api::KmsErrorCode::{
    self, ContractDecides, InternalError, MeasurementNotFound, Unauthorized,
};
use cloister_kms_api::admin::{self, AllowApp, PolicyDocument, SetOwners};
use cloister_kms_api::log::Event;
use cloister_kms_api::{Meta, method};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::lab::{Client, Lab, Machine, Options, app};
use super::requests;
use crate::owner::owners;
use crate::policy::{Authority, ChainAuthority};

/// A KMS with a contract, which the test owns.
struct Ruled {
    lab: Lab,
    chain: DevelopmentChain,
    sender: Sender,
    contract: Address,
}

impl Ruled {
    async fn new(chain: DevelopmentChain, change: impl FnOnce(&mut ChainConfig)) -> Self {
        let mut config = chain.config();
        change(&mut config);
        let contract = chain.kms_contract();
        let authority = Authority::Chain(ChainAuthority::new(config, contract, Clock::system()).unwrap());
        let lab = Lab::with(Options { authority, ..Options::default() }).await;
        let sender = chain.sender(&ACCOUNTS[0]).unwrap();
        Self { lab, chain, sender, contract }
    }

    async fn send(&self, to: Address, call: impl SolCall) {
        self.sender.send(&Transaction::call(to, call.abi_encode().into()), |_| {}).await.unwrap();
    }

    /// The contract of an application that may run nothing nowhere yet.
    async fn new_app(&self) -> Address {
        let new = NewApp {
            owner: self.sender.address(),
            disable_upgrades: false,
            require_tcb_up_to_date: false,
            allow_any_device: false,
            device_id: None,
            compose_hash: None,
        };
        let transaction = Transaction::call(self.contract, new.call_data());
        let receipt = self.sender.send(&transaction, |_| {}).await.unwrap();
        let logs = receipt.logs.iter().map(|log| events::Log {
            address: log.address,
            topics: &log.topics,
            data: &log.data,
        });
        events::deployed_apps(logs, self.contract).next().unwrap().app
    }

    fn device(&self) -> B256 {
        B256::from_slice(&Sha256::digest(self.lab.platform.ppid()))
    }

    /// What the machine is told when it asks for each of its keys, which must be the same.
    async fn told(&self, machine: &Machine) -> Result<(), (KmsErrorCode, String)> {
        let config = machine.vm_config();
        let mut client = self.lab.machine(machine).await;
        let mut told = vec![client.key("a", &config).await, client.app_key(&config).await];
        let confirm = json!({"root_version": 1, "vm_config": config});
        told.push(client.post(method::CONFIRM_RESEAL, &confirm).await);
        let (_, request) = requests::certificate(machine, &self.lab.platform);
        told.push(client.post(method::SIGN_CERT, &request).await);
        let told: Vec<_> = told
            .iter()
            .map(|told| if told.status == 200 { Ok(()) } else { Err((told.code(), told.reason())) })
            .collect();
        assert!(told.iter().all(|other| *other == told[0]), "{told:?}");
        told[0].clone()
    }

    async fn refused(&self, machine: &Machine, code: KmsErrorCode, reason: &str) {
        let told = self.told(machine).await.unwrap_err();
        assert_eq!(told.0, code, "{}", told.1);
        assert!(told.1.contains(reason), "{}", told.1);
    }

    async fn rpc(&self, method: &str, params: serde_json::Value) -> serde_json::Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.post(self.chain.rpc_url().clone()).body(body.to_string());
        let answer = answer.header("content-type", "application/json").send().await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }
}

fn image(machine: &Machine) -> B256 {
    let config: cloister_evidence::VmConfig = serde_json::from_str(&machine.vm_config()).unwrap();
    B256::from(*config.os_image_hash.as_bytes())
}

async fn start(config: Config) -> DevelopmentChain {
    DevelopmentChain::start(config, Clock::system()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_release_asks_the_contract() {
    let ruled = Ruled::new(start(Config::default()).await, |_| {}).await;
    let (contract, application) = (ruled.contract, ruled.new_app().await);
    let machine = Machine { app: app_id(application), ..Machine::of(1) };
    let (document, os_image) = (B256::from(machine.compose_hash), image(&machine));
    let (add_document, remove_document) = (
        App::addComposeHashCall { composeHash: document },
        App::removeComposeHashCall { composeHash: document },
    );
    let add_device = App::addDeviceCall { deviceId: ruled.device() };
    let remove_device = App::removeDeviceCall { deviceId: ruled.device() };

    // One after the other, each thing that is missing is told.
    ruled.refused(&Machine::of(2), MeasurementNotFound, "App not registered").await;
    ruled.refused(&machine, MeasurementNotFound, "OS image is not allowed").await;
    ruled.send(contract, Kms::addOsImageHashCall { osImageHash: os_image }).await;
    ruled.refused(&machine, MeasurementNotFound, "Compose hash not allowed").await;
    ruled.send(application, add_document.clone()).await;
    ruled.refused(&machine, Unauthorized, "Device not allowed").await;
    ruled.send(application, add_device.clone()).await;
    assert_eq!(ruled.told(&machine).await, Ok(()));

    // What is taken back counts for the next release, on open connections too.
    let mut open = ruled.lab.machine(&machine).await;
    assert_eq!(open.key("a", &machine.vm_config()).await.status, 200);
    ruled.send(application, remove_document).await;
    assert_eq!(open.key("a", &machine.vm_config()).await.code(), MeasurementNotFound);
    ruled.refused(&machine, MeasurementNotFound, "Compose hash not allowed").await;
    ruled.send(application, add_document).await;
    ruled.send(application, remove_device).await;
    ruled.refused(&machine, Unauthorized, "Device not allowed").await;
    ruled.send(application, App::setAllowAnyDeviceCall { allowAnyDevice: true }).await;
    assert_eq!(open.key("a", &machine.vm_config()).await.status, 200);
    ruled.send(contract, Kms::removeOsImageHashCall { osImageHash: os_image }).await;
    ruled.refused(&machine, MeasurementNotFound, "OS image is not allowed").await;
    ruled.send(contract, Kms::addOsImageHashCall { osImageHash: os_image }).await;

    // The gateway is the contract's, and the contract's own words are told to anybody.
    ruled.send(contract, Kms::setGatewayAppIdCall { appId: "the-gateway".to_owned() }).await;
    let keys = ruled.lab.machine(&machine).await.app_key(&machine.vm_config()).await.json();
    assert_eq!(keys["gateway_app_id"], "the-gateway");
    let mut directory = Client::connect(ruled.lab.directory, None).await;
    let meta: Meta = serde_json::from_value(directory.get(method::META).await.json()).unwrap();
    assert_eq!(meta.chain_id, Some(CHAIN_ID));
    assert_eq!(meta.kms_contract_address, Some(format!("0x{}", hex::encode(contract))));
    assert_eq!(
        meta.app_auth_implementation,
        Some(format!("0x{}", hex::encode(ruled.chain.deployment().app_implementation)))
    );
    assert_eq!(meta.gateway_app_id.as_deref(), Some("the-gateway"));

    // Each release says by which block.
    for event in ruled.lab.events().await {
        if let Event::Release { authorized_at, .. } = event {
            let at = authorized_at.unwrap();
            assert_eq!((at.chain_id, at.block_hash.as_ref().len()), (CHAIN_ID, 32));
            let number = format!("0x{:x}", at.block_number);
            let block = ruled.rpc("eth_getBlockByNumber", json!([number, false])).await;
            assert_eq!(block["hash"], format!("0x{}", hex::encode(at.block_hash)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roots_go_to_kmses_of_the_contract_and_the_operator_decides_nothing() {
    let ruled = Ruled::new(start(Config::default()).await, |_| {}).await;
    let machine = Machine::of(1);
    let config = json!({"vm_config": machine.vm_config()});
    let ask = async || {
        let told = ruled.lab.machine(&machine).await.post(method::KMS_KEY, &config).await;
        if told.status == 200 { None } else { Some(told.code()) }
    };
    assert_eq!(ask().await, Some(MeasurementNotFound));
    ruled.send(ruled.contract, Kms::addOsImageHashCall { osImageHash: image(&machine) }).await;
    ruled.send(ruled.contract, Kms::addKmsDeviceCall { deviceId: ruled.device() }).await;
    assert_eq!(ask().await, Some(MeasurementNotFound));
    let mut refusals = ruled.lab.events().await.into_iter().filter_map(|event| match event {
        Event::Refusal { caller, .. } => caller.mr_aggregated,
        _ => None,
    });
    let measured = refusals.next_back().unwrap();
    let mr_aggregated = B256::from_slice(measured.as_ref());
    ruled.send(ruled.contract, Kms::addKmsAggregatedMrCall { mrAggregated: mr_aggregated }).await;
    assert_eq!(ask().await, None);
    ruled.send(ruled.contract, Kms::removeKmsDeviceCall { deviceId: ruled.device() }).await;
    assert_eq!(ask().await, Some(Unauthorized));

    let mut directory = Client::connect(ruled.lab.directory, None).await;
    let allow = AllowApp::new(app(1), cloister_app_compose::ComposeHash::from_bytes([1; 32]));
    let set = SetOwners { app_id: app(1), owners: owners(1, &[0]), serial: 1, signatures: Vec::new() };
    for told in [
        directory.admin(admin::ALLOW_APP, &allow).await,
        directory.admin(admin::REVOKE_APP, &allow).await,
        directory.admin(admin::SET_OWNERS, &set).await,
    ] {
        assert_eq!(told.code(), ContractDecides);
        assert!(told.reason().contains(&hex::encode(ruled.contract)), "{}", told.reason());
    }
    let policy: PolicyDocument =
        serde_json::from_value(directory.admin(admin::GET_POLICY, &json!({})).await.json()).unwrap();
    assert!(policy.apps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_is_down_allows_nothing_until_it_is_back() {
    let state = tempfile::tempdir().unwrap();
    let config = |port| Config { state: Some(state.path().to_owned()), port, ..Config::default() };
    let mut ruled =
        Ruled::new(start(config(None)).await, |config| config.request_timeout = Duration::from_secs(2)).await;
    let application = ruled.new_app().await;
    let machine = Machine { app: app_id(application), ..Machine::of(1) };
    ruled.send(ruled.contract, Kms::addOsImageHashCall { osImageHash: image(&machine) }).await;
    let document = B256::from(machine.compose_hash);
    ruled.send(application, App::addComposeHashCall { composeHash: document }).await;
    ruled.send(application, App::addDeviceCall { deviceId: ruled.device() }).await;
    assert_eq!(ruled.told(&machine).await, Ok(()));

    let port = ruled.chain.rpc_url().port();
    let Ruled { lab, chain, .. } = ruled;
    chain.stop().await;
    let mut client = lab.machine(&machine).await;
    let told = client.key("a", &machine.vm_config()).await;
    assert_eq!(told.code(), InternalError);
    assert!(told.reason().contains("could not be asked"), "{}", told.reason());
    assert_eq!(lab.machine(&machine).await.app_key(&machine.vm_config()).await.code(), InternalError);

    let chain = start(config(port)).await;
    assert_eq!(client.key("a", &machine.vm_config()).await.status, 200);
    let (sender, contract) = (chain.sender(&ACCOUNTS[0]).unwrap(), chain.kms_contract());
    ruled = Ruled { lab, chain, sender, contract };
    ruled.send(application, App::removeComposeHashCall { composeHash: document }).await;
    ruled.refused(&machine, MeasurementNotFound, "Compose hash not allowed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_counts_when_it_is_confirmed_and_a_reorganised_one_does_not() {
    let ruled = Ruled::new(start(Config::default()).await, |config| config.confirmations = 2).await;
    let application = ruled.new_app().await;
    let machine = Machine { app: app_id(application), ..Machine::of(1) };
    let document = B256::from(machine.compose_hash);
    ruled.send(ruled.contract, Kms::addOsImageHashCall { osImageHash: image(&machine) }).await;
    ruled.send(application, App::addDeviceCall { deviceId: ruled.device() }).await;
    ruled.rpc("anvil_mine", json!([3])).await;
    ruled.refused(&machine, MeasurementNotFound, "Compose hash not allowed").await;
    let before = ruled.rpc("evm_snapshot", json!([])).await;
    let add = App::addComposeHashCall { composeHash: document };
    ruled.send(application, add.clone()).await;
    ruled.told(&machine).await.unwrap_err();
    ruled.rpc("anvil_mine", json!([2])).await;
    assert_eq!(ruled.told(&machine).await, Ok(()));

    // Another branch wins, in which nobody allowed it; it is as long.
    assert_eq!(ruled.rpc("evm_revert", json!([before])).await, json!(true));
    ruled.rpc("anvil_mine", json!([4])).await;
    ruled.refused(&machine, MeasurementNotFound, "Compose hash not allowed").await;
    ruled.send(application, add).await;
    ruled.told(&machine).await.unwrap_err();
    ruled.rpc("anvil_mine", json!([2])).await;
    assert_eq!(ruled.told(&machine).await, Ok(()));
    // And taken back at once.
    ruled.send(application, App::removeComposeHashCall { composeHash: document }).await;
    ruled.refused(&machine, MeasurementNotFound, "").await;
}
