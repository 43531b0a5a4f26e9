//! Applications that have owners, over the wire.

use cloister_app_compose::ComposeHash;
use cloister_kms_api::KmsErrorCode::{ApprovalsRequired, BadRequest, MeasurementNotFound, Unauthorized};
use cloister_kms_api::admin::{self, AllowApp, SetOwners};
use cloister_kms_api::approvals::Action;
use cloister_kms_api::statements::{K256Public, verify_app_owners};
use cloister_kms_api::{AppOwnersResponse, method};
use http::StatusCode;
use serde_json::json;

use super::lab::{Client, Lab, Machine, Options, app, now};
use crate::owner::{approvals, owners};
use crate::policy::Authority;
use crate::policy::tests::service;

async fn told_of(client: &mut Client, lab: &Lab, number: u8) -> AppOwnersResponse {
    let answer = client.post(method::APP_OWNERS, &json!({"app_id": app(number)})).await.json();
    let answer: AppOwnersResponse = serde_json::from_value(answer).unwrap();
    let root = lab.keys.snapshot().current.root.info.k256_pubkey.clone();
    let root: K256Public = root.as_ref().try_into().unwrap();
    let seconds = now().as_second().try_into().unwrap();
    verify_app_owners(&app(number), &answer, seconds, &root).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owned_application_gets_keys_for_what_its_owners_approved() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    let config = machine.vm_config();
    lab.allow(&machine).await;
    let mut client = lab.machine(&machine).await;
    assert_eq!(client.key("a", &config).await.status, 200);
    let mut directory = Client::connect(lab.directory, None).await;
    assert_eq!(told_of(&mut directory, &lab, 1).await.owners, None);

    let people = owners(2, &[0, 1]);
    let set = SetOwners { app_id: app(1), owners: people.clone(), serial: 10, signatures: Vec::new() };
    let mut stranger = Client::connect(lab.directory, None).await;
    assert_eq!(stranger.post(admin::SET_OWNERS, &set).await.code(), Unauthorized);
    assert_eq!(directory.admin(admin::SET_OWNERS, &set).await.json(), json!({}));
    // On the open connection, too: nobody of them approved the document.
    assert_eq!(client.key("a", &config).await.code(), MeasurementNotFound);
    assert_eq!(lab.machine(&machine).await.app_key(&config).await.code(), MeasurementNotFound);

    let compose_hash = ComposeHash::from_bytes(machine.compose_hash);
    let told = directory.admin(admin::ALLOW_APP, &AllowApp::new(app(1), compose_hash)).await;
    assert_eq!(told.code(), ApprovalsRequired);
    assert!(told.reason().starts_with("2 of the 2 owners"), "{}", told.reason());
    let signed = |signers: &[u8]| AllowApp {
        approvals: Some(approvals(app(1), Action::AllowComposeHash(compose_hash), 20, signers)),
        ..AllowApp::new(app(1), compose_hash)
    };
    assert_eq!(directory.admin(admin::ALLOW_APP, &signed(&[0])).await.code(), ApprovalsRequired);
    let mut garbage = signed(&[0, 1]);
    garbage.approvals.as_mut().unwrap().signatures[1].insert(60, '!');
    assert_eq!(directory.admin(admin::ALLOW_APP, &garbage).await.code(), BadRequest);
    assert_eq!(directory.admin(admin::ALLOW_APP, &signed(&[0, 1])).await.json(), json!({}));
    assert_eq!(client.key("a", &config).await.status, 200);

    // Anybody can ask, at both doors.
    for asked in [&mut directory, &mut client] {
        let told = told_of(asked, &lab, 1).await;
        assert_eq!((told.owners, told.serial, told.allowed_documents), (Some(people.clone()), 10, 1));
    }
    for bad in [
        json!({}),
        json!({"app_id": "12"}),
        json!({"app_id": app(1), "owners": {"threshold": 0, "keys": []}}),
    ] {
        let told = directory.admin(admin::SET_OWNERS, &bad).await;
        assert_eq!(told.code(), BadRequest, "{bad}");
    }
}

/// Whoever starts a KMS with another authority does not get around the owners.
#[tokio::test(flavor = "multi_thread")]
async fn owners_keep_their_say_under_another_authority() {
    let (webhook, _) = service(StatusCode::OK, r#"{"isAllowed":true}"#).await;
    let lab = Lab::with(Options { authority: Authority::Webhook(webhook), ..Options::default() }).await;
    let machine = Machine::of(1);
    let mut client = lab.machine(&machine).await;
    assert_eq!(client.key("a", &machine.vm_config()).await.status, 200);
    let set = SetOwners { app_id: app(1), owners: owners(1, &[0]), serial: 1, signatures: Vec::new() };
    lab.keys.set_owners(set).await.unwrap();
    assert_eq!(client.key("a", &machine.vm_config()).await.code(), MeasurementNotFound);
    let compose_hash = ComposeHash::from_bytes(machine.compose_hash);
    let approvals = approvals(app(1), Action::AllowComposeHash(compose_hash), 2, &[0]);
    let allow = AllowApp { approvals: Some(approvals), ..AllowApp::new(app(1), compose_hash) };
    lab.keys.allow_app(allow).await.unwrap();
    assert_eq!(client.key("a", &machine.vm_config()).await.status, 200);
}
