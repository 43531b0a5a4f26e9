//! Asks a chain what its contracts say, through several endpoints of which so many must agree as the configuration
//! says ([`ChainConfig::quorum`]).
//!
//! A permission holds if it holds at the *confirmed* block (so many blocks below the head) and at the newest one: a
//! grant counts once it is confirmed, a revocation counts at once. Everything that is not a clear answer of enough
//! endpoints is an error and never a permission.

mod answers;
mod config;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod heads;
mod questions;
mod quorum;
mod reader;
mod receipts;
mod rpc;
mod sender;

pub use alloy_primitives::{Address, B256, Bytes};
pub use answers::{
    Allowance, AllowanceQuestion, AppAllowances, AppContractView, BlockRef, Decision, KmsContractView,
    KmsInfo, Log, Receipt,
};
pub use cloister_contracts::AppBootInfo;
pub use cloister_contracts::lens::SafeWallet;
pub use cloister_verifier::Clock;
pub use config::{
    ChainConfig, DEFAULT_MAX_HEAD_AGE, DEFAULT_REQUEST_TIMEOUT, InvalidChainConfig, MAX_CONFIRMATIONS,
    MAX_ENDPOINTS,
};
pub use error::{ChainError, EndpointFailure, Failure};
pub use questions::MAX_QUESTIONS;
pub use reader::{Chain, MAX_LOGS};
pub use sender::{InvalidKey, LocalKey, Progress, SendError, Sender, Signer, Transaction, Wallet};
