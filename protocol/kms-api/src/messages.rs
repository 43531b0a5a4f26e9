use std::collections::BTreeMap;

use cloister_app_compose::{AppId, ComposeHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approvals::Owners;
use crate::{Hex, SecretHex};

/// One version of the root, public side. Version 1 is the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootInfo {
    /// Counts up from 1.
    pub version: u32,
    /// `SubjectPublicKeyInfo` of the certificate authority's key, DER.
    pub ca_pubkey: Hex,
    /// secp256k1 key that signs application keys, compressed, 33 bytes.
    pub k256_pubkey: Hex,
    /// When it was made.
    pub created_at: Timestamp,
    /// Recoverable signature (r ‖ s ‖ recovery id, 65 bytes) of the predecessor's secp256k1 key that this is
    /// its successor; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_signature: Option<Hex>,
    /// When its keys were destroyed; absent while they exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
}

/// What a KMS is, for anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// PEM certificate of the current root.
    pub ca_cert: String,
    /// Always false: every release is authorised.
    pub allow_any_upgrade: bool,
    /// Current root's secp256k1 key, compressed, 33 bytes.
    pub k256_pubkey: Hex,
    /// How the first root was made; absent on a KMS that took it from another one.
    pub bootstrap_info: Option<BootstrapInfo>,
    /// Whether evidence of the development TEE is accepted, or vouches for this KMS.
    pub is_dev: bool,
    /// Gateway application, if there is one.
    pub gateway_app_id: Option<String>,
    /// Contract that decides, if one does: `0x` and 40 hex digits.
    pub kms_contract_address: Option<String>,
    /// Its chain.
    pub chain_id: Option<u64>,
    /// Code of application contracts; absent also while the chain cannot be asked.
    pub app_auth_implementation: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Name or address under which it is reached.
    pub domain: String,
    /// All versions of the root, oldest first; the last one is current.
    pub roots: Vec<RootInfo>,
    /// Verification key of the release log's checkpoints, in the form of a note verifier
    /// (`<name>+<hash>+<key>`, C2SP signed-note).
    pub log_verifier_key: String,
}

/// How a first root was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapInfo {
    /// `SubjectPublicKeyInfo` of the certificate authority's key, DER.
    pub ca_pubkey: Hex,
    /// secp256k1 key, compressed, 33 bytes.
    pub k256_pubkey: Hex,
    /// Versioned attestation over both keys (platform reference, sections 4.8 and 6).
    pub attestation: Hex,
}

/// Body of [`method::APP_KEY`](crate::method::APP_KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppKeyRequest {
    /// 0 or 1.
    #[serde(default)]
    pub api_version: u32,
    /// The machine's description as the node gave it, JSON text; must carry the image's documents.
    pub vm_config: String,
}

/// Keys of an application and its CVM under one version of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerKeys {
    /// Version of the root.
    pub root_version: u32,
    /// Opens the data disk of this CVM, 32 bytes.
    pub disk_crypt_key: SecretHex,
    /// X25519 secret that opens the application's environment, 32 bytes.
    pub env_crypt_key: SecretHex,
    /// secp256k1 secret from which the application's own keys are derived, 32 bytes.
    pub k256_key: SecretHex,
    /// Recoverable signature of the root over the public side of `k256_key`, 65 bytes.
    pub k256_signature: Hex,
}

/// Answer to [`method::APP_KEY`](crate::method::APP_KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppKeyResponse {
    /// PEM certificate of the current root.
    pub ca_cert: String,
    /// Opens the data disk of this CVM, 32 bytes.
    pub disk_crypt_key: SecretHex,
    /// X25519 secret that opens the application's environment, 32 bytes.
    pub env_crypt_key: SecretHex,
    /// secp256k1 secret from which the application's own keys are derived, 32 bytes.
    pub k256_key: SecretHex,
    /// Recoverable signature of the root over the public side of `k256_key`, 65 bytes.
    pub k256_signature: Hex,
    /// Gateway application, or empty; `tproxy_app_id` for older guests.
    pub gateway_app_id: String,
    /// The same under its older name.
    pub tproxy_app_id: String,
    /// The image as the KMS verified it, 32 bytes.
    pub os_image_hash: Hex,
    /// Version of the root that the keys above come from.
    pub root_version: u32,
    /// The same keys under older roots that are not retired yet, newest first.
    pub former: Vec<FormerKeys>,
}

