//! What CVMs and apps present.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Who a certificate is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateSubject {
    /// Common name.
    pub common_name: Option<String>,
    /// Organisation.
    pub organization: Option<String>,
    /// Country.
    pub country: Option<String>,
    /// State or province.
    pub state: Option<String>,
    /// Locality.
    pub locality: Option<String>,
}

/// Who issued a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateIssuer {
    /// Common name.
    pub common_name: Option<String>,
    /// Organisation.
    pub organization: Option<String>,
    /// Country.
    pub country: Option<String>,
}

/// A certificate that a guest agent presents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppCertificate {
    /// Who it is for.
    pub subject: CertificateSubject,
    /// Who issued it.
    pub issuer: CertificateIssuer,
    /// Serial number, hex.
    pub serial_number: String,
    /// Begin of its validity.
    pub not_before: String,
    /// End of its validity.
    pub not_after: String,
    /// Version of its format, such as `3`.
    pub version: String,
    /// SHA-256 of its DER form, hex.
    pub fingerprint: String,
    /// Algorithm of its signature.
    pub signature_algorithm: String,
    /// Subject alternative names.
    pub sans: Option<Vec<String>>,
    /// Whether it may issue others.
    pub is_ca: bool,
    /// 0 for the leaf.
    pub position_in_chain: Option<u32>,
    /// Quote in the certificate, hex.
    pub quote: Option<String>,
    /// App id in the certificate, hex.
    pub app_id: Option<String>,
    /// What it may be used for.
    pub cert_usage: Option<String>,
}

/// An entry of an event log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttestedEvent {
    /// Register.
    pub imr: u32,
    /// TCG event type.
    pub event_type: u32,
    /// SHA-384, hex.
    pub digest: String,
    /// Name of the event.
    pub event: String,
    /// What was measured, hex.
    pub event_payload: String,
}

/// What a CVM measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TcbInfo {
    /// Measurement of the machine's first contents, hex.
    pub mrtd: String,
    /// SHA-256 of the root file system's measurement; absent where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs_hash: Option<String>,
    /// Runtime register 0, hex.
    pub rtmr0: String,
    /// Runtime register 1, hex.
    pub rtmr1: String,
    /// Runtime register 2, hex.
    pub rtmr2: String,
    /// Runtime register 3, hex.
    pub rtmr3: String,
    /// What the registers were extended by.
    pub event_log: Vec<AttestedEvent>,
    /// Exact text whose SHA-256 is the compose hash.
    pub app_compose: String,
}

/// What the control plane found when it verified a CVM's evidence. It is the operator's word: who relies
/// on the CVM verifies the evidence by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceVerdict {
    /// Whether the quote is genuine and its event log and compose hash fit.
    pub verified: bool,
    /// The root of trust in plain words.
    pub trust_root: Option<String>,
    /// Whether that root stands for protection by hardware.
    pub is_hardware: bool,
    /// Intel's word for how current the platform is.
    pub tcb_status: Option<String>,
    /// Intel's advisories that concern the platform.
    pub advisory_ids: Vec<String>,
    /// Why it was not verified.
    pub reasons: Vec<String>,
}

/// Evidence of a CVM. Every member is always present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmAttestation {
    /// Name of the CVM.
    pub name: Option<String>,
    /// Whether the guest answered.
    pub is_online: bool,
    /// Whether people outside the workspace may see it.
    pub is_public: bool,
    /// Why the guest did not answer.
    pub error: Option<String>,
    /// Certificates of the guest agent, leaf first.
    pub app_certificates: Option<Vec<AppCertificate>>,
    /// What the CVM measured.
    pub tcb_info: Option<TcbInfo>,
    /// The docker compose file.
    pub compose_file: Option<String>,
    /// Our own verdict.
    pub verification: Option<EvidenceVerdict>,
}

