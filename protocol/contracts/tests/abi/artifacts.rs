//! The compiled contracts have the interface that the types declare.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cloister_contracts::abi::{App, Kms, Owned};
use cloister_contracts::{SolCall as _, SolEvent as _, artifacts, hex, keccak256, lens};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contracts/artifacts")
}

fn description(contract: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(format!("{contract}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The type of a parameter as signatures write it.
fn written(parameter: &Value) -> String {
    let name = parameter["type"].as_str().unwrap();
    match name.strip_prefix("tuple") {
        Some(array) => format!("({}){array}", list(&parameter["components"])),
        None => name.to_owned(),
    }
}

fn list(parameters: &Value) -> String {
    parameters.as_array().unwrap().iter().map(written).collect::<Vec<_>>().join(",")
}

/// Signatures of the items of one kind, with what is indexed and what is returned.
fn declared(contract: &str, kind: &str) -> BTreeSet<String> {
    let description = description(contract);
    let items = description["abi"].as_array().unwrap().iter().filter(|item| item["type"] == kind);
    items
        .map(|item| {
            let signature = format!("{}({})", item["name"].as_str().unwrap(), list(&item["inputs"]));
            if kind == "function" {
                return format!("{signature} -> ({})", list(&item["outputs"]));
            }
            let inputs = item["inputs"].as_array().unwrap();
            format!("{signature} indexes {}", inputs.iter().filter(|input| input["indexed"] == true).count())
        })
        .collect()
}

macro_rules! functions {
    ($($module:ident: $($call:ident)*;)*) => {
        [$($({
            type Returned<'a> = <$module::$call as cloister_contracts::SolCall>::ReturnTuple<'a>;
            format!("{} -> {}", $module::$call::SIGNATURE, <Returned<'_> as alloy_sol_types::SolType>::SOL_NAME)
        }),*),*]
    };
}

macro_rules! events {
    ($($module:ident: $($event:ident)*;)*) => {
        [$($({
            type Topics = <$module::$event as cloister_contracts::SolEvent>::TopicList;
            let indexed = <Topics as alloy_sol_types::TopicList>::COUNT - 1;
            format!("{} indexes {indexed}", $module::$event::SIGNATURE)
        }),*),*]
    };
}

#[test]
fn the_compiled_contracts_have_the_declared_functions() {
    let of_apps = functions! {
        App: isAppAllowedCall addComposeHashCall removeComposeHashCall addDeviceCall removeDeviceCall
            setAllowAnyDeviceCall setRequireTcbUpToDateCall disableUpgradesCall allowedComposeHashesCall
            allowedDeviceIdsCall allowAnyDeviceCall requireTcbUpToDateCall versionCall upgradesDisabledCall
            initialize_0Call initialize_1Call;
        Owned: ownerCall pendingOwnerCall transferOwnershipCall acceptOwnershipCall supportsInterfaceCall
            upgradeToAndCallCall;
    };
    let of_kmses = functions! {
        Kms: isAppAllowedCall isKmsAllowedCall deployAndRegisterApp_0Call deployAndRegisterApp_1Call registerAppCall
            setAppImplementationCall setKmsInfoCall setKmsQuoteCall setKmsEventlogCall setGatewayAppIdCall
            addKmsAggregatedMrCall removeKmsAggregatedMrCall addKmsDeviceCall removeKmsDeviceCall addOsImageHashCall
            removeOsImageHashCall kmsInfoCall gatewayAppIdCall registeredAppsCall kmsAllowedAggregatedMrsCall
            kmsAllowedDeviceIdsCall allowedOsImagesCall appImplementationCall initializeCall;
        Owned: ownerCall pendingOwnerCall transferOwnershipCall acceptOwnershipCall supportsInterfaceCall
            upgradeToAndCallCall;
    };
    // What the library has beside the interface.
    let more = [
        "UPGRADE_INTERFACE_VERSION() -> (string)",
        "proxiableUUID() -> (bytes32)",
        "renounceOwnership() -> ()",
    ];
    for (contract, functions) in [("CloisterApp", of_apps.as_slice()), ("CloisterKms", of_kmses.as_slice())] {
        let expected: BTreeSet<String> =
            functions.iter().cloned().chain(more.iter().map(|each| (*each).to_owned())).collect();
        assert_eq!(declared(contract, "function"), expected, "{contract}");
    }
}

#[test]
fn the_compiled_contracts_have_the_declared_events() {
    let of_apps = events! {
        App: ComposeHashAdded ComposeHashRemoved DeviceAdded DeviceRemoved AllowAnyDeviceSet RequireTcbUpToDateSet
            UpgradesDisabled;
        Owned: OwnershipTransferStarted OwnershipTransferred Upgraded PolicyChanged;
    };
    let of_kmses = events! {
        Kms: AppDeployedViaFactory AppRegistered KmsInfoSet KmsAggregatedMrAdded KmsAggregatedMrRemoved KmsDeviceAdded
            KmsDeviceRemoved OsImageHashAdded OsImageHashRemoved GatewayAppIdSet AppImplementationSet;
        Owned: OwnershipTransferStarted OwnershipTransferred Upgraded PolicyChanged;
    };
    for (contract, events) in [("CloisterApp", of_apps.as_slice()), ("CloisterKms", of_kmses.as_slice())] {
        let expected: BTreeSet<String> =
            events.iter().cloned().chain(["Initialized(uint64) indexes 0".to_owned()]).collect();
        assert_eq!(declared(contract, "event"), expected, "{contract}");
    }
}

#[test]
fn what_is_embedded_is_what_is_described() {
    for (contract, code) in [
        ("CloisterKms", artifacts::KMS_IMPLEMENTATION.as_slice()),
        ("CloisterApp", artifacts::APP_IMPLEMENTATION.as_slice()),
        ("ERC1967Proxy", artifacts::PROXY.as_slice()),
        ("AllowanceLens", artifacts::ALLOWANCE_LENS.as_slice()),
    ] {
        let creation = &description(contract)["creation"];
        assert_eq!(creation["keccak256"], hex::encode(keccak256(code)), "{contract}");
        assert_eq!(creation["bytes"], code.len(), "{contract}");
        assert!(code.len() <= lens::MAX_QUESTION_BYTES, "{contract}");
        assert!(description(contract)["deployed"]["bytes"].as_u64().unwrap() <= 24_576, "{contract}");
    }
}

#[test]
fn the_list_of_hashes_covers_every_artifact() {
    let list = std::fs::read_to_string(folder().join("SHA256SUMS")).unwrap();
    let mut named: BTreeSet<&str> = ["SHA256SUMS"].into();
    for line in list.lines() {
        let (hash, name) = line.split_once("  ").unwrap();
        let bytes = std::fs::read(folder().join(name)).unwrap();
        assert_eq!(hex::encode(Sha256::digest(&bytes)), hash, "{name}: run `make contracts`");
        named.insert(name);
    }
    let present: Vec<_> =
        std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(present.len(), named.len());
    assert!(present.iter().all(|name| named.contains(name.to_str().unwrap())), "{present:?}");
}