/// Body of [`method::KEY`](crate::method::KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRequest {
    /// 1 to [`MAX_KEY_NAME_BYTES`](crate::MAX_KEY_NAME_BYTES) bytes.
    pub name: String,
    /// The machine's description, as in [`AppKeyRequest`].
    pub vm_config: String,
    /// Version of the root; the current one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_version: Option<u32>,
}

/// Body of [`method::CONFIRM_RESEAL`](crate::method::CONFIRM_RESEAL).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmResealRequest {
    /// Version of the root under which everything of the CVM is now.
    pub root_version: u32,
    /// The machine's description, as in [`AppKeyRequest`].
    pub vm_config: String,
}

/// Body of [`method::KMS_KEY`](crate::method::KMS_KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KmsKeyRequest {
    /// The machine's description, as in [`AppKeyRequest`].
    pub vm_config: String,
}

/// Answer to [`method::MACHINE`](crate::method::MACHINE).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineResponse {
    /// The description of the machine that this KMS runs in, as in [`AppKeyRequest`]; empty where it has none. Its
    /// registers, which the certificate of the connection carries, prove or disprove it.
    #[serde(default)]
    pub vm_config: String,
}

/// One version of the root, secret side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootKeys {
    /// Public side. Without keys it is retired, and kept for its signature over its successor.
    pub info: RootInfo,
    /// PEM certificate, self-signed for the first version and signed by the predecessor for others.
    pub ca_cert: String,
    /// Scalar of the certificate authority's P-256 key, 32 bytes; absent when retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_key: Option<SecretHex>,
    /// secp256k1 secret, 32 bytes; absent when retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k256_key: Option<SecretHex>,
}

/// Answer to [`method::KMS_KEY`](crate::method::KMS_KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KmsKeyResponse {
    /// All versions of the root, oldest first.
    pub roots: Vec<RootKeys>,
    /// Applications that have owners: what holds for them here holds from now on where the roots go. What changes
    /// here later, the other KMS does not hear of.
    #[serde(default)]
    pub owned_apps: BTreeMap<AppId, OwnedApp>,
}

/// What a KMS keeps of an application that has owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedApp {
    /// Who approves.
    pub owners: Owners,
    /// Serial of the statement that made them owners.
    pub serial: u64,
    /// Documents that owners approved and nobody revoked.
    pub documents: Vec<ComposeHash>,
    /// Documents that owners revoked, with the serial up to which no approval counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<ComposeHash, u64>,
    /// The same for every other document: the greatest serial of revocations that are not kept any more.
    #[serde(default)]
    pub revoked_until: u64,
}

/// Body of [`method::SIGN_CERT`](crate::method::SIGN_CERT).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignCertRequest {
    /// 1 or 2.
    #[serde(default)]
    pub api_version: u32,
    /// Certificate request with evidence (platform reference, section 9.4).
    pub csr: Hex,
    /// Signature of the request's key over `csr`, ECDSA P-256 with SHA-256, ASN.1 DER.
    pub signature: Hex,
    /// The machine's description, as in [`AppKeyRequest`].
    pub vm_config: String,
}

/// Answer to [`method::SIGN_CERT`](crate::method::SIGN_CERT).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignCertResponse {
    /// PEM: leaf, the application's authority, root.
    pub certificate_chain: Vec<String>,
}

