//! What the control plane and a node tell each other.
//!
//! Both directions are JSON over mutually authenticated TLS. The control plane calls the node's
//! [`paths`] to change VMs; every such call is idempotent, keyed by the VM's UUID. The node reports
//! itself and its VMs to the control plane ([`NodeReport`]) at least every [`REPORT_INTERVAL`] and at
//! once when something changed. A report is the whole truth about the node, never a difference.

mod text;

use std::fmt;
use std::time::Duration;

use cloister_app_compose::{AppId, InstanceId, OsImageHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use text::MAX_TEXT_BYTES;

/// Longest pause between two reports of a living node.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// A node that has not reported for this long is OFFLINE.
pub const OFFLINE_AFTER: Duration = Duration::from_secs(20);

/// Paths of the node's listener.
///
/// | Method and path | Body → answer |
/// |---|---|
/// | `PUT /v1/vms/{uuid}` | [`VmSpec`] → [`VmReport`]; prepares disks, boots nothing |
/// | `POST /v1/vms/{uuid}/start` | – → `VmReport`; a running VM stays as it is |
/// | `POST /v1/vms/{uuid}/shutdown` | [`ShutdownRequest`] → `VmReport`; returns at once |
/// | `POST /v1/vms/{uuid}/stop` | – → `VmReport`; returns when the VM's process is gone |
/// | `GET /v1/vms/{uuid}` | → `VmReport` |
/// | `DELETE /v1/vms/{uuid}` | → 204, also for an unknown VM; stops it and removes every file of it |
/// | `GET /v1/vms/{uuid}/serial` | `?tail=LINES` → `text/plain` |
/// | `GET /v1/vms/{uuid}/attestation` | `?report_data=HEX` → the guest agent's `/attestation` document |
/// | `GET /v1/vms/{uuid}/containers` | → the guest agent's `/containers` document |
/// | `GET /v1/vms/{uuid}/logs/{container}` | query passed on → the guest agent's log stream |
/// | `PUT /v1/workspaces/{workspace}/images?reference=` | image archive (tar stream) → [`ImportedImage`] |
/// | `GET /v1/workspaces/{workspace}/images` | → `[ImportedImage]` |
///
/// Errors are [`NodeError`] with a 4xx or 5xx status.
pub mod paths {
    /// Collection of VMs.
    pub const VMS: &str = "/v1/vms";
    /// Images that tenants pushed, by workspace.
    pub const WORKSPACES: &str = "/v1/workspaces";
    /// On the control plane's node listener: `POST` a [`NodeReport`](super::NodeReport), answered with
    /// [`ReportReceipt`](super::ReportReceipt). The node is the one named by the client certificate.
    pub const REPORT: &str = "/v1/report";
    /// On the control plane's node listener, without a client certificate: `POST` an
    /// [`EnrolRequest`](super::EnrolRequest), answered with [`EnrolResponse`](super::EnrolResponse).
    pub const ENROL: &str = "/v1/enrol";
    /// On the control plane's node listener: `POST` a [`PlatformRequest`](super::PlatformRequest) for the
    /// node's development TEE, answered with [`PlatformCertificate`](super::PlatformCertificate).
    pub const DEVELOPMENT_PLATFORM: &str = "/v1/development-platform";
}

/// What a node needs to know to run one CVM. Two calls with the same VM and the same specification
/// change nothing; a different one replaces what the next start uses, the data disk stays.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSpec {
    /// Identity of the VM on every node.
    pub vm_uuid: Uuid,
    /// Workspace whose pushed images the VM may use.
    pub workspace_id: i64,
    /// Name for people and the guest's host name.
    pub name: String,
    /// Application identity, for routing.
    pub app_id: AppId,
    /// Exact bytes of the app-compose document as UTF-8 text.
    pub app_compose: String,
    /// Guest image to boot.
    pub os_image_hash: OsImageHash,
    /// Virtual CPUs, at least 1.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Data disk in GiB; can grow, never shrink.
    pub disk_gb: u32,
    /// Sealed environment in hex, if any.
    pub encrypted_env: Option<String>,
    /// Unmeasured configuration, if any.
    pub user_config: Option<String>,
    /// Where the CVM asks for its keys, `https://host:port` as guests reach it, tried in order; empty for an
    /// application without a KMS.
    #[serde(default)]
    pub kms_urls: Vec<String>,
}