/// The key management service of an app. Empty texts where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppKmsInfo {
    /// Its contract; empty off chain.
    pub contract_address: String,
    /// Chain of its contract, a decimal number as text; null off chain.
    pub chain_id: Option<String>,
    /// Version of its program.
    pub version: String,
    /// Address.
    pub url: String,
    /// App id of the gateway that it trusts.
    pub gateway_app_id: Option<String>,
    /// Address of that gateway.
    pub gateway_app_url: String,
    /// Kind of service; empty where there is none.
    pub kms_type: String,
}

/// Identity of a guest agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestAgentInfo {
    /// Application, hex.
    pub app_id: String,
    /// Instance, hex.
    pub instance_id: String,
    /// Name.
    pub app_name: String,
    /// Platform, hex.
    pub device_id: String,
}

/// Evidence of one CVM of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceAttestation {
    /// CVM.
    pub vm_uuid: Option<Uuid>,
    /// Name.
    pub name: String,
    /// Instance, hex.
    pub instance_id: Option<String>,
    /// Status.
    pub status: String,
    /// Guest image.
    pub image_version: Option<String>,
    /// Quote, hex.
    pub quote: Option<String>,
    /// Platform identity of the verified quote, hex; empty otherwise.
    pub ppid: String,
    /// SHA-256 of it, hex; empty otherwise.
    pub device_id: String,
    /// The same under its newer name.
    pub ppid_sha256: Option<String>,
    /// Model of the platform, hex.
    pub fmspc: Option<String>,
    /// Security versions of the TEE, hex.
    pub tee_tcb_svn: Option<String>,
    /// Configuration that the host named, hex.
    pub mr_config_id: Option<String>,
    /// What the CVM measured.
    pub tcb_info: Option<TcbInfo>,
    /// Certificates of the guest agent, leaf first.
    pub app_certificates: Option<Vec<AppCertificate>>,
    /// The docker compose file.
    pub compose_file: Option<String>,
    /// What the registers were extended by.
    pub eventlog: Vec<AttestedEvent>,
    /// Why there is no evidence.
    pub error: Option<String>,
    /// Our own verdict.
    pub verification: Option<EvidenceVerdict>,
}

/// Evidence of every CVM of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppAttestations {
    /// Application, hex.
    pub app_id: String,
    /// Its contract; empty off chain.
    pub contract_address: String,
    /// Its key management service.
    pub kms_info: AppKmsInfo,
    /// Its CVMs.
    pub instances: Vec<InstanceAttestation>,
    /// Agent of the key management service's CVM.
    pub kms_guest_agent_info: Option<GuestAgentInfo>,
    /// Agent of the gateway's CVM.
    pub gateway_guest_agent_info: Option<GuestAgentInfo>,
    /// Version of the machine emulator.
    pub qemu_version: Option<String>,
}

/// Which of the vendor's data an evaluation used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TcbUpdate {
    /// As soon as it is published, before it counts.
    #[default]
    Early,
}

/// How current the platform of one CVM is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceTcbEvaluation {
    /// CVM.
    pub vm_uuid: Option<Uuid>,
    /// Name.
    pub name: Option<String>,
    /// Instance, hex.
    pub instance_id: Option<String>,
    /// Status.
    pub status: Option<String>,
    /// Guest image.
    pub image_version: Option<String>,
    /// Platform identity of the verified quote, hex; empty otherwise.
    pub ppid: String,
    /// SHA-256 of it, hex; empty otherwise.
    pub device_id: String,
    /// `early`
    pub evaluation_update: TcbUpdate,
    /// Whether the platform is up to date; null when that is not known.
    pub evaluation_ok: Option<bool>,
    /// Intel's word for it.
    pub evaluation_status: Option<String>,
    /// Why it is not known.
    pub error: Option<String>,
}

/// How current the platforms of an app's CVMs are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppTcbEvaluation {
    /// Application, hex.
    pub app_id: String,
    /// `early`
    pub update: TcbUpdate,
    /// Its CVMs.
    pub instances: Vec<InstanceTcbEvaluation>,
}
