//! The listener that only nodes use, over mutual TLS: enrolment, reports, platforms.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cloister_development_tee::{IssuedPlatform, RegisterError, Registration, Vendor};
use cloister_fleet_tls::{Authority, Identity, Peer, TlsListener};
use cloister_node_api::{
    NodeError, NodeErrorCode, NodeReport, Platform, PlatformCertificate, PlatformRequest, ReportReceipt,
    VmReport, paths,
};
use cloister_verifier::{TcbStatus, TrustRoot};
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::enrolment::enrol;
use super::os_images::os_image;
use super::reconcile::{Finding, Remedy, remedy};
use super::routes::{ReadyVms, routes};
use super::{Fleet, VmChanges, observed};
use crate::clock::Clock;
use crate::metering::longest_silence_before;
use crate::operations::{CvmStatus, Nodes, RevisionState};
use crate::os_images::Library;
use crate::store::{CvmRow, DeviceRow, NodeRow, Store, StoreError};

/// A report of 10,000 VMs with long texts stays below it.
const MAX_REPORT_BYTES: usize = 64 * 1024 * 1024;
/// An enrolment comes from anybody.
const MAX_ENROLMENT_BYTES: usize = 64 * 1024;
/// A platform's identity and key.
const MAX_PLATFORM_REQUEST_BYTES: usize = 4096;
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than a report is on its way: what changed less than this ago, a report may not know yet.
const AT_REST_FOR: Duration = Duration::from_secs(3);
const NODE_IS_GONE: &str = "the node no longer has this VM";

/// Serves nodes until it is stopped.
pub(crate) struct NodeListener {
    pub(crate) address: SocketAddr,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

/// What calls of nodes reach.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) authority: Arc<Authority>,
    /// `None` in production.
    pub(crate) vendor: Option<Arc<Vendor>>,
    pub(crate) clock: Clock,
    pub(crate) changes: VmChanges,
    pub(crate) ready: ReadyVms,
    pub(crate) os_images: Arc<Library>,
}

impl NodeListener {
    pub(crate) fn start(listener: TlsListener, shared: Shared, stop: CancellationToken) -> Self {
        let address = listener.address();
        let router = Router::new()
            .route(paths::REPORT, post(report).layer(DefaultBodyLimit::max(MAX_REPORT_BYTES)))
            .route(
                paths::DEVELOPMENT_PLATFORM,
                post(certify_platform).layer(DefaultBodyLimit::max(MAX_PLATFORM_REQUEST_BYTES)),
            )
            .route(paths::ENROL, post(enrol).layer(DefaultBodyLimit::max(MAX_ENROLMENT_BYTES)))
            .route(&format!("{}/{{id}}", paths::ROUTES), get(routes))
            .route(&format!("{}/{{hash}}", paths::OS_IMAGES), get(os_image))
            .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, CALL_TIMEOUT))
            .with_state(Arc::new(shared));
        let service = router.into_make_service_with_connect_info::<Peer>();
        let task = tokio::spawn(async move {
            let served = axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await;
            if let Err(error) = served {
                error!(%error, "the node listener failed");
            }
        });
        Self { address, task }
    }
}

