//! `GET /os-images`

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{OsImage, Page};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::input::{Query, within};
use crate::api::placing::version;
use crate::api::responses::Authenticated;
use crate::fleet::NodeStanding;

const DEFAULT_PAGE_SIZE: u32 = 30;
const MAX_PAGE_SIZE: u32 = 100;

members! {
    /// Query of `GET /os-images`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct ImagesQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most images of the page.
        #[param(required = false, minimum = 1, maximum = 100, default = 30)]
        pub page_size: Option<i64>,
        /// Only development images, or only others.
        #[param(required = false)]
        pub is_dev: Option<bool>,
    }
}

/// List OS images
///
/// The images of the catalogue and those that nodes can boot, newest version first.
#[utoipa::path(
    get, path = "/os-images", tag = "Catalogue", operation_id = "list_os_images", params(ImagesQuery),
    responses((status = 200, description = "A page of images", body = Page<OsImage>), Authenticated),
)]
pub(crate) async fn os_images(
    State(api): State<Api>,
    _: Auth,
    Query(query): Query<ImagesQuery>,
) -> ApiResult<Json<Page<OsImage>>> {
    let page = within("page", query.page, 1, 1..=u32::MAX)?;
    let size = within("page_size", query.page_size, DEFAULT_PAGE_SIZE, 1..=MAX_PAGE_SIZE)?;
    let nodes = api.fleet.standings().await?;
    let reported = nodes.iter().flat_map(NodeStanding::offered_images).map(|image| OsImage {
        name: image.name.clone(),
        slug: image.name.clone(),
        version: image.version.clone(),
        os_image_hash: Some(image.os_image_hash),
        is_dev: image.is_dev,
        requires_gpu: image.supports_gpu,
    });
    let rows = api.store.os_images().await?;
    let offered = rows.iter().filter(|row| row.is_offered()).map(|row| OsImage {
        name: row.name.clone(),
        slug: row.name.clone(),
        version: row.version.clone(),
        os_image_hash: Some(row.os_image_hash),
        is_dev: row.is_dev != 0,
        requires_gpu: row.supports_gpu != 0,
    });
    // One entry for what several have.
    let by_hash: BTreeMap<_, _> = offered
        .chain(reported)
        .map(|image| (image.os_image_hash.map(|hash| hash.to_string()), image))
        .collect();
    let mut images: Vec<_> = by_hash.into_values().collect();
    images.retain(|image| query.is_dev.is_none_or(|is_dev| is_dev == image.is_dev));
    images.sort_by_key(|image| (Reverse(version(&image.version)), image.name.clone()));
    Ok(Json(Page::of_all(images, page, size)))
}
