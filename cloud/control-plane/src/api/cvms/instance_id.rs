//! `PATCH /cvms/{cvm_id}/instance-id` and `PATCH /cvms/instance-ids`

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use cloister_app_compose::InstanceId;
use cloister_management_api::{
    ApiVersion, CvmId, CvmNumber, ErrorCode, InstanceIdRefresh, InstanceIdRefreshes, InstanceIdSource,
    InstanceIdStatus, RefreshInstanceIdRequest, RefreshInstanceIdsRequest, VmId,
};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::OptionalBody;
use crate::api::negotiate::Version;
use crate::api::responses::{Authenticated, OnCvm};
use crate::api::target::Target;
use crate::operations::{CvmStatus, Nodes};
use crate::store::{Caller, CvmRow, InstanceIdFilter, StoreError};

const MAX_LIMIT: u32 = 500;
/// CVMs whose nodes are asked at a time.
const AT_A_TIME: usize = 16;
/// How long a node may take for one CVM.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long many CVMs may take together; below the limit of every request.
const TOGETHER: Duration = Duration::from_secs(20);

/// Refresh the instance id of a CVM
///
/// Looks for it in what its node reported, then asks the node, and stores it. One that is known stays, unless
/// `overwrite` asks the node anew.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/instance-id", tag = "CVMs", operation_id = "refresh_cvm_instance_id",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = Option<RefreshInstanceIdRequest>,
    responses((status = 200, description = "What became of it", body = InstanceIdRefresh), OnCvm),
)]
pub(crate) async fn refresh_one(
    State(api): State<Api>,
    Version(version): Version,
    Target(cvm): Target,
    OptionalBody(request): OptionalBody<RefreshInstanceIdRequest>,
) -> ApiResult<Json<InstanceIdRefresh>> {
    let request = request.unwrap_or_default();
    Ok(Json(refresh(&api, &cvm, request, version).await?))
}

/// Refresh the instance ids of many CVMs
///
/// Those that are named, or all of the workspace that match; administrators see other workspaces, too. What does
/// not fit into the limit or the time of one request is in `total` and not in `scanned`: repeat it.
#[utoipa::path(
    patch, path = "/cvms/instance-ids", tag = "CVMs", operation_id = "refresh_cvm_instance_ids",
    request_body = Option<RefreshInstanceIdsRequest>,
    responses((status = 200, description = "What became of each", body = InstanceIdRefreshes), Authenticated),
)]
pub(crate) async fn refresh_many(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    OptionalBody(request): OptionalBody<RefreshInstanceIdsRequest>,
) -> ApiResult<Json<InstanceIdRefreshes>> {
    let request = request.unwrap_or(RefreshInstanceIdsRequest {
        cvm_ids: None,
        running_only: true,
        missing_only: true,
        overwrite: false,
        limit: 100,
        dry_run: false,
    });
    if !(1..=MAX_LIMIT).contains(&request.limit) {
        let message = format!("Input should be from 1 to {MAX_LIMIT}");
        return Err(ApiError::fault(&["body", "limit"], "out_of_range", message));
    }
    let (found, mut answer) = candidates(&api, &caller, &request, version).await?;
    let each = RefreshInstanceIdRequest { overwrite: request.overwrite, dry_run: request.dry_run };
    let end = Instant::now() + TOGETHER;
    let mut results =
        stream::iter(found)
            .map(|cvm| {
                let api = &api;
                async move {
                    if Instant::now() >= end { None } else { Some(refresh(api, &cvm, each, version).await) }
                }
            })
            .buffered(AT_A_TIME);
    while let Some(result) = results.next().await {
        if let Some(result) = result {
            count(&mut answer, result?);
        }
    }
    Ok(Json(answer))
}

fn count(answer: &mut InstanceIdRefreshes, item: InstanceIdRefresh) {
    answer.scanned += 1;
    let counter = match item.status {
        InstanceIdStatus::Updated => &mut answer.updated,
        InstanceIdStatus::Unchanged => &mut answer.unchanged,
        InstanceIdStatus::Skipped => &mut answer.skipped,
        InstanceIdStatus::Conflict => &mut answer.conflicts,
        InstanceIdStatus::Error => &mut answer.errors,
    };
    *counter += 1;
    answer.items.push(item);
}

/// The CVMs that a request means, with the failures of those that it names and may not.
async fn candidates(
    api: &Api,
    caller: &Caller,
    request: &RefreshInstanceIdsRequest,
    version: ApiVersion,
) -> ApiResult<(Vec<CvmRow>, InstanceIdRefreshes)> {
    let mut answer = InstanceIdRefreshes::default();
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let Some(named) = &request.cvm_ids else {
        let filter = InstanceIdFilter {
            workspace_id: Some(caller.workspace_id).filter(|_| !caller.is_admin()),
            running_only: request.running_only,
            missing_only: request.missing_only,
        };
        let (ids, total) = api.store.cvms_by_instance_id(filter, i64::from(request.limit)).await?;
        answer.total = usize::try_from(total).unwrap_or(usize::MAX);
        for id in ids {
            found.extend(api.store.cvm(id).await?);
        }
        return Ok((found, answer));
    };
    answer.total = named.len();
    for number in named.iter().take(limit) {
        let cvm = match number.id {
            Some(id) => api.store.cvm(id).await?,
            None => None,
        };
        match cvm.filter(|cvm| cvm.workspace_id == caller.workspace_id || caller.is_admin()) {
            None => count(&mut answer, unknown(number, version)),
            Some(cvm) if request.running_only && cvm.status != CvmStatus::Running => {
                count(&mut answer, skipped(&cvm, version, "it does not run; running_only leaves it out"));
            }
            Some(cvm) if request.missing_only && cvm.instance_id.is_some() => {
                count(&mut answer, skipped(&cvm, version, "it has one; missing_only leaves it out"));
            }
            Some(cvm) => found.push(cvm),
        }
    }
    Ok((found, answer))
}

