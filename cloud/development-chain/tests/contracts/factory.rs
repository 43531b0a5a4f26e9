//! The contract of a KMS: its factory, its lists, and the order of its reasons.

use cloister_contracts::abi::{Kms, KmsInfo, Owned};
use cloister_contracts::lens::{KmsState, VerdictQuestion};
use cloister_contracts::{
    APP_AUTH_INTERFACE, APP_MANAGEMENT_INTERFACE, Address, AppBootInfo, NewApp, SolCall as _,
};

use crate::model::word;
use crate::node::{Node, account, on_chain};

const STRANGER: usize = 2;

fn new_app(owner: Address) -> NewApp {
    NewApp {
        owner,
        disable_upgrades: false,
        require_tcb_up_to_date: false,
        allow_any_device: false,
        device_id: Some(word(2)),
        compose_hash: Some(word(1)),
    }
}

fn boot(app: Address) -> AppBootInfo {
    AppBootInfo {
        appId: app,
        composeHash: word(1),
        deviceId: word(2),
        osImageHash: word(3),
        mrAggregated: word(4),
        tcbStatus: "UpToDate".to_owned(),
        ..AppBootInfo::default()
    }
}

async fn refusal(node: &Node, kms: Address, for_roots: bool, boot: AppBootInfo) -> String {
    let verdict = node.ask(&VerdictQuestion { kms_contract: kms, for_roots, boot }).await.answer;
    assert_eq!(verdict.is_allowed, verdict.reason.is_empty());
    verdict.reason
}

#[test]
fn anybody_makes_applications_for_anybody_in_both_forms() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        for require_tcb_up_to_date in [false, true] {
            let new = NewApp { require_tcb_up_to_date, ..new_app(account(1)) };
            let (app, receipt) = node.new_app(kms, account(STRANGER), &new).await;
            // Made, registered, and the record of that.
            assert_eq!(receipt.events_of(kms).len(), 3);
            assert_eq!(node.view(app, &Owned::ownerCall {}).await, Some(account(1)));
            assert_eq!(node.view(kms, &Kms::registeredAppsCall { appId: app }).await, Some(true));
            for (id, is_there) in [
                (APP_AUTH_INTERFACE, true),
                (APP_MANAGEMENT_INTERFACE, true),
                ([0x01, 0xff, 0xc9, 0xa7], true),
                ([0xff; 4], false),
            ] {
                let supports = Owned::supportsInterfaceCall { interfaceId: id.into() };
                assert_eq!(node.view(app, &supports).await, Some(is_there), "{id:x?}");
            }
        }
        for (id, is_there) in
            [(APP_AUTH_INTERFACE, true), (APP_MANAGEMENT_INTERFACE, false), ([0xff; 4], false)]
        {
            let supports = Owned::supportsInterfaceCall { interfaceId: id.into() };
            assert_eq!(node.view(kms, &supports).await, Some(is_there), "{id:x?}");
        }
    });
}

#[test]
fn the_factory_refuses_what_nobody_could_use() {
    on_chain(async |node: &'static Node| {
        let bare = node.new_kms(None).await;
        let nobody = new_app(Address::ZERO).call_data();
        assert!(
            !node.send(account(1), Some(bare), &new_app(account(1)).call_data()).await.succeeded,
            "no code yet"
        );
        let not_code = Kms::setAppImplementationCall { implementation: account(1) };
        assert!(!node.call(account(0), bare, &not_code).await.succeeded, "no code there");
        let code = Kms::setAppImplementationCall { implementation: node.deployment().app_implementation };
        assert!(node.call(account(0), bare, &code).await.succeeded);
        assert!(!node.send(account(1), Some(bare), &nobody).await.succeeded, "no owner");
        let zero = Kms::registerAppCall { appId: Address::ZERO };
        assert!(!node.call(account(1), bare, &zero).await.succeeded, "no application");
        node.new_app(bare, account(1), &new_app(account(1))).await;
    });
}

#[test]
fn applications_are_refused_for_the_first_reason_that_holds() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        let (app, _) = node.new_app(kms, account(1), &new_app(account(1))).await;
        let unregistered = account(3);
        assert_eq!(refusal(node, kms, false, boot(unregistered)).await, "App not registered");
        let register = Kms::registerAppCall { appId: unregistered };
        assert!(node.call(account(STRANGER), kms, &register).await.succeeded, "anybody registers");
        assert_eq!(refusal(node, kms, false, boot(unregistered)).await, "OS image is not allowed");
        assert!(
            node.call(account(0), kms, &Kms::addOsImageHashCall { osImageHash: word(3) }).await.succeeded
        );
        assert_eq!(
            refusal(node, kms, false, boot(unregistered)).await,
            "App not deployed or invalid address"
        );
        assert_eq!(refusal(node, kms, false, boot(app)).await, "");
        assert!(
            node.call(account(0), kms, &Kms::removeOsImageHashCall { osImageHash: word(3) }).await.succeeded
        );
        assert_eq!(refusal(node, kms, false, boot(app)).await, "OS image is not allowed");
    });
}

