//! `GET /cvms/{cvm_id}`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{ApiVersion, v20251028, v20260121};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::negotiate::Version;
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;

/// A CVM in the form of the version.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum CvmDetail {
    /// Version 2025-10-28.
    Detail(Box<v20251028::CvmDetail>),
    /// Version 2026-01-21 and later.
    Info(Box<v20260121::CvmInfoDetail>),
}

/// Get a CVM
#[utoipa::path(
    get, path = "/cvms/{cvm_id}", tag = "CVMs", operation_id = "get_cvm",
    params(("cvm_id" = String, Path, description = "Id (integer or `cvm_…`), UUID, app id, instance id or name")),
    responses((status = 200, description = "The CVM, in the form of the version", body = CvmDetail), OnCvm),
)]
pub(crate) async fn detail(
    State(api): State<Api>,
    Version(version): Version,
    Target(cvm): Target,
) -> ApiResult<Json<CvmDetail>> {
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    let view = View::new(&api, &scene, &cvm);
    Ok(Json(if version < ApiVersion::V20260121 {
        CvmDetail::Detail(Box::new(view.detail()))
    } else {
        CvmDetail::Info(Box::new(view.info_detail()))
    }))
}
