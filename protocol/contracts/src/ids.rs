//! Between identifiers of the system and words of the chain. Lengths are in the types: nothing is padded, cut or
//! taken for another value.

use alloy_primitives::{Address, B256};
use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};

/// The address of an application's contract: its id.
#[must_use]
pub fn app_address(app_id: AppId) -> Address {
    Address::from(*app_id.as_bytes())
}

/// The id of the application whose contract is at `address`.
#[must_use]
pub fn app_id(address: Address) -> AppId {
    AppId::from_bytes(address.into_array())
}

/// A CVM, as [`AppBootInfo`](crate::AppBootInfo) names it.
#[must_use]
pub fn instance_address(instance_id: InstanceId) -> Address {
    Address::from(*instance_id.as_bytes())
}

/// A document's hash as a word.
#[must_use]
pub fn compose_word(hash: ComposeHash) -> B256 {
    B256::from(*hash.as_bytes())
}

/// The document's hash that a word is.
#[must_use]
pub fn compose_hash(word: B256) -> ComposeHash {
    ComposeHash::from_bytes(word.0)
}

/// A guest image's hash as a word.
#[must_use]
pub fn os_image_word(hash: OsImageHash) -> B256 {
    B256::from(*hash.as_bytes())
}
