//! Wallets of several people: what says that it is one, and what only looks like it.

use cloister_contracts::abi::Safe;
use cloister_contracts::lens::{SafeState, SafeWallet};
use cloister_contracts::{Address, SolCall, U256, hex};
use serde_json::json;

use crate::node::{Node, account, on_chain};

/// Creation code of a contract that answers these calls, each with these bytes, and reverts otherwise.
fn answering(answers: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    let two = |number: usize| u16::try_from(number).unwrap().to_be_bytes();
    // The selector; a jump for each answer; a revert. Then each answer by itself, and last their bytes.
    let (head, jump, body) = (5, 11, 14);
    let bodies = head + jump * answers.len() + 3;
    let mut data = bodies + body * answers.len();
    let mut code = hex!("5f3560e01c").to_vec();
    for (index, (selector, _)) in answers.iter().enumerate() {
        code.extend([0x80, 0x63]);
        code.extend(selector);
        code.extend([0x14, 0x61]);
        code.extend(two(bodies + body * index));
        code.push(0x57);
    }
    code.extend(hex!("5f5ffd"));
    for (_, bytes) in answers {
        code.extend([0x5b, 0x61]);
        code.extend(two(bytes.len()));
        code.push(0x61);
        code.extend(two(data));
        code.extend([0x5f, 0x39, 0x61]);
        code.extend(two(bytes.len()));
        code.extend([0x5f, 0xf3]);
        data += bytes.len();
    }
    code.extend(answers.iter().flat_map(|(_, bytes)| bytes));
    let mut creation = vec![0x61];
    creation.extend(two(code.len()));
    creation.extend(hex!("80600a5f395ff3"));
    assert_eq!(creation.len(), 10);
    [creation, code].concat()
}

fn version(text: &str) -> ([u8; 4], Vec<u8>) {
    (Safe::VERSIONCall::SELECTOR, Safe::VERSIONCall::abi_encode_returns(&text.to_owned()))
}

fn threshold(number: u64) -> ([u8; 4], Vec<u8>) {
    (Safe::getThresholdCall::SELECTOR, Safe::getThresholdCall::abi_encode_returns(&U256::from(number)))
}

fn owners(count: u8) -> ([u8; 4], Vec<u8>) {
    let owners: Vec<Address> = (1..=count).map(Address::repeat_byte).collect();
    (Safe::getOwnersCall::SELECTOR, Safe::getOwnersCall::abi_encode_returns(&owners))
}

#[test]
fn the_calls_are_those_of_the_wallets_that_are_in_use() {
    assert_eq!(Safe::VERSIONCall::SELECTOR, hex!("ffa1ad74"));
    assert_eq!(Safe::getThresholdCall::SELECTOR, hex!("e75235b8"));
    assert_eq!(Safe::getOwnersCall::SELECTOR, hex!("a0e67e2b"));
}

#[test]
fn a_wallet_is_what_answers_like_one() {
    on_chain(async |node: &'static Node| {
        let wallet = |threshold, owners| Some(SafeWallet { threshold, owners });
        for (what, answers, expected) in [
            ("two of three", vec![version("1.4.1"), threshold(2), owners(3)], wallet(2, 3)),
            ("on a second layer", vec![version("1.3.0+L2"), threshold(1), owners(1)], wallet(1, 1)),
            ("a hundred", vec![version("1.3.0"), threshold(100), owners(100)], wallet(100, 100)),
            ("more than are read", vec![version("1.3.0"), threshold(1), owners(101)], None),
            ("no signature needed", vec![version("1.3.0"), threshold(0), owners(3)], None),
            ("more than there are", vec![version("1.3.0"), threshold(4), owners(3)], None),
            ("no owners", vec![version("1.3.0"), threshold(1), owners(0)], None),
            ("another kind of version", vec![version("wallet 7"), threshold(2), owners(3)], None),
            ("no version", vec![threshold(2), owners(3)], None),
            ("no owners told", vec![version("1.3.0"), threshold(2)], None),
            ("half an answer", vec![version("1.3.0"), (threshold(2).0, vec![0; 31]), owners(3)], None),
            ("nothing", vec![], None),
        ] {
            let account = node.create(&answering(&answers)).await;
            assert_eq!(node.ask(&SafeState { account }).await.answer, expected, "{what}");
        }
    });
}

#[test]
fn accounts_and_other_contracts_are_none() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(None).await;
        let wallet = node.create(&answering(&[version("1.4.1"), threshold(1), owners(2)])).await;
        // An account with a key that borrows the code of a wallet is still an account with a key.
        let borrower = Address::repeat_byte(0x67);
        let code = format!("0xef0100{}", hex::encode(wallet));
        node.rpc("anvil_setCode", json!([borrower.to_string(), code])).await.unwrap();
        for account in [account(1), Address::repeat_byte(0x78), kms, borrower] {
            assert_eq!(node.ask(&SafeState { account }).await.answer, None, "{account}");
        }
    });
}
