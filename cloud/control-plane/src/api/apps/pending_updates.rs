//! `GET /apps/{app_id}/pending-updates` and the preview of one of them

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use cloister_app_compose::ComposeHash;
use cloister_management_api::{PendingUpdate, PendingUpdatePreview, PendingUpdates, PlainError};
use uuid::Uuid;

use super::own::OwnApp;
use crate::api::Api;
use crate::api::approvals::{Matter, cannot_tell};
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::governance::chain_reads;
use crate::api::responses::Authenticated;
use crate::api::view::Shown;
use crate::governance::{self, PreparedRequest, Question};
use crate::store::{Caller, CvmRow, PreparedKind};

/// Most documents of an application that are asked about.
const MAX_ASKED: i64 = 1_000;

/// List updates that are allowed and not applied
///
/// Documents that wait for CVMs of the application, provisioned or prepared, and that those who decide for the
/// application have allowed by now. Nothing waits for anybody where the workspace itself decides.
#[utoipa::path(
    get, path = "/apps/{app_id}/pending-updates", tag = "Apps", operation_id = "get_pending_updates",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    responses(
        (status = 200, description = "The updates", body = PendingUpdates),
        (status = 404, description = "No such application in the workspace", body = PlainError),
        (status = 429, description = "The workspace asks the chain too often at the same time", body = PlainError),
        (status = 500, description = "Those who decide cannot be asked: the chain is not configured", body = PlainError),
        (status = 503, description = "Those who decide cannot be asked now", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
) -> ApiResult<Json<PendingUpdates>> {
    let _turn = chain_reads(&api, &caller)?;
    let mut by_kms: BTreeMap<Option<i64>, Vec<(&CvmRow, Question)>> = BTreeMap::new();
    let waiting = waiting(&api, &caller, &app).await?;
    for cvm in &app.cvms {
        let Some(hashes) = waiting.get(&cvm.id) else { continue };
        let device_id = governance::device_of_node(&api.store, cvm.node_id).await?;
        let others = hashes.iter().filter(|hash| **hash != cvm.compose_hash);
        let questions = others.map(|hash| (cvm, Question { compose_hash: *hash, device_id }));
        by_kms.entry(cvm.kms_id).or_default().extend(questions);
    }
    let mut items = Vec::new();
    for (kms, pairs) in by_kms {
        let governance = governance::of_app(&api, app.app_id, kms).await?;
        if pairs.is_empty() || !governance.needs_approval() {
            continue;
        }
        let questions = pairs.iter().map(|(_, question)| *question).collect();
        let asked = governance::standings(&api, &governance, app.app_id, questions).await;
        let standings = asked.map_err(cannot_tell)?;
        let allowed = pairs.into_iter().zip(standings).filter(|(_, standing)| Matter::is_allowed(*standing));
        items.extend(allowed.map(|((cvm, question), _)| PendingUpdate {
            vm_uuid: cvm.vm_uuid,
            compose_hash: question.compose_hash,
            on_chain: true,
            instance_name: Some(cvm.name.clone()),
        }));
    }
    Ok(Json(PendingUpdates { items }))
}

/// The documents that wait, by CVM and each once.
async fn waiting(api: &Api, caller: &Caller, app: &OwnApp) -> ApiResult<BTreeMap<i64, Vec<ComposeHash>>> {
    let (id, workspace, now_ms) = (app.app_id, caller.workspace_id, api.clock.now_ms());
    let mut pairs = api.store.waiting_documents_of_app(id, workspace, now_ms, MAX_ASKED).await?;
    let prepared = api.store.open_changes_of_app(id, workspace, now_ms, MAX_ASKED).await?;
    let updates = prepared.into_iter().filter(|row| row.kind == PreparedKind::Update);
    pairs.extend(updates.map(|row| (row.cvm_id, row.compose_hash)));
    let mut by_cvm: BTreeMap<i64, Vec<ComposeHash>> = BTreeMap::new();
    for (cvm, hash) in pairs {
        let hashes = by_cvm.entry(cvm).or_default();
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
    }
    Ok(by_cvm)
}

/// Preview an update
///
/// The programs that the CVM has, and those of a document that waits for it.
#[utoipa::path(
    get, path = "/apps/{app_id}/pending-updates/{vm_uuid}/{compose_hash}/preview", tag = "Apps",
    operation_id = "get_pending_update_preview",
    params(
        ("app_id" = String, Path, description = "App id, with or without `0x` or `app_`"),
        ("vm_uuid" = String, Path, description = "UUID of the CVM, with or without dashes"),
        ("compose_hash" = String, Path, description = "Hash of the document"),
    ),
    responses(
        (status = 200, description = "Both", body = PendingUpdatePreview),
        (status = 404, description = "No such application or CVM in the workspace, or no such document waits", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn preview(
    State(api): State<Api>,
    app: OwnApp,
    Path(path): Path<(String, String, String)>,
) -> ApiResult<Json<PendingUpdatePreview>> {
    let missing = || ApiError::not_found("Pending update");
    let (_, vm_uuid, compose_hash) = path;
    let vm_uuid: Uuid = vm_uuid.parse().map_err(|_| missing())?;
    let compose_hash: ComposeHash = compose_hash.parse().map_err(|_| missing())?;
    let cvm = app.cvms.iter().find(|cvm| cvm.vm_uuid == vm_uuid).ok_or_else(missing)?;
    let document = document(&api, cvm, compose_hash).await?.ok_or_else(missing)?;
    let (current, pending) = (Shown::of(&cvm.app_compose), Shown::of(&document));
    Ok(Json(PendingUpdatePreview {
        current_docker_compose: current.docker_compose_file.map(Into::into),
        pending_docker_compose: pending.docker_compose_file.map(Into::into),
        current_pre_launch_script: current.pre_launch_script.map(Into::into),
        pending_pre_launch_script: pending.pre_launch_script.map(Into::into),
    }))
}

/// The document with this hash that waits for a CVM, provisioned or prepared.
async fn document(api: &Api, cvm: &CvmRow, hash: ComposeHash) -> ApiResult<Option<String>> {
    let now_ms = api.clock.now_ms();
    if let Some(provision) = api.store.update_provision(cvm.id, hash, now_ms).await? {
        return Ok(Some(provision.app_compose));
    }
    let row = api.store.pending_change(cvm.id, PreparedKind::Update, now_ms).await?;
    let Some(row) = row.filter(|row| row.compose_hash == hash) else { return Ok(None) };
    match serde_json::from_str(&row.request).map_err(|error| ApiError::internal(&error))? {
        PreparedRequest::Update(update) => Ok(Some(update.configuration.app_compose)),
        PreparedRequest::Replica(_) => Ok(None),
    }
}