/// Body of [`method::ENV_PUBLIC_KEY`](crate::method::ENV_PUBLIC_KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvPublicKeyRequest {
    /// Application.
    pub app_id: AppId,
}

/// Answer to [`method::ENV_PUBLIC_KEY`](crate::method::ENV_PUBLIC_KEY).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvPublicKeyResponse {
    /// X25519 key, 32 bytes.
    pub public_key: Hex,
    /// Recoverable signature of the root's secp256k1 key, without time, 65 bytes (platform reference,
    /// section 3).
    pub signature: Hex,
    /// Unix time in seconds of `signature_v1`.
    pub timestamp: u64,
    /// The same with the time in it, 65 bytes.
    pub signature_v1: Hex,
    /// Version of the root.
    pub root_version: u32,
}

/// Body of [`method::APP_OWNERS`](crate::method::APP_OWNERS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppOwnersRequest {
    /// Application.
    pub app_id: AppId,
}

/// Answer to [`method::APP_OWNERS`](crate::method::APP_OWNERS): who owns an application, as the current root
/// says and signs it. Verify it with [`verify_app_owners`](crate::statements::verify_app_owners).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppOwnersResponse {
    /// Application.
    pub app_id: AppId,
    /// Its owners; absent where the operator decides alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<Owners>,
    /// Serial of the statement that made them owners; 0 without owners.
    pub serial: u64,
    /// Documents that it may run by these rules; with owners each was approved by owners.
    pub allowed_documents: u64,
    /// Unix time in seconds of the signature.
    pub timestamp: u64,
    /// Recoverable signature of the root's secp256k1 key over all of that, 65 bytes.
    pub signature: Hex,
    /// Version of the root.
    pub root_version: u32,
}

/// Body of [`method::BOOTSTRAP`](crate::method::BOOTSTRAP) (spec 4.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapRequest {
    /// Domain name or IP address under which the KMS will be reached.
    pub domain: String,
}

/// Answer to [`method::BOOTSTRAP`](crate::method::BOOTSTRAP): the names of spec 4.2 and of the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapResponse {
    /// `ca_pubkey` under the name of spec 4.2.
    #[serde(rename = "publicKey")]
    pub public_key: Hex,
    /// Versioned attestation over both keys.
    pub attestation: Hex,
    /// `mr_aggregated` of this KMS, 32 bytes.
    pub measurement: Hex,
    /// `SubjectPublicKeyInfo` of the certificate authority's key, DER.
    pub ca_pubkey: Hex,
    /// secp256k1 key, compressed, 33 bytes.
    pub k256_pubkey: Hex,
}

/// Body of [`method::ONBOARD`](crate::method::ONBOARD).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnboardRequest {
    /// `https://host:port` of the release port of a running KMS.
    pub source_url: String,
    /// Domain name or IP address under which this KMS will be reached.
    pub domain: String,
    /// Current root of the source, compressed secp256k1 key, if the caller knows it: any other is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k256_pubkey: Option<Hex>,
}

/// Answer to [`method::ONBOARD`](crate::method::ONBOARD).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnboardResponse {
    /// Current root that was taken over, compressed secp256k1 key.
    pub k256_pubkey: Hex,
}

/// Answer to [`method::ATTESTATION_INFO`](crate::method::ATTESTATION_INFO).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttestationInfo {
    /// Names the physical machine, 32 bytes.
    pub device_id: Hex,
    /// Aggregate of all registers, 32 bytes.
    pub mr_aggregated: Hex,
    /// Image, 32 bytes; empty where unknown.
    pub os_image_hash: Hex,
    /// Platform's provisioning id; empty where unknown.
    pub ppid: Hex,
    /// Such as `dstack-tdx`.
    pub tee_variant: String,
    /// Label of the place.
    pub site_name: String,
    /// RPC endpoint of the chain that decides, or empty.
    pub eth_rpc_url: String,
    /// Contract that decides, or empty.
    pub kms_contract_address: String,
}
