//! Where an app runs: what ingresses ask when its replicas may be on other nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use cloister_app_compose::{AppId, InstanceId};
use cloister_node_api::{NodeErrorCode, OFFLINE_AFTER, Routes, VmReport, VmRoute};
use parking_lot::Mutex;
use serde::Deserialize;
use uuid::Uuid;

use super::listener::{ListenerError, Reporting, Shared};
use crate::operations::CvmStatus;
use crate::store::{RouteRow, Store, StoreError};

/// Which VMs were ready when their node reported last, as far as this process took the report. A report says
/// more than the store keeps of it: that a VM is being drained, for one.
#[derive(Default)]
pub(crate) struct ReadyVms(Mutex<HashMap<i64, ReadyOnNode>>);

struct ReadyOnNode {
    reported_at_ms: i64,
    vms: HashSet<Uuid>,
}

impl ReadyVms {
    /// Takes the place of what the node reported before.
    pub(super) fn note<'a>(
        &self,
        node: i64,
        reported_at_ms: i64,
        vms: impl IntoIterator<Item = &'a VmReport>,
    ) {
        let vms = vms.into_iter().filter(|vm| vm.is_ready()).map(|vm| vm.vm_uuid).collect();
        self.0.lock().insert(node, ReadyOnNode { reported_at_ms, vms });
    }

    /// Whether a VM was ready; `None` when another process took the node's last report.
    fn was_ready(&self, row: &RouteRow) -> Option<bool> {
        let known = self.0.lock();
        let known = known.get(&row.node_id).filter(|known| row.reported_at_ms == Some(known.reported_at_ms));
        known.map(|known| known.vms.contains(&row.vm_uuid))
    }
}

/// Answers a node's ingress.
pub(super) async fn routes(
    State(shared): State<Arc<Shared>>,
    _: Reporting,
    Path(id): Path<String>,
) -> Result<Json<Routes>, ListenerError> {
    let malformed = "an app_id or instance_id is 40 hex digits";
    let id = id.parse().map_err(|_| ListenerError::Refused(NodeErrorCode::Invalid, malformed))?;
    Ok(Json(find(&shared.store, &shared.ready, id, shared.clock.now_ms()).await?))
}

/// Where the CVMs for an identifier of a host name run: those of the app of that id, or the one instance.
/// Those that are off because somebody wants it are left out.
async fn find(store: &Store, ready: &ReadyVms, id: AppId, now_ms: i64) -> Result<Routes, StoreError> {
    let mut rows = store.routes_of_app(id).await?;
    // The name of an app never leads to a guest that claims it, not even while the app does not run.
    if rows.is_empty() {
        rows = store.routes_of_instance(InstanceId::from_bytes(*id.as_bytes())).await?;
        // Two that claim one instance: one of them lies.
        if rows.len() > 1 {
            rows.clear();
        }
    }
    let vms = rows.iter().filter(|row| !is_off(row.status)).filter_map(|row| route(row, ready, now_ms));
    Ok(Routes { vms: vms.collect() })
}

/// Whether a CVM is off, or on its way there, by somebody's wish.
const fn is_off(status: CvmStatus) -> bool {
    matches!(status, CvmStatus::Stopped | CvmStatus::Removing)
}

/// The way to a CVM; `None` while its node has never reported.
fn route(row: &RouteRow, ready: &ReadyVms, now_ms: i64) -> Option<VmRoute> {
    #[derive(Deserialize)]
    struct Reachable {
        endpoint: String,
    }
    let Reachable { endpoint } = serde_json::from_str(row.report.as_deref()?).ok()?;
    let longest_silence_ms = i64::try_from(OFFLINE_AFTER.as_millis()).unwrap_or(i64::MAX);
    let is_online = row.reported_at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < longest_silence_ms);
    let is_ready = is_online && ready.was_ready(row).unwrap_or_else(|| looks_ready(row));
    Some(VmRoute { vm_uuid: row.vm_uuid, node: row.node_name.clone(), endpoint, ready: is_ready })
}

/// Whether a CVM is ready by what the store keeps of reports. Its node says no to who comes in vain.
fn looks_ready(row: &RouteRow) -> bool {
    row.status == CvmStatus::Running
        && row.boot_progress.as_deref() == Some("done")
        && matches!(row.health.as_deref(), None | Some("healthy"))
        && row.started_at_ms.is_some()
        && row.exited_at_ms.is_none()
}
