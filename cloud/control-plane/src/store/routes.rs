//! Where applications run, for the ingresses of nodes.

use cloister_app_compose::{AppId, InstanceId};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Result, Store};
use crate::operations::CvmStatus;

/// A living CVM and its node, as far as a way to it needs them.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RouteRow {
    /// Identity on the node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Status on the wire.
    #[sqlx(try_from = "String")]
    pub status: CvmStatus,
    /// How far the last boot came.
    pub boot_progress: Option<String>,
    /// How its application does.
    pub health: Option<String>,
    /// When the VM was started last.
    pub started_at_ms: Option<i64>,
    /// When it ended last.
    pub exited_at_ms: Option<i64>,
    /// Its node.
    pub node_id: i64,
    /// Name of its node.
    pub node_name: String,
    /// JSON of the node's last report without its VMs.
    pub report: Option<String>,
    /// When it came.
    pub reported_at_ms: Option<i64>,
}

macro_rules! select_routes {
    ($condition:literal) => {
        concat!(
            "SELECT c.vm_uuid, c.status, c.boot_progress, c.health, c.started_at_ms, c.exited_at_ms, \
             n.id AS node_id, n.name AS node_name, n.report, n.reported_at_ms \
             FROM cvms c JOIN nodes n ON n.id = c.node_id WHERE c.deleted_at_ms IS NULL AND ",
            $condition
        )
    };
}

const OF_APP: &str = select_routes!("c.app_id = $1 ORDER BY c.id LIMIT 100");
const OF_INSTANCE: &str = select_routes!("c.instance_id = $1 ORDER BY c.id LIMIT 2");

impl Store {
    /// The living CVMs of an app, oldest first, at most 100.
    pub async fn routes_of_app(&self, app_id: AppId) -> Result<Vec<RouteRow>> {
        Ok(sqlx::query_as(OF_APP).bind(app_id.to_string()).fetch_all(&self.pool).await?)
    }

    /// The living CVMs whose guests say that they are this instance, at most 2.
    pub async fn routes_of_instance(&self, instance_id: InstanceId) -> Result<Vec<RouteRow>> {
        Ok(sqlx::query_as(OF_INSTANCE).bind(instance_id.to_string()).fetch_all(&self.pool).await?)
    }
}
