use alloy_primitives::{Address, B256, U256};

use super::{Account, Findings, Inquiry, flags, read, wire};
use crate::abi::{App, Kms, Owned};

/// Which documents and machines an application's contract has in its lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowances {
    /// The contract.
    pub app: Address,
    /// Documents.
    pub compose_hashes: Vec<B256>,
    /// Machines. Together with the documents at most [`MAX_KEYS`](super::MAX_KEYS).
    pub device_ids: Vec<B256>,
}

/// The answer to [`Allowances`]. Whatever the contract did not say in the form of the interface is `false`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowancesAnswer {
    /// Whether there is a contract.
    pub is_contract: bool,
    /// Whether every machine will do.
    pub allow_any_device: bool,
    /// One for each document, in order.
    pub compose_hashes: Vec<bool>,
    /// One for each machine, in order: whether it is in the list itself.
    pub device_ids: Vec<bool>,
}

impl Inquiry for Allowances {
    type Answer = AllowancesAnswer;

    fn question(&self) -> wire::Question {
        wire::Question {
            flags: vec![
                flags::<App::allowedComposeHashesCall>(self.app, &self.compose_hashes),
                flags::<App::allowedDeviceIdsCall>(self.app, &self.device_ids),
            ],
            reads: vec![read(self.app, &App::allowAnyDeviceCall {}, 32)],
        }
    }

    fn conclude(&self, mut findings: Findings) -> Option<AllowancesAnswer> {
        let any_device = findings.read()?;
        Some(AllowancesAnswer {
            is_contract: any_device.target != Account::Plain,
            allow_any_device: any_device.value().unwrap_or(false),
            compose_hashes: findings.flags()?,
            device_ids: findings.flags()?,
        })
    }
}

/// What an application's contract says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppState {
    /// The KMS contract that may know the application.
    pub kms_contract: Address,
    /// The application's contract.
    pub app: Address,
}

/// The answer to [`AppState`]. `None`: the contract does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppStateAnswer {
    /// What is at the address.
    pub account: Account,
    /// Whether the KMS contract knows the application.
    pub is_registered: bool,
    /// The owner; `None` also after it was given up.
    pub owner: Option<Address>,
    /// What is at the owner's address: people sign for a plain account, contracts vote or wait.
    pub owner_account: Account,
    /// Who may accept the ownership.
    pub pending_owner: Option<Address>,
    /// Version of the interface.
    pub version: Option<u64>,
    /// Whether every machine will do.
    pub allow_any_device: Option<bool>,
    /// Whether machines must have all security updates.
    pub require_tcb_up_to_date: Option<bool>,
    /// Whether the code is final. The public contracts do not say.
    pub upgrades_disabled: Option<bool>,
}

impl Inquiry for AppState {
    type Answer = AppStateAnswer;

    fn question(&self) -> wire::Question {
        wire::Question {
            flags: Vec::new(),
            reads: vec![
                read(self.kms_contract, &Kms::registeredAppsCall { appId: self.app }, 32),
                read(self.app, &Owned::ownerCall {}, 32),
                read(self.app, &Owned::pendingOwnerCall {}, 32),
                read(self.app, &App::versionCall {}, 32),
                read(self.app, &App::allowAnyDeviceCall {}, 32),
                read(self.app, &App::requireTcbUpToDateCall {}, 32),
                read(self.app, &App::upgradesDisabledCall {}, 32),
            ],
        }
    }

    fn conclude(&self, mut findings: Findings) -> Option<AppStateAnswer> {
        let is_registered = findings.read()?.value().unwrap_or(false);
        let owner = findings.read()?;
        Some(AppStateAnswer {
            account: owner.target,
            is_registered,
            owner: owner.address(),
            owner_account: owner.named,
            pending_owner: findings.read()?.address(),
            version: findings.read()?.value::<U256>().and_then(|version| version.try_into().ok()),
            allow_any_device: findings.read()?.value(),
            require_tcb_up_to_date: findings.read()?.value(),
            upgrades_disabled: findings.read()?.value(),
        })
    }
}