/// Why a node's call failed.
pub(super) enum ListenerError {
    Refused(NodeErrorCode, &'static str),
    Forbidden(&'static str),
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl From<StoreError> for ListenerError {
    fn from(error: StoreError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl IntoResponse for ListenerError {
    fn into_response(self) -> Response {
        let (status, code, message) = match self {
            Self::Refused(code, message) => (
                StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                code,
                message,
            ),
            Self::Forbidden(message) => (StatusCode::FORBIDDEN, NodeErrorCode::Invalid, message),
            Self::Failed(error) => {
                let error: &dyn std::error::Error = &*error;
                error!(error, "a node's call failed");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    NodeErrorCode::Internal,
                    "the control plane failed; try again",
                )
            }
        };
        (status, Json(NodeError { code, message: message.to_owned() })).into_response()
    }
}

/// The node that calls. Found out before anything of the report is read.
pub(super) struct Reporting(NodeRow);

impl FromRequestParts<Arc<Shared>> for Reporting {
    type Rejection = ListenerError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, ListenerError> {
        let peer = parts.extensions.get::<ConnectInfo<Peer>>().and_then(|peer| peer.0.identity.as_ref());
        let Some(Identity::Node(name)) = peer else {
            return Err(ListenerError::Forbidden("only nodes report; show a node's certificate"));
        };
        let node = shared.store.node_by_name(name).await?;
        node.map(Self).ok_or(ListenerError::Forbidden(
            "this node was removed from the installation; enrol it again with a new join token",
        ))
    }
}

async fn report(
    State(shared): State<Arc<Shared>>,
    Reporting(node): Reporting,
    Json(report): Json<NodeReport>,
) -> Result<Json<ReportReceipt>, ListenerError> {
    if shared.vendor.is_none() && is_development(report.platform) {
        return Err(ListenerError::Forbidden(
            "this installation is in production and takes only nodes with TEE hardware",
        ));
    }
    shared.take_report(&node, report).await?;
    let os_images = shared.store.os_images_for_node(node.id).await?;
    Ok(Json(ReportReceipt { node_id: node.id, os_images }))
}

/// Whether machines of a platform are protected by nothing.
const fn is_development(platform: Platform) -> bool {
    matches!(platform, Platform::Emulation | Platform::Kvm)
}

/// Whoever certifies a platform knows whose it is before its first CVM proves it: contracts can allow it by then. For
/// evidence the node is as due as before.
async fn note_device(
    shared: &Shared,
    node_id: i64,
    issued: &IssuedPlatform,
    fmspc: [u8; 6],
) -> Result<(), ListenerError> {
    let device = DeviceRow {
        node_id,
        device_id: issued.device_id(),
        ppid: issued.ppid.clone(),
        fmspc: hex::encode(fmspc),
        trust_root: TrustRoot::Development.to_string(),
        tcb_status: TcbStatus::UpToDate.to_string(),
        first_verified_at_ms: shared.clock.now_ms(),
        last_verified_at_ms: 0,
    };
    let mut change = shared.store.change().await?;
    change.note_certified_device(&device).await?;
    Ok(change.commit().await?)
}

/// Certifies the platform that a node without TEE hardware plays: the caller's own and no other's.
async fn certify_platform(
    State(shared): State<Arc<Shared>>,
    Reporting(node): Reporting,
    Json(request): Json<PlatformRequest>,
) -> Result<Json<PlatformCertificate>, ListenerError> {
    let vendor = shared.vendor.clone().ok_or(ListenerError::Forbidden(
        "this installation is in production: platforms without TEE hardware get no certificate",
    ))?;
    let (now, fmspc, node_id) = (shared.clock.now(), vendor.options().fmspc, node.id);
    let registered = tokio::task::spawn_blocking(move || {
        let PlatformRequest { ppid, public_key, proof } = request;
        vendor.register_platform(&node.name, &Registration { ppid, public_key, proof }, now)
    });
    match registered.await {
        Ok(Ok(issued)) => {
            info!(node = issued.node, device_id = issued.device_id(), "a development platform was certified");
            note_device(&shared, node_id, &issued, fmspc).await?;
            Ok(Json(PlatformCertificate { certificate_chain: issued.certificate_chain }))
        }
        Ok(Err(RegisterError::Malformed)) => Err(ListenerError::Refused(
            NodeErrorCode::Invalid,
            "the platform's identity or key is not 16 bytes and a P-256 point in hex",
        )),
        Ok(Err(RegisterError::Unproven)) => {
            Err(ListenerError::Forbidden("the request is not signed with the platform's key"))
        }
        Ok(Err(RegisterError::Taken)) => Err(ListenerError::Refused(
            NodeErrorCode::Conflict,
            "this platform belongs to another node, or has another key",
        )),
        Ok(Err(RegisterError::TooMany)) => Err(ListenerError::Refused(
            NodeErrorCode::OutOfResources,
            "this node has registered as many platforms as it can",
        )),
        Ok(Err(RegisterError::Tee(error))) => Err(ListenerError::Failed(Box::new(error))),
        Err(error) => Err(ListenerError::Failed(Box::new(error))),
    }
}

impl Shared {
    async fn take_report(&self, node: &NodeRow, mut report: NodeReport) -> Result<(), StoreError> {
        let vms: HashMap<Uuid, VmReport> =
            std::mem::take(&mut report.vms).into_iter().map(|vm| (vm.vm_uuid, vm)).collect();
        let Ok(text) = serde_json::to_string(&report) else { return Ok(()) };
        let now_ms = self.clock.now_ms();
        let silent_since_ms = longest_silence_before(now_ms);
        if node.reported_at_ms.is_some_and(|at_ms| at_ms <= silent_since_ms) {
            // What nobody could say anything of meanwhile was not served.
            self.store.stop_meters_of_silent(Some(node.id), silent_since_ms, now_ms).await?;
        }
        let mut change = self.store.change().await?;
        change.put_node_report(node.id, &text, now_ms).await?;
        change.commit().await?;
        self.ready.note(node.id, now_ms, vms.values());

        let cvms = self.store.cvms_on_node(node.id).await?;
        for cvm in &cvms {
            self.settle(cvm, vms.get(&cvm.vm_uuid), now_ms, node.reported_at_ms).await?;
        }
        let known: HashSet<Uuid> = cvms.iter().map(|cvm| cvm.vm_uuid).collect();
        for leftover in vms.keys().filter(|vm| !known.contains(vm)) {
            // Looked up again: it may have been created after the list was read.
            if self.store.cvm_by_uuid(*leftover).await?.is_none() {
                self.remove_leftover(node.id, *leftover);
            }
        }
        Ok(())
    }

    /// Brings one CVM's row and its VM into agreement.
    async fn settle(
        &self,
        cvm: &CvmRow,
        report: Option<&VmReport>,
        received_ms: i64,
        reported_before_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let seen = report.map(observed);
        let is_unaccounted = cvm.unaccounted_since_ms.is_some();
        let is_news = seen.as_ref().is_some_and(|seen| is_unaccounted || !cvm.shows(seen));
        let at_rest_ms = i64::try_from(AT_REST_FOR.as_millis()).unwrap_or(i64::MAX);
        let is_at_rest =
            cvm.operation_id.is_none() && received_ms.saturating_sub(cvm.updated_at_ms) >= at_rest_ms;
        let action = if is_at_rest { remedy(cvm.status, Finding::of(report)) } else { Remedy::Nothing };
        let is_lost = is_at_rest && report.is_none() && !is_unaccounted;
        if !is_news && !is_lost && action == Remedy::Nothing {
            return Ok(());
        }
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        // An operation may have taken the CVM since the list was read; it then decides.
        let Some(current) = change.lock_living_cvm(cvm.id).await? else { return Ok(()) };
        if current.started_at_ms != cvm.started_at_ms {
            // It was started meanwhile, and the report is of its life before.
            return Ok(());
        }
        let undisturbed = current.operation_id.is_none() && current.status == cvm.status;
        if let Some(exited_at_ms) = seen.as_ref().and_then(|seen| seen.exited_at_ms) {
            change.note_exit(cvm.id, exited_at_ms, now_ms).await?;
        }
        if let (Remedy::SetStatus(status), true) = (action, undisturbed) {
            info!(cvm_id = cvm.id, from = %cvm.status, to = %status, "a CVM's status follows its VM");
            change.set_cvm_status(cvm.id, status, now_ms).await?;
            match (status, current.revision_id) {
                (CvmStatus::Error, _) => change.set_boot_error(cvm.id, NODE_IS_GONE).await?,
                (CvmStatus::Running, Some(revision)) => {
                    change.set_revision_state(revision, RevisionState::Good, now_ms).await?;
                }
                _ => {}
            }
        }
        if is_lost && undisturbed {
            change.lose_cvm(cvm.id, reported_before_ms.unwrap_or(received_ms), now_ms).await?;
        }
        // Afterwards: a CVM that is no error any more has no reason for one.
        if let Some(seen) = &seen {
            change.observe_cvm(cvm.id, seen, now_ms).await?;
        }
        change.commit().await?;
        match action {
            Remedy::Stop if undisturbed => self.stop_leftover(cvm),
            Remedy::EndDrain if undisturbed => self.end_drain(cvm),
            _ => {}
        }
        self.changes.tell(cvm.vm_uuid);
        Ok(())
    }

    fn stop_leftover(&self, cvm: &CvmRow) {
        let (fleet, node, vm) = (Arc::clone(&self.fleet), cvm.node_id, cvm.vm_uuid);
        tokio::spawn(async move {
            warn!(%vm, "a VM runs although its CVM is off; taking its power away");
            if let Err(error) = fleet.stop(node, vm).await {
                warn!(%vm, %error, "it could not be stopped; the next report tries again");
            }
        });
    }

    fn end_drain(&self, cvm: &CvmRow) {
        let (fleet, node, vm) = (Arc::clone(&self.fleet), cvm.node_id, cvm.vm_uuid);
        tokio::spawn(async move {
            info!(%vm, "a VM was drained by an operation that is over; putting it into service again");
            if let Err(error) = fleet.end_drain(node, vm).await {
                warn!(%vm, %error, "it could not be put into service; the next report tries again");
            }
        });
    }

    fn remove_leftover(&self, node: i64, vm: Uuid) {
        let fleet = Arc::clone(&self.fleet);
        tokio::spawn(async move {
            warn!(%vm, "a node has a VM without a CVM; removing it");
            if let Err(error) = fleet.remove(node, vm).await {
                warn!(%vm, %error, "it could not be removed; the next report tries again");
            }
        });
    }
}
