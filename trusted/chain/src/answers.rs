//! What a chain answers.

use alloy_primitives::{Address, B256, Bytes};

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRef {
    /// Its height.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// When it was made, in seconds since 1970.
    pub timestamp: u64,
}

/// What a KMS contract decided about one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Allowed at the confirmed block *and* at the newest one.
    pub is_allowed: bool,
    /// Why not, in the contract's words: printable, at most 256 bytes; empty if allowed.
    pub reason: String,
    /// The confirmed block.
    pub at: BlockRef,
}

/// One thing to know about an application's contract: may this code run on this device?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllowanceQuestion {
    /// Hash of the compose document.
    pub compose_hash: [u8; 32],
    /// Id of the device.
    pub device_id: [u8; 32],
}

/// The answer to one [`AllowanceQuestion`]. Each member holds at the confirmed block and at the newest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The document is in the contract's list.
    pub compose_hash_allowed: bool,
    /// The device is in the contract's list; whether any device is allowed does not count here.
    pub device_id_allowed: bool,
    /// The document is allowed, and the device is in the list or any device is allowed.
    pub is_allowed: bool,
}

/// What an application's contract allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppAllowances {
    /// Whether there is code at the address. If not, nothing is allowed.
    pub is_contract: bool,
    /// Any device may run what is allowed.
    pub allow_any_device: bool,
    /// One per question, in the order of the questions.
    pub results: Vec<Allowance>,
    /// The confirmed block.
    pub at: BlockRef,
}

/// What a KMS contract says about itself, at the confirmed block; what it allows, it allows at the newest one, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsContractView {
    /// Whether there is code at the address.
    pub has_code: bool,
    /// Who may change it.
    pub owner: Option<Address>,
    /// Who may take it over next.
    pub pending_owner: Option<Address>,
    /// Public keys and evidence of the KMS that it stands for. `None` also if they are longer
    /// than 16 KiB together.
    pub kms_info: Option<KmsInfo>,
    /// Application id of the gateway, printable, at most 256 bytes.
    pub gateway_app_id: String,
    /// What the contracts that it makes for applications run.
    pub app_implementation: Option<Address>,
    /// For each device asked about, in order, whether a KMS may run on it.
    pub devices_allowed: Vec<bool>,
    /// For each OS image asked about, in order, whether it is allowed.
    pub os_images_allowed: Vec<bool>,
    /// For each measurement asked about, in order, whether it is that of an allowed KMS.
    pub aggregated_mrs_allowed: Vec<bool>,
    /// The confirmed block.
    pub at: BlockRef,
}

/// What a KMS contract publishes about its KMS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsInfo {
    /// secp256k1 public key that application keys are signed with.
    pub k256_public_key: Bytes,
    /// Public key of the certificate authority, in DER.
    pub ca_public_key: Bytes,
    /// Quote made when the keys were.
    pub quote: Bytes,
    /// Event log of the quote.
    pub event_log: Bytes,
}

/// What an application's contract says about itself, at the confirmed block. `None` where the contract has no such
/// function or answers with something else than the function promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppContractView {
    /// Whether there is code at the address.
    pub has_code: bool,
    /// Whether the KMS contract knows the application; at the newest block, too.
    pub registered: bool,
    /// Who may change it.
    pub owner: Option<Address>,
    /// Who may take it over next.
    pub pending_owner: Option<Address>,
    /// Whether the owner is a contract itself, for example a wallet of several people.
    pub owner_has_code: bool,
    /// Version of the contract's interface.
    pub version: Option<u64>,
    /// Any device may run what is allowed.
    pub allow_any_device: Option<bool>,
    /// Machines must have the newest firmware.
    pub require_tcb_up_to_date: Option<bool>,
    /// The contract's code can never change again. Known of contracts that say so (`upgradesDisabled()`).
    pub upgrades_disabled: Option<bool>,
    /// The confirmed block.
    pub at: BlockRef,
}

/// What became of a transaction. It is in a block of the chain as the chain is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Hash of the transaction.
    pub transaction: B256,
    /// Whether it did what it should; a failed one changed nothing.
    pub succeeded: bool,
    /// Who sent it.
    pub from: Address,
    /// Whom it called; nobody if it made a contract.
    pub to: Option<Address>,
    /// The contract that it made.
    pub contract_address: Option<Address>,
    /// The block that it is in.
    pub block: BlockRef,
    /// Blocks on top of that one, by the oldest head among the endpoints that agreed.
    pub confirmations: u64,
    /// What contracts said, in order; at most [`MAX_LOGS`](crate::MAX_LOGS).
    pub logs: Vec<Log>,
}

/// What a contract said during a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The contract.
    pub address: Address,
    /// At most 4; the first one names the event.
    pub topics: Vec<B256>,
    /// The rest, encoded.
    pub data: Bytes,
}
