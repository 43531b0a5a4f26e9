//! Images that tenants push.

use std::io;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use cloister_node_api::ImportedImage;
use futures_util::TryStreamExt;
use serde::Deserialize;
use tokio_util::io::StreamReader;

use super::Api;
use super::error::ApiError;
use super::vms::{Parameters, PathValue};

#[derive(Deserialize)]
pub(super) struct Named {
    reference: Option<String>,
}

pub(super) async fn import(
    State(api): State<Api>,
    PathValue(workspace): PathValue<i64>,
    Parameters(named): Parameters<Named>,
    archive: Body,
) -> Result<Json<ImportedImage>, ApiError> {
    let archive = StreamReader::new(archive.into_data_stream().map_err(io::Error::other));
    // An empty reference is none: the archive says how its image is called.
    let reference = named.reference.as_deref().filter(|reference| !reference.is_empty());
    Ok(Json(api.images.import(workspace, reference, archive).await?))
}

pub(super) async fn list(
    State(api): State<Api>,
    PathValue(workspace): PathValue<i64>,
) -> Result<Json<Vec<ImportedImage>>, ApiError> {
    Ok(Json(api.images.list(workspace)))
}
