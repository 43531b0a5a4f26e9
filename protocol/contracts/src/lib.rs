//! What the contracts on a chain are called with, and what they answer.
//!
//! An application under a contract runs only documents that its owners allowed, on machines that they allowed.
//! This crate has the public interface of those contracts as types ([`abi`]), and the conversions between it and
//! the identifiers of the rest of the system. No I/O: `cloister-chain` asks the chain.

pub mod abi;
mod ids;

pub use abi::AppBootInfo;
pub use alloy_primitives::{Address, B256, Bytes, U256};
pub use alloy_sol_types::{SolCall, SolError, SolEvent, SolValue};
pub use ids::{app_address, app_id, compose_hash, compose_word, instance_address, os_image_word};
