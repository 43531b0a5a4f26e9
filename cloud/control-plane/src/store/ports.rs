//! Ports of nodes that lead to CVMs, and where CVMs ask for their keys.

use cloister_node_api::PortMapping;

use super::{Change, CvmRow, Result};
use crate::operations::Arguments;

/// Mappings that CVMs of a node have, and those that operations at work may give back to them.
const ON_NODE: &str = "SELECT ports, '' AS arguments FROM cvms \
     WHERE node_id = $1 AND id <> $2 AND deleted_at_ms IS NULL AND ports <> '[]' \
     UNION ALL SELECT '[]' AS ports, o.arguments FROM operations o JOIN cvms c ON c.id = o.cvm_id \
     WHERE c.node_id = $1 AND c.id <> $2 AND o.status = 'in_progress' AND o.kind = 'map_ports'";

impl CvmRow {
    /// Its port mappings.
    #[must_use]
    pub fn port_mappings(&self) -> Vec<PortMapping> {
        serde_json::from_str(&self.ports).unwrap_or_default()
    }
}

impl Change {
    /// Mappings that the other CVMs of a node have, or may get back from operations at work. Taken after
    /// [`Change::lock_node`], so that no other change adds one before this one ends.
    pub async fn ports_of_others(&mut self, node_id: i64, cvm_id: i64) -> Result<Vec<PortMapping>> {
        let rows: Vec<(String, String)> =
            sqlx::query_as(ON_NODE).bind(node_id).bind(cvm_id).fetch_all(&mut *self.transaction).await?;
        let mappings = |(ports, arguments): (String, String)| {
            let arguments: Arguments = serde_json::from_str(&arguments).unwrap_or_default();
            let ports: Vec<PortMapping> = serde_json::from_str(&ports).unwrap_or_default();
            ports.into_iter().chain(arguments.former_ports.unwrap_or_default())
        };
        Ok(rows.into_iter().flat_map(mappings).collect())
    }

    /// Replaces the port mappings of a CVM.
    pub async fn set_ports(&mut self, cvm_id: i64, ports: &[PortMapping], now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE cvms SET ports = $2, updated_at_ms = $3 WHERE id = $1")
            .bind(cvm_id)
            .bind(serde_json::json!(ports).to_string())
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Replaces the addresses that a tenant set, JSON arrays; `None` leaves them.
    pub async fn set_addresses(
        &mut self,
        cvm_id: i64,
        kms_urls: Option<&str>,
        gateway_urls: Option<&str>,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "UPDATE cvms SET kms_urls = COALESCE($2, kms_urls), gateway_urls = COALESCE($3, gateway_urls), \
             updated_at_ms = $4 WHERE id = $1",
        )
        .bind(cvm_id)
        .bind(kms_urls)
        .bind(gateway_urls)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