// Environment, configuration and document belong to the tenant and into no log.
impl fmt::Debug for VmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmSpec")
            .field("vm_uuid", &self.vm_uuid)
            .field("name", &self.name)
            .field("app_id", &self.app_id)
            .field("os_image_hash", &self.os_image_hash)
            .field("vcpu", &self.vcpu)
            .field("memory_mb", &self.memory_mb)
            .field("disk_gb", &self.disk_gb)
            .field("kms_urls", &self.kms_urls)
            .finish_non_exhaustive()
    }
}

/// Body of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownRequest {
    /// Seconds that the guest gets before the node takes the power away.
    pub timeout_s: u32,
}

/// State of a VM's process on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmState {
    /// Prepared or powered off; no process.
    Stopped,
    /// The process runs; how far the guest is, the status tells.
    Running,
    /// An orderly shutdown was asked for and the process still runs.
    Stopping,
    /// The process ended although nobody asked for it.
    Exited,
}

/// One VM as its node sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReport {
    /// Which VM.
    pub vm_uuid: Uuid,
    /// State of its process.
    pub state: VmState,
    /// Identity that the guest reported, once known.
    pub instance_id: Option<InstanceId>,
    /// Platform wording of the boot phase; `"done"` when the application was started.
    #[serde(default, deserialize_with = "text::optional")]
    pub boot_progress: Option<String>,
    /// Why the boot failed, for people.
    #[serde(default, deserialize_with = "text::optional")]
    pub boot_error: Option<String>,
    /// Progress of an orderly shutdown.
    #[serde(default, deserialize_with = "text::optional")]
    pub shutdown_progress: Option<String>,
    /// When the VM's process was started last.
    pub started_at: Option<Timestamp>,
    /// When it ended last.
    pub exited_at: Option<Timestamp>,
}

/// A guest image that a node can boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeImage {
    /// Name, for example `cloister-0.1.0`.
    #[serde(deserialize_with = "text::plain")]
    pub name: String,
    /// Version for ordering: three or four numbers, dotted.
    #[serde(deserialize_with = "text::plain")]
    pub version: String,
    /// Whether it is a development image (shell access).
    pub is_dev: bool,
    /// Hash that names its contents.
    pub os_image_hash: OsImageHash,
}

/// How a node runs VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// Intel TDX.
    Tdx,
    /// AMD SEV-SNP.
    SevSnp,
    /// KVM without memory protection: development only.
    Kvm,
    /// Software emulation: development only.
    Emulation,
}

/// What a node offers in total; what is free, the control plane computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCapacity {
    /// CVMs.
    pub cvm_slots: u32,
    /// Virtual CPUs.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Disk for CVMs in GiB.
    pub disk_gb: u32,
}

/// Everything a node tells about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Version of the node's program.
    #[serde(deserialize_with = "text::plain")]
    pub version: String,
    /// Region label given by its operator.
    #[serde(deserialize_with = "text::plain")]
    pub region: String,
    /// Where the control plane reaches the node's listener, `host:port`.
    #[serde(deserialize_with = "text::plain")]
    pub endpoint: String,
    /// Domain under which the node's ingress routes, with scheme and port as users type it, for example
    /// `http://{host}.localhost:8080` with `{host}` for `<app_id>[-<port>]`.
    #[serde(deserialize_with = "text::plain")]
    pub ingress_url_template: String,
    /// Bare domain of the ingress, for example `apps.localhost`.
    #[serde(deserialize_with = "text::plain")]
    pub ingress_domain: String,
    /// How it runs VMs.
    pub platform: Platform,
    /// The operator wants no new CVMs here and none changed.
    pub maintenance: bool,
    /// Totals.
    pub capacity: NodeCapacity,
    /// Images it can boot.
    pub images: Vec<NodeImage>,
    /// Every VM it knows.
    pub vms: Vec<VmReport>,
}

