//! What contracts say.

use cloister_app_compose::AppId;
use futures_util::future::BoxFuture;

use super::{Question, Standing};
use crate::kms::KmsContract;

/// A number of an Ethereum account or contract.
pub type Address = [u8; 20];

/// Why nothing can be said. Its text is for people and names no address that holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotTell {
    /// The installation knows no such chain.
    #[error("this installation is not configured for chain {0}")]
    UnknownChain(u64),
    /// Nothing is where the contract should be.
    #[error("there is no contract at 0x{} on chain {chain_id}", hex::encode(address))]
    NoContract {
        /// The chain.
        chain_id: u64,
        /// The address.
        address: Address,
    },
    /// The service of the application's keys, which knows who decides, is not there.
    #[error(
        "the key management service that the application's keys come from is not part of this installation any more, \
         so that nobody can say who decides, and no CVM of it gets keys; its operator has to configure the service again"
    )]
    NoKms,
    /// The chain could not be asked, or gave no answer that can be believed.
    #[error("{0}")]
    Chain(String),
}

/// A chain that the installation knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownChain {
    /// Its number (EIP-155).
    pub id: u64,
    /// Its name: `ethereum`, `base`, `development`.
    pub name: String,
}

/// What the contract of an application says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppContract {
    /// Whether the contract of the key management service knows it.
    pub is_registered: bool,
    /// Who decides.
    pub owner: Option<Address>,
    /// Whether that is a contract itself, such as a wallet of several people.
    pub owner_is_contract: bool,
    /// Whether it lets every device run what it allows; `None` where it does not say.
    pub allow_any_device: Option<bool>,
}

/// What is asked of the contract of a key management service beside what it says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KmsQuestion {
    /// Devices: may a service run on them?
    pub devices: Vec<[u8; 32]>,
    /// Guest images: may an application run on them?
    pub os_images: Vec<[u8; 32]>,
    /// Aggregated measurements: are they those of an allowed service?
    pub aggregated_mrs: Vec<[u8; 32]>,
}

/// What the contract of a key management service says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KmsContractView {
    /// Who decides.
    pub owner: Option<Address>,
    /// Keys of the service that it stands for; `None` while nobody has set them.
    pub keys: Option<PublishedKeys>,
    /// App id of the gateway; empty while nobody has set it.
    pub gateway_app_id: String,
    /// One for each device that was asked about, in order.
    pub devices: Vec<bool>,
    /// One for each image.
    pub os_images: Vec<bool>,
    /// One for each measurement.
    pub aggregated_mrs: Vec<bool>,
}

/// What a contract publishes of its key management service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedKeys {
    /// secp256k1 key of the root.
    pub k256_pubkey: Vec<u8>,
    /// Key of its certificate authority.
    pub ca_pubkey: Vec<u8>,
    /// Bytes of the quote over them.
    pub quote_length: usize,
    /// Bytes of the quote's event log.
    pub eventlog_length: usize,
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
    pub address: Address,
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
    pub from: Address,
    /// The contract that it called; `None` for one that made a contract.
    pub to: Option<Address>,
    /// Where it is.
    pub block: BlockRef,
    /// What it wrote.
    pub logs: Vec<ReceiptLog>,
}

/// The chains, as the control plane sees them. Nothing that they say is taken from memory.
pub trait Contracts: Send + Sync {
    /// The chains that can be asked.
    fn chains(&self) -> Vec<KnownChain>;

    /// What the contract of an application says about itself.
    fn app(&self, kms: KmsContract, app_id: AppId) -> BoxFuture<'_, Result<AppContract, CannotTell>>;

    /// What the contract of a key management service says.
    fn kms(
        &self,
        contract: KmsContract,
        question: KmsQuestion,
    ) -> BoxFuture<'_, Result<KmsContractView, CannotTell>>;

    /// What the contract of an application says to each question, in their order and all of one block. Where
    /// nothing is at its address that is [`CannotTell::NoContract`].
    fn standings(
        &self,
        chain_id: u64,
        app_id: AppId,
        questions: Vec<Question>,
    ) -> BoxFuture<'_, Result<Vec<Standing>, CannotTell>>;

    /// Whether an account says that it is a wallet of several people of the kind that is called Safe.
    fn is_safe(&self, chain_id: u64, account: Address) -> BoxFuture<'_, Result<bool, CannotTell>>;

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
    fn chains(&self) -> Vec<KnownChain> {
        Vec::new()
    }

    fn app(&self, kms: KmsContract, _: AppId) -> BoxFuture<'_, Result<AppContract, CannotTell>> {
        Box::pin(async move { Err(CannotTell::UnknownChain(kms.chain_id)) })
    }

    fn kms(
        &self,
        contract: KmsContract,
        _: KmsQuestion,
    ) -> BoxFuture<'_, Result<KmsContractView, CannotTell>> {
        Box::pin(async move { Err(CannotTell::UnknownChain(contract.chain_id)) })
    }

    fn standings(
        &self,
        chain_id: u64,
        _: AppId,
        _: Vec<Question>,
    ) -> BoxFuture<'_, Result<Vec<Standing>, CannotTell>> {
        Box::pin(async move { Err(CannotTell::UnknownChain(chain_id)) })
    }

    fn is_safe(&self, chain_id: u64, _: Address) -> BoxFuture<'_, Result<bool, CannotTell>> {
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