#[test]
fn kmses_are_refused_for_the_first_reason_that_holds() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(None).await;
        let old = AppBootInfo { tcbStatus: "OutOfDate".to_owned(), ..boot(kms) };
        assert_eq!(refusal(node, kms, true, old).await, "TCB status is not up to date");
        let grants: [(&str, Vec<u8>); 3] = [
            ("OS image is not allowed", Kms::addOsImageHashCall { osImageHash: word(3) }.abi_encode()),
            ("Aggregated MR not allowed", Kms::addKmsAggregatedMrCall { mrAggregated: word(4) }.abi_encode()),
            (
                "KMS is not allowed to boot on this device",
                Kms::addKmsDeviceCall { deviceId: word(2) }.abi_encode(),
            ),
        ];
        for (reason, grant) in &grants {
            assert_eq!(refusal(node, kms, true, boot(kms)).await, *reason);
            assert!(node.send(account(0), Some(kms), grant).await.succeeded);
        }
        assert_eq!(refusal(node, kms, true, boot(kms)).await, "");
        let state = KmsState {
            kms_contract: kms,
            devices: vec![word(1), word(2)],
            os_images: vec![word(3), word(4)],
            aggregated_mrs: vec![word(4), word(5)],
        };
        let found = node.ask(&state).await.answer;
        assert_eq!(found.devices, [false, true]);
        assert_eq!(found.os_images, [true, false]);
        assert_eq!(found.aggregated_mrs, [true, false]);
        assert!(node.call(account(0), kms, &Kms::removeKmsDeviceCall { deviceId: word(2) }).await.succeeded);
        assert_eq!(refusal(node, kms, true, boot(kms)).await, "KMS is not allowed to boot on this device");
        assert!(
            node.call(account(0), kms, &Kms::removeKmsAggregatedMrCall { mrAggregated: word(4) })
                .await
                .succeeded
        );
        assert_eq!(refusal(node, kms, true, boot(kms)).await, "Aggregated MR not allowed");
    });
}

#[test]
fn strangers_change_nothing_of_a_kms() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(None).await;
        let info = KmsInfo { k256Pubkey: [2; 33].into(), caPubkey: [1].into(), ..KmsInfo::default() };
        let code = node.deployment().app_implementation;
        let upgrade = Owned::upgradeToAndCallCall {
            newImplementation: node.deployment().kms_implementation,
            data: [].into(),
        };
        // Each with how many events tell of it: what was done, and the record of it.
        let owners = [
            (2, Kms::setKmsInfoCall { info: info.clone() }.abi_encode()),
            (0, Kms::setKmsQuoteCall { quote: [3; 5000].into() }.abi_encode()),
            (0, Kms::setKmsEventlogCall { eventlog: [4; 3000].into() }.abi_encode()),
            (2, Kms::setGatewayAppIdCall { appId: "any".to_owned() }.abi_encode()),
            (2, Kms::setAppImplementationCall { implementation: code }.abi_encode()),
            (2, Kms::addKmsAggregatedMrCall { mrAggregated: word(1) }.abi_encode()),
            (2, Kms::removeKmsAggregatedMrCall { mrAggregated: word(1) }.abi_encode()),
            (2, Kms::addKmsDeviceCall { deviceId: word(1) }.abi_encode()),
            (2, Kms::removeKmsDeviceCall { deviceId: word(1) }.abi_encode()),
            (2, Kms::addOsImageHashCall { osImageHash: word(1) }.abi_encode()),
            (2, Kms::removeOsImageHashCall { osImageHash: word(1) }.abi_encode()),
            (1, Owned::transferOwnershipCall { newOwner: account(STRANGER) }.abi_encode()),
            (2, upgrade.abi_encode()),
        ];
        for (_, call) in &owners {
            assert!(!node.send(account(STRANGER), Some(kms), call).await.succeeded, "{call:x?}");
        }
        let state =
            KmsState { kms_contract: kms, devices: vec![], os_images: vec![], aggregated_mrs: vec![] };
        let untouched = node.ask(&state).await.answer;
        assert_eq!(untouched.kms_info, Some(KmsInfo::default()));
        assert_eq!((untouched.owner, untouched.app_implementation), (Some(account(0)), None));
        for (events, call) in &owners {
            let receipt = node.send(account(0), Some(kms), call).await;
            assert!(receipt.succeeded, "{call:x?}");
            assert_eq!(receipt.events_of(kms).len(), *events, "{call:x?}");
        }
        let changed = node.ask(&state).await.answer;
        let info = KmsInfo { quote: [3; 5000].into(), eventlog: [4; 3000].into(), ..info };
        assert_eq!(changed.kms_info, Some(info));
        assert_eq!(changed.gateway_app_id.as_deref(), Some("any"));
        assert_eq!(
            (changed.app_implementation, changed.pending_owner),
            (Some(code), Some(account(STRANGER)))
        );
    });
}
