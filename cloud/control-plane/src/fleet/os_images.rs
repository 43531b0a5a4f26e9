//! Guest images of the catalogue for nodes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use cloister_app_compose::OsImageHash;
use cloister_node_api::NodeErrorCode;

use super::listener::{ListenerError, Reporting, Shared};

/// Streams the files of an image as a tar archive.
pub(super) async fn os_image(
    State(shared): State<Arc<Shared>>,
    _: Reporting,
    Path(hash): Path<String>,
) -> Result<impl IntoResponse, ListenerError> {
    let malformed = ListenerError::Refused(NodeErrorCode::Invalid, "an os_image_hash is 64 hex digits");
    let hash: OsImageHash = hash.parse().map_err(|_| malformed)?;
    let missing = "the catalogue has no image with this hash";
    if shared.store.os_image(hash).await?.is_none() {
        return Err(ListenerError::Refused(NodeErrorCode::BadImage, missing));
    }
    let busy = "the image cannot be had now; try again later";
    let archive = shared.os_images.download(hash);
    let archive = archive.ok_or(ListenerError::Refused(NodeErrorCode::Internal, busy))?;
    Ok(([(CONTENT_TYPE, "application/x-tar")], Body::from_stream(archive)))
}
