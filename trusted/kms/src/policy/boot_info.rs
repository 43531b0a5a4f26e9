use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_evidence::{Aggregates, Registers};
use cloister_kms_api::Hex;
use cloister_kms_api::log::Caller;
use cloister_ra_tls::PeerIdentity;
use cloister_verifier::{TcbStatus, TrustRoot};

/// What verified evidence says about a machine, in the form in which an authority decides about it
/// (platform reference, sections 4.7 and 10.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BootInfo {
    /// Who vouches for the platform in the end.
    pub(crate) trust_root: TrustRoot,
    /// Such as `dstack-tdx`.
    pub(crate) tee_variant: &'static str,
    /// All registers.
    pub(crate) mr_aggregated: [u8; 32],
    /// The system without the application.
    pub(crate) mr_system: [u8; 32],
    /// The image, after its documents were found to lead to the registers; `None` where there is none.
    pub(crate) os_image_hash: Option<OsImageHash>,
    /// The physical machine.
    pub(crate) device_id: [u8; 32],
    /// Payload of the event `key-provider`; empty without one.
    pub(crate) key_provider_info: Vec<u8>,
    /// Application.
    pub(crate) app_id: Option<AppId>,
    /// CVM.
    pub(crate) instance_id: Option<InstanceId>,
    /// Its document.
    pub(crate) compose_hash: Option<ComposeHash>,
    /// How well patched the platform is.
    pub(crate) tcb_status: TcbStatus,
    /// Advisories that apply to it.
    pub(crate) advisory_ids: Vec<String>,
}

/// Which registers the aggregates are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are now: for KMSes.
    Full,
    /// As they were when a guest asks for its keys: RTMR 3 through `boot-mr-done`, no key provider. A
    /// running guest is the same to an authority as it was when it booted.
    Boot,
}

impl BootInfo {
    /// Of a verified peer. `os_image_hash` only after the documents of the image were found to lead to the
    /// peer's registers.
    pub(crate) fn of_peer(peer: &PeerIdentity, os_image_hash: Option<OsImageHash>, form: Form) -> Self {
        let boot = peer.event_log.rtmr3_at_boot().ok();
        let (registers, provider) = match (form, boot) {
            (Form::Boot, Some(rtmr3)) => (Registers { rtmr3, ..peer.registers }, None),
            _ => (peer.registers, peer.app.key_provider_payload.as_deref()),
        };
        let aggregates = Aggregates::new(&registers, &peer.launch, provider);
        Self {
            trust_root: peer.trust_root,
            tee_variant: "dstack-tdx",
            mr_aggregated: aggregates.mr_aggregated,
            mr_system: aggregates.mr_system,
            os_image_hash,
            device_id: peer.device_id,
            key_provider_info: provider.unwrap_or_default().to_vec(),
            app_id: peer.app.app_id,
            instance_id: peer.app.instance_id,
            compose_hash: peer.app.compose_hash,
            tcb_status: peer.tcb_status,
            advisory_ids: peer.advisory_ids.clone(),
        }
    }

    /// The same for the release log.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            app_id: self.app_id,
            compose_hash: self.compose_hash,
            instance_id: self.instance_id,
            os_image_hash: self.os_image_hash.map(|hash| Hex::from(hash.as_bytes().as_slice())),
            device_id: Some(Hex::from(self.device_id)),
            mr_aggregated: Some(Hex::from(self.mr_aggregated)),
        }
    }
}
