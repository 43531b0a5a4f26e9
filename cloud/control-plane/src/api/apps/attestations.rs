//! `GET /apps/{app_id}/attestations`

use std::borrow::Cow;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use cloister_management_api::{AppAttestations, AppKmsInfo, InstanceAttestation, PlainError};
use futures_util::{StreamExt, stream};

use super::{AT_A_TIME, visible_cvms};
use crate::api::Api;
use crate::api::attestations::{Presented, presented};
use crate::api::error::ApiResult;
use crate::api::view::Shown;
use crate::kms::Kms;
use crate::store::CvmRow;

/// Get the evidence of an app's CVMs
///
/// Public for CVMs that show their measurements to everybody; the others are shown to their workspace only.
#[utoipa::path(
    get, path = "/apps/{app_id}/attestations", tag = "Attestation", operation_id = "get_app_attestations", security(()),
    params(("app_id" = String, Path, description = "App id, hex")),
    responses(
        (status = 200, description = "The evidence", body = AppAttestations),
        (status = 401, description = "The credential that was sent is not valid", body = PlainError),
        (status = 403, description = "The key is bound to another workspace than the one that is named", body = PlainError),
        (status = 404, description = "No such app, or nothing of it may be seen", body = PlainError),
    ),
)]
pub(crate) async fn attestations(
    State(api): State<Api>,
    Path(app_id): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Json<AppAttestations>> {
    let (app_id, cvms) = visible_cvms(&api, &app_id, &headers).await?;
    let kms = cvms.iter().find_map(|cvm| api.kmses.get(cvm.kms_id?));
    let contract = kms.and_then(|kms| kms.contract());
    let kms = kms.map(|kms| kms_info(kms));
    let instances = stream::iter(cvms).map(|cvm| instance(&api, cvm)).buffered(AT_A_TIME).collect().await;
    Ok(Json(AppAttestations {
        app_id: app_id.to_string(),
        contract_address: contract.map_or_else(String::new, |_| format!("0x{app_id}")),
        kms_info: kms.unwrap_or_default(),
        instances,
        kms_guest_agent_info: None,
        gateway_guest_agent_info: None,
        qemu_version: None,
    }))
}

fn kms_info(kms: &Kms) -> AppKmsInfo {
    let info = kms.info();
    AppKmsInfo {
        version: info.version,
        url: info.url,
        gateway_app_id: info.gateway_app_id,
        kms_type: kms.kind().to_owned(),
        contract_address: info.kms_contract_address.unwrap_or_default(),
        chain_id: info.chain_id.map(|id| id.to_string()),
        ..AppKmsInfo::default()
    }
}

async fn instance(api: &Api, cvm: CvmRow) -> InstanceAttestation {
    let (presented, error) = match presented(api, &cvm, &api.evidence_reads).await {
        Ok(presented) => (Some(presented), None),
        Err(reason) => (None, Some(reason)),
    };
    let presented = presented.as_ref();
    let verified = presented.and_then(|presented| presented.quote.as_ref());
    let device_id = verified.map(|quote| hex::encode(quote.device_id));
    let tcb_info = presented.and_then(|presented| presented.tcb_info(&cvm));
    InstanceAttestation {
        vm_uuid: Some(cvm.vm_uuid),
        name: cvm.name.clone(),
        instance_id: cvm.instance_id.clone(),
        status: cvm.status.as_str().to_owned(),
        image_version: Some(cvm.os_image_name.clone()),
        quote: presented.map(|presented| hex::encode(presented.quote_bytes())),
        ppid: verified.map_or_else(String::new, |quote| hex::encode(quote.ppid)),
        device_id: device_id.clone().unwrap_or_default(),
        ppid_sha256: device_id,
        fmspc: verified.map(|quote| hex::encode(quote.fmspc)),
        tee_tcb_svn: presented.and_then(Presented::tee_tcb_svn),
        mr_config_id: verified.map(|quote| quote.mr_config_id.to_string()),
        tcb_info,
        app_certificates: presented.and_then(Presented::certificates),
        compose_file: Shown::of(&cvm.app_compose).docker_compose_file.map(Cow::into_owned),
        eventlog: presented.map(Presented::events).unwrap_or_default(),
        error,
        verification: presented.map(Presented::verdict),
    }
}
