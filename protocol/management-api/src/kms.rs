//! Key management services.

use cloister_app_compose::{AppId, OsImageHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{KmsContractId, KmsId};
use crate::refs::KmsInfo;

/// A key management service as versions from 2026-06-23 on show it: by what decides for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsContract {
    /// Id.
    pub id: KmsContractId,
    /// Name in requests.
    pub slug: Option<String>,
    /// Name for people.
    pub label: String,
    /// Contract that decides; `phala` off chain.
    pub contract_address: String,
    /// Its chain; 0 off chain.
    pub chain_id: i64,
    /// secp256k1 key of the current root, compressed, hex; null until the service was reached.
    pub k256_pubkey: Option<String>,
    /// Key of the current root's certificate authority, `SubjectPublicKeyInfo`, hex; null until the service
    /// was reached.
    pub ca_pubkey: Option<String>,
    /// Nodes that serve it.
    pub node_count: i64,
}

/// A key management service in the form of the version. Clients refuse further members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum KmsRecord {
    /// Up to 2026-05-22.
    Node(KmsInfo),
    /// From 2026-06-23 on.
    Contract(KmsContract),
}

/// Key to seal the environment of an application to. Clients refuse further members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsPubkey {
    /// X25519 key, 64 hex digits.
    pub public_key: String,
    /// Recoverable secp256k1 signature of the service's root over the application and the key, 130 hex
    /// digits. Verify it: the service that answers here is not the one that opens the environment.
    pub signature: String,
}

/// App ids that a workspace gets next. Clients refuse further members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextAppIds {
    /// The ids, in the order in which they are given out.
    pub app_ids: Vec<NextAppId>,
}

/// An app id with what it is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextAppId {
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Nonce of the workspace's wallet that gives it.
    pub nonce: u64,
}

/// Everything that can be found out about a key management service. What could not be asked is null, and
/// the `…_error` beside it says why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = KmsInspectResponse)]
pub struct KmsInspection {
    /// Id.
    pub id: KmsId,
    /// Name in requests.
    pub slug: Option<String>,
    /// Where guests reach it.
    pub endpoint: String,
    /// Kind; `phala` off chain.
    pub kms_type: String,
    /// Version that it had when it was asked before.
    pub db_version: String,
    /// What it says about itself.
    pub rpc: Option<KmsRpcInfo>,
    /// Why it said nothing.
    pub rpc_error: Option<String>,
    /// What its verified evidence says about its machine.
    pub guest_agent: Option<KmsMachine>,
    /// Why there is no verified evidence.
    pub guest_agent_error: Option<String>,
    /// Nodes whose CVMs use it.
    pub teepods: Vec<KmsTeepod>,
    /// What its contract says; null off chain.
    pub on_chain: Option<KmsOnChain>,
}

/// What the contract of a key management service says, and whether it is about the service that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainInfo)]
pub struct KmsOnChain {
    /// Keys that the contract publishes; null while its owner has not set them.
    pub kms_info: Option<KmsOnChainKeys>,
    /// Gateway that it names; null while its owner has not set one.
    pub gateway_app_id: Option<String>,
    /// Account or contract that may change it, `0x` and 40 hex digits.
    pub owner: Option<String>,
    /// Whether the service that runs is the one of the contract.
    pub verification: KmsOnChainVerification,
    /// Why the contract could not be asked.
    pub error: Option<String>,
}

/// Keys of a key management service as its contract publishes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainKmsInfo)]
pub struct KmsOnChainKeys {
    /// secp256k1 key of its root, hex.
    pub k256_pubkey: String,
    /// Key of its certificate authority, hex.
    pub ca_pubkey: String,
    /// Bytes of the quote over them.
    pub quote_length: usize,
    /// Bytes of that quote's event log.
    pub eventlog_length: usize,
}

/// What was compared. Null: one of the two sides is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainVerification)]
pub struct KmsOnChainVerification {
    /// The contract publishes the key of the root that the service has.
    pub k256_pubkey_match: Option<bool>,
    /// The contract publishes the key of the certificate authority that the service has.
    pub ca_pubkey_match: Option<bool>,
    /// The contract and the service name the same gateway.
    pub gateway_app_id_match: Option<bool>,
    /// The contract allows the device that the service proved to run on.
    pub device_id_allowed: Option<bool>,
    /// The contract allows the image that the service proved to run.
    pub os_image_allowed: Option<bool>,
    /// The contract allows the measurements that the service proved.
    pub mr_aggregated_allowed: Option<bool>,
}

/// What a key management service says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsRpcInfo {
    /// Version of its program.
    pub version: String,
    /// Whether a development root vouches for anything in it.
    pub is_dev: bool,
    /// Chain of its contract.
    pub chain_id: Option<i64>,
    /// Its contract.
    pub kms_contract_address: Option<String>,
    /// App id of the gateway that it trusts.
    pub gateway_app_id: Option<String>,
    /// Its keys.
    pub bootstrap_info: KmsBootstrapInfo,
    /// Whether the version is the one that it had before.
    pub version_synced: bool,
    /// Every version of its root, oldest first; the last one is current.
    pub roots: Vec<KmsRoot>,
}

