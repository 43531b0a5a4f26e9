//! `POST /status/batch`

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use cloister_management_api::{BatchStatusRequest, CvmStatus};
use uuid::Uuid;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::api::scene::Scene;
use crate::api::view::View;

/// Most CVMs of a request.
const MAX_CVMS: usize = 100;

/// Get the status of many CVMs
///
/// Keyed by the UUIDs as they were sent; those that the workspace does not have are left out.
#[utoipa::path(
    post, path = "/status/batch", tag = "CVMs", operation_id = "batch_cvm_status",
    request_body(content = BatchStatusRequest, example = json!({"vm_uuids": ["f47ac10b-58cc-4372-a567-0e02b2c3d479"]})),
    responses((status = 200, description = "By UUID", body = BTreeMap<String, CvmStatus>), Authenticated),
)]
pub(crate) async fn batch_status(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<BatchStatusRequest>,
) -> ApiResult<Json<BTreeMap<String, CvmStatus>>> {
    if request.vm_uuids.len() > MAX_CVMS {
        let message = format!("List should have at most {MAX_CVMS} items");
        return Err(ApiError::fault(&["body", "vm_uuids"], "too_long", message));
    }
    let mut found = Vec::new();
    for text in request.vm_uuids {
        let Ok(uuid) = Uuid::try_parse(&text) else { continue };
        let cvm = api.store.cvm_by_uuid(uuid).await?;
        found.extend(cvm.filter(|cvm| cvm.workspace_id == caller.workspace_id).map(|cvm| (text, cvm)));
    }
    let (texts, cvms): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let scene = Scene::of(&api, &cvms).await?;
    let status = |(text, cvm): (String, _)| (text.clone(), View::new(&api, &scene, cvm).batch_status(text));
    Ok(Json(texts.into_iter().zip(&cvms).map(status).collect()))
}
