//! Initialisation, upgrades, and where the state is.

use cloister_contracts::abi::{App, Kms, Owned};
use cloister_contracts::{
    Address, B256, Bytes, NewApp, SolCall as _, SolValue as _, U256, artifacts, keccak256,
};

use crate::model::{initialize, word};
use crate::node::{Node, account, on_chain};

fn upgrade(to: Address) -> Owned::upgradeToAndCallCall {
    Owned::upgradeToAndCallCall { newImplementation: to, data: Bytes::new() }
}

fn new_app() -> NewApp {
    NewApp {
        owner: account(1),
        disable_upgrades: false,
        require_tcb_up_to_date: true,
        allow_any_device: true,
        device_id: Some(word(2)),
        compose_hash: Some(word(1)),
    }
}

#[test]
fn nothing_is_initialised_twice_and_code_itself_never() {
    on_chain(async |node: &'static Node| {
        let deployment = node.deployment();
        let kms = node.new_kms(Some(deployment.app_implementation)).await;
        let (app, _) = node.new_app(kms, account(1), &new_app()).await;
        let short = App::initialize_0Call {
            initialOwner: account(3),
            disableUpgrades: false,
            allowAnyDevice: true,
            initialDeviceId: B256::ZERO,
            initialComposeHash: B256::ZERO,
        };
        let of_kms = Kms::initializeCall { initialOwner: account(3), appImplementation: Address::ZERO };
        for contract in [app, deployment.app_implementation] {
            for data in [initialize(account(3)), short.abi_encode()] {
                for who in [1, 3] {
                    assert!(
                        !node.send(account(who), Some(contract), &data).await.succeeded,
                        "{contract} {who}"
                    );
                }
            }
        }
        for contract in [kms, deployment.kms_implementation] {
            assert!(!node.call(account(0), contract, &of_kms).await.succeeded, "{contract}");
        }
        assert_eq!(node.view(app, &Owned::ownerCall {}).await, Some(account(1)));
        for code in [deployment.app_implementation, deployment.kms_implementation] {
            assert_eq!(node.view(code, &Owned::ownerCall {}).await, Some(Address::ZERO));
            assert!(!node.call(account(0), code, &upgrade(code)).await.succeeded, "not behind a proxy");
        }
        let bare =
            node.send(account(0), None, &artifacts::proxy(deployment.app_implementation, Bytes::new())).await;
        assert!(!bare.succeeded, "a proxy that anybody could initialise");
    });
}

#[test]
fn an_upgrade_keeps_the_state_and_leads_only_to_code_for_proxies() {
    on_chain(async |node: &'static Node| {
        let deployment = node.deployment();
        let kms = node.new_kms(Some(deployment.app_implementation)).await;
        let (app, _) = node.new_app(kms, account(1), &new_app()).await;
        for nowhere in [account(3), Address::ZERO, code_of_another_kind(node).await] {
            assert!(!node.call(account(1), app, &upgrade(nowhere)).await.succeeded, "{nowhere}");
        }
        let another = node.create(&artifacts::APP_IMPLEMENTATION).await;
        assert!(
            !node.call(account(0), app, &upgrade(another)).await.succeeded,
            "the KMS does not own applications"
        );
        let with_call = Owned::upgradeToAndCallCall {
            newImplementation: another,
            data: App::addDeviceCall { deviceId: word(3) }.abi_encode().into(),
        };
        assert!(node.call(account(1), app, &with_call).await.succeeded);
        for device in [word(2), word(3)] {
            assert_eq!(node.view(app, &App::allowedDeviceIdsCall { deviceId: device }).await, Some(true));
        }
        assert_eq!(node.view(app, &App::allowedComposeHashesCall { composeHash: word(1) }).await, Some(true));
        assert_eq!(node.view(app, &Owned::ownerCall {}).await, Some(account(1)));

        assert!(node.call(account(1), app, &App::disableUpgradesCall {}).await.succeeded);
        assert!(!node.call(account(1), app, &upgrade(deployment.app_implementation)).await.succeeded);
        let add = App::addComposeHashCall { composeHash: word(2) };
        assert!(node.call(account(1), app, &add).await.succeeded, "only the code is final");
    });
}

