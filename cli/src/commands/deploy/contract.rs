//! Applications under a contract: the contract comes first, and allows this document on the chosen device.

use cloister_app_compose::AppId;
use cloister_chain::{Address, B256};
use cloister_contracts::{NewApp, app_address, app_id, compose_word};
use cloister_management_api::{KmsInfo, ProvisionResponse};

use super::{App, Keys};
use crate::commands::chain::{Account, Need, Network, OwnerOptions, make_app, new_app};
use crate::commands::deploy::RootKey;
use crate::failure::{Exit, Failure};
use crate::output::Progress;
use crate::session::Session;

/// The contract of a KMS that an application is to belong to.
#[derive(Debug)]
pub(crate) struct Contract<'a> {
    kms: &'a KmsInfo,
    device: Option<B256>,
}

/// A contract that allows what is deployed.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// The application: address of its contract.
    pub(crate) app_id: AppId,
    /// Transaction that made it so, if one was needed.
    pub(crate) transaction: Option<String>,
    /// The root that the contract of the KMS publishes, if it does and somebody here named the contract.
    pub(crate) root: Option<RootKey>,
}

impl<'a> Contract<'a> {
    /// The contract that decides for what was provisioned, if one does.
    pub(crate) fn of(provision: &'a ProvisionResponse) -> Option<Self> {
        let kms = provision.kms_info.as_ref().filter(|kms| kms.chain_id.is_some())?;
        let device = provision.device_id.as_ref().and_then(|id| id.parse().ok());
        Some(Self { kms, device })
    }

    /// Makes the application's contract, or has the one that there is allow the document on the device. What is allowed
    /// is the document that was completed here, not what the server says.
    pub(crate) async fn made(
        &self,
        app: &App,
        keys: &Keys,
        owner: &OwnerOptions,
        session: &Session,
    ) -> Result<Made, Failure> {
        let network = owner.chain.network(session)?;
        let kms_contract =
            network.same_contract(self.kms.chain_id, self.kms.kms_contract_address.as_deref())?;
        let signer = owner.signer.signer(&network, &session.output).await?;
        let account = signer.map(|signer| Account::new(&network, signer));
        let place = Place { network: &network, kms_contract, device: self.device()? };
        match (keys.app, &account) {
            (Some(app_id), _) => {
                let transaction = place.allow(app_id, app, account.as_ref(), owner, session).await?;
                let root = OwnerOptions::root(&network, kms_contract).await?;
                Ok(Made { app_id, transaction, root })
            }
            (None, Some(_)) if owner.agreement.yes && network.kms_contract().is_err() => {
                let message = format!("only the server says that {kms_contract} is the KMS contract");
                Err(Failure::usage(message)
                    .hint(format!("with --yes name it yourself: --kms-contract {kms_contract}")))
            }
            (None, Some(account)) => {
                let call = new_app(kms_contract, &place.new_app(app, account.address()));
                account.agree(&[call], owner.agreement, &session.output)?;
                let mut progress = session.output.progress();
                let made = place.make(app, account, &mut progress).await?;
                progress.done(&format!("contract {} is there", app_address(made.app_id)));
                Ok(made)
            }
            (None, None) => Err(place.nobody(app)),
        }
    }

    /// Makes the application's contract without asking anybody.
    pub(crate) async fn make(
        &self,
        app: &App,
        network: &Network,
        account: &Account<'_>,
        progress: &mut Progress,
    ) -> Result<Made, Failure> {
        let kms_contract =
            network.same_contract(self.kms.chain_id, self.kms.kms_contract_address.as_deref())?;
        Place { network, kms_contract, device: self.device()? }.make(app, account, progress).await
    }

    fn device(&self) -> Result<B256, Failure> {
        self.device.ok_or_else(|| {
            Failure::new(Exit::Failed, "the server does not say on which device the application would run")
        })
    }
}

/// Where an application is to be allowed.
struct Place<'a> {
    network: &'a Network,
    kms_contract: Address,
    device: B256,
}

impl Place<'_> {
    fn new_app(&self, app: &App, owner: Address) -> NewApp {
        NewApp {
            owner,
            disable_upgrades: false,
            require_tcb_up_to_date: false,
            allow_any_device: false,
            device_id: Some(self.device),
            compose_hash: Some(compose_word(app.compose_hash())),
        }
    }

    async fn make(&self, app: &App, account: &Account<'_>, progress: &mut Progress) -> Result<Made, Failure> {
        let new = self.new_app(app, account.address());
        let (made, receipt) = make_app(account, self.network, self.kms_contract, &new, progress).await?;
        let root = OwnerOptions::root(self.network, self.kms_contract).await?;
        Ok(Made { app_id: app_id(made), transaction: Some(receipt.transaction.to_string()), root })
    }

    async fn allow(
        &self,
        app_id: AppId,
        app: &App,
        account: Option<&Account<'_>>,
        owner: &OwnerOptions,
        session: &Session,
    ) -> Result<Option<String>, Failure> {
        let (app, compose_hash) = (app_address(app_id), app.compose_hash());
        let need = Need { app, compose_hash, device: Some(self.device), base: None };
        let missing = need.missing(self.network).await?;
        if missing.is_empty() {
            return Ok(None);
        }
        let Some(account) = account else {
            let message = format!("contract {} does not allow this yet; nothing was created", need.app);
            let failure = Failure::new(Exit::AwaitsApproval, message);
            return Err(missing.iter().fold(failure, |failure, call| {
                failure.hint(format!("its owner calls {} (data {})", call.line(), call.data))
            }));
        };
        account.agree(&missing, owner.agreement, &session.output)?;
        let mut progress = session.output.progress();
        let receipts = account.send(&missing, |words| progress.phase(words)).await?;
        progress.done("allowed");
        Ok(receipts.last().map(|receipt| receipt.transaction.to_string()))
    }

    /// Nobody is here who could make the contract.
    fn nobody(&self, app: &App) -> Failure {
        let options = format!(
            "--kms-contract {} --hash {} --device {}",
            self.kms_contract,
            app.compose_hash(),
            self.device
        );
        Failure::new(Exit::AwaitsApproval, "the application needs a contract first; nothing was created")
            .hint("name who signs: --key-file FILE, or --signer-url URL")
            .hint(format!("or have its owner make it: cloister chain deploy-app {options}"))
            .hint("then deploy with it: cloister deploy … --app ADDRESS")
    }
}
