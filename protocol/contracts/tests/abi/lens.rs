//! Questions of the lens, and answers that a node might make up.

use alloy_sol_types::SolValue as _;
use cloister_contracts::abi::AppBootInfo;
use cloister_contracts::lens::{
    Account, Allowances, AppState, Inquiry as _, KmsState, MAX_KEYS, MAX_QUESTION_BYTES, MAX_VERDICT_BYTES,
    MalformedAnswer, QuestionTooLarge, VerdictQuestion,
};
use cloister_contracts::{Address, B256, Bytes, U256, artifacts};
use proptest::prelude::*;

const APP: Address = Address::repeat_byte(0xbb);
const KMS: Address = Address::repeat_byte(0xaa);

alloy_sol_types::sol! {
    struct WrittenReading { uint8 target; bool succeeded; uint32 length; uint8 named; bytes data; }
    struct WrittenAnswer {
        uint256 chainId; uint256 number; uint256 timestamp; bytes32 parent; bytes flags; WrittenReading[] reads;
    }
}

/// What is at the target, whether the call returned, length, what the answer names, the answer.
type Reading = (u8, bool, u32, u8, Bytes);
const CONTRACT: u8 = 1;

fn answer(flags: &[u8], reads: Vec<Reading>) -> Vec<u8> {
    answer_of(U256::from(31337), flags, reads)
}

fn answer_of(chain: U256, flags: &[u8], reads: Vec<Reading>) -> Vec<u8> {
    let reading =
        |(target, succeeded, length, named, data)| WrittenReading { target, succeeded, length, named, data };
    WrittenAnswer {
        chainId: chain,
        number: U256::from(9),
        timestamp: U256::from(1_700_000_000),
        parent: B256::repeat_byte(1),
        flags: Bytes::copy_from_slice(flags),
        reads: reads.into_iter().map(reading).collect(),
    }
    .abi_encode()
}

fn returned(data: impl Into<Bytes>) -> Reading {
    let data = data.into();
    (CONTRACT, true, u32::try_from(data.len()).unwrap(), 0, data)
}

fn words(count: usize) -> Vec<B256> {
    (0..count).map(|index| B256::from(U256::from(index))).collect()
}

fn allowances(hashes: usize, devices: usize) -> Allowances {
    Allowances { app: APP, compose_hashes: words(hashes), device_ids: words(devices) }
}

fn verdict_question() -> VerdictQuestion {
    VerdictQuestion { kms_contract: KMS, for_roots: false, boot: AppBootInfo::default() }
}

#[test]
fn a_question_is_the_code_of_the_lens_and_its_argument_and_is_bounded() {
    let data = allowances(MAX_KEYS / 2, MAX_KEYS / 2).call_data().unwrap();
    assert!(data.starts_with(&artifacts::ALLOWANCE_LENS) && data.len() <= MAX_QUESTION_BYTES);
    assert_eq!(allowances(MAX_KEYS, 1).call_data(), Err(QuestionTooLarge));
    let boot = AppBootInfo { tcbStatus: "x".repeat(MAX_QUESTION_BYTES), ..AppBootInfo::default() };
    assert_eq!(VerdictQuestion { boot, ..verdict_question() }.call_data(), Err(QuestionTooLarge));
    let state = KmsState {
        kms_contract: KMS,
        devices: words(400),
        os_images: words(400),
        aggregated_mrs: words(200),
    };
    assert!(state.call_data().is_ok());
    assert!(AppState { kms_contract: KMS, app: APP }.call_data().is_ok());
}

#[test]
fn bits_are_in_the_order_of_the_question() {
    let question = allowances(3, 7);
    let output = answer(&[0b1010_0000, 0b0100_0000], vec![returned(true.abi_encode())]);
    let found = question.answer(&output).unwrap();
    assert_eq!((found.at.chain_id, found.at.number, found.at.timestamp), (31337, 9, 1_700_000_000));
    assert_eq!(found.answer.compose_hashes, [true, false, true]);
    assert_eq!(found.answer.device_ids, [false, false, false, false, false, false, true]);
    assert!(found.answer.is_contract && found.answer.allow_any_device);
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let question = allowances(3, 6);
    let yes = || returned(true.abi_encode());
    let (target, succeeded, length, named, data) = yes();
    for (output, why) in [
        (answer(&[0xa0], vec![yes()]), "too few bits"),
        (answer(&[0xa0, 0, 0], vec![yes()]), "too many bits"),
        (answer(&[0xa0, 0x01], vec![yes()]), "a bit beyond the last"),
        (answer(&[0xa0, 0], vec![]), "a result is missing"),
        (answer(&[0xa0, 0], vec![yes(), yes()]), "a result too many"),
        (answer(&[0xa0, 0], vec![(3, succeeded, length, named, data.clone())]), "no such account"),
        (answer(&[0xa0, 0], vec![(target, succeeded, length, 3, data.clone())]), "no such account is named"),
        (answer(&[0xa0, 0], vec![(target, succeeded, 31, named, data)]), "another length"),
        (Vec::new(), "nothing"),
        (vec![0; 64 * 1024], "too much"),
    ] {
        assert_eq!(question.answer(&output), Err(MalformedAnswer), "{why}");
    }
    let huge = answer_of(U256::MAX, &[0, 0], vec![yes()]);
    assert_eq!(question.answer(&huge), Err(MalformedAnswer), "no such chain");
}

