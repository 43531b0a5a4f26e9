//! `GET /cvms/{cvm_id}/stats`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{CvmSystemInfo, DiskInfo, SystemInfo};
use cloister_node_api::GuestStats;

use super::composition::powered;
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::api::view::Shown;
use crate::store::CvmRow;

/// Get the figures of a CVM's machine
///
/// Asks the guest. A CVM that does not answer is described with `is_online: false` and a reason.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/stats", tag = "CVMs", operation_id = "get_cvm_stats",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "The figures", body = CvmSystemInfo), OnCvm),
)]
pub(crate) async fn stats(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<CvmSystemInfo>> {
    let (sysinfo, error) = match asked(&api, &cvm).await {
        Ok(stats) => (Some(wire(stats)), None),
        Err(reason) => (None, Some(reason)),
    };
    Ok(Json(CvmSystemInfo {
        is_online: sysinfo.is_some(),
        is_public: Shown::of(&cvm.app_compose).public_sysinfo,
        error,
        sysinfo,
        status: Some(cvm.status.as_str().to_owned()),
        in_progress: cvm.operation_id.is_some(),
        boot_progress: cvm.boot_progress,
        boot_error: cvm.boot_error,
    }))
}

async fn asked(api: &Api, cvm: &CvmRow) -> Result<GuestStats, String> {
    powered(cvm)?;
    api.fleet.stats(cvm.node_id, cvm.vm_uuid).await.map_err(|error| error.to_string())
}

fn wire(stats: GuestStats) -> SystemInfo {
    let disks = stats.disks.into_iter().map(|disk| DiskInfo {
        name: disk.name,
        mount_point: disk.mount_point,
        total_size: disk.total_size,
        free_size: disk.free_size,
    });
    SystemInfo {
        os_name: stats.os_name,
        os_version: stats.os_version,
        kernel_version: stats.kernel_version,
        cpu_model: stats.cpu_model,
        num_cpus: stats.num_cpus,
        total_memory: stats.total_memory,
        available_memory: stats.available_memory,
        used_memory: stats.used_memory,
        free_memory: stats.free_memory,
        total_swap: stats.total_swap,
        used_swap: stats.used_swap,
        free_swap: stats.free_swap,
        uptime: stats.uptime,
        loadavg_one: stats.loadavg_one,
        loadavg_five: stats.loadavg_five,
        loadavg_fifteen: stats.loadavg_fifteen,
        disks: disks.collect(),
    }
}
