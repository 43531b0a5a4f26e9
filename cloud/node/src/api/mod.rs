//! The node's listener: what the control plane calls. Other nodes may open tunnels to guests, nobody else may
//! anything.

mod error;
mod guest;
mod images;
pub(crate) mod tunnel;
mod vms;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use cloister_fleet_tls::{Identity, Peer, TlsListener};
use cloister_node_api::{NodeError, NodeErrorCode};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::backends::Backends;
use crate::images::AppImages;
use crate::vms::Vms;

/// Longest document that is taken, in bytes.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;
/// Most requests that are worked on at once.
const MAX_REQUESTS: usize = 256;

/// Time that requests get to finish when the node stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// What handlers work with.
#[derive(Clone)]
struct Api {
    vms: Arc<Vms>,
    images: AppImages,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// Serves until `stopping`, and what is being asked then for a little longer.
pub(crate) async fn serve(
    listener: TlsListener,
    vms: Arc<Vms>,
    images: AppImages,
    stopping: CancellationToken,
) {
    let tunnels = tunnel::router(Arc::clone(&vms) as Arc<dyn Backends>, stopping.clone());
    let service = router(vms, images).merge(tunnels).into_make_service_with_connect_info::<Peer>();
    let served = axum::serve(listener, service).with_graceful_shutdown(stopping.clone().cancelled_owned());
    let patience = async {
        stopping.cancelled().await;
        tokio::time::sleep(DRAIN_LIMIT).await;
    };
    tokio::select! {
        result = served => if let Err(error) = result {
            tracing::error!(%error, "the node's listener failed");
        },
        // Somebody follows a log.
        () = patience => {}
    }
}

fn router(vms: Arc<Vms>, images: AppImages) -> Router {
    let api = Api {
        vms,
        images,
        requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
        streams: Arc::new(Semaphore::new(guest::MAX_STREAMS)),
    };
    Router::new()
        .route("/v1/vms/{uuid}", put(vms::prepare).get(vms::get).delete(vms::delete))
        .route("/v1/vms/{uuid}/start", post(vms::start))
        .route("/v1/vms/{uuid}/drain", post(vms::drain).delete(vms::end_drain))
        .route("/v1/vms/{uuid}/shutdown", post(vms::shutdown))
        .route("/v1/vms/{uuid}/stop", post(vms::stop))
        .route("/v1/vms/{uuid}/serial", get(vms::serial))
        .route("/v1/vms/{uuid}/network", get(vms::network))
        .route("/v1/vms/{uuid}/stats", get(guest::stats))
        .route("/v1/vms/{uuid}/attestation", get(guest::attestation))
        .route("/v1/vms/{uuid}/containers", get(guest::containers))
        .route("/v1/vms/{uuid}/logs/{container}", get(guest::logs))
        .route(
            "/v1/workspaces/{workspace}/images",
            // Archives are as long as they are; the store has limits of its own.
            put(images::import).get(images::list).layer(DefaultBodyLimit::disable()),
        )
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "the node has no such operation") })
        .layer(DefaultBodyLimit::max(MAX_DOCUMENT_BYTES))
        .layer(CatchPanicLayer::new())
        .layer(middleware::from_fn_with_state(api.clone(), admit))
        .with_state(api)
}

/// Lets only the control plane in, and not more of it than the node can serve.
async fn admit(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.identity != Some(Identity::ControlPlane) {
        return refusal(StatusCode::FORBIDDEN, "only the control plane may call a node");
    }
    match api.requests.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the node is busy: try again"),
    }
}

/// An error that comes before any operation.
fn refusal(status: StatusCode, message: &str) -> Response {
    let code = if status.is_server_error() { NodeErrorCode::Internal } else { NodeErrorCode::Invalid };
    (status, Json(NodeError { code, message: message.to_owned() })).into_response()
}
