//! The records that CVMs refer to, gathered once for a whole answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Api;
use crate::fleet::NodeStanding;
use crate::store::{CvmRow, OperationRow, StoreError, UserRow, WorkspaceRow};

/// How old what is shown about a node may be.
const NODE_AGE: Duration = Duration::from_secs(1);
/// How old what is shown about an account may be.
const ACCOUNT_AGE: Duration = Duration::from_secs(10);
/// Most records that are kept of each kind.
const MAX_KEPT: usize = 10_000;

/// Records that were read a moment ago. Only for what answers show, never for what they decide.
pub(crate) struct Recent<T>(Mutex<HashMap<i64, (Instant, Arc<T>)>>, Duration);

impl<T> Recent<T> {
    async fn get(
        &self,
        id: i64,
        load: impl AsyncFnOnce() -> Result<Option<T>, StoreError>,
    ) -> Result<Option<Arc<T>>, StoreError> {
        let fresh =
            |(read_at, value): &(Instant, Arc<T>)| (read_at.elapsed() < self.1).then(|| Arc::clone(value));
        if let Some(value) = self.0.lock().get(&id).and_then(fresh) {
            return Ok(Some(value));
        }
        let Some(value) = load().await?.map(Arc::new) else { return Ok(None) };
        let mut kept = self.0.lock();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(id, (Instant::now(), Arc::clone(&value)));
        Ok(Some(value))
    }
}

/// Records of every kind that were read a moment ago.
pub(crate) struct Directory {
    nodes: Recent<NodeStanding>,
    users: Recent<UserRow>,
    workspaces: Recent<WorkspaceRow>,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            nodes: Recent(Mutex::default(), NODE_AGE),
            users: Recent(Mutex::default(), ACCOUNT_AGE),
            workspaces: Recent(Mutex::default(), ACCOUNT_AGE),
        }
    }
}

/// What the CVMs of one answer refer to.
#[derive(Default)]
pub(crate) struct Scene {
    pub(crate) nodes: HashMap<i64, Arc<NodeStanding>>,
    pub(crate) users: HashMap<i64, Arc<UserRow>>,
    pub(crate) workspaces: HashMap<i64, Arc<WorkspaceRow>>,
    /// The operation that works on a CVM, by the CVM's id.
    pub(crate) operations: HashMap<i64, OperationRow>,
}

impl Scene {
    /// Reads everything that these CVMs refer to.
    pub(crate) async fn of(api: &Api, cvms: &[CvmRow]) -> Result<Self, StoreError> {
        let mut scene = Self::default();
        let ids = |of: fn(&CvmRow) -> i64| cvms.iter().map(of).collect::<BTreeSet<_>>();
        for id in ids(|cvm| cvm.node_id) {
            let found = api.directory.nodes.get(id, async || api.fleet.standing(id).await).await?;
            scene.nodes.extend(found.map(|node| (id, node)));
        }
        for id in ids(|cvm| cvm.user_id) {
            let found = api.directory.users.get(id, async || api.store.user(id).await).await?;
            scene.users.extend(found.map(|user| (id, user)));
        }
        for id in ids(|cvm| cvm.workspace_id) {
            let found = api.directory.workspaces.get(id, async || api.store.workspace(id).await).await?;
            scene.workspaces.extend(found.map(|workspace| (id, workspace)));
        }
        for (cvm, operation) in cvms.iter().filter_map(|cvm| Some((cvm, cvm.operation_id.as_deref()?))) {
            let Ok(id) = operation.parse() else { continue };
            let found = api.store.operation(id).await?;
            scene.operations.extend(found.map(|operation| (cvm.id, operation)));
        }
        Ok(scene)
    }
}
