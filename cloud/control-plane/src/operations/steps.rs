//! What each step does. Every step is idempotent: it may run again after a crash at any moment.

mod keys;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_node_api::{
    DrainRequest, ExitReason, NodeError, PortMapping, ShutdownRequest, VmHealth, VmReport, VmSpec, VmState,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::arguments::Arguments;
use super::machine::Step;
use crate::clock::Clock;
use crate::governance::{CannotTell, Contracts};
use crate::kms::{KmsCallError, Kmses, address};
use crate::store::{CvmRow, OperationRow, RevisionRow, Store, StoreError};

/// Seconds that a guest gets to stop its application before its power is taken away.
const SHUTDOWN_TIMEOUT_S: u32 = 60;
/// Seconds that what flows through the ingress gets to end.
const DRAIN_TIMEOUT_S: u32 = 10;
/// Pause between two looks at a VM when no report comes.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Why a call to a node failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NodeCallError {
    /// No answer; the call may or may not have happened.
    #[error("node {node} does not answer; check that its service runs and reaches the control plane")]
    Unreachable {
        /// Name of the node.
        node: String,
    },
    /// The node was removed.
    #[error("the CVM's node was removed from this installation")]
    NodeGone,
    /// The node answered with a refusal.
    #[error("{}", .0.message)]
    Refused(NodeError),
}

impl NodeCallError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::NodeGone => false,
            Self::Refused(error) => error.code.is_transient(),
        }
    }
}

/// The nodes as the operations see them. Every call is idempotent.
pub trait Nodes: Send + Sync + 'static {
    /// Makes or updates the VM's files.
    fn prepare(
        &self,
        node: i64,
        spec: &VmSpec,
    ) -> impl Future<Output = Result<VmReport, NodeCallError>> + Send;
    /// Starts the VM.
    fn start(&self, node: i64, vm: Uuid) -> impl Future<Output = Result<VmReport, NodeCallError>> + Send;
    /// Takes the VM from the ingress and returns when nothing flows any more, or the time is over.
    fn drain(
        &self,
        node: i64,
        vm: Uuid,
        request: DrainRequest,
    ) -> impl Future<Output = Result<VmReport, NodeCallError>> + Send;
    /// Asks the guest to shut down and returns at once.
    fn shutdown(
        &self,
        node: i64,
        vm: Uuid,
        request: ShutdownRequest,
    ) -> impl Future<Output = Result<VmReport, NodeCallError>> + Send;
    /// Takes the power away.
    fn stop(&self, node: i64, vm: Uuid) -> impl Future<Output = Result<VmReport, NodeCallError>> + Send;
    /// How the VM is now.
    fn look(&self, node: i64, vm: Uuid) -> impl Future<Output = Result<VmReport, NodeCallError>> + Send;
    /// Removes the VM and all its files.
    fn remove(&self, node: i64, vm: Uuid) -> impl Future<Output = Result<(), NodeCallError>> + Send;
    /// Returns when a node may have something new to tell about the VM.
    fn changed(&self, vm: Uuid) -> impl Future<Output = ()> + Send;
}

/// Why a step did not succeed, for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// A call failed.
    #[error(transparent)]
    Node(#[from] NodeCallError),
    /// A call to a key management service failed.
    #[error(transparent)]
    Kms(#[from] KmsCallError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody could be asked whether the application may run what the operation brings.
    #[error("nobody can say whether this is allowed: {0}")]
    CannotTell(#[from] CannotTell),
    /// The application's contract does not allow what the operation brings.
    #[error(
        "the application's contract 0x{app_id} does not allow compose hash {hash} on the node's device (any more); \
         have its owner allow it"
    )]
    NotAllowed {
        /// The application, which is its contract.
        app_id: AppId,
        /// The document.
        hash: ComposeHash,
    },
    /// The revision that the operation brings, or goes back to, is not stored.
    #[error("the operation has no revision to go to")]
    NoRevision,
    /// The application does not do well.
    #[error("the application is not healthy: {0}")]
    Unhealthy(String),
    /// The guest gave up.
    #[error("the application did not start: {0}")]
    Boot(String),
    /// The guest runs on, and its power may not be taken.
    #[error(
        "the guest did not shut down in time and runs on; shut the application down first, or allow that \
         its power is taken (allow_force_stop)"
    )]
    RunsOn,
    /// The VM ended before its application did well.
    #[error("the VM ended before its application was healthy{}", why(*.0))]
    EndedBeforeHealthy(Option<ExitReason>),
    /// The VM ended before its application was started.
    #[error("the VM ended during boot{}", why(*.0))]
    EndedDuringBoot(Option<ExitReason>),
}

/// A reason, and who says more, as words that follow what happened.
fn why(reason: Option<ExitReason>) -> String {
    match reason {
        None => "; its serial log says more".to_owned(),
        Some(reason) if reason.is_of_guest() => format!(" ({reason}); its serial log says more"),
        Some(reason) => format!(" ({reason}); logs of the node and of its kernel say more"),
    }
}

