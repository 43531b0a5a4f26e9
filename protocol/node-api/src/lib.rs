//! What the control plane and a node tell each other.
//!
//! Both directions are JSON over mutually authenticated TLS. The control plane calls the node's
//! [`paths`] to change VMs; every such call is idempotent, keyed by the VM's UUID. The node reports
//! itself and its VMs to the control plane ([`NodeReport`]) at least every [`REPORT_INTERVAL`] and at
//! once when something changed. A report is the whole truth about the node, never a difference.

mod enrolment;
mod errors;
mod exit;
mod guests;
mod nodes;
mod text;
mod vms;

use std::time::Duration;

pub use enrolment::{EnrolRequest, EnrolResponse, PlatformCertificate, PlatformRequest};
pub use errors::{NodeError, NodeErrorCode};
pub use exit::ExitReason;
pub use guests::{GuestDisk, GuestStats};
pub use nodes::{
    GpuConfidentialMode, ImportedImage, NodeCapacity, NodeGpu, NodeImage, NodeReport, Platform,
    ReportReceipt, Routes, VmRoute,
};
pub use text::MAX_TEXT_BYTES;
pub use vms::{
    DrainRequest, PortMapping, PortProtocol, ShutdownRequest, VmHealth, VmNetwork, VmReport, VmSpec, VmState,
};

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
/// | `POST /v1/vms/{uuid}/drain` | [`DrainRequest`] → `VmReport`; the ingress begins nothing new with the VM, and the answer comes when nothing flows any more or the time is over. The next start ends it |
/// | `DELETE /v1/vms/{uuid}/drain` | – → `VmReport`; the ingress may begin something with it again, if it runs |
/// | `POST /v1/vms/{uuid}/shutdown` | [`ShutdownRequest`] → `VmReport`; returns at once |
/// | `POST /v1/vms/{uuid}/stop` | – → `VmReport`; returns when the VM's process is gone |
/// | `GET /v1/vms/{uuid}` | → `VmReport` |
/// | `DELETE /v1/vms/{uuid}` | → 204, also for an unknown VM; stops it and removes every file of it |
/// | `GET /v1/vms/{uuid}/serial` | `?tail=LINES` → `text/plain` |
/// | `GET /v1/vms/{uuid}/stats` | → the guest agent's `/stats` document, [`GuestStats`] |
/// | `GET /v1/vms/{uuid}/network` | → [`VmNetwork`] |
/// | `GET /v1/vms/{uuid}/ports/{port}` | `Connection: upgrade`, `Upgrade: tcp` → 101, then bytes to and from the guest's TCP port; for other nodes' ingresses |
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
    /// On the control plane's node listener: `GET …/{id}` with an application or instance id in hex gives
    /// [`Routes`](super::Routes), where it runs in the whole installation.
    pub const ROUTES: &str = "/v1/routes";
    /// On the control plane's node listener: `GET …/{os_image_hash}` streams the files of a guest image of
    /// the catalogue as a tar archive.
    pub const OS_IMAGES: &str = "/v1/os-images";
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

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
