//! What the contracts on a chain are called with, and what they answer.
//!
//! An application under a contract runs only documents that its owners allowed, on machines that they allowed.
//! This crate has the public interface of those contracts as types ([`abi`]), the compiled contracts
//! ([`artifacts`]), the questions of a reader ([`lens`]), the events of receipts ([`events`]), and the conversions
//! between words of the chain and the identifiers of the rest of the system. No I/O: `cloister-chain` asks the chain.

pub mod abi;
pub mod artifacts;
mod deploy;
pub mod events;
mod ids;
pub mod lens;
mod reverts;
mod text;

pub use abi::{AppBootInfo, KmsInfo};
pub use alloy_primitives::{Address, B256, Bytes, IntoLogData, U256, hex, keccak256};
pub use alloy_sol_types::{SolCall, SolError, SolEvent, SolValue};
pub use deploy::NewApp;
pub use ids::{app_address, app_id, compose_hash, compose_word, instance_address, os_image_word};
pub use reverts::revert_reason;

/// Interface id of `isAppAllowed`, for `supportsInterface` (platform reference, 11.2).
pub const APP_AUTH_INTERFACE: [u8; 4] = abi::IAppAuth::isAppAllowedCall::SELECTOR;

/// Interface id of what owners of applications change most (platform reference, 11.2).
pub const APP_MANAGEMENT_INTERFACE: [u8; 4] = {
    use abi::IAppManagement as I;
    (u32::from_be_bytes(I::addComposeHashCall::SELECTOR)
        ^ u32::from_be_bytes(I::removeComposeHashCall::SELECTOR)
        ^ u32::from_be_bytes(I::addDeviceCall::SELECTOR)
        ^ u32::from_be_bytes(I::removeDeviceCall::SELECTOR))
    .to_be_bytes()
};