#[test]
fn what_is_not_exactly_true_is_no_permission() {
    let question = allowances(0, 0);
    let mut two = true.abi_encode();
    two[31] = 2;
    let mut dirty = true.abi_encode();
    dirty[0] = 1;
    let long = [true.abi_encode(), vec![0; 32]].concat();
    let cut = (CONTRACT, true, 64, 0, Bytes::from(true.abi_encode()));
    let failed = (CONTRACT, false, 32, 0, Bytes::from(true.abi_encode()));
    let nobody = (0, true, 32, 0, Bytes::from(true.abi_encode()));
    for (reading, why) in [
        (returned(two), "neither yes nor no"),
        (returned(dirty), "dirty"),
        (cut, "longer than a yes"),
        (failed, "reverted"),
        (nobody, "no contract"),
        ((CONTRACT, true, 0, 0, Bytes::new()), "empty"),
    ] {
        let found = question.answer(&answer(&[], vec![reading])).unwrap();
        assert!(!found.answer.allow_any_device, "{why}");
    }
    let over = verdict_question().answer(&answer(&[], vec![returned(long)])).unwrap();
    assert!(!over.answer.is_allowed, "no text");
}

#[test]
fn verdicts_have_reasons() {
    let verdict = |reading| verdict_question().answer(&answer(&[], vec![reading])).unwrap().answer;
    let said = |is_allowed: bool, reason: &str| returned((is_allowed, reason.to_owned()).abi_encode_params());

    let yes = verdict(said(true, ""));
    assert!(yes.is_allowed && yes.reason.is_empty());
    let no = verdict(said(false, "Device not allowed"));
    assert!(!no.is_allowed);
    assert_eq!(no.reason, "Device not allowed");
    assert_eq!(verdict(said(false, "")).reason, "the contract gives no reason");
    let rude = verdict(said(false, &format!("\u{1b}[2J\u{202e}{}", "x".repeat(1000))));
    assert!(
        rude.reason.chars().count() <= 201 && !rude.reason.contains(['\u{1b}', '\u{202e}']),
        "{}",
        rude.reason
    );

    let long = u32::try_from(u64::from(MAX_VERDICT_BYTES) + 32).unwrap();
    let cut = Bytes::from(vec![1; MAX_VERDICT_BYTES as usize]);
    for (reading, words) in [
        ((0, false, 0, 0, Bytes::new()), "no contract"),
        ((CONTRACT, false, 0, 0, Bytes::new()), "failed"),
        ((CONTRACT, true, 0, 0, Bytes::new()), "not of the interface"),
        (returned(true.abi_encode()), "not of the interface"),
        ((CONTRACT, true, long, 0, cut), "not of the interface"),
    ] {
        let refused = verdict(reading);
        assert!(!refused.is_allowed && refused.reason.contains(words), "{}", refused.reason);
    }
}

#[test]
fn states_say_what_contracts_say_and_nothing_more() {
    let question = AppState { kms_contract: KMS, app: APP };
    let owner = Address::repeat_byte(5);
    let word = |value: u64| returned(U256::from(value).abi_encode());
    let reverted = || (CONTRACT, false, 0, 0, Bytes::new());
    let delegated = (CONTRACT, true, 32, 2, Bytes::from(owner.abi_encode()));
    let reads = vec![word(1), delegated, word(0), word(2), word(0), word(7), reverted()];
    let found = question.answer(&answer(&[], reads)).unwrap().answer;
    assert!(found.is_registered);
    assert_eq!((found.owner, found.owner_account), (Some(owner), Account::Delegated));
    assert_eq!((found.pending_owner, found.version), (None, Some(2)));
    assert_eq!((found.allow_any_device, found.require_tcb_up_to_date), (Some(false), None), "7 is neither");
    assert_eq!(found.upgrades_disabled, None, "the public contracts do not say");
}

proptest! {
    #[test]
    fn every_bit_goes_to_its_word(
        (hashes, devices) in (prop::collection::vec(any::<bool>(), 0..60), prop::collection::vec(any::<bool>(), 0..60)),
        any_device in any::<bool>()
    ) {
        let bits: Vec<bool> = hashes.iter().chain(&devices).copied().collect();
        let mut flags = vec![0u8; bits.len().div_ceil(8)];
        for (index, _) in bits.iter().enumerate().filter(|(_, bit)| **bit) {
            flags[index / 8] |= 0x80 >> (index % 8);
        }
        let output = answer(&flags, vec![returned(any_device.abi_encode())]);
        let found = allowances(hashes.len(), devices.len()).answer(&output).unwrap().answer;
        prop_assert_eq!(found.compose_hashes, hashes);
        prop_assert_eq!(found.device_ids, devices);
        prop_assert_eq!(found.allow_any_device, any_device);
    }

    #[test]
    fn a_changed_answer_never_becomes_a_permission(place in any::<prop::sample::Index>(), change in 1..=u8::MAX) {
        let denied = (false, "Device not allowed".to_owned()).abi_encode_params();
        let mut output = answer(&[], vec![returned(denied)]);
        // The one change that says yes is the one of the word that says no.
        let word = output.len() - 4 * 32;
        let place = place.index(output.len());
        output[place] ^= change;
        if let Ok(found) = verdict_question().answer(&output) {
            prop_assert!(!found.answer.is_allowed || (place == word + 31 && change == 1), "{place} {change}");
        }
    }

    #[test]
    fn garbage_is_refused(output in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(allowances(3, 5).answer(&output), Err(MalformedAnswer));
        prop_assert_eq!(verdict_question().answer(&output), Err(MalformedAnswer));
    }
}
