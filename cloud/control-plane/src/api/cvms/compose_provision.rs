//! `POST /cvms/{cvm_id}/compose_file/provision`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_app_compose::decode::{self, Source};
use cloister_app_compose::{Additions, AppCompose, ComposeError, ComposeHash, Draft};
use cloister_management_api::{AppComposeV2, ComposeProvision, ErrorCode, PlainError};
use serde_json::{Map, Value};

use crate::api::Api;
use crate::api::changes::{self, Edit};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::provisioning::LIFETIME_MS;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::governance::{self, Question};
use crate::operations::CvmStatus;
use crate::store::{CvmRow, UpdateProvisionRow};

/// Documents that may wait for one CVM.
const MAX_OF_CVM: i64 = 50;
/// Documents that may wait for the CVMs of a workspace.
const MAX_OF_WORKSPACE: i64 = 1_000;

/// Provision another compose document for a CVM
///
/// Checks a document, whose members stand at the top level, and keeps it for 14 days under its hash; several
/// may be kept. The CVM is not touched: apply the document with `PATCH /cvms/{cvm_id}/compose_file`. Settings
/// that the document does not mention stay as the CVM has them, programs and scripts do not. With
/// `update_env_vars`, `allowed_envs` that are not mentioned are none.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/compose_file/provision", tag = "CVMs",
    operation_id = "provision_cvm_compose_file",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = AppComposeV2,
    responses(
        (status = 200, description = "Kept; apply it by this hash", body = ComposeProvision),
        (status = 400, description = "There is no program, the CVM is being removed, the document changes what cannot change (ERR-02-009), or too many are kept (ERR-02-015)", body = PlainError),
        (status = 413, description = "The body has more than 1 MiB", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn provision(
    State(api): State<Api>,
    Target(cvm): Target,
    Body(document): Body<Map<String, Value>>,
) -> ApiResult<Json<ComposeProvision>> {
    if cvm.status == CvmStatus::Removing {
        let text = "The CVM is being removed and gets no other document";
        return Err(ApiError::plain(StatusCode::BAD_REQUEST, text));
    }
    let compose = composed(&cvm, document)?;
    keep(&api, &cvm, &compose).await?;
    let device = api.store.device_of_node(cvm.node_id).await?;
    Ok(Json(ComposeProvision {
        app_id: Some(cvm.app_id),
        device_id: device.map(|device| device.device_id),
        compose_hash: compose.compose_hash(),
        kms_info: cvm.kms_id.and_then(|id| api.kmses.get(id)).map(|kms| kms.info()),
        compose_hash_registered: is_registered(&api, &cvm, compose.compose_hash()).await?,
    }))
}

/// Whether nobody has to allow the document any more. Where nobody can say, somebody has.
async fn is_registered(api: &Api, cvm: &CvmRow, compose_hash: ComposeHash) -> ApiResult<bool> {
    let governance = governance::of_cvm(api, cvm).await?;
    let question = Question { compose_hash, device_id: None };
    let standing = governance::standing(api, &governance, cvm.app_id, question).await;
    Ok(standing.is_ok_and(|standing| standing.is_allowed(false)))
}

/// The document that the CVM would get.
fn composed(cvm: &CvmRow, mut document: Map<String, Value>) -> ApiResult<AppCompose> {
    let edit = Edit::of(cvm);
    let update_env_vars = document.shift_remove("update_env_vars");
    let update_env_vars = update_env_vars.filter(|flag| !flag.is_null()).map(|flag| {
        let place = &["body", "update_env_vars"];
        decode::decode::<bool>(&flag, Source::Json, place).map_err(ApiError::faults)
    });
    let says = |member: &str| document.get(member).is_some_and(|value| !value.is_null());
    if update_env_vars.transpose()?.unwrap_or(false) && !says("allowed_envs") {
        document.insert("allowed_envs".to_owned(), Value::Array(Vec::new()));
    }
    let document = Value::Object(changes::with_kept_settings(document, &edit.document()?));
    let draft: Draft = decode::decode(&document, Source::Json, &["body"]).map_err(ApiError::faults)?;
    let prepared = draft.prepare(&Additions { name: &cvm.name, ..Additions::default() });
    let compose = prepared.map_err(|error| match error {
        ComposeError::MissingProgram(_) => ApiError::plain(StatusCode::BAD_REQUEST, error.to_string()),
        error => changes::compose_error(error, &["body"]),
    })?;
    let mut edit = edit;
    edit.replace_document(&compose)?;
    Ok(compose)
}

async fn keep(api: &Api, cvm: &CvmRow, compose: &AppCompose) -> ApiResult<()> {
    let now_ms = api.clock.now_ms();
    let row = UpdateProvisionRow {
        cvm_id: cvm.id,
        compose_hash: compose.compose_hash(),
        workspace_id: cvm.workspace_id,
        app_compose: String::from_utf8_lossy(compose.bytes()).into_owned(),
        expires_at_ms: now_ms.saturating_add(LIFETIME_MS),
    };
    let mut change = api.store.change().await?;
    // Concurrent requests count one after the other.
    change.lock_living_cvm(cvm.id).await?.ok_or_else(|| ApiError::coded(ErrorCode::CvmNotFound))?;
    change.delete_applied_update_provisions(cvm.id).await?;
    let others = change.count_other_update_provisions(&row, now_ms).await?;
    if others.of_cvm >= MAX_OF_CVM || others.of_workspace >= MAX_OF_WORKSPACE {
        let message = format!(
            "{} documents wait for the CVM and {} for the workspace; each is kept for 14 days or until it was \
             applied",
            others.of_cvm, others.of_workspace
        );
        return Err(ApiError::explained(ErrorCode::QuotaExceeded, message));
    }
    change.put_update_provision(&row, now_ms).await?;
    change.commit().await?;
    Ok(())
}
