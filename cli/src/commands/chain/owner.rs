//! Changes that the owner of a contract has to allow: by sending what is missing, or by saying what somebody else has to
//! send.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_chain::Address;
use cloister_contracts::app_address;

use super::calls::{self, Call};
use super::{Account, Agreement, ChainOptions, Need, Network, SignerOptions};
use crate::commands::approval::{Kind, Needed};
use crate::commands::deploy::RootKey;
use crate::failure::Failure;
use crate::output::{Output, Progress};
use crate::session::Session;

/// Options of commands whose change the owner of a contract may have to allow.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct OwnerOptions {
    #[command(flatten)]
    pub(crate) signer: SignerOptions,
    #[command(flatten)]
    pub(crate) chain: ChainOptions,
    #[command(flatten)]
    pub(crate) agreement: Agreement,
}

/// A change that waits, and what this command knows about it without the server.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    /// What people call the CVM.
    pub(crate) cvm: &'a str,
    /// Its application.
    pub(crate) app_id: AppId,
    /// Hash of the document, computed here.
    pub(crate) compose_hash: ComposeHash,
    /// The document that it was made of, which nobody but the server showed.
    pub(crate) base: ComposeHash,
    /// What kind of change it is.
    pub(crate) kind: Kind,
    /// What the server says about it.
    pub(crate) needed: &'a Needed,
}

impl Waiting<'_> {
    /// What has to run where. The device is the server's word: a machine that is not what its owner allowed gets no
    /// keys, whatever is written here.
    fn need(&self) -> Need {
        let app = app_address(self.app_id);
        let device = self.needed.device_id.parse().ok();
        Need { app, compose_hash: self.compose_hash, device, base: Some(self.base) }
    }

    /// The change waits for somebody else: who, and what they have to do.
    fn for_somebody_else(&self, calls: &[Call]) -> Failure {
        let chain = self.needed.kms_info.as_ref().and_then(|kms| kms.chain_id).unwrap_or_default();
        let mut failure = self.needed.waits(self.cvm, self.kind);
        let words = calls.iter().map(|call| {
            format!("the contract's owner calls, on chain {chain}, {} (data {})", call.line(), call.data)
        });
        failure.hints.splice(0..0, words);
        failure
    }
}

impl OwnerOptions {
    /// Allows what `waiting` needs, if a signer was named who can; the transaction that did, if one was needed. Nothing
    /// is sent but what was computed here, and a person has seen it.
    pub(crate) async fn allow(
        &self,
        waiting: &Waiting<'_>,
        session: &Session,
    ) -> Result<Option<String>, Failure> {
        let output = &session.output;
        let kms = waiting.needed.kms_info.as_ref();
        let Some(kms) = kms.filter(|kms| kms.chain_id.is_some()) else {
            if waiting.needed.onchain_status.is_some_and(|status| status.is_allowed) {
                return Ok(None);
            }
            return Err(waiting.needed.waits(waiting.cvm, waiting.kind));
        };
        waiting.needed.check(waiting.app_id, waiting.compose_hash)?;
        let network = match self.chain.network(session) {
            Ok(network) => network,
            Err(_) if !self.signer.is_named() => return Err(waiting.for_somebody_else(&unasked(waiting))),
            Err(failure) => return Err(failure),
        };
        network.same_contract(kms.chain_id, kms.kms_contract_address.as_deref())?;
        let missing = waiting.need().missing(&network).await?;
        if missing.is_empty() {
            return Ok(None);
        }
        match self.signer.signer(&network, output).await? {
            None => Err(waiting.for_somebody_else(&missing)),
            Some(signer) => {
                let account = Account::new(&network, signer);
                account.agree(&missing, self.agreement, output)?;
                self.send(&account, &missing, output).await.map(Some)
            }
        }
    }

    async fn send(&self, account: &Account<'_>, calls: &[Call], output: &Output) -> Result<String, Failure> {
        let mut progress: Progress = output.progress();
        let receipts = account.send(calls, |words| progress.phase(words)).await?;
        progress.done("allowed");
        Ok(receipts.last().map(|receipt| receipt.transaction.to_string()).unwrap_or_default())
    }

    /// Whether anything was named that is of use under a contract only.
    pub(crate) const fn expects_contract(&self) -> bool {
        self.signer.is_named() || self.chain.is_named()
    }

    /// The root that the contract of a KMS publishes, by what the chain says. A contract that only the server named
    /// publishes what the server likes, which is no reason to trust it.
    pub(crate) async fn root(network: &Network, kms_contract: Address) -> Result<Option<RootKey>, Failure> {
        if network.kms_contract().ok() != Some(kms_contract) {
            return Ok(None);
        }
        let view = network.chain.kms_contract(kms_contract, &[], &[], &[]).await;
        let keys = view.map_err(super::show::unanswered)?.kms_info;
        let key = keys.and_then(|keys| <[u8; 33]>::try_from(keys.k256_public_key.as_ref()).ok());
        Ok(key.map(RootKey::from))
    }
}

/// What is missing by the server's word, where the chain is not asked: the owner sees for themselves.
fn unasked(waiting: &Waiting<'_>) -> Vec<Call> {
    let Need { app, compose_hash, device, .. } = waiting.need();
    let status = waiting.needed.onchain_status;
    let hash = status.is_none_or(|status| !status.compose_hash_allowed);
    let device = device.filter(|_| status.is_none_or(|status| !status.device_id_allowed));
    let device = device.map(|device| calls::allow_device(app, device));
    device.into_iter().chain(hash.then(|| calls::allow_hash(app, compose_hash))).collect()
}
