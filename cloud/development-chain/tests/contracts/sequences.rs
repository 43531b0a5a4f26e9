//! Random sequences of calls by owners and strangers.

use cloister_contracts::abi::Kms;
use cloister_contracts::abi::Owned::OwnedEvents;
use cloister_contracts::events::Event;
use cloister_contracts::lens::{Account, Allowances, AppState, VerdictQuestion};
use cloister_contracts::{Address, AppBootInfo, B256, NewApp, hex};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::model::{Action, Model, PEOPLE, WORDS, actions, word};
use crate::node::{Node, account, on_chain};

/// Where a proxy keeps the address of its code (ERC-1967).
const IMPLEMENTATION: [u8; 32] = hex!("360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc");
/// The image that the KMS contract allows; the others it does not.
const ALLOWED_IMAGE: u8 = 1;

/// Who does what, and the machine that asks for keys afterwards: image, up to date, document, machine.
type Step = (usize, Action, (u8, bool, u8, u8));

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // The first owner acts half of the time.
    let who = prop_oneof![Just(0), 0..PEOPLE];
    prop::collection::vec((who, actions(), (1..3u8, any::<bool>(), 0..WORDS, 0..WORDS)), 1..60)
}

fn new_apps() -> impl Strategy<Value = NewApp> {
    (any::<[bool; 2]>(), prop::bool::weighted(0.1), prop::option::of(1..WORDS), prop::option::of(1..WORDS))
        .prop_map(|([tcb, any], is_final, device, hash)| NewApp {
            owner: account(0),
            disable_upgrades: is_final,
            require_tcb_up_to_date: tcb,
            allow_any_device: any,
            device_id: device.map(word),
            compose_hash: hash.map(word),
        })
}

#[test]
fn contracts_do_what_the_model_does_and_obey_their_owner_only() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        let allow = Kms::addOsImageHashCall { osImageHash: word(ALLOWED_IMAGE) };
        assert!(node.call(account(0), kms, &allow).await.succeeded);
        let another = node.create(&cloister_contracts::artifacts::APP_IMPLEMENTATION).await;
        let implementations = [node.deployment().app_implementation, another];

        let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
        tokio::task::block_in_place(|| {
            let run = |(app, steps): (NewApp, Vec<Step>)| {
                tokio::runtime::Handle::current().block_on(follow(node, kms, implementations, &app, &steps));
                Ok(())
            };
            TestRunner::new(config).run(&(new_apps(), steps()), run).unwrap();
        });
    });
}

async fn follow(node: &Node, kms: Address, implementations: [Address; 2], new: &NewApp, steps: &[Step]) {
    let (app, receipt) = node.new_app(kms, account(3), new).await;
    let mut model = Model {
        owner: Some(new.owner),
        hashes: new.compose_hash.into_iter().collect(),
        devices: new.device_id.into_iter().collect(),
        any_device: new.allow_any_device,
        require_tcb: new.require_tcb_up_to_date,
        is_final: new.disable_upgrades,
        implementation: implementations[0],
        ..Model::default()
    };
    let mut heard = Model::default();
    receipt.events_of(app).iter().for_each(|event| heard.hear(event));
    compare(node, kms, app, &model, &heard).await;

    for (who, action, machine) in steps {
        let who = account(*who);
        let acted = model.act(who, action, implementations);
        let receipt = node.send(who, Some(app), &action.call_data(implementations)).await;
        assert_eq!(receipt.succeeded, acted, "{who} {action:?}");
        let events = receipt.events_of(app);
        assert_eq!(events.len(), if acted { action.events() } else { 0 }, "{action:?}");
        assert!(events.iter().all(|event| actor(event).is_none_or(|actor| actor == who)), "{events:?}");
        for event in &events {
            heard.hear(event);
        }
        compare(node, kms, app, &model, &heard).await;
        ask_for_keys(node, kms, app, &model, *machine).await;
    }
}

/// Who did it, if the event is a record.
fn actor(event: &Event) -> Option<Address> {
    match event {
        Event::Owned(OwnedEvents::PolicyChanged(record)) => Some(record.actor),
        _ => None,
    }
}

/// The contract's state, through the lens, is the model's, and so is what its events say.
async fn compare(node: &Node, kms: Address, app: Address, model: &Model, heard: &Model) {
    assert_eq!(heard, model, "the events tell everything");
    let state = node.ask(&AppState { kms_contract: kms, app }).await.answer;
    assert_eq!((state.account, state.is_registered, state.version), (Account::Contract, true, Some(2)));
    assert_eq!((state.owner, state.owner_account), (model.owner, Account::Plain));
    assert_eq!(state.pending_owner, model.pending);
    assert_eq!(state.allow_any_device, Some(model.any_device));
    assert_eq!(state.require_tcb_up_to_date, Some(model.require_tcb));
    assert_eq!(state.upgrades_disabled, Some(model.is_final));

    let words: Vec<B256> = (0..WORDS).map(word).collect();
    let lists = Allowances { app, compose_hashes: words.clone(), device_ids: words.clone() };
    let found = node.ask(&lists).await.answer;
    assert_eq!(found.allow_any_device, model.any_device);
    assert_eq!(
        found.compose_hashes,
        words.iter().map(|each| model.hashes.contains(each)).collect::<Vec<_>>()
    );
    assert_eq!(found.device_ids, words.iter().map(|each| model.devices.contains(each)).collect::<Vec<_>>());

    let code = node.storage(app, B256::from(IMPLEMENTATION)).await;
    assert_eq!(Address::from_word(code), model.implementation);
}

async fn ask_for_keys(
    node: &Node,
    kms: Address,
    app: Address,
    model: &Model,
    (image, up_to_date, hash, device): (u8, bool, u8, u8),
) {
    let boot = AppBootInfo {
        appId: app,
        composeHash: word(hash),
        deviceId: word(device),
        osImageHash: word(image),
        tcbStatus: if up_to_date { "UpToDate" } else { "OutOfDate" }.to_owned(),
        advisoryIds: vec!["INTEL-SA-00001".to_owned()],
        ..AppBootInfo::default()
    };
    let refusal = model.refusal(image == ALLOWED_IMAGE, up_to_date, word(hash), word(device));
    let verdict = node.ask(&VerdictQuestion { kms_contract: kms, for_roots: false, boot }).await.answer;
    assert_eq!((verdict.is_allowed, verdict.reason.as_str()), (refusal.is_empty(), refusal));
}
