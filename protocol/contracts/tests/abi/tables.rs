//! Platform reference, sections 11.2 and 11.3.

use cloister_contracts::abi::App::*;
use cloister_contracts::abi::Kms::{
    AppDeployedViaFactory, AppImplementationSet, AppRegistered, GatewayAppIdSet, KmsAggregatedMrAdded,
    KmsAggregatedMrRemoved, KmsDeviceAdded, KmsDeviceRemoved, KmsInfoSet, OsImageHashAdded,
    OsImageHashRemoved, addKmsAggregatedMrCall, addKmsDeviceCall, addOsImageHashCall, allowedOsImagesCall,
    appImplementationCall, deployAndRegisterApp_0Call, deployAndRegisterApp_1Call, gatewayAppIdCall,
    isKmsAllowedCall, kmsAllowedAggregatedMrsCall, kmsAllowedDeviceIdsCall, kmsInfoCall, registerAppCall,
    registeredAppsCall, removeKmsAggregatedMrCall, removeKmsDeviceCall, removeOsImageHashCall,
    setAppImplementationCall, setGatewayAppIdCall, setKmsEventlogCall, setKmsInfoCall, setKmsQuoteCall,
};
use cloister_contracts::abi::{Kms, Owned::*};
use cloister_contracts::events::{POLICIES, policy_name};
use cloister_contracts::{
    APP_AUTH_INTERFACE, APP_MANAGEMENT_INTERFACE, SolCall as _, SolError as _, SolEvent as _, hex, keccak256,
};

macro_rules! selectors {
    ($($expected:literal $call:ty),* $(,)?) => {
        [$(($expected, stringify!($call), <$call>::SELECTOR)),*]
    };
}

macro_rules! topics {
    ($($expected:literal $event:ty),* $(,)?) => {
        [$(($expected, stringify!($event), <$event>::SIGNATURE_HASH)),*]
    };
}

#[test]
fn selectors_are_the_published_ones() {
    let published = selectors![
        "1e079198" isAppAllowedCall, "1e079198" Kms::isAppAllowedCall, "e067ec9d" isKmsAllowedCall,
        "8618169d" deployAndRegisterApp_0Call, "9cb9c31f" deployAndRegisterApp_1Call,
        "17a1d80f" registerAppCall, "3ceaaa11" setAppImplementationCall,
        "7d025352" setKmsInfoCall, "18c1ecb2" setKmsQuoteCall, "736ede7a" setKmsEventlogCall,
        "3971db27" setGatewayAppIdCall, "3e32d346" addKmsAggregatedMrCall, "2adee48d" removeKmsAggregatedMrCall,
        "4d5922a1" addKmsDeviceCall, "9e6f3114" removeKmsDeviceCall,
        "06a3ae96" addOsImageHashCall, "9425bac6" removeOsImageHashCall,
        "09177063" kmsInfoCall, "95f51931" gatewayAppIdCall, "a6c4cce9" registeredAppsCall,
        "f6fe4f40" kmsAllowedAggregatedMrsCall, "13eb9770" kmsAllowedDeviceIdsCall,
        "9a4e1d18" allowedOsImagesCall, "25a992da" appImplementationCall,
        "dfc77223" addComposeHashCall, "67b3f22c" removeComposeHashCall,
        "2a819728" addDeviceCall, "1d266200" removeDeviceCall, "7c4beeb8" setAllowAnyDeviceCall,
        "6e4c7422" setRequireTcbUpToDateCall, "ec669036" disableUpgradesCall,
        "2f6622e5" allowedComposeHashesCall, "bf8b211b" allowedDeviceIdsCall, "3440a16a" allowAnyDeviceCall,
        "0aa58c83" requireTcbUpToDateCall, "54fd4d50" versionCall,
        "187515ca" initialize_0Call, "9ed28193" initialize_1Call, "485cc955" Kms::initializeCall,
        "8da5cb5b" ownerCall, "e30c3978" pendingOwnerCall, "f2fde38b" transferOwnershipCall,
        "79ba5097" acceptOwnershipCall, "01ffc9a7" supportsInterfaceCall, "4f1ef286" upgradeToAndCallCall,
        "118cdaa7" OwnableUnauthorizedAccount, "f92ee8a9" InvalidInitialization,
    ];
    for (expected, name, selector) in published {
        assert_eq!(hex::encode(selector), expected, "{name}");
    }
}

