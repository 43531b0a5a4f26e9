//! Sends transactions: for the command line and for development chains.

mod transaction;
mod wallet;

use std::time::Duration;

use alloy_primitives::{Address, B256};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub use transaction::{InvalidKey, LocalKey, Transaction};
pub use wallet::Wallet;

use self::transaction::Prepared;
use crate::answers::Receipt;
use crate::error::{ChainError, EndpointFailure, Failure};
use crate::heads::header_call;
use crate::reader::Chain;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::wire::{self, hexadecimal};
use crate::rpc::{Call, Item, RpcError};

/// Most wei for a unit of gas: more is a mistake, or an endpoint that lies.
const MAX_FEE: u128 = 5_000_000_000_000;
/// Most of it that goes to whoever makes the block, whatever an endpoint proposes: the rest of a fee that is too high
/// comes back, this does not.
const MAX_PRIORITY_FEE: u128 = 100_000_000_000;
/// What goes to whoever makes the block if the node proposes nothing, in wei for a unit of gas.
const DEFAULT_PRIORITY_FEE: u128 = 1_000_000_000;
/// Code of an error for methods that a node does not have.
const NO_SUCH_METHOD: i64 = -32601;
/// How often the receipt is looked for, at first and at most.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long a transaction may take until it is confirmed.
const PATIENCE: Duration = Duration::from_mins(10);

/// Who signs.
#[derive(Debug)]
pub enum Signer {
    /// A key in this process.
    Local(LocalKey),
    /// A wallet with keys of its own.
    Wallet(Wallet),
}

/// Sends transactions of one account.
#[derive(Debug)]
pub struct Sender {
    chain: Chain,
    signer: Signer,
}

/// How far a transaction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The wallet asks its owner.
    AwaitingSignature,
    /// It is under way.
    Sent {
        /// Its hash.
        transaction: B256,
    },
    /// It is in a block, with this many blocks on top.
    Included {
        /// Height of the block.
        block: u64,
        /// Blocks on top of it.
        confirmations: u64,
    },
}

/// Why a transaction did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The contract would refuse; nothing was sent.
    #[error("the transaction would fail, and was not sent: {0}")]
    WouldFail(String),
    /// The account has too little; nothing was sent.
    #[error("account {account} has {has} wei, and up to {needs} wei are needed; send it the difference")]
    Funds {
        /// Who pays.
        account: Address,
        /// What it has, in wei.
        has: u128,
        /// What the transaction may cost, in wei.
        needs: u128,
    },
    /// The chain wants more than anybody should pay; nothing was sent.
    #[error(
        "the chain asks for {0} wei for a unit of gas, which is more than is ever paid here; try again later"
    )]
    TooExpensive(u128),
    /// No endpoint took it.
    #[error("the transaction could not be sent: {0}")]
    NotSent(ChainError),
    /// It did nothing.
    #[error("transaction {transaction} failed: {reason}")]
    Failed {
        /// Its hash.
        transaction: B256,
        /// The contract's words.
        reason: String,
    },
    /// Nobody knows yet.
    #[error(
        "transaction {transaction} was sent, but is not confirmed after {} minutes; look for it before sending another",
        PATIENCE.as_secs() / 60
    )]
    Unconfirmed {
        /// Its hash.
        transaction: B256,
    },
    /// A wallet must be on this machine.
    #[error("a wallet is asked over http on this machine only, for example http://127.0.0.1:1248")]
    WalletAddress,
    /// It does not know the account.
    #[error("the wallet has no such account; unlock it, or choose one of its accounts")]
    NoAccount,
    /// It refused or does not answer.
    #[error("the wallet did not sign: {0}")]
    Wallet(Failure),
}

/// What one endpoint says about sending.
struct Quote {
    nonce: u64,
    balance: u128,
    base_fee: u128,
    priority_fee: u128,
    gas: Result<u64, RpcError>,
}

impl Sender {
    /// Sends over the endpoints of `chain`.
    #[must_use]
    pub const fn new(chain: Chain, signer: Signer) -> Self {
        Self { chain, signer }
    }

    /// The account that pays and acts.
    #[must_use]
    pub const fn address(&self) -> Address {
        match &self.signer {
            Signer::Local(key) => key.address(),
            Signer::Wallet(wallet) => wallet.address(),
        }
    }

    /// Sends `transaction`, waits until it is confirmed, and gives its receipt. `progress` hears of every change. Two
    /// transactions of one account must not be sent at the same time.
    pub async fn send(
        &self,
        transaction: &Transaction,
        mut progress: impl FnMut(Progress),
    ) -> Result<Receipt, SendError> {
        let quote = self.on_some_endpoint(async |endpoint| self.quote(endpoint, transaction).await).await?;
        let gas = quote.gas.clone().map_err(|error| SendError::WouldFail(reason(&error)))?;
        // Contracts may take another way by the time of the block.
        let gas = gas.saturating_add(gas / 4);
        let hash = match &self.signer {
            Signer::Local(key) => self.send_signed(key, &quote, gas, transaction).await?,
            Signer::Wallet(wallet) => {
                progress(Progress::AwaitingSignature);
                wallet.send(transaction, gas).await.map_err(SendError::Wallet)?
            }
        };
        progress(Progress::Sent { transaction: hash });
        let receipt = self.confirmed(hash, &mut progress).await?;
        if receipt.succeeded {
            return Ok(receipt);
        }
        let again = self.on_some_endpoint(async |endpoint| self.quote(endpoint, transaction).await).await;
        let reason = again.ok().and_then(|quote| quote.gas.err()).map(|error| reason(&error));
        let reason =
            reason.unwrap_or_else(|| "it ran out of gas, or the contract changed meanwhile".to_owned());
        Err(SendError::Failed { transaction: hash, reason })
    }

