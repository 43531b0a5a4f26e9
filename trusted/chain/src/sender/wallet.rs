//! Wallets that keep their keys to themselves: hardware keys behind a program on this machine.

use std::time::Duration;

use alloy_primitives::{Address, B256};
use cloister_verifier::Clock;
use serde_json::json;
use url::Url;

use super::SendError;
use super::transaction::Transaction;
use crate::config::{ChainConfig, is_loopback};
use crate::error::Failure;
use crate::rpc::Call;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::wire::{self, hexadecimal};

/// How long a person may take to look at a transaction and to agree.
const PATIENCE: Duration = Duration::from_mins(10);

/// A wallet with a JSON-RPC interface on this machine: a desktop wallet, `clef`, or a node that has the account. Its
/// owner confirms each transaction there.
#[derive(Debug)]
pub struct Wallet {
    endpoint: Endpoint,
    address: Address,
}

impl Wallet {
    /// The wallet at `url`, an `http` URL of this machine, with the account `address` or else its first one. Fails if
    /// it is set to another chain.
    pub async fn connect(
        url: &Url,
        chain: &ChainConfig,
        address: Option<Address>,
        clock: &Clock,
    ) -> Result<Self, SendError> {
        if !is_loopback(url) || url.scheme() != "http" {
            return Err(SendError::WalletAddress);
        }
        let patient = ChainConfig { request_timeout: PATIENCE, ..chain.clone() };
        let endpoint = Endpoint::new(url, &patient, clock).map_err(|_| SendError::WalletAddress)?;
        endpoint.require_chain().await.map_err(SendError::Wallet)?;
        let accounts = endpoint.call(Call::new("eth_accounts", json!([]))).await;
        let accounts = wire::accounts(&accounts.map_err(SendError::Wallet)?).map_err(SendError::Wallet)?;
        let chosen = match address {
            Some(address) => accounts.into_iter().find(|account| *account == address),
            None => accounts.into_iter().next(),
        };
        let address = chosen.ok_or(SendError::NoAccount)?;
        Ok(Self { endpoint, address })
    }

    /// The account that it signs for.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Has the wallet sign and send; gives the transaction's hash. It chooses nonce and fees.
    pub(super) async fn send(&self, transaction: &Transaction, gas: u64) -> Result<B256, Failure> {
        // The person may have switched the chain since.
        self.endpoint.require_chain().await?;
        let mut sent = super::as_parameter(self.address, transaction);
        if let Some(sent) = sent.as_object_mut() {
            sent.insert("gas".to_owned(), hexadecimal(gas).into());
        }
        wire::word(&self.endpoint.call(Call::new("eth_sendTransaction", json!([sent]))).await?)
    }
}
