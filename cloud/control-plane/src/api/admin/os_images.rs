//! `/admin/os-images`: the catalogue of guest images

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_app_compose::OsImageHash;
use cloister_management_api::{AdminOsImage, PlainError};

use crate::api::Api;
use crate::api::auth::Admin;
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::ForAdmins;
use crate::api::view::time;
use crate::fleet::NodeStanding;
use crate::os_images::ImageError;
use crate::store::OsImageRow;

/// Most images that are taken in at a time.
pub(crate) const MAX_INTAKES: usize = 1;

/// List the guest images of the catalogue
#[utoipa::path(
    get, path = "/admin/os-images", tag = "Administration", operation_id = "admin_list_os_images",
    responses((status = 200, description = "Every image, oldest first", body = Vec<AdminOsImage>), ForAdmins),
)]
pub(crate) async fn list(State(api): State<Api>, _: Admin) -> ApiResult<Json<Vec<AdminOsImage>>> {
    let nodes = api.fleet.standings().await?;
    let images = api.store.os_images().await?;
    Ok(Json(images.iter().map(|image| wire(image, &nodes)).collect()))
}

/// Add a guest image
///
/// The body is a tar archive of the files of the image's directory. It is taken only if its `sha256sum.txt`
/// covers every file; the hash of that list names the image. Nodes fetch it by themselves. Adding an image that
/// is there already changes nothing; a retired one is offered again.
#[utoipa::path(
    post, path = "/admin/os-images", tag = "Administration", operation_id = "admin_add_os_image",
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 201, description = "The image is in the catalogue", body = AdminOsImage),
        (status = 400, description = "Not a guest image, or the catalogue is full", body = PlainError),
        (status = 413, description = "The archive is too large", body = PlainError),
        (status = 429, description = "Another image is being added", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn add(
    State(api): State<Api>,
    _: Admin,
    body: Body,
) -> ApiResult<(StatusCode, Json<AdminOsImage>)> {
    let busy = || {
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, "Another image is being added; wait for that to end")
            .retry_after(crate::api::error::RETRY_AFTER_S)
    };
    let _turn = api.image_intakes.try_acquire().map_err(|_| busy())?;
    let added = api.os_images.add(&api.store, &api.clock, body.into_data_stream()).await;
    let image = added.map_err(image_error)?;
    let nodes = api.fleet.standings().await?;
    Ok((StatusCode::CREATED, Json(wire(&image, &nodes))))
}

/// Retire a guest image
///
/// It is offered no more. Its files are kept while a CVM has it, and removed with the next restart of the control
/// plane after that, or by repeating this request.
#[utoipa::path(
    delete, path = "/admin/os-images/{os_image_hash}", tag = "Administration", operation_id = "admin_retire_os_image",
    params(("os_image_hash" = String, Path, description = "64 hex digits, with or without `0x`")),
    responses(
        (status = 204, description = "It is offered no more"),
        (status = 404, description = "No such image in the catalogue", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn retire(
    State(api): State<Api>,
    _: Admin,
    Path(hash): Path<String>,
) -> ApiResult<StatusCode> {
    let missing = || ApiError::not_found("OS image");
    let hash: OsImageHash = hash.strip_prefix("0x").unwrap_or(&hash).parse().map_err(|_| missing())?;
    let mut change = api.store.change().await?;
    let found = change.retire_os_image(hash, api.clock.now_ms()).await?;
    change.commit().await?;
    if !found {
        return Err(missing());
    }
    api.os_images.forget(&api.store, hash).await.map_err(image_error)?;
    Ok(StatusCode::NO_CONTENT)
}

fn image_error(error: ImageError) -> ApiError {
    let status = match error {
        ImageError::Stream(_) | ImageError::Refused(_) | ImageError::TooMany => StatusCode::BAD_REQUEST,
        ImageError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ImageError::Disk(_) => return ApiError::internal(&error),
        ImageError::Store(error) => return error.into(),
    };
    ApiError::plain(status, error.to_string())
}

fn wire(image: &OsImageRow, nodes: &[NodeStanding]) -> AdminOsImage {
    let has_it = |node: &&NodeStanding| node.image(image.os_image_hash).is_some();
    AdminOsImage {
        name: image.name.clone(),
        slug: image.name.clone(),
        version: image.version.clone(),
        os_image_hash: image.os_image_hash,
        is_dev: image.is_dev != 0,
        requires_gpu: image.supports_gpu != 0,
        state: if image.is_offered() { "offered" } else { "retired" }.to_owned(),
        size_bytes: image.size_bytes,
        added_at: time(image.added_at_ms),
        retired_at: image.retired_at_ms.map(time),
        cvm_count: image.cvm_count,
        nodes: nodes.iter().filter(has_it).map(|node| node.node.name.clone()).collect(),
    }
}
