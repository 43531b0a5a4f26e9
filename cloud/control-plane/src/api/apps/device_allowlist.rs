//! `GET /apps/{app_id}/device-allowlist`

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use cloister_app_compose::ComposeHash;
use cloister_management_api::{AllowlistedDevice, DeviceAllowlist, IsAllowed, PlainError, VmId};

use super::own::OwnApp;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::governance::{Subject, chain_reads};
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;
use crate::api::view::vm_id;
use crate::governance::{Governance, Question};

/// Most devices that are listed.
const MAX_DEVICES: usize = 1_000;

/// List the devices that an application may run on
///
/// Contracts do not list what they allow, so these are the devices of this installation's nodes, each with what the
/// application's contract says about it now. Without a contract devices are not restricted, and none are listed.
#[utoipa::path(
    get, path = "/apps/{app_id}/device-allowlist", tag = "Apps", operation_id = "get_device_allowlist",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    responses(
        (status = 200, description = "The devices; `unknown` while the contract cannot be asked", body = DeviceAllowlist),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 429, description = "The workspace asks too often at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn device_allowlist(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    app: OwnApp,
) -> ApiResult<Json<DeviceAllowlist>> {
    let _turn = chain_reads(&api, &caller)?;
    let subject = Subject::of_app(&api, &caller, app.app_id).await?;
    let Governance::Contract(contract) = &subject.governance else {
        return Ok(Json(DeviceAllowlist::default()));
    };
    let names: BTreeMap<i64, String> =
        api.fleet.standings().await?.into_iter().map(|node| (node.node.id, node.node.name)).collect();
    let mut cvms: BTreeMap<[u8; 32], Vec<VmId>> = BTreeMap::new();
    let asked = api.store.asked_cvms(app.app_id, caller.workspace_id).await?;
    for cvm in &asked {
        if let Some(device) = cvm.device_id {
            cvms.entry(device).or_default().push(vm_id(cvm.id, version));
        }
    }
    let devices: Vec<(i64, [u8; 32])> =
        api.store.latest_devices().await?.into_iter().take(MAX_DEVICES).collect();
    // Only what is said of devices is looked at; without any it is still said whether they matter.
    let compose_hash = asked.first().map_or(ComposeHash::from_bytes([0; 32]), |cvm| cvm.compose_hash);
    let of_device = |(_, device): &(i64, [u8; 32])| Question { compose_hash, device_id: Some(*device) };
    let mut questions: Vec<Question> = devices.iter().map(of_device).collect();
    questions.push(Question { compose_hash, device_id: None });
    let answers = subject.ask(&api, &questions).await;
    let allow_any_device =
        answers.last().filter(|answer| answer.error.is_none()).map(|answer| answer.allow_any_device);
    let listed = devices.into_iter().zip(answers).map(|((node_id, device), answer)| AllowlistedDevice {
        device_id: hex::encode(device),
        node_name: names.get(&node_id).cloned(),
        cvm_ids: cvms.get(&device).cloned().unwrap_or_default(),
        allowed_onchain: answer.device_id_allowed == Some(true),
        status: status(&answer).to_owned(),
    });
    Ok(Json(DeviceAllowlist {
        is_onchain_kms: true,
        allow_any_device,
        chain_id: Some(contract.wire_chain_id()),
        app_contract_address: Some(subject.contract()),
        devices: listed.collect(),
    }))
}

fn status(answer: &IsAllowed) -> &'static str {
    match answer {
        IsAllowed { error: Some(_), .. } => "unknown",
        IsAllowed { allow_any_device: true, .. } | IsAllowed { device_id_allowed: Some(true), .. } => {
            "allowed"
        }
        _ => "not_allowed",
    }
}
