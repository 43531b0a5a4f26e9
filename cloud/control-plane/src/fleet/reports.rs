//! How nodes stand, read from the store. Reports that were read before are kept: each is parsed once, however
//! often nodes are looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cloister_node_api::NodeReport;
use parking_lot::Mutex;

use super::standing::{NodeStanding, parse_report};
use crate::store::{NodeRow, Store, StoreError};

/// The number of a report, and the report where it can be read.
type Numbered = (i64, Option<Arc<NodeReport>>);

/// The last report of each node.
#[derive(Default)]
pub struct Reports(Mutex<HashMap<i64, Numbered>>);

impl Reports {
    /// How all nodes stand, with the GPUs that CVMs have.
    pub async fn standings(&self, store: &Store, now_ms: i64) -> Result<Vec<NodeStanding>, StoreError> {
        let nodes = store.nodes_without_reports().await?;
        let mut gpus = store.gpus_in_use().await?;
        let retired = Arc::new(store.retired_os_images().await?);
        if self.0.lock().len() > nodes.len() {
            let living: BTreeSet<i64> = nodes.iter().map(|node| node.id).collect();
            self.0.lock().retain(|id, _| living.contains(id));
        }
        let mut standings = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Some(report) = self.report(store, &node).await? else { continue };
            let gpus_used = gpus.remove(&node.id).unwrap_or_default();
            let standing = NodeStanding::with_report(node, report, now_ms);
            standings.push(NodeStanding { gpus_used, retired: Arc::clone(&retired), ..standing });
        }
        Ok(standings)
    }

    /// How one node stands, with the GPUs that CVMs have; `None` if there is no such node.
    pub async fn standing(
        &self,
        store: &Store,
        node_id: i64,
        now_ms: i64,
    ) -> Result<Option<NodeStanding>, StoreError> {
        let Some(node) = store.node_without_report(node_id).await? else { return Ok(None) };
        let Some(report) = self.report(store, &node).await? else { return Ok(None) };
        let standing = NodeStanding::with_report(node, report, now_ms);
        let gpus_used = match standing.gpus() {
            [] => BTreeSet::new(),
            _ => store.gpus_in_use_on(node_id).await?,
        };
        let retired = Arc::new(store.retired_os_images().await?);
        Ok(Some(NodeStanding { gpus_used, retired, ..standing }))
    }

    /// The report of a node; the outer `None` for one that was removed meanwhile.
    async fn report(
        &self,
        store: &Store,
        node: &NodeRow,
    ) -> Result<Option<Option<Arc<NodeReport>>>, StoreError> {
        let known = self.0.lock().get(&node.id).cloned();
        if let Some((number, report)) = known
            && number == node.report_number
        {
            return Ok(Some(report));
        }
        let Some(row) = store.node(node.id).await? else { return Ok(None) };
        let report = parse_report(&row).map(Arc::new);
        self.0.lock().insert(row.id, (row.report_number, report.clone()));
        Ok(Some(report))
    }
}
