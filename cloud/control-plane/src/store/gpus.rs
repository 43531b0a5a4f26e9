//! GPUs that CVMs hold: each of a node belongs to at most one living CVM.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Configuration, CvmRow, GpuSlots, Result, Store};

const ON_NODE: &str = "SELECT slot FROM gpu_allocations WHERE node_id = $1";

impl Store {
    /// PCI addresses of the GPUs of a node that CVMs have.
    pub async fn gpus_in_use_on(&self, node_id: i64) -> Result<BTreeSet<String>> {
        let rows: Vec<(String,)> = sqlx::query_as(ON_NODE).bind(node_id).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(slot,)| slot).collect())
    }

    /// PCI addresses of the GPUs that CVMs have, by node.
    pub async fn gpus_in_use(&self) -> Result<BTreeMap<i64, BTreeSet<String>>> {
        let rows: Vec<(i64, String)> =
            sqlx::query_as("SELECT node_id, slot FROM gpu_allocations").fetch_all(&self.pool).await?;
        let mut by_node: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
        for (node, slot) in rows {
            by_node.entry(node).or_default().insert(slot);
        }
        Ok(by_node)
    }
}

impl Change {
    /// PCI addresses of the GPUs of a node that CVMs have.
    pub async fn gpus_in_use(&mut self, node_id: i64) -> Result<BTreeSet<String>> {
        let rows: Vec<(String,)> =
            sqlx::query_as(ON_NODE).bind(node_id).fetch_all(&mut *self.transaction).await?;
        Ok(rows.into_iter().map(|(slot,)| slot).collect())
    }

    /// Makes the GPUs that a CVM holds those that it has and, while a change is on its way, those that it will
    /// have. One that another CVM holds is a duplicate ([`super::StoreError::is_duplicate`]): whoever adds one
    /// has looked, under the node's lock, that it is free.
    pub(super) async fn hold_gpus(&mut self, cvm_id: i64, coming: Option<&Configuration>) -> Result<()> {
        let row: Option<(i64, String)> =
            sqlx::query_as("SELECT node_id, gpus FROM cvms WHERE id = $1 AND deleted_at_ms IS NULL")
                .bind(cvm_id)
                .fetch_optional(&mut *self.transaction)
                .await?;
        let Some((node_id, gpus)) = row else { return Ok(()) };
        let has = GpuSlots::try_from(gpus).unwrap_or_default();
        let coming = coming.map(|coming| coming.gpus.0.clone()).unwrap_or_default();
        let wanted: BTreeSet<String> = has.0.into_iter().chain(coming).collect();
        let held: Vec<(String,)> = sqlx::query_as("SELECT slot FROM gpu_allocations WHERE cvm_id = $1")
            .bind(cvm_id)
            .fetch_all(&mut *self.transaction)
            .await?;
        let held: BTreeSet<String> = held.into_iter().map(|(slot,)| slot).collect();
        for slot in held.difference(&wanted) {
            sqlx::query("DELETE FROM gpu_allocations WHERE cvm_id = $1 AND slot = $2")
                .bind(cvm_id)
                .bind(slot)
                .execute(&mut *self.transaction)
                .await?;
        }
        for slot in wanted.difference(&held) {
            sqlx::query("INSERT INTO gpu_allocations (node_id, slot, cvm_id) VALUES ($1, $2, $3)")
                .bind(node_id)
                .bind(slot)
                .bind(cvm_id)
                .execute(&mut *self.transaction)
                .await?;
        }
        Ok(())
    }
}

impl CvmRow {
    /// GPUs that a configuration brings and the CVM does not have yet.
    #[must_use]
    pub fn new_gpus(&self, wanted: &Configuration) -> GpuSlots {
        let new = wanted.gpus.0.iter().filter(|slot| !self.gpus.0.contains(slot));
        GpuSlots(new.cloned().collect())
    }
}
