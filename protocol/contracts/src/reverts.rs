//! What a contract says when it refuses a transaction, in words.

use alloy_sol_types::{Panic, Revert, SolError, SolInterface as _};

use crate::abi::Owned::OwnedErrors;
use crate::text;

/// Longest reason that is looked at, in bytes: beyond it a contract says nothing that a person would read.
const MAX_REVERT_BYTES: usize = 4096;

/// Why a call reverted, for a person: the contract's own words, or those of the library. The data is the contract's;
/// the text is bounded and printable.
#[must_use]
pub fn revert_reason(data: &[u8]) -> String {
    if data.is_empty() {
        return "the contract gave no reason".to_owned();
    }
    if data.len() > MAX_REVERT_BYTES {
        return "the contract gave a reason that is too long to read".to_owned();
    }
    if let Ok(revert) = Revert::abi_decode_validate(data) {
        return text::printable(&revert.reason);
    }
    if let Ok(panic) = Panic::abi_decode_validate(data) {
        return format!("the code of the contract failed ({panic})");
    }
    match OwnedErrors::abi_decode_validate(data) {
        Ok(error) => words(&error),
        Err(_) => "the contract gave a reason of its own that is not known here".to_owned(),
    }
}

fn words(error: &OwnedErrors) -> String {
    use OwnedErrors as E;
    match error {
        E::OwnableUnauthorizedAccount(e) => {
            format!("{} is not the owner of the contract; ask its owner to send this", e.account)
        }
        E::OwnableInvalidOwner(e) => format!("{} can't be an owner", e.owner),
        E::InvalidInitialization(_) => "the contract is initialised already".to_owned(),
        E::NotInitializing(_) => "the contract is not being initialised".to_owned(),
        E::UUPSUnauthorizedCallContext(_) => {
            "this is for proxies only, and the address is that of the code itself".to_owned()
        }
        E::UUPSUnsupportedProxiableUUID(_) | E::ERC1967InvalidImplementation(_) => {
            "the address of the new code has no code that a proxy can lead to".to_owned()
        }
        E::ERC1967NonPayable(_) => "an upgrade without a call takes no money".to_owned(),
        E::AddressEmptyCode(e) => format!("there is no contract at {}", e.target),
        E::FailedCall(_) => "a call of the contract failed without a reason".to_owned(),
    }
}
