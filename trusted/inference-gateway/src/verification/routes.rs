//! Sessions for whoever asks: they hold nothing of requests.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cloister_aci::API_VERSION;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::json;

use super::session::Kept;
use crate::error::{GatewayError, Kind};
use crate::gateway::{Gateway, Live};
use crate::record;

/// What older clients put before an id.
const OLD_PREFIX: &str = "as_";

/// `/v1/aci/sessions`, one of them, and the older path of one.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/aci/sessions", get(list))
        .route("/v1/aci/sessions/{id}", get(one))
        .route("/v1/audit/sessions/{id}", get(one))
}

/// Which sessions are asked for; `None` is all.
#[derive(Debug, Default, Deserialize)]
struct Filter {
    upstream_name: Option<String>,
    /// The same by the name of older clients.
    provider: Option<String>,
    /// Public model id.
    model: Option<String>,
}

impl Filter {
    fn takes(&self, kept: &Kept, live: &Live) -> bool {
        let name = &kept.record.upstream_name;
        let is_named = |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == name);
        is_named(&self.upstream_name)
            && is_named(&self.provider)
            && self.model.as_ref().is_none_or(|model| serves(kept, model, live))
    }
}

/// Whether a session is one through which a model is served.
fn serves(kept: &Kept, model: &str, live: &Live) -> bool {
    live.catalogue.model(model).is_some_and(|model| {
        model.routes.iter().any(|route| {
            route.upstream.name == kept.record.upstream_name
                && kept.model.as_ref().is_none_or(|only| *only == route.upstream_model)
        })
    })
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Response, GatewayError> {
    let Query(filter) = filter.map_err(|_| {
        GatewayError::new(Kind::InvalidRequest, "upstream_name, provider and model may each stand there once")
    })?;
    let live = gateway.live();
    let sessions = gateway.verifications.sessions();
    let sessions: Vec<_> =
        sessions.iter().filter(|kept| filter.takes(kept, &live)).map(|kept| kept.abbreviated()).collect();
    let list = json!({"api_version": API_VERSION, "sessions": sessions});
    Ok(answer(list.to_string().into_bytes()))
}

async fn one(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Result<Response, GatewayError> {
    let absent = || GatewayError::new(Kind::NotFound, "There is no such session");
    let id = id.strip_prefix(OLD_PREFIX).unwrap_or(&id);
    if id.len() != 64 || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(absent());
    }
    let (store, id) = (gateway.store.clone(), id.to_owned());
    let record = record::look_up(move || store.session(&id))
        .await?
        .map_err(|_| GatewayError::new(Kind::Internal, "The session cannot be read"))?;
    record.map(answer).ok_or_else(absent)
}

fn answer(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}
