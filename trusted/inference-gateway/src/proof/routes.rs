//! What the gateway tells about itself and its receipts.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use cloister_aci::API_VERSION;
use cloister_aci::report::Nonce;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Uri};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::error;

use super::gpus::Gpus;
use super::legacy::SigningAlgo;
use super::report::LegacyAsk;
use crate::door;
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;
use crate::record::{self, Lookup};

/// Longest nonce of an older client, in bytes.
const MAX_LEGACY_NONCE: usize = 256;

type Answer<T> = Result<T, GatewayError>;

/// What the gateway tells about itself, to anybody.
pub fn open_routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/aci/attestation", get(attestation))
        .route("/v1/aci/keysets/{digest}", get(keyset))
        .route("/v1/attestation/report", get(legacy_report))
}

/// What it tells about its receipts, each to who made the request.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/aci/receipts/{id}", get(receipt))
        .route("/v1/receipt/{id}", get(receipt))
        .route("/v1/signature/{id}", get(signature))
}

#[derive(Deserialize)]
struct AttestationQuery {
    nonce: Option<String>,
}

async fn attestation(
    State(gateway): State<Arc<Gateway>>,
    query: Result<Query<AttestationQuery>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Answer<Json<Value>> {
    let Query(query) = query.map_err(|_| unreadable_query())?;
    let nonce = query.nonce.as_deref().map(str::parse::<Nonce>).transpose();
    let nonce = nonce.map_err(|error| GatewayError::parameter("nonce", error.to_string()))?;
    gateway.notary.report(nonce.as_ref(), host(&headers, &uri)).await.map(Json)
}

async fn keyset(State(gateway): State<Arc<Gateway>>, Path(digest): Path<String>) -> Answer<Response> {
    let found = gateway.notary.keyset_document(&digest).map_err(|error| {
        error!(%error, "a keyset cannot be read");
        internal()
    })?;
    found.map(json_text).ok_or_else(|| GatewayError::new(Kind::NotFound, "No such keyset"))
}

async fn receipt(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer<Response> {
    owned(&gateway, id, &headers).await.map(json_text)
}

#[derive(Deserialize)]
struct LegacyQuery {
    nonce: Option<String>,
    signing_algo: Option<String>,
    version: Option<String>,
    /// Whose upstreams are asked for the evidence of their GPUs.
    model: Option<String>,
}

async fn legacy_report(
    State(gateway): State<Arc<Gateway>>,
    query: Result<Query<LegacyQuery>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Answer<Json<Value>> {
    let Query(query) = query.map_err(|_| unreadable_query())?;
    let algo = SigningAlgo::asked(query.signing_algo.as_deref())?;
    let binds_tls = match query.version.as_deref() {
        None | Some("1") => false,
        Some("2") => true,
        Some(_) => return Err(GatewayError::parameter("version", "must be 1 or 2")),
    };
    let nonce = match query.nonce {
        Some(nonce) if nonce.len() > MAX_LEGACY_NONCE => {
            return Err(GatewayError::parameter("nonce", "must have at most 256 bytes"));
        }
        Some(nonce) => nonce,
        None => fresh_nonce()?,
    };
    let gpus = match &query.model {
        Some(model) => Gpus::of_model(&gateway, model, &nonce, &headers).await?,
        None => Gpus::none(&nonce),
    };
    let ask = LegacyAsk { nonce, algo, binds_tls, gpus };
    gateway.notary.legacy_report(&ask, host(&headers, &uri)).await.map(Json)
}

#[derive(Deserialize)]
struct SignatureQuery {
    signing_algo: Option<String>,
}

async fn signature(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    query: Result<Query<SignatureQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer<Json<Value>> {
    let Query(query) = query.map_err(|_| unreadable_query())?;
    let algo = SigningAlgo::asked(query.signing_algo.as_deref())?;
    let document = owned(&gateway, id, &headers).await?;
    let text = hashes(&document).ok_or_else(internal)?;
    let receipt = RawValue::from_string(document).map_err(|_| internal())?;
    let identity = gateway.notary.identity();
    let signers = &identity.keys.legacy;
    Ok(Json(json!({
        "api_version": API_VERSION,
        "signature": signers.sign(algo, &text),
        "text": text,
        "signing_address": signers.address(algo),
        "signing_algo": algo.as_str(),
        "receipt": receipt,
    })))
}

/// The receipt of who asks. That it is another's, or gone, or never was, cannot be told apart.
async fn owned(gateway: &Gateway, id: String, headers: &HeaderMap) -> Answer<String> {
    let asker = door::key_of(headers).ok_or_else(|| {
        GatewayError::new(Kind::Unauthorized, "A receipt is told to the key that made the request")
    })?;
    let failed = |error| {
        error!(%error, "a receipt cannot be read");
        internal()
    };
    let store = gateway.store.clone();
    match record::look_up(move || store.receipt(&id, asker)).await?.map_err(failed)? {
        Lookup::Found(document) => String::from_utf8(document).map_err(|_| internal()),
        Lookup::Absent => Err(GatewayError::new(Kind::NotFound, "No such receipt")),
    }
}

/// Hash of the request, a colon, hash of the answer.
fn hashes(receipt: &str) -> Option<String> {
    let receipt: Value = serde_json::from_str(receipt).ok()?;
    let events = receipt.get("event_log")?.as_array()?;
    let hash_of = |kind: &str| {
        let event = events.iter().find(|event| event.get("type").and_then(Value::as_str) == Some(kind))?;
        event.get("body_hash")?.as_str()?.strip_prefix("sha256:")
    };
    Some(format!("{}:{}", hash_of("request.received")?, hash_of("response.returned")?))
}

/// The host that the caller named; in HTTP/2 it is part of the address.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(HOST)?.to_str().ok(),
    }
}

fn json_text(text: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

fn fresh_nonce() -> Answer<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| internal())?;
    Ok(hex::encode(bytes))
}

fn unreadable_query() -> GatewayError {
    GatewayError::new(Kind::InvalidRequest, "The query cannot be understood")
}

fn internal() -> GatewayError {
    GatewayError::new(Kind::Internal, "The gateway failed")
}
