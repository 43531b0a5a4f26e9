//! What the lens says of contracts that do their worst.

use cloister_contracts::abi::{Kms, Owned};
use cloister_contracts::lens::{Account, Allowances, AppState, MAX_KEYS, VerdictQuestion};
use cloister_contracts::{Address, AppBootInfo, B256, NewApp, U256, hex};
use serde_json::json;

use crate::model::word;
use crate::node::{Node, account, on_chain};

/// Code that behaves badly whatever it is asked, and what it does.
const HOSTILE: [(&str, &[u8]); 9] = [
    ("returns a megabyte", &hex!("620f42405ff3")),
    ("reverts with a megabyte", &hex!("620f42405ffd")),
    ("runs for ever", &hex!("5b5f56")),
    ("reverts", &hex!("5f5ffd")),
    ("returns nothing", &hex!("00")),
    ("is no code", &hex!("fe")),
    ("says two", &hex!("60025f5260205ff3")),
    ("says yes in one byte", &hex!("60015f5360015ff3")),
    ("says yes in 33 bytes", &hex!("60015f5260215ff3")),
];

fn words(count: usize) -> Vec<B256> {
    (1..=count).map(|index| U256::from(index).into()).collect()
}

/// Creation code of a contract that runs `code`: it copies what follows itself.
fn creation(code: &[u8]) -> Vec<u8> {
    let length = u8::try_from(code.len()).unwrap();
    [&[0x60, length, 0x80, 0x60, 0x09, 0x5f, 0x39, 0x5f, 0xf3], code].concat()
}

/// Asks for much, so that one bad answer could spoil many others.
async fn nothing_is_allowed(node: &Node, app: Address, what: &str) {
    let (compose_hashes, device_ids) = (words(MAX_KEYS / 2), words(MAX_KEYS / 2));
    let found = node.ask(&Allowances { app, compose_hashes, device_ids }).await.answer;
    assert!(!found.allow_any_device, "{what}");
    assert!(!found.compose_hashes.contains(&true) && !found.device_ids.contains(&true), "{what}");
    let state = node.ask(&AppState { kms_contract: app, app }).await.answer;
    assert!(!state.is_registered, "{what}");
    assert_eq!(state.allow_any_device, None, "{what}");
}

#[test]
fn hostile_contracts_allow_nothing_and_spoil_nothing() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        assert!(
            node.call(account(0), kms, &Kms::addOsImageHashCall { osImageHash: word(3) }).await.succeeded
        );
        for (what, code) in HOSTILE {
            let app = node.create(&creation(code)).await;
            nothing_is_allowed(node, app, what).await;
            // The same contract as an application of an honest KMS, and as the KMS itself.
            assert!(node.call(account(1), kms, &Kms::registerAppCall { appId: app }).await.succeeded);
            for kms_contract in [kms, app] {
                let boot = AppBootInfo { appId: app, osImageHash: word(3), ..AppBootInfo::default() };
                for for_roots in [false, true] {
                    let question = VerdictQuestion { kms_contract, for_roots, boot: boot.clone() };
                    let verdict = node.ask(&question).await.answer;
                    assert!(!verdict.is_allowed && !verdict.reason.is_empty(), "{what}: {}", verdict.reason);
                }
            }
        }
    });
}

#[test]
fn addresses_without_a_contract_allow_nothing() {
    on_chain(async |node: &'static Node| {
        // Somebody's account, nobody's, and the machine's own functions, which answer without having code.
        for app in
            [account(3), Address::repeat_byte(0x77), Address::with_last_byte(2), Address::with_last_byte(4)]
        {
            nothing_is_allowed(node, app, &app.to_string()).await;
            let lists = Allowances { app, compose_hashes: vec![], device_ids: vec![] };
            assert!(!node.ask(&lists).await.answer.is_contract, "{app}");
            let question =
                VerdictQuestion { kms_contract: app, for_roots: false, boot: AppBootInfo::default() };
            let verdict = node.ask(&question).await.answer;
            assert!(verdict.reason.contains("no contract"), "{app}: {}", verdict.reason);
        }
    });
}

#[test]
fn a_full_question_to_an_honest_contract_is_answered_in_full() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        let last = U256::from(MAX_KEYS / 2).into();
        let new = NewApp {
            owner: account(1),
            disable_upgrades: false,
            require_tcb_up_to_date: false,
            allow_any_device: true,
            device_id: Some(last),
            compose_hash: Some(last),
        };
        let (app, _) = node.new_app(kms, account(1), &new).await;
        let (compose_hashes, device_ids) = (words(MAX_KEYS / 2), words(MAX_KEYS / 2));
        let question = Allowances { app, compose_hashes, device_ids };
        let found = node.ask(&question).await;
        assert_eq!(found.at.chain_id, cloister_development_chain::CHAIN_ID);
        let (found, expected) = (found.answer, question.compose_hashes.iter().map(|each| *each == last));
        let expected: Vec<bool> = expected.collect();
        assert!(found.is_contract && found.allow_any_device);
        assert_eq!((&found.compose_hashes, &found.device_ids), (&expected, &expected));
    });
}

#[test]
fn the_lens_is_of_the_block_that_it_is_asked_at() {
    on_chain(async |node: &'static Node| {
        let lists = Allowances { app: account(3), compose_hashes: vec![], device_ids: vec![] };
        let at = node.ask(&lists).await.at;
        let block =
            node.rpc("eth_getBlockByNumber", json!([format!("{:#x}", at.number), false])).await.unwrap();
        assert_eq!(block["timestamp"], format!("{:#x}", at.timestamp));
        assert_eq!(block["parentHash"], at.parent.to_string());
    });
}

#[test]
fn owners_are_told_apart() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        // The wallet of a group, and an account that borrows its code.
        let group = node.create(&creation(&hex!("00"))).await;
        let borrower = Address::repeat_byte(0x66);
        let code = format!("0xef0100{}", hex::encode(group));
        node.rpc("anvil_setCode", json!([borrower.to_string(), code])).await.unwrap();
        for (owner, kind) in
            [(account(1), Account::Plain), (group, Account::Contract), (borrower, Account::Delegated)]
        {
            let new = NewApp {
                owner,
                disable_upgrades: true,
                require_tcb_up_to_date: false,
                allow_any_device: false,
                device_id: None,
                compose_hash: None,
            };
            let (app, _) = node.new_app(kms, account(2), &new).await;
            assert_eq!(node.view(app, &Owned::ownerCall {}).await, Some(owner));
            let state = node.ask(&AppState { kms_contract: kms, app }).await.answer;
            assert_eq!((state.owner, state.owner_account), (Some(owner), kind));
            assert_eq!(state.upgrades_disabled, Some(true));
        }
    });
}
