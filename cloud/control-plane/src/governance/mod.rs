//! Who decides what an application may run, and whether they allowed it.
//!
//! The key management service enforces it: it gives keys to nothing that was not allowed, whatever the control
//! plane says. Here people are told early, changes wait for those who decide, and are carried out once they
//! have. What cannot be told counts as not allowed.

mod chains;
mod contracts;
pub(crate) mod owners;
mod prepared;
mod standing;
#[cfg(test)]
pub(crate) mod testing;
mod transaction;
pub(crate) mod untold;

use cloister_app_compose::{AppId, ComposeHash};

pub use chains::{Chains, ChainsError};
pub use contracts::{
    Address, AppContract, BlockRef, CannotTell, ContractReceipt, Contracts, KmsContractView, KmsQuestion,
    KnownChain, NoContracts, PublishedKeys, ReceiptLog,
};
pub use prepared::with_token;
pub(crate) use prepared::{
    CommitUrls, Preparation, PrepareError, PreparedReplica, PreparedRequest, PreparedUpdate, Tokens, Waiting,
    contract_in_words, hash_token, prepare_in,
};
pub(crate) use standing::{
    LOOKS, PAUSE, contract_allows, device_of_node, of_app, of_cvm, standing, standings,
};
pub(crate) use transaction::{AllowedBy, Needed, needed, prove};

use crate::kms::{Kms, KmsContract};

/// Who decides what an application may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Governance {
    /// Whoever may deploy in its workspace.
    Workspace,
    /// The owner of its contract; the id of the application is the contract's address.
    Contract(KmsContract),
    /// So many of these people, by their signatures.
    Owners,
    /// Nobody can say: the service that its keys come from is not part of the installation any more. It counts as not
    /// allowed.
    Unknown,
}

impl Governance {
    /// Whether a change has to be allowed by somebody before it is carried out.
    #[must_use]
    pub const fn needs_approval(&self) -> bool {
        !matches!(self, Self::Workspace)
    }

    /// Who decides for applications that get their keys from this service, contracts before anybody else.
    #[must_use]
    pub fn of_kms(kms: Option<&Kms>) -> Self {
        kms.and_then(Kms::contract).map_or(Self::Workspace, Self::Contract)
    }
}

/// What an application wants to run, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Question {
    /// The document.
    pub compose_hash: ComposeHash,
    /// SHA-256 of the platform's provisioning id; `None` leaves the device out of the question.
    pub device_id: Option<[u8; 32]>,
}

/// What those who decide have said to a [`Question`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// The document is allowed.
    pub compose_hash_allowed: bool,
    /// The device is in the list; false where none was asked about.
    pub device_id_allowed: bool,
    /// Every device is allowed.
    pub allow_any_device: bool,
}

impl Standing {
    /// Whether the document may run on the device; without a device, whether it may run at all.
    #[must_use]
    pub const fn is_allowed(&self, asks_device: bool) -> bool {
        self.compose_hash_allowed && (!asks_device || self.allow_any_device || self.device_id_allowed)
    }
}

/// The contract of an application: its id is the address.
#[must_use]
pub const fn app_contract(app_id: AppId) -> Address {
    *app_id.as_bytes()
}
