//! Prepared changes as they are shown to whoever has their token.

use cloister_management_api::{ContractCall, PreparedChange};

use super::MAX_LOOKS;
use super::matter::{Matter, status};
use crate::api::Api;
use crate::api::apps::revisions::compared;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::view::time;
use crate::governance::{PreparedReplica, PreparedRequest, Standing, app_contract};
use crate::replicas;
use crate::store::{Configuration, CvmRow, PreparedChangeRow, PreparedState};

/// A prepared change and how it stands.
pub(super) async fn of(api: &Api, row: PreparedChangeRow, cvm: CvmRow) -> ApiResult<PreparedChange> {
    let _slot = api.approval_looks.take(row.id).ok_or_else(|| {
        let text = format!("This change is looked at {MAX_LOOKS} times at the moment; try again");
        ApiError::plain(axum::http::StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })?;
    let matter = Matter::of_row(api, &row, &cvm).await?;
    // What a page shows; the commit asks again.
    let standing = matter.standing(api).await.ok();
    let kms_info = cvm.kms_id.and_then(|id| api.kmses.get(id)).map(|kms| kms.info());
    let (before, after) = (cvm.configuration(), wanted(api, &row, &cvm).await?);
    let app_compose = after.as_ref().map(|after| after.app_compose.clone());
    let diff = match after {
        Some(after) => Some(compared(before, after).await?),
        None => None,
    };
    Ok(PreparedChange {
        status: row.state.as_str().to_owned(),
        kind: row.kind.as_str().to_owned(),
        app_id: row.app_id,
        vm_uuid: cvm.vm_uuid,
        name: cvm.name,
        compose_hash: row.compose_hash,
        device_id: row.device_id,
        chain_id: kms_info.as_ref().and_then(|info| info.chain_id),
        kms_info,
        onchain_status: standing.map(status),
        onchain_actions: standing.map(|standing| actions(&matter, standing)).unwrap_or_default(),
        expires_at: time(row.expires_at_ms),
        app_compose,
        summary: diff.as_ref().map(cloister_management_api::ConfigurationDiff::to_words),
        diff,
        correlation_id: row.correlation_id,
    })
}

fn actions(matter: &Matter, standing: Standing) -> Vec<ContractCall> {
    let to = format!("0x{}", hex::encode(app_contract(matter.cvm.app_id)));
    let needed = matter.needed(standing).into_iter();
    needed
        .map(|call| ContractCall {
            to: to.clone(),
            method: call.method.to_owned(),
            calldata: format!("0x{}", hex::encode(&call.calldata)),
        })
        .collect()
}

/// What the CVM, or the new one, would get; nothing once the change ended.
pub(crate) async fn wanted(
    api: &Api,
    row: &PreparedChangeRow,
    cvm: &CvmRow,
) -> ApiResult<Option<Configuration>> {
    if row.state != PreparedState::Pending {
        return Ok(None);
    }
    let request = serde_json::from_str(&row.request).map_err(|error| ApiError::internal(&error))?;
    match request {
        PreparedRequest::Update(update) => Ok(Some(update.configuration)),
        PreparedRequest::Replica(replica) => of_replica(api, replica, cvm).await.map(Some),
    }
}

async fn of_replica(api: &Api, replica: PreparedReplica, source: &CvmRow) -> ApiResult<Configuration> {
    let model = api.store.cvm(replica.model).await?.unwrap_or_else(|| source.clone());
    let mut configuration = model.configuration();
    let changes = replica.changes();
    replicas::compose_for(&mut configuration, &changes).map_err(|error| ApiError::internal(&error))?;
    if let Some(env) = replica.encrypted_env {
        configuration.encrypted_env = Some(env);
    }
    Ok(configuration)
}
