//! A further KMS takes the roots of one whose contract decides, on a real chain of one node.

use std::sync::Arc;
use std::time::Duration;

use cloister_chain::{Address, B256, Clock, Sender, Transaction};
use cloister_contracts::SolCall;
use cloister_contracts::abi::Kms;
use cloister_development_chain::{ACCOUNTS, Config, DevelopmentChain};
use cloister_kms_api::KmsErrorCode::{InternalError, MeasurementNotFound};
use cloister_kms_api::admin::PolicyDocument;
use cloister_kms_api::log::{Event, Released};
use cloister_kms_api::{KmsError, OnboardRequest, OnboardResponse};
use zeroize::Zeroizing;

use super::Onboarding;
use super::machine::Machine as Proven;
use crate::door::tests::lab::{Lab, Machine, Options};
use crate::policy::{Authority, ChainAuthority};
use crate::state::{Boundaries, Store};

/// Two KMSes in machines with different images under one contract: one has roots, the other is to get them.
struct Pair {
    source: Lab,
    joining: Onboarding,
    chain: DevelopmentChain,
    sender: Sender,
}

const OLD: &str = "kernel";
const NEW: &str = "another kernel";

fn machine(kernel: &'static str) -> Machine {
    Machine { kernel, ..Machine::of(1) }
}

fn image(kernel: &'static str) -> B256 {
    let config: cloister_evidence::VmConfig = serde_json::from_str(&machine(kernel).vm_config()).unwrap();
    B256::from(*config.os_image_hash.as_bytes())
}

impl Pair {
    async fn new() -> Self {
        let chain = DevelopmentChain::start(Config::default(), Clock::system()).await.unwrap();
        let mut config = chain.config();
        config.request_timeout = Duration::from_secs(2);
        let authority =
            Authority::Chain(ChainAuthority::new(config, chain.kms_contract(), Clock::system()).unwrap());
        let options =
            Options { authority: authority.clone(), machine: Some(machine(OLD)), ..Options::default() };
        let source = Lab::with(options).await;
        let (secret, clock) = (Zeroizing::new([8; 32]), source.time());
        let data = source.dir().join("joining");
        let store =
            Store::take(&data, secret, authority.clone(), clock.clone(), Boundaries::default()).unwrap();
        let joining = Onboarding {
            store,
            agent: source.agent_of(&machine(NEW)),
            verifier: source.verifier.clone(),
            authority,
            clock,
            rules: Arc::new(PolicyDocument::default()),
            keys: Arc::default(),
        };
        let sender = chain.sender(&ACCOUNTS[0]).unwrap();
        Self { source, joining, chain, sender }
    }

    async fn send(&self, call: impl SolCall) {
        let contract: Address = self.chain.kms_contract();
        self.sender.send(&Transaction::call(contract, call.abi_encode().into()), |_| {}).await.unwrap();
    }

    /// The contract knows the platform and both measurements; only images are missing.
    async fn register(&self) {
        for agent in [&self.source.own, &self.joining.agent] {
            let proven = Proven::look(agent, &self.source.verifier).await.unwrap();
            self.send(Kms::addKmsAggregatedMrCall { mrAggregated: proven.mr_aggregated.into() }).await;
            self.send(Kms::addKmsDeviceCall { deviceId: proven.quote.device_id.into() }).await;
        }
    }

    async fn onboard(&self) -> Result<OnboardResponse, KmsError> {
        let source_url = format!("https://{}", self.source.release);
        let domain = "replica.example".to_owned();
        self.joining.onboard(OnboardRequest { source_url, domain, k256_pubkey: None }).await
    }
}

fn reason(told: Result<OnboardResponse, KmsError>) -> (cloister_kms_api::KmsErrorCode, String) {
    let error = told.unwrap_err();
    (error.code, error.error)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_ask_the_contract_about_the_image_of_the_other() {
    let pair = Pair::new().await;
    pair.register().await;
    let (code, words) = reason(pair.onboard().await);
    assert_eq!(code, MeasurementNotFound);
    assert!(words.contains("the other KMS is not accepted") && words.contains("image"), "{words}");

    pair.send(Kms::addOsImageHashCall { osImageHash: image(OLD) }).await;
    let (code, words) = reason(pair.onboard().await);
    assert_eq!(code, MeasurementNotFound);
    assert!(words.contains("the other KMS refused") && words.contains("image"), "{words}");
    assert!(pair.joining.keys.lock().await.is_none());

    pair.send(Kms::addOsImageHashCall { osImageHash: image(NEW) }).await;
    let taken = pair.onboard().await.unwrap();
    let roots = pair.source.keys.snapshot().root_infos();
    assert_eq!(taken.k256_pubkey, roots[0].k256_pubkey);
    let released = pair.source.events().await.into_iter().find_map(|event| match event {
        Event::Release { released: Released::Roots, caller, authorized_at, .. } => {
            Some((caller, authorized_at))
        }
        _ => None,
    });
    let (caller, authorized_at) = released.unwrap();
    assert_eq!(caller.os_image_hash.unwrap().as_ref(), image(NEW).as_slice());
    assert!(authorized_at.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn roots_of_an_image_that_was_taken_back_are_not_taken() {
    let pair = Pair::new().await;
    pair.register().await;
    for kernel in [OLD, NEW] {
        pair.send(Kms::addOsImageHashCall { osImageHash: image(kernel) }).await;
    }
    pair.send(Kms::removeOsImageHashCall { osImageHash: image(OLD) }).await;
    let (code, words) = reason(pair.onboard().await);
    assert_eq!(code, MeasurementNotFound);
    assert!(words.contains("the other KMS is not accepted"), "{words}");
    let asked = pair.source.events().await;
    assert!(!asked.iter().any(|event| matches!(event, Event::Release { .. } | Event::Refusal { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_roots_are_taken_while_the_chain_is_down() {
    let pair = Pair::new().await;
    pair.register().await;
    for kernel in [OLD, NEW] {
        pair.send(Kms::addOsImageHashCall { osImageHash: image(kernel) }).await;
    }
    let Pair { source, joining, chain, .. } = pair;
    chain.stop().await;
    let source_url = format!("https://{}", source.release);
    let request = OnboardRequest { source_url, domain: "replica.example".to_owned(), k256_pubkey: None };
    let (code, words) = reason(joining.onboard(request).await);
    assert_eq!(code, InternalError);
    assert!(words.contains("could not be asked"), "{words}");
    assert!(joining.keys.lock().await.is_none());
}
