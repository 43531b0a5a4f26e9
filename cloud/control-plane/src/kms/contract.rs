//! The contract that decides for a key management service.

use cloister_kms_api::Meta;

/// The kind of a service that no contract decides for, by the name of the public interface.
pub(crate) const OFF_CHAIN: &str = "phala";
/// Chain id of Base; services on every other chain are of the kind of Ethereum.
const BASE: u64 = 8453;

/// A contract that decides for a key management service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KmsContract {
    /// The chain that it is on (EIP-155).
    pub chain_id: u64,
    /// Its address.
    pub address: [u8; 20],
}

impl KmsContract {
    /// Its address as clients write it: `0x` and 40 hex digits.
    #[must_use]
    pub fn hex_address(&self) -> String {
        format!("0x{}", hex::encode(self.address))
    }

    /// Its chain as the interface writes it.
    #[must_use]
    pub fn wire_chain_id(&self) -> i64 {
        self.chain_id.try_into().unwrap_or(i64::MAX)
    }
}

/// The kind of a service, by the names of the public interface.
pub(crate) fn kind(contract: Option<KmsContract>) -> &'static str {
    match contract.map(|contract| contract.chain_id) {
        None => OFF_CHAIN,
        Some(BASE) => "base",
        Some(_) => "ethereum",
    }
}

/// Whether a service says of itself what the installation is configured for.
pub(super) fn agrees(configured: Option<KmsContract>, meta: &Meta) -> bool {
    let Some(configured) = configured else { return meta.kms_contract_address.is_none() };
    let said = meta.kms_contract_address.as_deref().and_then(|text| text.strip_prefix("0x"));
    let is_address = said.is_some_and(|digits| digits.eq_ignore_ascii_case(&hex::encode(configured.address)));
    is_address && meta.chain_id == Some(configured.chain_id)
}
