//! `GET /cvms/paginated`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{Page, PlainError, v20251028, v20260121};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::list::{CvmList, filter, show};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::input::Query;
use crate::api::negotiate::Version;
use crate::api::paging::{PageSizes, Paging};
use crate::api::responses::Authenticated;

const PAGE_SIZES: PageSizes = PageSizes { usual: 30, most: 100 };

members! {
    /// Query of `GET /cvms/paginated`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct PageQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most CVMs of the page.
        #[param(required = false, minimum = 1, maximum = 100, default = 30)]
        pub page_size: Option<i64>,
        /// Only CVMs of this user (`usr_…`), or `0` for those of nobody. Administrators only.
        #[param(required = false)]
        pub user_id: Option<String>,
        /// Only CVMs on this node. Administrators only.
        #[param(required = false)]
        pub teepod_id: Option<i64>,
    }
}

/// A page in the form of its version.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum CvmPage {
    /// Version 2025-10-28.
    Hosted(Page<v20251028::HostedCvm>),
    /// Version 2026-01-21 and later.
    Info(Page<v20260121::CvmInfo>),
}

/// List CVMs by page
///
/// A page of the workspace's CVMs, newest first.
#[utoipa::path(
    get, path = "/cvms/paginated", tag = "CVMs", operation_id = "list_cvms_paginated", params(PageQuery),
    responses(
        (status = 200, description = "The page, in the form of the version", body = CvmPage),
        (status = 403, description = "A filter for administrators only", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn paginated(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Query(query): Query<PageQuery>,
) -> ApiResult<Json<CvmPage>> {
    let paging = PAGE_SIZES.read(query.page, query.page_size)?;
    let (total, cvms) = match filter(&caller, query.user_id.as_deref(), query.teepod_id)? {
        None => (0, Vec::new()),
        Some(filter) => {
            let total = api.store.count_cvms(&filter).await?;
            (total, api.store.list_cvms(&filter, paging.limit(), paging.offset()).await?)
        }
    };
    let Paging { page, page_size } = paging;
    Ok(Json(match show(&api, version, &cvms).await? {
        CvmList::Hosted(items) => CvmPage::Hosted(Page::new(items, total, page, page_size)),
        CvmList::Info(items) => CvmPage::Info(Page::new(items, total, page, page_size)),
    }))
}
