//! The log of receipts, for anybody, and proofs that a receipt is in it, for who made the request.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use cloister_aci::log::{Inclusion, Proof};
use cloister_transparency_log::{Log, LogError};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::Logged;
use crate::door;
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;

/// Most records in one answer.
const MAX_RECORDS: usize = 1000;
/// Answers that read files at the same time; more wait.
static READING: Semaphore = Semaphore::const_new(8);
/// The same of answers that look for one record.
static LOOKING_UP: Semaphore = Semaphore::const_new(8);

type Answer<T> = Result<T, GatewayError>;

/// What the log says, and what is in it.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/aci/log/key", get(key))
        .route("/v1/aci/log/checkpoint", get(checkpoint))
        .route("/v1/aci/log/entries", get(entries))
        .route("/v1/aci/log/inclusion", get(index_inclusion))
        .route("/v1/aci/log/consistency", get(consistency))
        .route("/v1/aci/receipts/{id}/inclusion", get(inclusion))
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    start: u64,
    limit: Option<usize>,
}

/// Records in order; each the exact text of its leaf.
#[derive(Serialize)]
struct Records {
    start: u64,
    records: Vec<String>,
}

#[derive(Deserialize)]
struct Indexed {
    index: u64,
    size: u64,
}

#[derive(Deserialize)]
struct Sizes {
    from: u64,
    to: u64,
}

/// A query that was asked, or could not be read.
type Asked<T> = Result<Query<T>, QueryRejection>;

async fn key(State(gateway): State<Arc<Gateway>>) -> Answer<Response> {
    Ok(text(log(&gateway)?.verifier_key()))
}

async fn checkpoint(State(gateway): State<Arc<Gateway>>) -> Answer<Response> {
    read(&gateway, Log::checkpoint).await.map(text)
}

async fn entries(State(gateway): State<Arc<Gateway>>, query: Asked<Page>) -> Answer<Json<Records>> {
    let Page { start, limit } = asked(query)?;
    let limit = limit.unwrap_or(MAX_RECORDS).min(MAX_RECORDS);
    let records = read(&gateway, move |log| log.records(start, limit)).await?;
    // Records are JSON texts, and so UTF-8.
    let records = records.into_iter().map(|record| String::from_utf8_lossy(&record).into_owned()).collect();
    Ok(Json(Records { start, records }))
}

async fn index_inclusion(State(gateway): State<Arc<Gateway>>, query: Asked<Indexed>) -> Answer<Json<Proof>> {
    let Indexed { index, size } = asked(query)?;
    read(&gateway, move |log| log.inclusion(index, size)).await.map(proof)
}

async fn consistency(State(gateway): State<Arc<Gateway>>, query: Asked<Sizes>) -> Answer<Json<Proof>> {
    let Sizes { from, to } = asked(query)?;
    read(&gateway, move |log| log.consistency(from, to)).await.map(proof)
}

async fn inclusion(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer<Json<Inclusion>> {
    let asker = door::key_of(&headers).ok_or_else(|| {
        GatewayError::new(Kind::Unauthorized, "A receipt is told to the key that made the request")
    })?;
    let store = gateway.store.clone();
    let logged = blocking(&READING, move || store.inclusion(&id, asker)).await?;
    let missing = |reason| GatewayError::new(Kind::NotFound, reason);
    match logged.map_err(|error| unreadable(&error))? {
        Logged::In(inclusion) => Ok(Json(inclusion)),
        Logged::Later => {
            Err(GatewayError { retry_after: Some(1), ..missing("The receipt is not in the log yet") })
        }
        Logged::Never => Err(missing("The receipt is not in the log, and will not be")),
        Logged::Absent => Err(missing("No such receipt")),
    }
}

fn proof(hashes: Vec<[u8; 32]>) -> Json<Proof> {
    Json(Proof { hashes: hashes.into_iter().map(hex::encode).collect() })
}

fn asked<T>(query: Asked<T>) -> Answer<T> {
    let Query(query) = query
        .map_err(|_| GatewayError::new(Kind::InvalidRequest, "The query lacks a number, or has one twice"))?;
    Ok(query)
}

fn text(text: String) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn log(gateway: &Gateway) -> Answer<&Log> {
    gateway
        .store
        .log()
        .ok_or_else(|| GatewayError::new(Kind::UnknownPath, "This gateway keeps no log of receipts"))
}

/// Reads the log's files where that holds up nobody else.
async fn read<T: Send + 'static>(
    gateway: &Gateway,
    work: impl FnOnce(&Log) -> Result<T, LogError> + Send + 'static,
) -> Answer<T> {
    let log = log(gateway)?.clone();
    blocking(&READING, move || work(&log)).await?.map_err(|error| match error {
        LogError::OutOfRange { size } => GatewayError::new(
            Kind::InvalidRequest,
            format!("The log has {size} records; a number of the query is beyond them"),
        ),
        error => unreadable(&error),
    })
}

/// Looks for one record where that holds up nobody who is answered.
pub(crate) async fn look_up<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    blocking(&LOOKING_UP, work).await
}

async fn blocking<T: Send + 'static>(
    places: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Answer<T> {
    let stopping = || GatewayError::new(Kind::Internal, "The gateway is stopping");
    let place = places.acquire().await.map_err(|_| stopping())?;
    // The work has the place, also when whoever asked has left.
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| stopping())
}

fn unreadable(error: &impl std::fmt::Display) -> GatewayError {
    tracing::error!(%error, "the log of receipts cannot be read");
    GatewayError::new(Kind::Internal, "The log of receipts cannot be read")
}