impl StepError {
    /// Whether the step may succeed when it is tried again.
    pub(super) const fn is_transient(&self) -> bool {
        match self {
            Self::Node(error) => error.is_transient(),
            Self::Kms(error) => error.is_transient(),
            Self::Store(_) => true,
            Self::CannotTell(error) => matches!(error, CannotTell::Chain(_)),
            Self::Boot(_)
            | Self::EndedDuringBoot(_)
            | Self::EndedBeforeHealthy(_)
            | Self::NoRevision
            | Self::NotAllowed { .. }
            | Self::RunsOn
            | Self::Unhealthy(_) => false,
        }
    }
}

/// How long an application must do well, or badly, before a change believes it.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without a break, before the change counts as a success.
    pub healthy: Duration,
    /// Without a break, before the change fails: what crashes over and over will not get well.
    pub unhealthy: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { healthy: Duration::from_secs(5), unhealthy: Duration::from_secs(30) }
    }
}

/// What a step found out.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What the node said last, if it was asked.
    pub(super) report: Option<Box<VmReport>>,
    /// Key to seal the application's environment to, if the service was asked.
    pub(super) env_pubkey: Option<String>,
    /// The document that it gives the application's keys to since.
    pub(super) allowed: Option<ComposeHash>,
    /// The revision that becomes the CVM's configuration.
    pub(super) revision: Option<i64>,
    /// Port mappings that the CVM gets.
    pub(super) ports: Option<Vec<PortMapping>>,
}

impl From<Option<VmReport>> for Found {
    fn from(report: Option<VmReport>) -> Self {
        Self { report: report.map(Box::new), ..Self::default() }
    }
}

/// What steps work with.
pub(super) struct Context<N> {
    pub(super) store: Store,
    pub(super) nodes: Arc<N>,
    pub(super) kmses: Arc<Kmses>,
    pub(super) contracts: Arc<dyn Contracts>,
    pub(super) clock: Clock,
    pub(super) patience: Patience,
}

/// Runs one step to its end. `coming` is the revision that a change brings, until it has failed.
pub(super) async fn run<N: Nodes>(
    step: Step,
    context: &Context<N>,
    operation: &OperationRow,
    cvm: &CvmRow,
    coming: Option<&RevisionRow>,
) -> Result<Found, StepError> {
    let Context { nodes, kmses, .. } = context;
    let (node, vm) = (cvm.node_id, cvm.vm_uuid);
    let arguments = Arguments::of(operation);
    let report = match step {
        Step::AllowKeys => {
            let Some(kms) = cvm.kms_id else { return Ok(Found::default()) };
            let hash = coming.map_or(cvm.compose_hash, |coming| coming.configuration.compose_hash);
            if let Some(contract) = kmses.get(kms).and_then(|kms| kms.contract()) {
                // The contract tells the service what to give keys to. What it does not allow is refused by the
                // service, and the guest says so (MEASUREMENT_NOT_FOUND).
                keys::check_contract(context, contract, operation, cvm, hash).await?;
                let env_pubkey = kmses.env_key(kms, cvm.app_id).await?;
                return Ok(Found { env_pubkey: Some(env_pubkey), ..Found::default() });
            }
            // After a change of the root a CVM starts once more before the old one ends: the key that is
            // shown is never one that nothing opens.
            let env_pubkey = keys::allow(context, kms, cvm.app_id, hash).await?;
            return Ok(Found { env_pubkey: Some(env_pubkey), allowed: Some(hash), ..Found::default() });
        }
        Step::ApplyRevision => {
            let revision = coming.ok_or(StepError::NoRevision)?.id;
            return Ok(Found { revision: Some(revision), ..Found::default() });
        }
        Step::RestoreRevision => {
            let revision = operation.from_revision.ok_or(StepError::NoRevision)?;
            return Ok(Found { revision: Some(revision), ..Found::default() });
        }
        Step::RestorePorts => return Ok(Found { ports: arguments.former_ports, ..Found::default() }),
        Step::Drain if arguments.force => None,
        Step::Drain => {
            let request = DrainRequest { timeout_s: DRAIN_TIMEOUT_S };
            unless_unknown(nodes.drain(node, vm, request).await)?
        }
        Step::PrepareDisk => Some(nodes.prepare(node, &vm_spec(cvm, kmses)?).await?),
        Step::StartVm => Some(nodes.start(node, vm).await?),
        Step::AwaitBoot => Some(await_boot(nodes, node, vm).await?),
        Step::AwaitHealthy => Some(await_healthy(nodes, node, vm, context.patience).await?),
        Step::RequestShutdown if arguments.force => stop_if_known(nodes, node, vm).await?,
        Step::RequestShutdown => {
            let timeout_s = arguments.shutdown_timeout_s.unwrap_or(SHUTDOWN_TIMEOUT_S);
            let request = ShutdownRequest { timeout_s, force: !arguments.never_force };
            unless_unknown(nodes.shutdown(node, vm, request).await)?
        }
        Step::AwaitPowerOff => await_power_off(nodes, node, vm, arguments.never_force).await?,
        Step::StopVm => stop_if_known(nodes, node, vm).await?,
        Step::RemoveVm => {
            match nodes.remove(node, vm).await {
                // A removed node took its VMs along.
                Err(NodeCallError::NodeGone) => {}
                outcome => outcome?,
            }
            None
        }
        Step::RetireKeys => {
            keys::retire(context, operation, cvm).await?;
            None
        }
    };
    Ok(report.into())
}