    async fn send_signed(
        &self,
        key: &LocalKey,
        quote: &Quote,
        gas: u64,
        transaction: &Transaction,
    ) -> Result<B256, SendError> {
        // The base fee can double within six blocks.
        let max_fee = quote.base_fee.saturating_mul(2).saturating_add(quote.priority_fee);
        if max_fee > MAX_FEE {
            return Err(SendError::TooExpensive(max_fee));
        }
        let needs = max_fee.saturating_mul(u128::from(gas)).saturating_add(transaction.value);
        if quote.balance < needs {
            return Err(SendError::Funds { account: key.address(), has: quote.balance, needs });
        }
        let signed = key.sign(&Prepared {
            chain_id: self.chain.config().chain_id,
            nonce: quote.nonce,
            max_priority_fee: quote.priority_fee,
            max_fee,
            gas,
            transaction: transaction.clone(),
        });
        let raw = format!("0x{}", hex::encode(&signed.raw));
        let send = async |endpoint: &Endpoint| {
            let call = Call::new("eth_sendRawTransaction", json!([raw]));
            match single(endpoint.batch(vec![call]).await?)? {
                Ok(_) => Ok(()),
                // An endpoint took it, and its answer was lost.
                Err(error) if error.message.to_ascii_lowercase().contains("already known") => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        self.on_some_endpoint(send).await?;
        Ok(signed.hash)
    }

    async fn quote(&self, endpoint: &Endpoint, transaction: &Transaction) -> Result<Quote, Failure> {
        let account = self.address().to_string();
        let calls = vec![
            Call::new("eth_getTransactionCount", json!([account, "pending"])),
            Call::new("eth_getBalance", json!([account, "latest"])),
            header_call("latest"),
            Call::new("eth_maxPriorityFeePerGas", json!([])),
            Call::new("eth_estimateGas", json!([as_parameter(self.address(), transaction)])),
        ];
        let items = endpoint.batch(calls).await?;
        let [nonce, balance, head, priority_fee, gas] =
            <[Item; 5]>::try_from(items).map_err(|_| Failure::Garbage("an answer is missing"))?;
        let priority_fee = match priority_fee {
            Err(error) if error.code == NO_SUCH_METHOD => DEFAULT_PRIORITY_FEE,
            other => wire::amount(&other?)?.min(MAX_PRIORITY_FEE),
        };
        let gas = match gas {
            Ok(gas) => Ok(wire::number(&gas)?),
            Err(error) => Err(error),
        };
        let base_fee = wire::base_fee(&head?)?;
        let balance = wire::amount(&balance?)?;
        Ok(Quote { nonce: wire::number(&nonce?)?, balance, base_fee, priority_fee, gas })
    }

    /// The receipt, once it has the confirmations that the configuration asks for.
    async fn confirmed(
        &self,
        transaction: B256,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Receipt, SendError> {
        let began = Instant::now();
        let mut told = None;
        let mut pause = LOOK_EVERY.0;
        loop {
            // Endpoints that fail for a moment do not undo what was sent.
            if let Ok(Some(receipt)) = self.chain.receipt(transaction).await {
                let (block, confirmations) = (receipt.block.number, receipt.confirmations);
                if told.replace((block, confirmations)) != Some((block, confirmations)) {
                    progress(Progress::Included { block, confirmations });
                }
                if confirmations >= self.chain.config().confirmations {
                    return Ok(receipt);
                }
            }
            if began.elapsed() > PATIENCE {
                return Err(SendError::Unconfirmed { transaction });
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LOOK_EVERY.1);
        }
    }

    /// What the first endpoint says that says anything.
    async fn on_some_endpoint<T>(
        &self,
        ask: impl AsyncFn(&Endpoint) -> Result<T, Failure>,
    ) -> Result<T, SendError> {
        let mut failures = Vec::new();
        for endpoint in self.chain.0.endpoints.in_order() {
            match ask(&endpoint).await {
                Ok(answer) => return Ok(answer),
                Err(why) => failures.push(EndpointFailure { endpoint: endpoint.name().to_owned(), why }),
            }
        }
        let chain = self.chain.config().name.clone();
        Err(SendError::NotSent(ChainError::NoQuorum { chain, needed: 1, agreed: 0, endpoints: failures }))
    }
}

fn single(items: Vec<Item>) -> Result<Item, Failure> {
    items.into_iter().next().ok_or(Failure::Garbage("an answer is missing"))
}

/// Why a contract refuses, in words.
fn reason(error: &RpcError) -> String {
    match error.data.as_deref() {
        Some(data) if !data.is_empty() => cloister_contracts::revert_reason(data),
        _ => error.message.clone(),
    }
}

/// A transaction of `from` as nodes and wallets are told.
fn as_parameter(from: Address, transaction: &Transaction) -> Value {
    let mut parameter = json!({
        "from": from.to_string(),
        "data": transaction.data.to_string(),
        "value": hexadecimal(transaction.value),
    });
    if let (Some(to), Some(members)) = (transaction.to, parameter.as_object_mut()) {
        members.insert("to".to_owned(), to.to_string().into());
    }
    parameter
}
