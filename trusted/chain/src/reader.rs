//! The reader.

use std::sync::Arc;

use alloy_primitives::{Address, B256};
use cloister_contracts::AppBootInfo;
use cloister_verifier::Clock;

use crate::{
    AllowanceQuestion, AppAllowances, AppContractView, ChainConfig, ChainError, Decision, InvalidChainConfig,
    KmsContractView, Receipt,
};

/// Most questions of one call to [`Chain::allowances`].
pub const MAX_QUESTIONS: usize = 1000;
/// Most log entries of a receipt.
pub const MAX_LOGS: usize = 1024;

/// Reads one chain; cheap to clone.
#[derive(Clone, Debug)]
pub struct Chain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: ChainConfig,
    #[expect(dead_code, reason = "becomes of use with the endpoints")]
    clock: Clock,
}

impl Chain {
    /// A reader of the chain that `config` describes. Asks nothing yet.
    pub fn new(config: ChainConfig, clock: Clock) -> Result<Self, InvalidChainConfig> {
        config.check()?;
        Ok(Self(Arc::new(Inner { config, clock })))
    }

    /// Which chain this is, and how it is asked.
    #[must_use]
    pub fn config(&self) -> &ChainConfig {
        &self.0.config
    }

    fn unread<T>(&self) -> Result<T, ChainError> {
        let chain = self.0.config.name.clone();
        Err(ChainError::NoQuorum { chain, needed: self.0.config.quorum, agreed: 0, endpoints: Vec::new() })
    }

    /// What the contract of the application at `app` allows; at most [`MAX_QUESTIONS`] questions.
    pub async fn allowances(
        &self,
        _app: Address,
        _questions: &[AllowanceQuestion],
    ) -> Result<AppAllowances, ChainError> {
        self.unread()
    }

    /// Whether the KMS contract lets the application of `boot` have its keys.
    pub async fn is_app_allowed(
        &self,
        _kms_contract: Address,
        _boot: &AppBootInfo,
    ) -> Result<Decision, ChainError> {
        self.unread()
    }

    /// Whether the KMS contract lets the KMS of `boot` have the roots.
    pub async fn is_kms_allowed(
        &self,
        _kms_contract: Address,
        _boot: &AppBootInfo,
    ) -> Result<Decision, ChainError> {
        self.unread()
    }

    /// What a KMS contract says about itself, and which of the given devices, OS images and measurements it allows; at
    /// most [`MAX_QUESTIONS`] together.
    pub async fn kms_contract(
        &self,
        _kms_contract: Address,
        _devices: &[[u8; 32]],
        _os_images: &[[u8; 32]],
        _aggregated_mrs: &[[u8; 32]],
    ) -> Result<KmsContractView, ChainError> {
        self.unread()
    }

    /// What the contract of the application at `app` says about itself, and whether the KMS contract knows it.
    pub async fn app_contract(
        &self,
        _kms_contract: Address,
        _app: Address,
    ) -> Result<AppContractView, ChainError> {
        self.unread()
    }

    /// What became of a transaction; `None` while it is in no block. See [`Receipt::confirmations`].
    pub async fn receipt(&self, _transaction: B256) -> Result<Option<Receipt>, ChainError> {
        self.unread()
    }
}