/// Where a CVM asks for its keys: at the addresses that its tenant set, else at those of the installation.
pub(crate) fn kms_urls(cvm: &CvmRow, kmses: &Kmses) -> Result<Vec<String>, KmsCallError> {
    let kms = cvm.kms_id.map(|id| kmses.get(id).ok_or(KmsCallError::Unknown)).transpose()?;
    let own_urls = cvm.kms_urls.as_deref().and_then(|urls| serde_json::from_str::<Vec<String>>(urls).ok());
    let own_urls = own_urls.filter(|urls| !urls.is_empty());
    Ok(own_urls.unwrap_or_else(|| kms.map(|kms| address(kms.guest_url())).into_iter().collect()))
}

fn vm_spec(cvm: &CvmRow, kmses: &Kmses) -> Result<VmSpec, KmsCallError> {
    Ok(VmSpec {
        kms_urls: kms_urls(cvm, kmses)?,
        vm_uuid: cvm.vm_uuid,
        workspace_id: cvm.workspace_id,
        name: cvm.name.clone(),
        app_id: cvm.app_id,
        app_compose: cvm.app_compose.clone(),
        os_image_hash: cvm.os_image_hash,
        vcpu: u32::try_from(cvm.vcpu).unwrap_or(1),
        memory_mb: u32::try_from(cvm.memory_mb).unwrap_or(u32::MAX),
        disk_gb: u32::try_from(cvm.disk_gb).unwrap_or(u32::MAX),
        encrypted_env: cvm.encrypted_env.clone(),
        user_config: cvm.user_config.clone(),
        gpus: cvm.gpus.0.clone(),
        ports: cvm.port_mappings(),
    })
}

/// A VM that its node never prepared is as good as stopped.
fn unless_unknown(outcome: Result<VmReport, NodeCallError>) -> Result<Option<VmReport>, NodeCallError> {
    match outcome {
        Err(NodeCallError::Refused(NodeError {
            code: cloister_node_api::NodeErrorCode::UnknownVm, ..
        })) => Ok(None),
        other => other.map(Some),
    }
}

async fn stop_if_known<N: Nodes>(
    nodes: &Arc<N>,
    node: i64,
    vm: Uuid,
) -> Result<Option<VmReport>, NodeCallError> {
    unless_unknown(nodes.stop(node, vm).await)
}

async fn await_boot<N: Nodes>(nodes: &Arc<N>, node: i64, vm: Uuid) -> Result<VmReport, StepError> {
    loop {
        let report = nodes.look(node, vm).await?;
        if let Some(reason) = report.boot_error {
            return Err(StepError::Boot(reason));
        }
        match report.state {
            VmState::Running if report.boot_progress.as_deref() == Some("done") => return Ok(report),
            VmState::Running => {}
            VmState::Stopped | VmState::Stopping | VmState::Exited => {
                return Err(StepError::EndedDuringBoot(report.exit_reason));
            }
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, nodes.changed(vm)).await;
    }
}

/// Waits until the application does well for a while. A guest that does not tell is taken at its boot.
async fn await_healthy<N: Nodes>(
    nodes: &Arc<N>,
    node: i64,
    vm: Uuid,
    patience: Patience,
) -> Result<VmReport, StepError> {
    let mut since = (None, Instant::now());
    loop {
        let report = nodes.look(node, vm).await?;
        if report.state != VmState::Running {
            return Err(StepError::EndedBeforeHealthy(report.exit_reason));
        }
        if report.health != since.0 {
            since = (report.health, Instant::now());
        }
        match (report.health, since.1.elapsed()) {
            (None, _) => return Ok(report),
            (Some(VmHealth::Healthy), lasted) if lasted >= patience.healthy => return Ok(report),
            (Some(VmHealth::Unhealthy), lasted) if lasted >= patience.unhealthy => {
                let detail = report.health_detail.unwrap_or_else(|| "its guest does not say why".to_owned());
                return Err(StepError::Unhealthy(detail));
            }
            _ => {}
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, nodes.changed(vm)).await;
    }
}

/// Waits until the VM's process is gone. A node that may not take the power lets a guest that takes too long
/// run on.
async fn await_power_off<N: Nodes>(
    nodes: &Arc<N>,
    node: i64,
    vm: Uuid,
    never_force: bool,
) -> Result<Option<VmReport>, StepError> {
    loop {
        match unless_unknown(nodes.look(node, vm).await)? {
            Some(report) if never_force && report.state == VmState::Running => {
                return Err(StepError::RunsOn);
            }
            Some(report) if matches!(report.state, VmState::Running | VmState::Stopping) => {}
            gone => return Ok(gone),
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, nodes.changed(vm)).await;
    }
}