/// The control plane's answer to a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReceipt {
    /// The control plane's number for the node (`teepod_id`).
    pub node_id: i64,
}

/// A new node asks for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// One-time secret from `cloister nodes invite`.
    pub join_token: String,
    /// Name of the node, unique in the installation.
    pub name: String,
    /// PEM certificate request with the node's key.
    pub certificate_request: String,
    /// Hosts and addresses under which the control plane will reach the node.
    pub subject_alternative_names: Vec<String>,
}

/// The certificate of a new node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolResponse {
    /// PEM certificate of the node.
    pub certificate: String,
    /// PEM certificate of the installation's authority.
    pub authority: String,
}

/// A node without TEE hardware asks for the certificate of the platform that it plays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformRequest {
    /// Identity of the platform: 16 bytes, hex, made by the node at its first start.
    pub ppid: String,
    /// The node's provisioning certification key: uncompressed P-256 point, 65 bytes, hex.
    pub public_key: String,
    /// That the node has the key: its signature over the identity, r ‖ s, 64 bytes, hex.
    pub proof: String,
}

/// The certificate of a development platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformCertificate {
    /// PEM: leaf, intermediate, development root.
    pub certificate_chain: String,
}

/// An image that a tenant pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedImage {
    /// Reference under which compose files name it, for example `docker.io/library/hello:1`.
    #[serde(deserialize_with = "text::plain")]
    pub reference: String,
    /// Manifest digest, `sha256:<hex>`.
    #[serde(deserialize_with = "text::plain")]
    pub digest: String,
    /// Bytes of all its blobs.
    pub size: u64,
}

/// Why a node refused or failed; the message is meant for the person whose call it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeError {
    /// What kind of failure, for programs.
    pub code: NodeErrorCode,
    /// What happened and what to do about it; no paths of the host, no secrets.
    #[serde(deserialize_with = "text::plain")]
    pub message: String,
}

/// Kinds of node failures and their HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeErrorCode {
    /// 404: the VM was never prepared here.
    UnknownVm,
    /// 404: the VM runs and has no container of that name.
    UnknownContainer,
    /// 400: the specification or archive is wrong; repeating will not help.
    Invalid,
    /// 404: no image with that hash, or its files do not match the hash.
    BadImage,
    /// 507: not enough disk, memory or slots on the host.
    OutOfResources,
    /// 409: the VM is not in a state for this.
    Conflict,
    /// 502: the guest agent does not answer.
    GuestUnreachable,
    /// 500: anything else; repeating may help.
    Internal,
}

impl NodeErrorCode {
    /// Whether the control plane may try the same call again.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Internal | Self::GuestUnreachable)
    }

    /// HTTP status that carries this code.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::UnknownVm | Self::UnknownContainer | Self::BadImage => 404,
            Self::Invalid => 400,
            Self::OutOfResources => 507,
            Self::Conflict => 409,
            Self::GuestUnreachable => 502,
            Self::Internal => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_cut_and_cleaned_when_they_are_read() {
        let long = format!("a\u{0}b\n{}", "ä".repeat(MAX_TEXT_BYTES));
        let report: VmReport = serde_json::from_value(json!({
            "vm_uuid": Uuid::nil(), "state": "running", "boot_error": long,
        }))
        .unwrap();
        let error = report.boot_error.unwrap();
        assert!(error.starts_with("a b\nä") && error.len() <= MAX_TEXT_BYTES);
        assert_eq!((report.boot_progress, report.shutdown_progress), (None, None));
    }

    #[test]
    fn what_belongs_to_the_tenant_is_not_printed() {
        let secret = "planted-words";
        let spec: VmSpec = serde_json::from_value(json!({
            "vm_uuid": Uuid::nil(), "workspace_id": 1, "name": "web", "app_id": "05".repeat(20),
            "app_compose": secret, "os_image_hash": "01".repeat(32), "vcpu": 1, "memory_mb": 512, "disk_gb": 1,
            "encrypted_env": secret, "user_config": secret,
        }))
        .unwrap();
        let printed = format!("{spec:?}");
        assert!(printed.contains("web") && !printed.contains(secret), "{printed}");
    }
}
