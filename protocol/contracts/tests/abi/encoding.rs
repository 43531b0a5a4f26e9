//! Published vectors, and round trips.

use std::path::PathBuf;

use alloy_sol_types::SolValue as _;
use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_contracts::abi::{App, Kms};
use cloister_contracts::{
    Address, AppBootInfo, B256, NewApp, SolCall as _, app_address, app_id, compose_hash, compose_word, hex,
    instance_address, os_image_word,
};
use proptest::prelude::*;
use serde_json::Value;

/// The public vectors, or `None` where they are not.
fn vectors() -> Option<Value> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata"));
    let root = std::env::var_os("CLOISTER_TESTDATA").map_or_else(beside, PathBuf::from);
    let Ok(text) = std::fs::read_to_string(root.join("tdx/minted/vectors.json")) else {
        eprintln!("SKIPPED: no test data at {}; name its folder in CLOISTER_TESTDATA", root.display());
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

fn word(text: &str) -> B256 {
    text.parse().unwrap()
}

/// The machine of the vectors.
fn boot() -> AppBootInfo {
    let compose_hash: ComposeHash =
        "6f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85".parse().unwrap();
    let instance: InstanceId = "836a333a23811140f86b94c3c8a7cb0deef0a6d5".parse().unwrap();
    let image: OsImageHash =
        "e6f5cfec20c02e7b97baa213d0f718020b55e040172d90ccbcb946d56c8b09db".parse().unwrap();
    AppBootInfo {
        appId: app_address(AppId::from_compose_hash(&compose_hash)),
        composeHash: compose_word(compose_hash),
        instanceId: instance_address(instance),
        deviceId: word("a309e617409dfb6766860e295eee46054c784bbbb92aa27091414c6654f57d0d"),
        mrAggregated: word("1f5e6459b0d9635f23ced6e0286e328875a23cb23433e8462bf1b266f8e082fb"),
        mrSystem: word("d00a4dcbb9e4821f432b702535b7655ed7871877bf2269ab55c53f98ad560efa"),
        osImageHash: os_image_word(image),
        tcbStatus: "UpToDate".to_owned(),
        advisoryIds: Vec::new(),
    }
}

#[test]
fn encodings_are_the_published_ones() {
    let Some(vectors) = vectors() else { return };
    let published = |name: &str| vectors["abi"][name].as_str().unwrap().to_owned();

    let up_to_date = App::isAppAllowedCall { bootInfo: boot() };
    assert_eq!(hex::encode(up_to_date.abi_encode()), published("is_app_allowed_calldata"));
    let out_of_date = AppBootInfo {
        tcbStatus: "OutOfDate".to_owned(),
        advisoryIds: vec!["INTEL-SA-00001".to_owned(), "INTEL-SA-00002".to_owned()],
        ..boot()
    };
    let out_of_date = App::isAppAllowedCall { bootInfo: out_of_date };
    assert_eq!(hex::encode(out_of_date.abi_encode()), published("is_app_allowed_calldata_outofdate"));
    let kms = Kms::isKmsAllowedCall { bootInfo: boot() };
    assert_eq!(hex::encode(kms.abi_encode()), published("is_kms_allowed_calldata"));

    for (name, is_allowed, reason) in
        [("return_allowed", true, ""), ("return_device_denied", false, "Device not allowed")]
    {
        let encoded = (is_allowed, reason.to_owned()).abi_encode_params();
        assert_eq!(hex::encode(&encoded), published(name));
        let decoded = App::isAppAllowedCall::abi_decode_returns_validate(&encoded).unwrap();
        assert_eq!((decoded.isAllowed, decoded.reason.as_str()), (is_allowed, reason));
    }

    let factory = NewApp {
        owner: Address::repeat_byte(0x11),
        disable_upgrades: false,
        require_tcb_up_to_date: true,
        allow_any_device: false,
        device_id: Some(boot().deviceId),
        compose_hash: Some(boot().composeHash),
    };
    assert_eq!(
        hex::encode(factory.call_data()),
        vectors["abi"]["deploy_and_register_calldata"]["calldata"].as_str().unwrap()
    );
    let add = App::addComposeHashCall { composeHash: boot().composeHash };
    assert_eq!(hex::encode(add.abi_encode()), published("add_compose_hash_calldata"));
}

#[test]
fn a_new_application_uses_the_form_that_every_factory_has_unless_it_needs_the_newer_one() {
    let app = NewApp {
        owner: Address::repeat_byte(1),
        disable_upgrades: true,
        require_tcb_up_to_date: false,
        allow_any_device: true,
        device_id: None,
        compose_hash: None,
    };
    let call = Kms::deployAndRegisterApp_0Call::abi_decode_validate(&app.call_data()).unwrap();
    assert!(call.disableUpgrades && call.allowAnyDevice);
    assert_eq!((call.initialOwner, call.initialDeviceId), (app.owner, B256::ZERO));
    let strict = NewApp { require_tcb_up_to_date: true, ..app };
    let call = Kms::deployAndRegisterApp_1Call::abi_decode_validate(&strict.call_data()).unwrap();
    assert!(call.requireTcbUpToDate && call.disableUpgrades && call.allowAnyDevice);
}

fn boots() -> impl Strategy<Value = AppBootInfo> {
    let words = prop::array::uniform6(any::<[u8; 32]>());
    let texts = (".{0,40}", prop::collection::vec(".{0,20}", 0..4));
    (any::<[u8; 20]>(), any::<[u8; 20]>(), words, texts).prop_map(|(app, instance, words, (status, ids))| {
        let [compose, device, aggregated, system, image, _] = words.map(B256::from);
        AppBootInfo {
            appId: app.into(),
            composeHash: compose,
            instanceId: instance.into(),
            deviceId: device,
            mrAggregated: aggregated,
            mrSystem: system,
            osImageHash: image,
            tcbStatus: status,
            advisoryIds: ids,
        }
    })
}

proptest! {
    #[test]
    fn machines_come_back_as_they_were_written(boot in boots()) {
        let call = Kms::isAppAllowedCall { bootInfo: boot };
        let written = call.abi_encode();
        prop_assert_eq!(Kms::isAppAllowedCall::abi_decode_validate(&written).unwrap(), call);
        let cut = written.get(..written.len() - 32).unwrap();
        prop_assert!(Kms::isAppAllowedCall::abi_decode_validate(cut).is_err());
    }

    #[test]
    fn new_applications_come_back_as_they_were_written(
        owner in any::<[u8; 20]>(), flags in any::<[bool; 3]>(), words in any::<[Option<[u8; 32]>; 2]>()
    ) {
        let [disable_upgrades, require_tcb_up_to_date, allow_any_device] = flags;
        let [device_id, compose_hash] = words.map(|word| word.map(B256::from));
        let app = NewApp {
            owner: owner.into(), disable_upgrades, require_tcb_up_to_date, allow_any_device, device_id, compose_hash,
        };
        let data = app.call_data();
        let (owner, disable, any, device, compose) = if require_tcb_up_to_date {
            let call = Kms::deployAndRegisterApp_1Call::abi_decode_validate(&data).unwrap();
            prop_assert!(call.requireTcbUpToDate);
            (call.initialOwner, call.disableUpgrades, call.allowAnyDevice, call.initialDeviceId, call.initialComposeHash)
        } else {
            let call = Kms::deployAndRegisterApp_0Call::abi_decode_validate(&data).unwrap();
            (call.initialOwner, call.disableUpgrades, call.allowAnyDevice, call.initialDeviceId, call.initialComposeHash)
        };
        prop_assert_eq!((owner, disable, any), (app.owner, disable_upgrades, allow_any_device));
        prop_assert_eq!((device, compose), (device_id.unwrap_or_default(), compose_hash.unwrap_or_default()));
    }

    #[test]
    fn identifiers_come_back_as_they_were(app in any::<[u8; 20]>(), hash in any::<[u8; 32]>()) {
        let (app, hash) = (AppId::from_bytes(app), ComposeHash::from_bytes(hash));
        prop_assert_eq!(app_id(app_address(app)), app);
        prop_assert_eq!(compose_hash(compose_word(hash)), hash);
    }
}
