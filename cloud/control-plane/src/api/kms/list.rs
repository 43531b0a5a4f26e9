//! `GET /kms`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{ApiVersion, KmsRecord, Page};
use utoipa::IntoParams;

use super::{first_of_contract, record};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::input::{Query, within};
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;
use crate::kms::Kms;

members! {
    /// Query of `GET /kms`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct KmsQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most items of a page.
        #[param(required = false, minimum = 1, maximum = 100, default = 20)]
        pub page_size: Option<i64>,
        /// Only services that belong to a contract, or only the others.
        #[param(required = false)]
        pub is_onchain: Option<bool>,
    }
}

/// List key management services
///
/// From version 2026-06-23 on by what decides for them: services of one contract are one entry.
#[utoipa::path(
    get, path = "/kms", tag = "KMS", operation_id = "list_kms",
    params(KmsQuery),
    responses((status = 200, description = "A page, the default service first", body = Page<KmsRecord>), Authenticated),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Version(version): Version,
    Query(parameters): Query<KmsQuery>,
) -> ApiResult<Json<Page<KmsRecord>>> {
    let page = within("page", parameters.page, 1, 1..=u32::MAX)?;
    let page_size = within("page_size", parameters.page_size, 20, 1..=100)?;
    let is_wanted = |kms: &&Arc<Kms>| {
        let is_whole = version < ApiVersion::V20260623 || first_of_contract(&api.kmses, kms).id() == kms.id();
        is_whole && parameters.is_onchain.is_none_or(|wanted| wanted == kms.contract().is_some())
    };
    let shown = api.kmses.all().iter().filter(is_wanted);
    let records = shown.map(|kms| record(&api.kmses, kms, version)).collect();
    Ok(Json(Page::of_all(records, page, page_size)))
}
