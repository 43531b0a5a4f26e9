use alloy_primitives::{IntoLogData as _, LogData};
use cloister_contracts::abi::App::{AllowAnyDeviceSet, AppEvents, ComposeHashAdded, ComposeHashRemoved};
use cloister_contracts::abi::Kms::{AppDeployedViaFactory, GatewayAppIdSet, KmsEvents, KmsInfoSet};
use cloister_contracts::abi::Owned::{OwnedEvents, OwnershipTransferred, PolicyChanged};
use cloister_contracts::events::{
    DeployedApp, Event, Log, UnknownLog, allows_compose_hash, decode_event, deployed_apps,
};
use cloister_contracts::{Address, B256, SolEvent as _};
use proptest::prelude::*;

const KMS: Address = Address::repeat_byte(0xaa);
const APP: Address = Address::repeat_byte(0xbb);
const DEPLOYER: Address = Address::repeat_byte(0xcc);

fn log(address: Address, data: &LogData) -> Log<'_> {
    Log { address, topics: data.topics(), data: &data.data }
}

fn made(app: Address, deployer: Address) -> LogData {
    AppDeployedViaFactory { appId: app, deployer }.to_log_data()
}

#[test]
fn only_the_factory_of_the_kms_contract_makes_applications() {
    let ours = made(APP, DEPLOYER);
    let of_nobody = made(APP, Address::ZERO);
    let nothing = made(Address::ZERO, DEPLOYER);
    let logs = [log(APP, &ours), log(KMS, &nothing), log(KMS, &of_nobody), log(KMS, &ours)];
    let found: Vec<DeployedApp> = deployed_apps(logs, KMS).collect();
    assert_eq!(found, [DeployedApp { app: APP, deployer: DEPLOYER }]);
    assert_eq!(deployed_apps(logs, DEPLOYER).count(), 0);
}

#[test]
fn a_document_is_allowed_by_the_contract_of_its_application_only() {
    let hash = B256::repeat_byte(7);
    let added = ComposeHashAdded { composeHash: hash }.to_log_data();
    let removed = ComposeHashRemoved { composeHash: hash }.to_log_data();
    assert!(allows_compose_hash([log(KMS, &removed), log(APP, &added)], APP, hash));
    assert!(!allows_compose_hash([log(KMS, &added)], APP, hash));
    assert!(!allows_compose_hash([log(APP, &added)], APP, B256::repeat_byte(8)));
    assert!(!allows_compose_hash([log(APP, &removed)], APP, hash));
}

#[test]
fn logs_that_solidity_would_not_write_are_refused() {
    let added = ComposeHashAdded { composeHash: B256::repeat_byte(7) }.to_log_data();
    let [topic] = added.topics() else { panic!("one topic") };
    let indexed = [*topic, B256::repeat_byte(7)];
    let dirty = B256::repeat_byte(0xff);
    let deployed = [AppDeployedViaFactory::SIGNATURE_HASH, dirty, dirty];
    let two = {
        let mut word = [0; 32];
        word[31] = 2;
        word
    };
    let any_device = [AllowAnyDeviceSet::SIGNATURE_HASH];
    let long = [added.data.as_ref(), &[0; 32]].concat();
    for (topics, data, why) in [
        (&[] as &[B256], &[] as &[u8], "no topics"),
        (&[B256::ZERO], &added.data, "an unknown event"),
        (&[*topic], &[], "no data"),
        (&[*topic], &added.data[..31], "data cut off"),
        (&[*topic], &long, "more data"),
        (&indexed, &[], "an argument that is not indexed"),
        (&deployed, &[], "addresses of 32 bytes"),
        (&any_device, &two, "neither yes nor no"),
        (&[*topic; 5], &added.data, "five topics"),
    ] {
        assert_eq!(decode_event(Log { address: APP, topics, data }), Err(UnknownLog), "{why}");
    }
}

fn events() -> impl Strategy<Value = LogData> {
    let word = || any::<[u8; 32]>().prop_map(B256::from);
    let address = || any::<[u8; 20]>().prop_map(Address::from);
    prop_oneof![
        word().prop_map(
            |hash| AppEvents::ComposeHashAdded(ComposeHashAdded { composeHash: hash }).to_log_data()
        ),
        any::<bool>().prop_map(|any| AllowAnyDeviceSet { allowAnyDevice: any }.to_log_data()),
        (address(), address()).prop_map(|(app, deployer)| made(app, deployer)),
        ".{0,80}"
            .prop_map(|id| KmsEvents::GatewayAppIdSet(GatewayAppIdSet { gatewayAppId: id }).to_log_data()),
        prop::collection::vec(any::<u8>(), 0..100)
            .prop_map(|key| KmsInfoSet { k256Pubkey: key.into() }.to_log_data()),
        (address(), address()).prop_map(|(from, to)| OwnershipTransferred {
            previousOwner: from,
            newOwner: to
        }
        .to_log_data()),
        (address(), word(), word(), any::<bool>()).prop_map(|(actor, policy, value, enabled)| {
            OwnedEvents::PolicyChanged(PolicyChanged { actor, policy, value, enabled }).to_log_data()
        }),
    ]
}

/// The log that an event is.
fn written(event: &Event) -> LogData {
    match event {
        Event::App(event) => event.to_log_data(),
        Event::Kms(event) => event.to_log_data(),
        Event::Owned(event) => event.to_log_data(),
    }
}

proptest! {
    #[test]
    fn events_come_back_as_they_were_written(data in events()) {
        let event = decode_event(log(APP, &data)).unwrap();
        prop_assert_eq!(written(&event), data);
    }

    #[test]
    fn a_changed_log_is_refused_or_is_exactly_another_event(
        data in events(), place in any::<prop::sample::Index>(), change in 1..=u8::MAX, cut in 0..40usize
    ) {
        let mut topics = data.topics().to_vec();
        let mut bytes = data.data.to_vec();
        let place = place.index(topics.len() * 32 + bytes.len());
        match place.checked_sub(topics.len() * 32) {
            Some(index) => bytes[index] ^= change,
            None => topics[place / 32][place % 32] ^= change,
        }
        bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(20)));
        if let Ok(event) = decode_event(Log { address: APP, topics: &topics, data: &bytes }) {
            let again = written(&event);
            prop_assert_eq!(again.topics(), &topics);
            prop_assert_eq!(again.data.as_ref(), &bytes);
        }
    }

    #[test]
    fn garbage_is_refused(
        topics in prop::collection::vec(any::<[u8; 32]>().prop_map(B256::from), 0..6),
        data in prop::collection::vec(any::<u8>(), 0..200)
    ) {
        prop_assert_eq!(decode_event(Log { address: APP, topics: &topics, data: &data }), Err(UnknownLog));
    }
}
