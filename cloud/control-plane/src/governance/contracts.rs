//! What contracts say.

use cloister_app_compose::AppId;
use futures_util::future::BoxFuture;

use super::{Question, Standing};

/// Why nothing can be said. Its text is for people and names no address that holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotTell {
    /// The installation knows no such chain.
    #[error("this installation is not configured for chain {0}")]
    UnknownChain(u64),
    /// The chain could not be asked, or gave no answer that can be believed.
    #[error("{0}")]
    Chain(String),
}

/// A block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRef {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// A log entry of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptLog {
    /// The contract that wrote it.
    pub address: [u8; 20],
    /// What it is about; the first one names the event.
    pub topics: Vec<[u8; 32]>,
    /// The rest.
    pub data: Vec<u8>,
}

/// What a transaction did, once it is in a confirmed block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractReceipt {
    /// Whether it did what it was meant to.
    pub succeeded: bool,
    /// Who sent it.
    pub from: [u8; 20],
    /// The contract that it called; `None` for one that made a contract.
    pub to: Option<[u8; 20]>,
    /// Where it is.
    pub block: BlockRef,
    /// What it wrote.
    pub logs: Vec<ReceiptLog>,
}

/// The chains, as the control plane sees them. Nothing that they say is taken from memory unless `max_age` of a
/// method's documentation says so.
pub trait Contracts: Send + Sync {
    /// What the contract of an application says to each question, all of them of one block.
    fn standings(
        &self,
        chain_id: u64,
        app_id: AppId,
        questions: Vec<Question>,
    ) -> BoxFuture<'_, Result<Vec<Standing>, CannotTell>>;

    /// The receipt of a transaction; `None` while it is not in a confirmed block.
    fn receipt(
        &self,
        chain_id: u64,
        transaction: [u8; 32],
    ) -> BoxFuture<'_, Result<Option<ContractReceipt>, CannotTell>>;
}

/// For installations without a chain: nothing can be told.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContracts;

impl Contracts for NoContracts {
    fn standings(
        &self,
        chain_id: u64,
        _: AppId,
        _: Vec<Question>,
    ) -> BoxFuture<'_, Result<Vec<Standing>, CannotTell>> {
        Box::pin(async move { Err(CannotTell::UnknownChain(chain_id)) })
    }

    fn receipt(
        &self,
        chain_id: u64,
        _: [u8; 32],
    ) -> BoxFuture<'_, Result<Option<ContractReceipt>, CannotTell>> {
        Box::pin(async move { Err(CannotTell::UnknownChain(chain_id)) })
    }
}
