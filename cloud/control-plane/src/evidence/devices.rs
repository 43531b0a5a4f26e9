//! What platforms the nodes are, found out by the evidence of the CVMs on them: a node's own word for it
//! is worth nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{GuestEvidence, Nonce, examine};
use crate::App;
use crate::clock::NoRandomness;
use crate::fleet::NodeStatus;
use crate::operations::{CvmStatus, NodeCallError};
use crate::store::{CvmRow, DeviceRow, StoreError};

/// How often it is looked whether a node is due.
const EVERY: Duration = Duration::from_secs(30);
/// How long what was found out holds: firmware updates change a platform's identity.
const LOOK_AGAIN_MS: i64 = 24 * 60 * 60 * 1000;
/// Most CVMs of one node that are asked in one round.
const MAX_ASKED: usize = 3;
/// Nodes that are looked at at a time, so that slow ones keep nobody waiting.
const AT_A_TIME: usize = 16;

/// Looks after all nodes until it is stopped.
pub(crate) async fn watch(app: Arc<App>, stop: CancellationToken) {
    loop {
        let round = stop.run_until_cancelled(look(&app)).await;
        if let Some(Err(error)) = round {
            warn!(error = &error as &dyn std::error::Error, "the platforms of nodes cannot be looked after");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Looks at each node that is due.
pub(crate) async fn look(app: &App) -> Result<(), StoreError> {
    let now_ms = app.clock.now_ms();
    let mut due = app.fleet.standings().await?;
    due.retain(|node| {
        let last_ms = node.device.as_ref().map(|device| device.last_verified_at_ms);
        node.status != NodeStatus::Offline
            && last_ms.is_none_or(|last_ms| now_ms.saturating_sub(last_ms) >= LOOK_AGAIN_MS)
    });
    let looks = due.into_iter().map(|node| look_at(app, node.node.id));
    futures_util::stream::iter(looks).buffer_unordered(AT_A_TIME).try_collect().await
}

async fn look_at(app: &App, node_id: i64) -> Result<(), StoreError> {
    let mut running = app.store.cvms_on_node(node_id).await?;
    running.retain(|cvm| cvm.status == CvmStatus::Running);
    // Newest first: old CVMs may run old guests that present no evidence.
    for cvm in running.iter().rev().take(MAX_ASKED) {
        match device(app, cvm).await {
            Ok(Some(device)) => {
                let mut change = app.store.upkeep().await?;
                change.put_device(&device).await?;
                change.commit().await?;
                info!(node_id, device_id = device.device_id, "the platform of a node was verified");
                return Ok(());
            }
            Ok(None) => {}
            Err(error) => {
                debug!(node_id, cvm_id = cvm.id, error = &error as &dyn std::error::Error, "no evidence");
            }
        }
    }
    Ok(())
}

/// Why a CVM's evidence cannot be had.
#[derive(Debug, thiserror::Error)]
enum NoEvidence {
    #[error(transparent)]
    Random(#[from] NoRandomness),
    #[error(transparent)]
    Node(#[from] NodeCallError),
    #[error("the guest presents no quote")]
    NoQuote,
    #[error(transparent)]
    Unjudged(#[from] super::Unjudged),
}

/// The platform that a CVM proves to run on; `None` when its evidence does not hold.
async fn device(app: &App, cvm: &CvmRow) -> Result<Option<DeviceRow>, NoEvidence> {
    let nonce = Nonce(app.random.bytes()?);
    let document = app.fleet.attestation(cvm.node_id, cvm.vm_uuid, nonce.0).await?;
    let evidence = GuestEvidence::read(document).ok_or(NoEvidence::NoQuote)?;
    let examined = examine(app, &evidence, cvm, nonce).await?;
    let Some(quote) = examined.quote else {
        warn!(cvm_id = cvm.id, reasons = ?examined.verdict.reasons, "a CVM's evidence does not hold");
        return Ok(None);
    };
    let now_ms = app.clock.now_ms();
    Ok(Some(DeviceRow {
        node_id: cvm.node_id,
        device_id: hex::encode(quote.device_id),
        ppid: hex::encode(quote.ppid),
        fmspc: hex::encode(quote.fmspc),
        trust_root: quote.trust_root.to_string(),
        tcb_status: quote.tcb_status.to_string(),
        first_verified_at_ms: now_ms,
        last_verified_at_ms: now_ms,
    }))
}
