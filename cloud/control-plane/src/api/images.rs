//! Container images that a tenant pushes: `PUT /images/{reference}` and `GET /images`

use std::collections::BTreeMap;
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
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

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
/// Uploads of one workspace at a time, so that none takes them all.
pub(super) const MAX_OWN_UPLOADS: usize = 2;
/// How long a node may take to unpack what it has got.
const MAX_IMPORT: Duration = Duration::from_mins(10);
/// An upload that pauses for longer is given up, and so is a node that takes nothing for longer.
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
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(reference): Path<String>,
    body: Body,
) -> ApiResult<Json<PushedImage>> {
    if !is_reference(&reference) {
        let message = "reference is not an image reference such as registry.example/team/app:1";
        return Err(ApiError::explained(ErrorCode::InvalidParameter, message).about("reference", reference));
    }
    let too_many = || {
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, "Too many images are being pushed")
            .retry_after(RETRY_AFTER_S)
    };
    let _own = api.own_uploads.take(caller.workspace_id).ok_or_else(too_many)?;
    let _slot = api.uploads.try_acquire().map_err(|_| too_many())?;
    let mut nodes = api.fleet.standings().await?;
    nodes.retain(|node| node.status == NodeStatus::Online);
    if nodes.is_empty() {
        return Err(ApiError::explained(ErrorCode::NoNodeMatches, "No node is online to take the image"));
    }
    // Nodes keep images, not the database: recorded before any of it reaches one.
    api.store.record_alone(&json!({ "reference": reference })).await?;
    let upload = Upload { caller: &caller, reference: &reference, is_complete: CancellationToken::new() };
    let (takers, imports): (Vec<_>, Vec<_>) = nodes
        .iter()
        .map(|node| {
            let (pieces, archive) = mpsc::channel::<Piece>(QUEUE);
            let taker = Taker { pieces, gave_up: CancellationToken::new() };
            let gave_up = taker.gave_up.clone();
            (taker, import(&api, &upload, node, ReceiverStream::new(archive), gave_up))
        })
        .unzip();
    let copying = copy(body.into_data_stream(), takers, &upload.is_complete);
    let (copied, nodes) = tokio::join!(copying, join_all(imports));
    copied?;
    Ok(Json(PushedImage { reference, nodes }))
}

/// What the nodes get.
struct Upload<'a> {
    caller: &'a Caller,
    reference: &'a str,
    /// Cancelled when the whole archive was handed over.
    is_complete: CancellationToken,
}

/// A node that takes the archive.
struct Taker {
    pieces: mpsc::Sender<Piece>,
    /// Cancelled to break the connection off, so that the node never takes a part for the whole.
    gave_up: CancellationToken,
}

async fn import(
    api: &Api,
    upload: &Upload<'_>,
    node: &NodeStanding,
    archive: ReceiverStream<Piece>,
    gave_up: CancellationToken,
) -> PushedToNode {
    let workspace = upload.caller.workspace_id;
    let too_slow = async {
        upload.is_complete.cancelled().await;
        tokio::time::sleep(MAX_IMPORT).await;
    };
    let result = tokio::select! {
        result = api.fleet.import_image(node.node.id, workspace, upload.reference, archive) => result,
        () = gave_up.cancelled() => Err(NodeCallError::Unreachable { node: node.node.name.clone() }),
        () = too_slow => Err(NodeCallError::Unreachable { node: node.node.name.clone() }),
    };
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
async fn copy(
    mut archive: BodyDataStream,
    mut nodes: Vec<Taker>,
    is_complete: &CancellationToken,
) -> ApiResult<()> {
    let mut bytes = 0u64;
    let failure = loop {
        let piece = match next_piece(&mut archive).await {
            None => {
                is_complete.cancel();
                return Ok(());
            }
            Some(Ok(piece)) => piece,
            Some(Err(())) => break ApiError::plain(StatusCode::BAD_REQUEST, "The archive broke off"),
        };
        bytes = bytes.saturating_add(piece.len() as u64);
        if bytes > MAX_ARCHIVE_BYTES {
            break ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let mut taken = join_all(nodes.iter().map(|node| node.take(piece.clone()))).await.into_iter();
        nodes.retain(|_| taken.next() == Some(true));
    };
    for node in nodes {
        node.gave_up.cancel();
    }
    Err(failure)
}

impl Taker {
    /// Whether the node goes on taking pieces.
    async fn take(&self, piece: Bytes) -> bool {
        let sent = tokio::time::timeout(MAX_PAUSE, self.pieces.send(Ok(piece))).await;
        if sent.is_err() {
            self.gave_up.cancel();
        }
        sent.is_ok_and(|sent| sent.is_ok())
    }
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
pub(crate) async fn list(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<Vec<PushedImage>>> {
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
