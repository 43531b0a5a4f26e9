//! Operations on VMs.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use cloister_node_api::{DrainRequest, ShutdownRequest, VmNetwork, VmReport, VmSpec};
use serde::Deserialize;
use uuid::Uuid;

use super::Api;
use super::error::ApiError;
use crate::error::VmError;
use crate::vms::Overdue;

/// Lines of a console log unless asked otherwise, and most of them.
const DEFAULT_TAIL: usize = 100;
const MAX_TAIL: usize = 10_000;
/// Longest time that the streams of a VM get to end.
const MAX_DRAIN: Duration = Duration::from_mins(5);

type Answer = Result<Json<VmReport>, ApiError>;

/// A JSON body whose faults are answered like all others.
#[derive(FromRequest)]
#[from_request(via(Json), rejection(ApiError))]
pub(super) struct Document<T>(T);

/// A value of the path.
#[derive(FromRequestParts)]
#[from_request(via(Path), rejection(ApiError))]
pub(super) struct PathValue<T>(pub(super) T);

#[derive(FromRequestParts)]
#[from_request(via(Query), rejection(ApiError))]
pub(super) struct Parameters<T>(pub(super) T);

#[derive(Deserialize)]
pub(super) struct Tail {
    tail: Option<usize>,
}

pub(super) async fn prepare(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
    Document(spec): Document<VmSpec>,
) -> Answer {
    if spec.vm_uuid != vm {
        return Err(VmError::Invalid("the path and the specification name different CVMs".to_owned()).into());
    }
    Ok(Json(api.vms.prepare(spec).await?))
}

pub(super) async fn get(State(api): State<Api>, PathValue(vm): PathValue<Uuid>) -> Answer {
    Ok(Json(api.vms.get(vm)?.report().ok_or(VmError::Unknown)?))
}

pub(super) async fn start(State(api): State<Api>, PathValue(vm): PathValue<Uuid>) -> Answer {
    Ok(Json(api.vms.start(vm).await?))
}

pub(super) async fn shutdown(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
    Document(request): Document<ShutdownRequest>,
) -> Answer {
    let overdue = if request.force { Overdue::TakePower } else { Overdue::KeepRunning };
    Ok(Json(api.vms.shutdown(vm, Duration::from_secs(request.timeout_s.into()), overdue).await?))
}

pub(super) async fn drain(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
    Document(request): Document<DrainRequest>,
) -> Answer {
    let limit = Duration::from_secs(request.timeout_s.into());
    if limit > MAX_DRAIN {
        return Err(VmError::Invalid("a drain takes at most 300 seconds".to_owned()).into());
    }
    Ok(Json(api.vms.drain(vm, limit).await?))
}

pub(super) async fn end_drain(State(api): State<Api>, PathValue(vm): PathValue<Uuid>) -> Answer {
    Ok(Json(api.vms.end_drain(vm).await?))
}

pub(super) async fn stop(State(api): State<Api>, PathValue(vm): PathValue<Uuid>) -> Answer {
    Ok(Json(api.vms.stop(vm).await?))
}

pub(super) async fn delete(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
) -> Result<StatusCode, ApiError> {
    api.vms.delete(vm).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn network(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
) -> Result<Json<VmNetwork>, ApiError> {
    Ok(Json(api.vms.network(vm).await?))
}

pub(super) async fn serial(
    State(api): State<Api>,
    PathValue(vm): PathValue<Uuid>,
    Parameters(tail): Parameters<Tail>,
) -> Result<impl IntoResponse, ApiError> {
    let lines = tail.tail.unwrap_or(DEFAULT_TAIL).min(MAX_TAIL);
    let text = api.vms.serial_tail(vm, lines).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text))
}
