use alloy_primitives::{Address, B256, Bytes};

use super::{Account, Findings, Inquiry, flags, read, wire};
use crate::abi::{Kms, KmsInfo, Owned};
use crate::text;

/// Longest `kmsInfo()` that is read, in bytes: keys, a quote and its event log.
const MAX_KMS_INFO_BYTES: u32 = 16 * 1024;
/// Longest `gatewayAppId()`, in bytes: an address in words, usually.
const MAX_GATEWAY_BYTES: u32 = 256;

/// What a KMS contract says about itself and about machines and images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsState {
    /// The contract.
    pub kms_contract: Address,
    /// Machines that may hold the roots.
    pub devices: Vec<B256>,
    /// Guest images that may get keys.
    pub os_images: Vec<B256>,
    /// Systems that may hold the roots. All three together at most [`MAX_KEYS`](super::MAX_KEYS).
    pub aggregated_mrs: Vec<B256>,
}

/// The answer to [`KmsState`]. `None`: the contract does not say, or at more length than is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsStateAnswer {
    /// What is at the address.
    pub account: Account,
    /// The owner; `None` also after it was given up.
    pub owner: Option<Address>,
    /// What is at the owner's address.
    pub owner_account: Account,
    /// Who may accept the ownership.
    pub pending_owner: Option<Address>,
    /// The code that new applications get; `None`: the contract has no factory yet.
    pub app_implementation: Option<Address>,
    /// The application that ends TLS for others; printable.
    pub gateway_app_id: Option<String>,
    /// What the operator publishes.
    pub kms_info: Option<KmsInfo>,
    /// One for each machine, in order.
    pub devices: Vec<bool>,
    /// One for each image, in order.
    pub os_images: Vec<bool>,
    /// One for each system, in order.
    pub aggregated_mrs: Vec<bool>,
}

impl Inquiry for KmsState {
    type Answer = KmsStateAnswer;

    fn question(&self) -> wire::Question {
        let at = self.kms_contract;
        wire::Question {
            flags: vec![
                flags::<Kms::kmsAllowedDeviceIdsCall>(at, &self.devices),
                flags::<Kms::allowedOsImagesCall>(at, &self.os_images),
                flags::<Kms::kmsAllowedAggregatedMrsCall>(at, &self.aggregated_mrs),
            ],
            reads: vec![
                read(at, &Owned::ownerCall {}, 32),
                read(at, &Owned::pendingOwnerCall {}, 32),
                read(at, &Kms::appImplementationCall {}, 32),
                read(at, &Kms::gatewayAppIdCall {}, MAX_GATEWAY_BYTES),
                read(at, &Kms::kmsInfoCall {}, MAX_KMS_INFO_BYTES),
            ],
        }
    }

    fn conclude(&self, mut findings: Findings) -> Option<KmsStateAnswer> {
        let owner = findings.read()?;
        Some(KmsStateAnswer {
            account: owner.target,
            owner: owner.address(),
            owner_account: owner.named,
            pending_owner: findings.read()?.address(),
            app_implementation: findings.read()?.address(),
            gateway_app_id: findings.read()?.value::<String>().map(|id| text::printable(&id)),
            kms_info: findings.read()?.values::<(Bytes, Bytes, Bytes, Bytes)>().map(kms_info),
            devices: findings.flags()?,
            os_images: findings.flags()?,
            aggregated_mrs: findings.flags()?,
        })
    }
}

fn kms_info((k256_pubkey, ca_pubkey, quote, eventlog): (Bytes, Bytes, Bytes, Bytes)) -> KmsInfo {
    KmsInfo { k256Pubkey: k256_pubkey, caPubkey: ca_pubkey, quote, eventlog }
}
