//! Any answer to a question about contracts: it is refused, or it has exactly as much as was asked.
#![no_main]

use cloister_contracts::lens::{
    Allowances, AppState, Inquiry as _, KmsState, SafeState, SafeWallet, VerdictQuestion,
};
use cloister_contracts::{Address, AppBootInfo, B256};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [which, output @ ..] = bytes else { return };
    let (app, words) = (Address::ZERO, vec![B256::ZERO; usize::from(which / 5)]);
    match which % 5 {
        0 => {
            let question = Allowances { app, compose_hashes: words, device_ids: vec![B256::ZERO; 3] };
            let Ok(found) = question.answer(output) else { return };
            assert_eq!(found.answer.compose_hashes.len(), question.compose_hashes.len());
            assert_eq!(found.answer.device_ids.len(), 3);
        }
        1 => {
            let question =
                VerdictQuestion { kms_contract: app, for_roots: false, boot: AppBootInfo::default() };
            let Ok(found) = question.answer(output) else { return };
            assert!(found.answer.reason.chars().count() < 300);
            assert_eq!(found.answer.is_allowed, found.answer.reason.is_empty());
        }
        2 => drop(AppState { kms_contract: app, app }.answer(output)),
        3 => {
            let Ok(found) = (SafeState { account: app }).answer(output) else { return };
            let is_sound = |safe: SafeWallet| (1..=safe.owners).contains(&safe.threshold);
            assert!(found.answer.is_none_or(is_sound));
        }
        _ => {
            let (devices, os_images) = (words.clone(), words);
            let question = KmsState { kms_contract: app, devices, os_images, aggregated_mrs: Vec::new() };
            let Ok(found) = question.answer(output) else { return };
            assert_eq!(found.answer.devices.len(), question.devices.len());
        }
    }
});
