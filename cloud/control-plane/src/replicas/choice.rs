//! Which node a replica goes to, where it may go anywhere.

use super::devices::MAX_ASKED;
use super::{Devices, ReplicaError, needs};
use crate::fleet::{Demand, ImageWish, NodeStanding};
use crate::operations::Lifecycle;
use crate::store::{CvmRow, Store};

/// A node for a replica, whose device its contract allows, with the fewest CVMs of the application: never `but`, and
/// none of those that proved to be full. Nothing is reserved.
pub(super) async fn choose(
    store: &Store,
    lifecycle: &Lifecycle,
    source: &CvmRow,
    but: Option<i64>,
    full: &[i64],
    devices: Option<Devices<'_>>,
) -> Result<i64, ReplicaError> {
    let (now_ms, mut in_use) = (lifecycle.now_ms(), store.gpus_in_use().await?);
    let nodes: Vec<_> = store
        .nodes()
        .await?
        .iter()
        .filter(|node| !full.contains(&node.id))
        .map(|node| {
            let mut standing = NodeStanding::of(node, now_ms);
            standing.gpus_used = in_use.remove(&node.id).unwrap_or_default();
            standing
        })
        .collect();
    let home = nodes.iter().find(|node| node.node.id == source.node_id);
    let mut demand = Demand {
        needs: needs(&source.configuration(), home),
        image: ImageWish { hash: Some(source.os_image_hash), ..ImageWish::default() },
        avoid: but,
        siblings: store.cvms_of_app_by_node(source.app_id).await?,
        ..Demand::default()
    };
    if let Some(devices) = devices {
        let candidates = demand.fitting(&nodes, MAX_ASKED);
        demand.devices = Some(devices.wish(store, source, &candidates).await?);
    }
    Ok(demand.place(&nodes)?.node_id)
}