#[test]
fn both_forms_of_the_initialisation_make_an_application() {
    on_chain(async |node: &'static Node| {
        let short = App::initialize_0Call {
            initialOwner: account(1),
            disableUpgrades: true,
            allowAnyDevice: false,
            initialDeviceId: word(2),
            initialComposeHash: word(1),
        };
        for (form, data) in [short.abi_encode(), initialize(account(1))].into_iter().enumerate() {
            let app = node.create(&artifacts::proxy(node.deployment().app_implementation, data.into())).await;
            assert_eq!(node.view(app, &Owned::ownerCall {}).await, Some(account(1)));
            let document = App::allowedComposeHashesCall { composeHash: word(1) };
            assert_eq!(node.view(app, &document).await, Some(true));
            let device = App::allowedDeviceIdsCall { deviceId: word(2) };
            assert_eq!(node.view(app, &device).await, Some(form == 0));
            assert_eq!(node.view(app, &App::upgradesDisabledCall {}).await, Some(form == 0));
            assert_eq!(node.view(app, &App::allowAnyDeviceCall {}).await, Some(form == 1));
        }
    });
}

/// A contract with code that is not for proxies.
async fn code_of_another_kind(node: &Node) -> Address {
    // STOP, which answers nothing.
    node.create(&[0x60, 0x01, 0x5f, 0xf3]).await
}

/// The slot of a mapping's value.
fn slot_of(key: B256, mapping: u64) -> B256 {
    keccak256((key, U256::from(mapping)).abi_encode())
}

fn slot(number: u64) -> B256 {
    U256::from(number).into()
}

/// The state is where the public contracts have theirs: a proxy can be led from those to these and back.
#[test]
fn the_state_is_where_it_has_always_been() {
    on_chain(async |node: &'static Node| {
        let kms = node.new_kms(Some(node.deployment().app_implementation)).await;
        let (app, _) = node.new_app(kms, account(1), &new_app()).await;
        assert!(node.call(account(1), app, &App::disableUpgradesCall {}).await.succeeded);
        let yes = slot(1);
        assert_eq!(node.storage(app, slot_of(word(1), 0)).await, yes, "documents");
        assert_eq!(node.storage(app, slot(1)).await, slot(0x0101), "any machine, code final");
        assert_eq!(node.storage(app, slot_of(word(2), 2)).await, yes, "machines");
        assert_eq!(node.storage(app, slot(3)).await, yes, "platform up to date");

        for data in [
            Kms::addKmsAggregatedMrCall { mrAggregated: word(1) }.abi_encode(),
            Kms::addKmsDeviceCall { deviceId: word(2) }.abi_encode(),
            Kms::addOsImageHashCall { osImageHash: word(3) }.abi_encode(),
            Kms::setGatewayAppIdCall { appId: "any".to_owned() }.abi_encode(),
        ] {
            assert!(node.send(account(0), Some(kms), &data).await.succeeded);
        }
        assert_eq!(node.storage(kms, slot(4)).await.0[..3], *b"any", "gateway");
        assert_eq!(node.storage(kms, slot_of(app.into_word(), 5)).await, yes, "applications");
        assert_eq!(node.storage(kms, slot_of(word(1), 6)).await, yes, "systems");
        assert_eq!(node.storage(kms, slot_of(word(2), 7)).await, yes, "machines");
        assert_eq!(node.storage(kms, slot_of(word(3), 8)).await, yes, "images");
        let code = node.deployment().app_implementation.into_word();
        assert_eq!(node.storage(kms, slot(9)).await, code, "code of applications");
    });
}