#[test]
fn interface_ids_are_the_published_ones() {
    assert_eq!(hex::encode(APP_AUTH_INTERFACE), "1e079198");
    assert_eq!(hex::encode(APP_MANAGEMENT_INTERFACE), "8fd37527");
}

#[test]
fn topics_are_the_published_ones() {
    let published = topics![
        "fd86d7f6962eba3b7a3bf9129c06c0b2f885e1c61ef2c9f0dbb856be0deefdee" AppDeployedViaFactory,
        "0d540ad8f39e07d19909687352b9fa017405d93c91a6760981fbae9cf28bfef7" AppRegistered,
        "fecb34306dd9d8b785b54d65489d06afc8822a0893ddacedff40c50a4942d0af" ComposeHashAdded,
        "755b79bd4b0eeab344d032284a99003b2ddc018b646752ac72d681593a6e8947" ComposeHashRemoved,
        "67fc71ab96fe3fa3c6f78e9a00e635d591b7333ce611c0380bc577aac702243b" DeviceAdded,
        "e0862975ac517b0478d308012afabc4bc37c23874a18144d7f2dfb852ff95c2c" DeviceRemoved,
        "bb2cdb6c7b362202d40373f87bc4788301cca658f91711ac1662e1ad2cba4a20" AllowAnyDeviceSet,
        "afae60561b2481a349b45b3a47357f70eef6ae67e5b6e1749d74de7f19a25aa1" RequireTcbUpToDateSet,
        "0e5daa943fcd7e7182d0e893d180695c2ea9f6f1b4a1c5432faf14cf17b774e8" UpgradesDisabled,
        "77cdad119a452bbd96c45635758fc4af8a6bde3deaccf3fada634ddf9a162706" KmsInfoSet,
        "68615a0b92795750b3d180ff73429e1291d225e449eee954a567b91104fd9837" KmsAggregatedMrAdded,
        "54cd662e41eec7ddf0f32f034b2533e481b471dd3ea978222d609ec8fffb1bb0" KmsAggregatedMrRemoved,
        "f2b290637b1193e12eb38ab32b986303639b1687cc2cd1e25f993e6eae2f4041" KmsDeviceAdded,
        "1a9888a45e3df8b7e6bb3090747d598d2a0d78e61388161a90799f54df8f4434" KmsDeviceRemoved,
        "4911843506849c85a5ca6e6e2c01eed2d3ab86baba619517a2aad9d5ab2aeff2" OsImageHashAdded,
        "99b3cee95daf3138d0c982299cd0264f5b7a61aa629b42b92f3ec8966aa7f6fe" OsImageHashRemoved,
        "5b2b64f770ea5266055ebd3ebf205ef06cbfa738e62684edf0e28356e34acf06" GatewayAppIdSet,
        "08bb433f12b5fd81d2d5e0deeb3b4d28371781ddbd80e9d053e7468d2b1aa82d" AppImplementationSet,
        "341d3bc64e32172fc5bcf27b0f7f69dc5adc19af64b7aa1dee361e5883c32375" PolicyChanged,
        "8be0079c531659141344cd1fd0a4f28419497f9722a3daafe3b4186f6b6457e0" OwnershipTransferred,
        "38d16b8cac22d99fc7c124b9cd0de2d3fa1faef420bfe791d8c362d765e22700" OwnershipTransferStarted,
    ];
    for (expected, name, topic) in published {
        assert_eq!(hex::encode(topic), expected, "{name}");
    }
}

#[test]
fn policies_are_known_by_the_hash_of_their_name() {
    for (name, _) in POLICIES {
        assert_eq!(policy_name(keccak256(name)), Some(name));
    }
    assert_eq!(policy_name(keccak256("another policy")), None);
}
