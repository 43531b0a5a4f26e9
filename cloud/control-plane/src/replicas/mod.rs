//! Further CVMs of an application that runs: the same document, image and size on the same or another node,
//! with a disk and an instance id of its own.

mod choice;
mod devices;
mod name;
#[cfg(test)]
mod tests;

use cloister_app_compose::{AppCompose, ComposeError, ComposeHash};
use cloister_management_api::SealedEnv;
use serde_json::Value;
use tracing::info;

use crate::clock::NoRandomness;
use crate::fleet::{GpuNeed, NoNodeFits, NodeStanding, PlacementError, Requirements};
use crate::governance::CannotTell;
use crate::operations::{CvmStatus, InsertError, Lifecycle, OperationKind, Unfunded};
use crate::store::{Change, Configuration, CvmRow, GpuSlots, NewCvm, Store, StoreError};

use choice::choose;
pub(crate) use devices::Devices;

/// How often another node is chosen when the chosen one fills up meanwhile.
const MAX_CHOICES: usize = 5;

/// Where a replica goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// To the node of its source.
    BesideSource,
    /// To this node.
    Node(i64),
    /// To a node that fits, as far from its siblings as possible, and not to this one.
    Anywhere {
        /// The node that it never goes to.
        but: Option<i64>,
    },
}

/// A replica to be made.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaRequest {
    /// Id of the CVM that it is to be like.
    pub(crate) source: i64,
    /// Where it goes.
    pub(crate) place: Place,
    /// Which of the application's live configurations it gets; must be given when there are several.
    pub(crate) compose_hash: Option<ComposeHash>,
    /// Its sealed environment; that of the source if absent.
    pub(crate) encrypted_env: Option<SealedEnv>,
    /// Members that its document has instead of the source's; null removes one.
    pub(crate) changes: Vec<(&'static str, Value)>,
    /// Its name; made from that of the source if absent.
    pub(crate) name: Option<String>,
    /// Who asks.
    pub(crate) user_id: i64,
}

/// What a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rehearsal {
    /// Where the replica goes.
    pub(crate) node_id: i64,
    /// The CVM whose configuration it gets.
    pub(crate) model: i64,
    /// The revision that one has.
    pub(crate) model_revision: Option<i64>,
    /// Hash of the replica's document.
    pub(crate) compose_hash: ComposeHash,
}