fn unknown(number: &CvmNumber, version: ApiVersion) -> InstanceIdRefresh {
    InstanceIdRefresh {
        cvm_id: wire_id(number.id.unwrap_or_default(), version),
        identifier: number.text.clone(),
        status: InstanceIdStatus::Error,
        old_instance_id: None,
        new_instance_id: None,
        source: InstanceIdSource::None,
        verified_with_gateway: false,
        reason: Some(ErrorCode::CvmNotFound.title().to_owned()),
    }
}

fn skipped(cvm: &CvmRow, version: ApiVersion, reason: &str) -> InstanceIdRefresh {
    let known = known(cvm);
    InstanceIdRefresh {
        cvm_id: wire_id(cvm.id, version),
        identifier: cvm.vm_uuid.to_string(),
        status: InstanceIdStatus::Skipped,
        old_instance_id: known,
        new_instance_id: None,
        source: InstanceIdSource::None,
        verified_with_gateway: false,
        reason: Some(reason.to_owned()),
    }
}

fn wire_id(id: i64, version: ApiVersion) -> VmId {
    if version.has_text_ids() { VmId::Hashed(CvmId(id)) } else { VmId::Integer(id) }
}

fn known(cvm: &CvmRow) -> Option<InstanceId> {
    cvm.instance_id.as_deref()?.parse().ok()
}

async fn refresh(
    api: &Api,
    cvm: &CvmRow,
    request: RefreshInstanceIdRequest,
    version: ApiVersion,
) -> Result<InstanceIdRefresh, StoreError> {
    let old = known(cvm);
    let mut result = skipped(cvm, version, "the guest has told no instance id yet; it does so when it boots");
    // What the row has came with a report.
    let reported = old.filter(|_| !request.overwrite);
    let found = match reported {
        Some(id) => Some((id, InstanceIdSource::TeepodState)),
        None => match ask_node(api, cvm).await {
            Ok(id) => id.map(|id| (id, InstanceIdSource::TeepodInfo)),
            Err(reason) => {
                return Ok(InstanceIdRefresh {
                    status: InstanceIdStatus::Error,
                    reason: Some(reason),
                    ..result
                });
            }
        },
    };
    let Some((id, source)) = found else { return Ok(result) };
    (result.new_instance_id, result.source) = (Some(id), source);
    (result.status, result.reason) = if old == Some(id) {
        (InstanceIdStatus::Unchanged, None)
    } else {
        store(api, cvm, id, request).await?
    };
    if matches!(result.status, InstanceIdStatus::Unchanged | InstanceIdStatus::Updated) {
        result.verified_with_gateway = leads_here(api, cvm, id).await?;
    }
    Ok(result)
}

async fn ask_node(api: &Api, cvm: &CvmRow) -> Result<Option<InstanceId>, String> {
    match tokio::time::timeout(PATIENCE, api.fleet.look(cvm.node_id, cvm.vm_uuid)).await {
        Ok(Ok(vm)) => Ok(vm.instance_id),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the node takes too long to answer; try again".to_owned()),
    }
}

/// Keeps a found instance id, unless another CVM has it or a newer report brought one.
async fn store(
    api: &Api,
    cvm: &CvmRow,
    id: InstanceId,
    request: RefreshInstanceIdRequest,
) -> Result<(InstanceIdStatus, Option<String>), StoreError> {
    let mut change = api.store.change().await?;
    let Some(current) = change.lock_living_cvm(cvm.id).await? else {
        return Ok((InstanceIdStatus::Error, Some("it was deleted meanwhile".to_owned())));
    };
    if change.is_instance_of_other(cvm.id, id).await? {
        return Ok((InstanceIdStatus::Conflict, Some("another CVM has this instance id".to_owned())));
    }
    match known(&current) {
        Some(known) if known == id => return Ok((InstanceIdStatus::Unchanged, None)),
        Some(_) if !request.overwrite => {
            let reason = "it has another one; overwrite replaces it".to_owned();
            return Ok((InstanceIdStatus::Skipped, Some(reason)));
        }
        _ => {}
    }
    if !request.dry_run {
        change.set_instance_id(cvm.id, id, api.clock.now_ms()).await?;
        change.commit().await?;
    }
    Ok((InstanceIdStatus::Updated, None))
}

/// Whether the ingresses route the host name of an instance id to this CVM and to no other.
async fn leads_here(api: &Api, cvm: &CvmRow, id: InstanceId) -> Result<bool, StoreError> {
    let routes = api.store.routes_of_instance(id).await?;
    Ok(matches!(routes.as_slice(), [route]
        if route.vm_uuid == cvm.vm_uuid && route.status == CvmStatus::Running && route.report.is_some()))
}
