//! Questions that the guest agent answers, passed on to it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use cloister_evidence::report_data::MAX_BYTES as MAX_REPORT_DATA_BYTES;
use cloister_guest_channel::{AGENT_PORT, NODE_TOKEN_HEADER};
use cloister_node_api::GuestStats;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use uuid::Uuid;

use super::Api;
use super::error::ApiError;
use super::vms::PathValue;
use crate::backends::Backends;
use crate::error::VmError;
use crate::vms::Vms;

/// Most logs that are passed on at once.
pub(super) const MAX_STREAMS: usize = 256;
/// Longest time until the agent begins to answer.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Where the guest agent shows its evidence to the node, whatever the application shows to others.
const ATTESTATION: &str = "/node/attestation";
/// Longest evidence, in bytes: a compose document of the largest size, escaped, and an event log.
const MAX_ATTESTATION_BYTES: usize = 128 * 1024 * 1024;
/// Longest list of containers, in bytes.
const MAX_CONTAINERS_BYTES: usize = 1024 * 1024;
/// Longest description of a guest's machine, in bytes, and most file systems that are passed on of it.
const MAX_STATS_BYTES: usize = 64 * 1024;
const MAX_DISKS: usize = 32;
/// Longest path and query that is passed on, in bytes.
const MAX_TARGET_BYTES: usize = 4096;

pub(super) async fn containers(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
) -> Result<Response, ApiError> {
    let answer = ask(&api.vms, vm, "/containers").await?;
    Ok(response("application/json", Body::from(whole(answer, MAX_CONTAINERS_BYTES).await?)))
}

/// Nothing of what the guest says is passed on but the numbers and the cleaned names that are asked for.
pub(super) async fn stats(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
) -> Result<Json<GuestStats>, ApiError> {
    let answer = ask(&api.vms, vm, "/stats").await.map_err(|error| match error {
        VmError::UnknownContainer => VmError::GuestUnreachable("its image tells nothing about its machine"),
        other => other,
    })?;
    let body = whole(answer, MAX_STATS_BYTES).await?;
    let mut stats: GuestStats = serde_json::from_slice(&body)
        .map_err(|_| VmError::GuestUnreachable("what it tells about its machine is malformed"))?;
    stats.disks.truncate(MAX_DISKS);
    Ok(Json(stats))
}

/// The answer's body, at most `limit` bytes.
async fn whole(answer: http::Response<Incoming>, limit: usize) -> Result<Bytes, VmError> {
    let body = Limited::new(answer.into_body(), limit);
    let body = tokio::time::timeout(HEAD_LIMIT, body.collect())
        .await
        .map_err(|_| VmError::GuestUnreachable("its agent's answer came too slowly"))?
        .map_err(|_| VmError::GuestUnreachable("its agent's answer broke off or is too long"))?;
    Ok(body.to_bytes())
}

#[derive(Deserialize)]
pub(super) struct AttestationQuery {
    #[serde(default)]
    report_data: String,
}

/// Passed on piece by piece: a compose document in it may be long.
pub(super) async fn attestation(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
    Query(query): Query<AttestationQuery>,
) -> Result<Response, ApiError> {
    let is_report_data =
        hex::decode(&query.report_data).is_ok_and(|bytes| bytes.len() <= MAX_REPORT_DATA_BYTES);
    if !is_report_data {
        return Err(VmError::Invalid("report_data must be at most 64 bytes in hex".to_owned()).into());
    }
    let answer = ask(&api.vms, vm, &format!("{ATTESTATION}?report_data={}", query.report_data)).await?;
    let body = Limited::new(answer.into_body(), MAX_ATTESTATION_BYTES);
    Ok(response("application/json", Body::new(body)))
}

pub(super) async fn logs(
    State(api): State<Api>,
    PathValue((vm, _)): PathValue<(Uuid, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let target = request.uri().path_and_query().map(PathAndQuery::as_str);
    // As it came: names stay percent-encoded.
    let logs = target.and_then(|target| target.find("/logs/").and_then(|start| target.get(start..)));
    let target = logs
        .filter(|target| target.len() <= MAX_TARGET_BYTES)
        .ok_or_else(|| VmError::Invalid("the container's name or the query is too long".to_owned()))?;
    let place = Arc::clone(&api.streams)
        .try_acquire_owned()
        .map_err(|_| VmError::GuestUnreachable("too many logs are being read on its node"))?;
    let answer = ask(&api.vms, vm, target).await?;
    // The place is taken for as long as the body.
    let body = answer.into_body().map_frame(move |frame| {
        let _held = &place;
        frame
    });
    Ok(response("text/plain; charset=utf-8", Body::new(body)))
}

/// Whatever the guest says about its content, it is shown as what it should be.
fn response(content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Asks the guest agent, with the token that tells it who asks.
async fn ask(vms: &Vms, vm: Uuid, target: &str) -> Result<http::Response<Incoming>, VmError> {
    let token = vms.get(vm)?.view().node_token.ok_or(VmError::Unknown)?;
    let request = http::Request::get(target)
        .header(HOST, "guest-agent")
        .header(NODE_TOKEN_HEADER, token.header_value())
        .body(Empty::<Bytes>::new())
        .map_err(|_| VmError::Invalid("the container's name or the query is malformed".to_owned()))?;
    let exchange = async {
        let unreachable = "it does not run, or its agent is not up yet";
        let stream = vms.connect(vm, AGENT_PORT).await.map_err(|_| VmError::GuestUnreachable(unreachable))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|_| VmError::GuestUnreachable(unreachable))?;
        // Ends with the answer's body.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|_| VmError::GuestUnreachable(unreachable))
    };
    let answer = tokio::time::timeout(HEAD_LIMIT, exchange)
        .await
        .map_err(|_| VmError::GuestUnreachable("its agent took too long"))??;
    match answer.status() {
        StatusCode::OK => Ok(answer),
        StatusCode::NOT_FOUND => Err(VmError::UnknownContainer),
        StatusCode::BAD_REQUEST => {
            Err(VmError::Invalid("the CVM's agent does not understand the query".to_owned()))
        }
        _ => Err(VmError::GuestUnreachable("its agent refused")),
    }
}