/// Why no replica was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplicaError {
    /// The source is gone.
    #[error("the source CVM was deleted; choose another CVM of the application")]
    SourceGone,
    /// What the source runs is not what anybody would want twice.
    #[error("a CVM that is {0} cannot be replicated; choose a CVM of the application that works")]
    SourceStatus(CvmStatus),
    /// The source is being changed; the same request may succeed later.
    #[error("the source CVM is being changed; wait for that to end, or cancel it")]
    SourceBusy,
    /// The CVM that it was to be like has another configuration by now.
    #[error("the source CVM was changed meanwhile; look at it and try again")]
    ChangedMeanwhile,
    /// Which configuration is not clear.
    #[error("the application runs with {} configurations; say which by its compose_hash", .0.len())]
    HashNeeded(Vec<ComposeHash>),
    /// Nothing runs with it.
    #[error("no CVM of the application runs with compose_hash {0}")]
    HashUnknown(ComposeHash),
    /// The changed document cannot be used.
    #[error(transparent)]
    Document(#[from] ComposeError),
    /// No key opens the environment.
    #[error("the application has no key management service that could open encrypted_env")]
    NothingOpensEnv,
    /// There is no such node.
    #[error("there is no node {0}")]
    NodeUnknown(i64),
    /// The node lacks the source's image.
    #[error("node {node} does not have OS image {image}; choose a node that has it")]
    ImageMissing {
        /// Name of the node.
        node: String,
        /// Name of the image.
        image: String,
    },
    /// The node refuses.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// No node fits.
    #[error("no node takes a replica: {0}")]
    NoNodeFits(#[from] NoNodeFits),
    /// Nobody can say on which devices it may run.
    #[error("nobody can say on which devices the application may run: {0}")]
    CannotTell(#[from] CannotTell),
    /// The name is taken.
    #[error("a CVM named {0:?} exists already in this workspace")]
    NameTaken(String),
    /// Nobody pays for it.
    #[error(transparent)]
    Unfunded(#[from] Unfunded),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for identifiers.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// Adds a replica and starts it; the work goes on after the answer. Whether the caller may, the caller of this
/// has checked. Whoever repeats it after a lost answer gets a second replica: nothing tells one from another.
///
/// One that may go anywhere goes where `devices` say, if a contract decides.
pub(crate) async fn replicate(
    store: &Store,
    lifecycle: &Lifecycle,
    request: &ReplicaRequest,
    devices: Option<Devices<'_>>,
) -> Result<CvmRow, ReplicaError> {
    begin(lifecycle, request, attempt(store, lifecycle, request, None, devices).await?).await
}

/// The same, if what comes of it is what was rehearsed.
pub(crate) async fn replicate_as_rehearsed(
    store: &Store,
    lifecycle: &Lifecycle,
    request: &ReplicaRequest,
    rehearsed: &Rehearsal,
) -> Result<CvmRow, ReplicaError> {
    begin(lifecycle, request, attempt(store, lifecycle, request, Some(rehearsed), None).await?).await
}

async fn begin(
    lifecycle: &Lifecycle,
    request: &ReplicaRequest,
    (change, replica, _): (Change, CvmRow, Rehearsal),
) -> Result<CvmRow, ReplicaError> {
    change.commit().await?;
    lifecycle.wake();
    info!(
        source_id = request.source,
        cvm_id = replica.id,
        node_id = replica.node_id,
        "a replica was accepted"
    );
    Ok(replica)
}

/// What would come of a request now. Nothing is changed.
pub(crate) async fn rehearse(
    store: &Store,
    lifecycle: &Lifecycle,
    request: &ReplicaRequest,
    devices: Option<Devices<'_>>,
) -> Result<Rehearsal, ReplicaError> {
    // Dropping the change undoes it.
    attempt(store, lifecycle, request, None, devices).await.map(|(_, _, rehearsal)| rehearsal)
}

async fn attempt(
    store: &Store,
    lifecycle: &Lifecycle,
    request: &ReplicaRequest,
    rehearsed: Option<&Rehearsal>,
    devices: Option<Devices<'_>>,
) -> Result<(Change, CvmRow, Rehearsal), ReplicaError> {
    let mut full = Vec::new();
    for _ in 0..MAX_CHOICES {
        let source = store.cvm(request.source).await?.ok_or(ReplicaError::SourceGone)?;
        let node = match request.place {
            Place::BesideSource => source.node_id,
            Place::Node(node) => node,
            Place::Anywhere { but } => choose(store, lifecycle, &source, but, &full, devices).await?,
        };
        let mut change = store.change().await?;
        match replicate_in(&mut change, lifecycle, request, node, rehearsed).await {
            // Filled up since it was chosen.
            Err(ReplicaError::Placement(_)) if matches!(request.place, Place::Anywhere { .. }) => {
                full.push(node);
            }
            Err(error) => return Err(error),
            Ok((replica, rehearsal)) => return Ok((change, replica, rehearsal)),
        }
    }
    Err(NoNodeFits::default().into())
}

/// What a replica needs: what its source has, with other GPUs of the same product.
fn needs(configuration: &Configuration, home: Option<&NodeStanding>) -> Requirements {
    let slots = &configuration.gpus.0;
    let gpus = match (slots.first(), u32::try_from(slots.len())) {
        (Some(first), Ok(count)) => {
            let known = home.and_then(|node| node.gpus().iter().find(|gpu| gpu.slot == *first));
            GpuNeed::Count { count, product: known.map(|gpu| gpu.product_id.clone()) }
        }
        _ => GpuNeed::None,
    };
    Requirements {
        vcpu: configuration.vcpu,
        memory_mb: configuration.memory_mb,
        disk_gb: configuration.disk_gb,
        os_image_hash: Some(configuration.os_image_hash),
        gpus,
    }
}

/// Adds a replica on a node as a part of a larger change, which holds no lock of a CVM or a node yet and may
/// not be committed after an error; after its commit somebody has to [`Lifecycle::wake`] the workers. Where
/// `request.place` points does not matter here. With a rehearsal, what comes of it is what was rehearsed, or
/// nothing.
pub(crate) async fn replicate_in(
    change: &mut Change,
    lifecycle: &Lifecycle,
    request: &ReplicaRequest,
    node_id: i64,
    rehearsed: Option<&Rehearsal>,
) -> Result<(CvmRow, Rehearsal), ReplicaError> {
    // Read before the locks, which are taken from the workspace down.
    let named = change.cvm(request.source).await?.ok_or(ReplicaError::SourceGone)?;
    change.lock_workspace(named.workspace_id).await?;
    // A move to another node is the operator's.
    if !matches!(request.place, Place::Anywhere { but: Some(_) })
        && let Some(why) = lifecycle.unfunded(change, named.workspace_id, named.app_id).await?
    {
        return Err(why.into());
    }
    let model = model(change, request, &named, rehearsed).await?;
    if request.encrypted_env.is_some() && model.kms_id.is_none() {
        return Err(ReplicaError::NothingOpensEnv);
    }
    let now_ms = lifecycle.now_ms();
    let home = change.node(model.node_id).await?.map(|node| NodeStanding::of(&node, now_ms));
    let node = NodeStanding::locked(change, node_id, now_ms).await?;
    let node = node.ok_or(ReplicaError::NodeUnknown(node_id))?;
    let mut configuration = model.configuration();
    let needs = needs(&configuration, home.as_ref());
    let image = node.image(configuration.os_image_hash);
    if image.is_none() && node.report.is_some() {
        return Err(ReplicaError::ImageMissing { node: node.node.name, image: configuration.os_image_name });
    }
    node.accept(&needs)?;
    let is_dev = image.is_some_and(|image| image.is_dev);
    let gpus = node.choose_gpus(&needs.gpus, is_dev).map_err(|reason| node.refused(reason))?;
    configuration.gpus = GpuSlots(gpus);
    compose_for(&mut configuration, &request.changes)?;
    let rehearsal = Rehearsal {
        node_id,
        model: model.id,
        model_revision: model.revision_id,
        compose_hash: configuration.compose_hash,
    };
    if rehearsed.is_some_and(|rehearsed| *rehearsed != rehearsal) {
        return Err(ReplicaError::ChangedMeanwhile);
    }
    if let Some(env) = &request.encrypted_env {
        configuration.encrypted_env = Some(env.as_hex().to_owned());
    }
    let new = NewCvm {
        workspace_id: model.workspace_id,
        user_id: request.user_id,
        node_id,
        vm_uuid: lifecycle.new_uuid()?,
        name: free_name(change, request, &named).await?,
        app_id: model.app_id,
        kms_id: model.kms_id,
        listed: model.listed,
        configuration,
    };
    let inserted = lifecycle.insert(change, &new, OperationKind::Replicate).await;
    let replica = inserted.map_err(|error| match error {
        InsertError::Store(error) if error.is_duplicate() => ReplicaError::NameTaken(new.name.clone()),
        InsertError::Store(error) => error.into(),
        InsertError::Random(error) => error.into(),
        InsertError::Lost => ReplicaError::SourceGone,
    })?;
    change.copy_cvm_settings(model.id, replica.id).await?;
    Ok((replica, rehearsal))
}

/// What a replica's document has instead of its source's members. An empty script is none.
pub(crate) fn changes(compose: Option<String>, script: Option<String>) -> Vec<(&'static str, Value)> {
    let script = script.map(|text| if text.is_empty() { Value::Null } else { text.into() });
    let members = [("docker_compose_file", compose.map(Value::from)), ("pre_launch_script", script)];
    members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Gives a configuration a document with other members.
pub(crate) fn compose_for(
    configuration: &mut Configuration,
    changes: &[(&'static str, Value)],
) -> Result<(), ComposeError> {
    if changes.is_empty() {
        return Ok(());
    }
    let document = AppCompose::parse(configuration.app_compose.as_bytes())?;
    let document = document.with(changes.iter().cloned())?;
    configuration.compose_hash = document.compose_hash();
    configuration.app_compose = String::from_utf8_lossy(document.bytes()).into_owned();
    Ok(())
}

/// The CVM whose configuration the replica gets: the named one, or the one that runs the named document.
async fn model(
    change: &mut Change,
    request: &ReplicaRequest,
    named: &CvmRow,
    rehearsed: Option<&Rehearsal>,
) -> Result<CvmRow, ReplicaError> {
    if let Some(rehearsed) = rehearsed {
        return usable(change.lock_living_cvm(rehearsed.model).await?);
    }
    let live = change.hashes_of_app(named.workspace_id, named.app_id).await?;
    let id = if let Some(hash) = request.compose_hash {
        let runs = |(id, other): &&(i64, ComposeHash)| *other == hash && *id == named.id;
        let fitting = live.iter().find(runs).or_else(|| live.iter().find(|(_, other)| *other == hash));
        fitting.ok_or(ReplicaError::HashUnknown(hash))?.0
    } else {
        let mut hashes: Vec<_> = live.iter().map(|(_, hash)| *hash).collect();
        hashes.sort_by_key(ToString::to_string);
        hashes.dedup();
        if hashes.len() > 1 {
            return Err(ReplicaError::HashNeeded(hashes));
        }
        named.id
    };
    usable(change.lock_living_cvm(id).await?)
}

fn usable(model: Option<CvmRow>) -> Result<CvmRow, ReplicaError> {
    let model = model.ok_or(ReplicaError::SourceGone)?;
    match model.status {
        CvmStatus::Error | CvmStatus::Removing => Err(ReplicaError::SourceStatus(model.status)),
        // Which of its two configurations is meant, nobody could say.
        CvmStatus::Updating => Err(ReplicaError::SourceBusy),
        _ => Ok(model),
    }
}

async fn free_name(
    change: &mut Change,
    request: &ReplicaRequest,
    source: &CvmRow,
) -> Result<String, ReplicaError> {
    if let Some(name) = &request.name {
        return Ok(name.clone());
    }
    for name in name::candidates(&source.name) {
        if !change.is_name_taken(source.workspace_id, &name).await? {
            return Ok(name);
        }
    }
    Err(ReplicaError::NameTaken(source.name.clone()))
}
