//! HTTP: paths, methods, headers, limits, and errors in the clients' formats.

mod activity;
mod budget;
mod caller;
mod errors;
mod headers;
mod host;
mod inbound;
mod listener;
mod open;
mod parts;
mod pieces;
mod self_signed;
mod surfaces;
#[cfg(test)]
mod tests;
mod tls;

pub use budget::{BodyBudget, NoRoom, SMALL, Share};
pub use caller::{key_of, unauthenticated};
pub use errors::{refusal, refused};
pub(crate) use headers::name_keyset;
pub(crate) use host::{is_tee_host, normal_form};
pub use inbound::MAX_BODY_BYTES;
pub(crate) use inbound::{no_room, read as read_body};
pub(crate) use listener::{Answers, serve};
pub(crate) use open::ROOM as OPEN_ROOM;
pub(crate) use pieces::Pieces;
pub(crate) use surfaces::ending;
pub use tls::{Certificate, CertificateError};

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{Method, Request, StatusCode};
use serde_json::json;

use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;
use crate::surface::Surface;
use crate::{models, observe, operator, proof, record, verification};

/// Everything that clients may call.
#[derive(Debug, Clone)]
pub struct Door {
    gateway: Arc<Gateway>,
    /// Everything but that a surface is asked something.
    others: Router,
}

impl Door {
    /// To a gateway.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { others: others(&gateway), gateway }
    }
}

impl Answers for Door {
    /// Surfaces, which are most of what is asked for, are found without the router's search and its boxes.
    async fn answer(self, request: Request<Body>) -> Response {
        let asked = (request.method() == Method::POST).then(|| Surface::at(request.uri().path()));
        let Some(surface) = asked.flatten() else {
            return self.others.answer(request).await;
        };
        let serve = |request, id, span| surfaces::serve(&self.gateway, surface, request, id, span);
        headers::completed(&self.gateway, Some(surface.path()), request, serve).await
    }
}

fn others(gateway: &Arc<Gateway>) -> Router {
    // Who takes no pages of the log keeps nobody from evidence.
    let counted =
        |room: &BodyBudget, routes: Router<_>| routes.layer(from_fn_with_state(room.clone(), open::counted));
    let evidence = proof::open_routes().merge(verification::routes());
    let own = Router::new()
        .route("/", get(root))
        .route("/health", get(health))
        .merge(models::routes())
        .merge(observe::routes())
        .merge(operator::routes())
        .merge(proof::routes())
        .merge(counted(&gateway.open_evidence, evidence))
        .merge(counted(&gateway.open_log, record::routes()));
    // What comes here for a surface has another method, and is told which one it takes.
    let with_surfaces =
        |router: Router<_>, surface: Surface| router.route(surface.path(), post(wrong_method));
    Surface::ALL
        .into_iter()
        .fold(own, with_surfaces)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(gateway), headers::every_response))
        .with_state(Arc::clone(gateway))
}

async fn root(State(gateway): State<Arc<Gateway>>) -> Response {
    let digest = &gateway.notary.identity().digest;
    Json(json!({ "api_version": "aci/1", "workload_keyset_digest": digest })).into_response()
}

async fn health(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "draining" }))).into_response();
    }
    if let Some(trouble) = gateway.store.trouble() {
        let body = json!({ "status": "failing", "reason": trouble.name() });
        return (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    }
    Json(json!({ "status": "ok" })).into_response()
}

async fn unknown_path() -> GatewayError {
    GatewayError::new(Kind::UnknownPath, "Nothing is at this path")
}

async fn wrong_method() -> GatewayError {
    GatewayError::new(Kind::Method, "This path does not take this method")
}
