//! Whether those who decide about an application allow what it runs, and where.

use cloister_app_compose::{ComposeHash, members};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::VmId;
use crate::requests::{DeviceId, Optional, Parsed};

members! {
    /// Body of `POST /apps/{app_id}/is-allowed`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct AppIsAllowedRequest {
        /// Document, 64 hex digits with or without `0x`.
        #[schema(value_type = String)]
        pub compose_hash: Parsed<ComposeHash>,
        /// Node whose device is meant.
        pub node_id: Option<i64>,
        /// Device, 64 hex digits with or without `0x`. With neither device nor node, none is asked about.
        #[schema(value_type = Option<String>)]
        pub device_id: Option<Optional<DeviceId>>,
        /// Chain of the contract; that of the application's key management service if left out.
        pub chain_id: Option<i64>,
    }
}

members! {
    /// Body of `POST /cvms/{cvm_id}/is-allowed`; may be left out. What is left out is as the CVM has it now.
    #[derive(Debug, Clone, Default, PartialEq, Eq, ToSchema)]
    pub struct CvmIsAllowedRequest {
        /// Document, 64 hex digits with or without `0x`.
        #[schema(value_type = Option<String>)]
        pub compose_hash: Option<Optional<ComposeHash>>,
        /// Node whose device is meant.
        pub node_id: Option<i64>,
        /// Device, 64 hex digits with or without `0x`.
        #[schema(value_type = Option<String>)]
        pub device_id: Option<Optional<DeviceId>>,
        /// Chain of the contract.
        pub chain_id: Option<i64>,
    }
}

/// Whether a document may run on a device (spec 2.3).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppIsAllowedResponse)]
pub struct IsAllowed {
    /// Contract of the application, `0x` and 40 hex digits; empty where none decides.
    pub app_contract_address: String,
    /// Document that was asked about, 64 hex digits.
    pub compose_hash: String,
    /// Device that was asked about, 64 hex digits; empty for none.
    pub device_id: String,
    /// The document is in the list.
    pub compose_hash_allowed: bool,
    /// Every device is allowed.
    pub allow_any_device: bool,
    /// The device is in the list; null if none was asked about, or the question could not be put.
    pub device_id_allowed: Option<bool>,
    /// The document may run on the device; without a device, whether the document is in the list.
    pub is_allowed: bool,
    /// Why nothing can be told. Everything else then says no.
    pub error: Option<String>,
}

/// The same for what a CVM runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CvmIsAllowedItem)]
pub struct CvmIsAllowed {
    /// The CVM: a number up to version 2026-01-21, a text from 2026-05-22 on.
    pub cvm_id: VmId,
    /// What those who decide say.
    #[serde(flatten)]
    pub allowance: IsAllowed,
}

/// The same for every CVM of an application (spec 2.4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppCvmsBatchIsAllowedResponse)]
pub struct AppCvmsIsAllowed {
    /// Whether a contract decides.
    pub is_onchain: bool,
    /// One for each CVM that could be asked about.
    pub results: Vec<CvmIsAllowed>,
    /// How many results.
    pub total: usize,
    /// Those that say yes.
    pub allowed_count: usize,
    /// Those that say no.
    pub denied_count: usize,
    /// Those that could not be told.
    pub error_count: usize,
    /// CVMs that nobody decides about, or whose device is not known.
    pub skipped_cvm_ids: Vec<VmId>,
}

/// Devices that an application may run on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceAllowlistResponse)]
pub struct DeviceAllowlist {
    /// Whether a contract decides; if not, devices are not restricted and none are listed.
    pub is_onchain_kms: bool,
    /// Every device is allowed; null while the contract cannot be asked.
    pub allow_any_device: Option<bool>,
    /// Chain of the contract.
    pub chain_id: Option<i64>,
    /// Contract of the application, `0x` and 40 hex digits.
    pub app_contract_address: Option<String>,
    /// Devices of this installation's nodes.
    pub devices: Vec<AllowlistedDevice>,
}

/// A device, and whether the application may run on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceAllowlistItem)]
pub struct AllowlistedDevice {
    /// Platform: SHA-256 of its provisioning id, hex.
    pub device_id: String,
    /// Node that is this device.
    pub node_name: Option<String>,
    /// CVMs of the application on it.
    pub cvm_ids: Vec<VmId>,
    /// The device is in the contract's list.
    pub allowed_onchain: bool,
    /// `allowed`, by the list or because every device is; `not_allowed`; or `unknown` while the contract cannot be
    /// asked.
    pub status: String,
}

/// Who decides about an application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppKmsInfoResponse)]
pub struct AppGovernance {
    /// Whether a contract decides.
    pub is_onchain_kms: bool,
    /// Its chain.
    pub chain_id: Option<i64>,
    /// Contract of the key management service.
    pub kms_contract_address: Option<String>,
    /// Contract of the application.
    pub app_contract_address: Option<String>,
    /// Owner of that contract; null while the chain cannot be asked, or nobody owns it.
    pub deployer_address: Option<String>,
    /// What the owner is.
    pub deployer_type: Option<DeployerType>,
    /// Whether the owner is a contract.
    pub is_contract: bool,
    /// Page of the owner's wallet; always null, because this service sends nobody to pages of others.
    pub safe_app_url: Option<String>,
}

/// What the owner of a contract is, as far as its address tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeployerType {
    /// An account with a key.
    Eoa,
    /// A wallet of several people that says it is a Safe.
    Safe,
    /// Another contract, such as a wallet of another kind.
    Contract,
}
