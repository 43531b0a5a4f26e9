//! Container images that a tenant pushes: `PUT /images/{reference}` and `GET /images`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bytes::Bytes;
use cloister_management_api::{ErrorBody, ErrorCode, PlainError, PushedImage, PushedToNode};
use cloister_node_api::ImportedImage;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::Api;
use super::auth::Auth;
use super::error::{ApiError, ApiResult, RETRY_AFTER_S};
use super::responses::Authenticated;
use crate::fleet::{NodeStanding, NodeStatus};
use crate::operations::NodeCallError;
use crate::store::Caller;

/// Largest archive in bytes.
const MAX_ARCHIVE_BYTES: u64 = 32 * 1024 * 1024 * 1024;
/// Longest reference.
const MAX_REFERENCE: usize = 512;
/// Uploads at a time; each holds a connection to every node.
pub(super) const MAX_UPLOADS: usize = 4;
/// An upload that pauses for longer is given up.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Pieces of the archive that wait for a slow node.
const QUEUE: usize = 16;

type Piece = Result<Bytes, std::io::Error>;

/// Push an image
///
/// The body is an image archive (`docker save`, `podman save` or an OCI layout as tar). It goes to every
/// node that is online, for the CVMs of the workspace, whose compose files name it by `reference`.
#[utoipa::path(
    put, path = "/images/{*reference}", tag = "Images", operation_id = "push_image",
    params(("reference" = String, Path, description = "Image reference, slashes included", example = "cloister.local/hello:1")),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 200, description = "What became of it on each node", body = PushedImage),
        (status = 400, description = "Not an image reference (ERR-02-008), or no node is online (ERR-02-002)", body = ErrorBody),
        (status = 413, description = "The archive is too large", body = PlainError),
        (status = 429, description = "Too many images are being pushed", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn push(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Path(reference): Path<String>,
    body: Body,
) -> ApiResult<Json<PushedImage>> {
    if !is_reference(&reference) {
        let message = "reference is not an image reference such as registry.example/team/app:1";
        return Err(ApiError::explained(ErrorCode::InvalidParameter, message).about("reference", reference));
    }
    let _slot = api.uploads.try_acquire().map_err(|_| {
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, "Too many images are being pushed")
            .retry_after(RETRY_AFTER_S)
    })?;
    let mut nodes = api.fleet.standings().await?;
    nodes.retain(|node| node.status == NodeStatus::Online);
    if nodes.is_empty() {
        return Err(ApiError::explained(ErrorCode::NoNodeMatches, "No node is online to take the image"));
    }
    let (senders, receivers): (Vec<_>, Vec<_>) = nodes.iter().map(|_| mpsc::channel::<Piece>(QUEUE)).unzip();
    let imports = nodes
        .iter()
        .zip(receivers)
        .map(|(node, pieces)| import(&api, &caller, node, &reference, ReceiverStream::new(pieces)));
    let (copied, nodes) = tokio::join!(copy(body.into_data_stream(), senders), join_all(imports));
    copied?;
    Ok(Json(PushedImage { reference, nodes }))
}

async fn import(
    api: &Api,
    caller: &Caller,
    node: &NodeStanding,
    reference: &str,
    archive: ReceiverStream<Piece>,
) -> PushedToNode {
    let result = api.fleet.import_image(node.node.id, caller.workspace_id, reference, archive).await;
    pushed(node, result)
}

fn pushed(node: &NodeStanding, result: Result<ImportedImage, NodeCallError>) -> PushedToNode {
    let (node_id, name) = (node.node.id, node.node.name.clone());
    match result {
        Ok(image) => {
            PushedToNode { node_id, name, digest: Some(image.digest), size: Some(image.size), error: None }
        }
        Err(error) => {
            PushedToNode { node_id, name, digest: None, size: None, error: Some(error.to_string()) }
        }
    }
}

/// Gives every piece of the archive to every node that still takes it. The slowest one sets the pace.
async fn copy(mut archive: BodyDataStream, mut nodes: Vec<mpsc::Sender<Piece>>) -> ApiResult<()> {
    let mut bytes = 0u64;
    let mut failure = None;
    while let Some(piece) = next_piece(&mut archive).await {
        let Ok(piece) = piece else {
            failure = Some(ApiError::plain(StatusCode::BAD_REQUEST, "The archive broke off"));
            break;
        };
        bytes = bytes.saturating_add(piece.len() as u64);
        if bytes > MAX_ARCHIVE_BYTES {
            failure = Some(ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE));
            break;
        }
        let sent = join_all(nodes.iter().map(|node| node.send(Ok(piece.clone())))).await;
        let mut sent = sent.into_iter();
        nodes.retain(|_| sent.next().is_some_and(|sent| sent.is_ok()));
    }
    let Some(failure) = failure else { return Ok(()) };
    // An error ends the upload without an end of file, so that no node keeps half an image.
    let cut = || Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted));
    join_all(nodes.iter().map(|node| node.send(cut()))).await;
    Err(failure)
}

async fn next_piece(archive: &mut BodyDataStream) -> Option<Result<Bytes, ()>> {
    match tokio::time::timeout(MAX_PAUSE, archive.next()).await {
        Ok(piece) => piece.map(|piece| piece.map_err(|_| ())),
        Err(_) => Some(Err(())),
    }
}

fn is_reference(text: &str) -> bool {
    (1..=MAX_REFERENCE).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte))
        && text.split('/').all(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// List pushed images
///
/// The images that the workspace pushed, by reference, with the nodes that have them.
#[utoipa::path(
    get, path = "/images", tag = "Images", operation_id = "list_images",
    responses((status = 200, description = "The images", body = Vec<PushedImage>), Authenticated),
)]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
) -> ApiResult<Json<Vec<PushedImage>>> {
    let mut nodes = api.fleet.standings().await?;
    nodes.retain(|node| node.status != NodeStatus::Offline);
    let lists = nodes.iter().map(|node| api.fleet.images(node.node.id, caller.workspace_id));
    let mut images = BTreeMap::<String, Vec<PushedToNode>>::new();
    for (node, list) in nodes.iter().zip(join_all(lists).await) {
        match list {
            Ok(list) => {
                for image in list {
                    let nodes = images.entry(image.reference.clone()).or_default();
                    nodes.push(pushed(node, Ok(image)));
                }
            }
            // The images of the other nodes are still worth showing.
            Err(error) => tracing::warn!(node = node.node.name, %error, "a node's images cannot be listed"),
        }
    }
    Ok(Json(images.into_iter().map(|(reference, nodes)| PushedImage { reference, nodes }).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        for text in ["hello", "cloister.local/hello:1", "docker.io/library/x@sha256:ab", "host:5000/a/b:c"] {
            assert!(is_reference(text), "{text}");
        }
        for text in ["", "/a", "a//b", "a b", "../a", "a/../b", "a?x=1", &"a".repeat(MAX_REFERENCE + 1)] {
            assert!(!is_reference(text), "{text}");
        }
    }
}
