//! Places CVMs without reading all nodes for each of them.
//!
//! All nodes are known from before, and the one that is chosen is read again. If the choice changes with what
//! was read, the next one is read, until the choice is a node that was just read. So a node that gave away what
//! it had is never chosen by mistake, whoever did it; one that has more than before is known a second later.
//! Nobody is refused by old figures: before that all nodes are read again.
//!
//! A choice reserves nothing. Whoever creates the CVM looks once more, under the node's lock.

use tokio::sync::{Mutex, MutexGuard};

use super::placement::{Choice, Demand, NoNodeFits};
use super::{NodeStanding, Reports};
use crate::store::{Store, StoreError};

/// How long ago, in milliseconds, a node that is *not* chosen may have been read: for so long, one that gained
/// room, came back or was added may be passed over while another fits.
pub const MAX_AGE_MS: u64 = 1_000;
/// Nodes that one placement reads singly before it reads all.
const MAX_LOOKS: usize = 8;

/// Why no node was chosen.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// None fits, by figures that were read since it was asked for.
    #[error(transparent)]
    NoNodeFits(#[from] NoNodeFits),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Chooses nodes. Any number of them may work on one database.
#[derive(Default)]
pub struct Scheduler {
    reports: Reports,
    /// Held while all nodes are read: who waits for that uses what was read.
    memory: Mutex<Memory>,
}

/// All nodes, as they were.
#[derive(Default)]
struct Memory {
    nodes: Vec<NodeStanding>,
    read_at_ms: i64,
    /// How often all were read.
    reads: u64,
}

impl Scheduler {
    /// The nodes as they are now.
    pub const fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Chooses a node for a CVM. See the module about what may be old.
    pub async fn place(&self, store: &Store, demand: &Demand, now_ms: i64) -> Result<Choice, PlaceError> {
        if let Some(named) = demand.node {
            let node = self.reports.standing(store, named, now_ms).await?;
            return Ok(demand.place(&node)?);
        }
        let mut looked_at = Vec::new();
        let reads = loop {
            let memory = self.recent(store, now_ms).await?;
            let Ok(choice) = demand.place(&memory.nodes) else { break memory.reads };
            if looked_at.contains(&choice.node_id) {
                return Ok(choice);
            }
            if looked_at.len() == MAX_LOOKS {
                break memory.reads;
            }
            let reads = memory.reads;
            drop(memory);
            let node = self.reports.standing(store, choice.node_id, now_ms).await?;
            self.memory.lock().await.replace(reads, choice.node_id, node);
            looked_at.push(choice.node_id);
        };
        let mut memory = self.memory.lock().await;
        // Somebody else may have read all since this one asked.
        if memory.reads == reads {
            self.read_all(&mut memory, store, now_ms).await?;
        }
        Ok(demand.place(&memory.nodes)?)
    }

    /// All nodes, read no longer ago than [`MAX_AGE_MS`].
    async fn recent(&self, store: &Store, now_ms: i64) -> Result<MutexGuard<'_, Memory>, StoreError> {
        let mut memory = self.memory.lock().await;
        if memory.reads == 0 || now_ms.abs_diff(memory.read_at_ms) >= MAX_AGE_MS {
            self.read_all(&mut memory, store, now_ms).await?;
        }
        Ok(memory)
    }

    async fn read_all(&self, memory: &mut Memory, store: &Store, now_ms: i64) -> Result<(), StoreError> {
        memory.nodes = self.reports.standings(store, now_ms).await?;
        memory.read_at_ms = now_ms;
        memory.reads += 1;
        Ok(())
    }
}

impl Memory {
    /// Puts a node as it was read singly in the place of what it was, unless all were read meanwhile; one that
    /// was removed is forgotten.
    fn replace(&mut self, reads: u64, node_id: i64, now: Option<NodeStanding>) {
        if self.reads != reads {
            return;
        }
        let Some(place) = self.nodes.iter().position(|known| known.node.id == node_id) else { return };
        // In any order: a choice does not depend on it.
        self.nodes.swap_remove(place);
        self.nodes.extend(now);
    }
}