/// Keys of a key management service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsBootstrapInfo {
    /// secp256k1 key of the current root, compressed, hex.
    pub k256_pubkey: String,
    /// Key of the current root's certificate authority, `SubjectPublicKeyInfo`, hex.
    pub ca_pubkey: String,
    /// Bytes of the attestation over the first root's keys; 0 where there is none.
    pub quote_length: usize,
    /// Bytes of an event log beside it; 0, because the attestation holds its own.
    pub eventlog_length: usize,
}

/// One version of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsRoot {
    /// Counts up from 1.
    pub version: u32,
    /// secp256k1 key, compressed, hex.
    pub k256_pubkey: String,
    /// Key of its certificate authority, `SubjectPublicKeyInfo`, hex.
    pub ca_pubkey: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Recoverable signature of the version before this one that this one follows it, hex; null for the
    /// first.
    pub predecessor_signature: Option<String>,
}

/// The machine of a key management service, by its verified evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsMachine {
    /// Platform: SHA-256 of its provisioning id, hex.
    pub device_id: String,
    /// Aggregate of all registers, hex.
    pub mr_aggregated: Option<String>,
    /// Image, hex.
    pub os_image_hash: Option<String>,
    /// Instance, hex.
    pub instance_id: Option<String>,
    /// Application, hex.
    pub app_id: Option<String>,
    /// Key provider as it was measured, hex.
    pub mr_key_provider: Option<String>,
    /// Compose document, hex.
    pub compose_hash: Option<String>,
}

/// A node whose CVMs use a key management service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsTeepod {
    /// Number.
    pub id: i64,
    /// Name.
    pub name: String,
    /// Version of its program as it last reported it.
    pub teepod_version_db: Option<String>,
    /// The same, if the node is online.
    pub teepod_version_real: Option<String>,
    /// Where its guests reach the service.
    pub kms_url: Option<String>,
    /// All such addresses.
    pub kms_urls: Vec<String>,
    /// OS images.
    pub available_os_images: Vec<KmsTeepodImage>,
    /// Why nothing newer is known.
    pub error: Option<String>,
}

/// An OS image of such a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsTeepodImage {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Whether it is a development image.
    pub is_dev: bool,
}

/// Contracts of key management services on a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainKmsResponse)]
pub struct OnChainKms {
    /// Name of the chain.
    pub chain_name: String,
    /// Its number.
    pub chain_id: i64,
    /// Contracts there that decide for services of this installation.
    pub contracts: Vec<OnChainKmsContract>,
}

/// A contract of key management services, and what it says of what this installation has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainKmsContractOut)]
pub struct OnChainKmsContract {
    /// Its address, `0x` and 40 hex digits.
    pub contract_address: String,
    /// Its chain.
    pub chain_id: i64,
    /// Name of its chain.
    pub chain_name: String,
    /// Devices of this installation's nodes.
    pub devices: Vec<OnChainDevice>,
    /// Guest images of this installation.
    pub os_images: Vec<OnChainOsImage>,
    /// secp256k1 key that it publishes, hex; null while it cannot be asked or publishes none.
    pub k256_pubkey: Option<String>,
    /// Key of the certificate authority that it publishes, hex; null as above.
    pub ca_pubkey: Option<String>,
    /// App id of the gateway that it names; null as above.
    pub gateway_contract_address: Option<String>,
}

/// A device, and whether a key management service may run on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainDeviceOut)]
pub struct OnChainDevice {
    /// Platform: SHA-256 of its provisioning id, hex.
    pub device_id: String,
    /// Node that is this device.
    pub node_name: Option<String>,
    /// What the contract says; null while it cannot be asked.
    pub on_chain_allowed: Option<bool>,
}

/// A guest image, and whether applications get keys on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OnChainOsImageOut)]
pub struct OnChainOsImage {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Its hash, hex.
    #[schema(value_type = Option<String>)]
    pub os_image_hash: Option<OsImageHash>,
    /// What the contract says; null while it cannot be asked.
    pub on_chain_allowed: Option<bool>,
}

/// Services of one contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsNodes {
    /// The services.
    pub items: Vec<KmsNode>,
    /// How many.
    pub total: usize,
}

/// One of several services that hold the same keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KmsNode {
    /// Id.
    pub id: KmsId,
    /// Name in requests.
    pub slug: Option<String>,
    /// Where guests reach it.
    pub url: String,
    /// Version of its program; `unknown` until it was reached.
    pub version: String,
    /// Kind: `phala` off chain, else that of the chain.
    pub kms_type: String,
}
