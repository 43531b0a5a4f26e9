//! A contract decides (platform reference, section 11).
//!
//! Each release asks it anew: nothing that it allowed once is remembered. A chain that cannot be asked allows
//! nothing, and the next release asks again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_chain::{
    Address, AppBootInfo, B256, Chain, ChainConfig, ChainError, Clock, Decision, InvalidChainConfig,
};
use cloister_kms_api::log::AuthorizedAt;
use cloister_kms_api::{Hex, KmsError, KmsErrorCode};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::reasons::{code_of, printable};
use super::{BootInfo, Grant, Question};

/// How old what is told to anybody about the contract becomes. Nothing is decided by it.
const FACTS_AGE: Duration = Duration::from_mins(1);

/// The contract of a KMS on its chain; cheap to clone.
#[derive(Clone)]
pub(crate) struct ChainAuthority {
    chain: Chain,
    contract: Address,
    facts: Arc<Mutex<Facts>>,
}

/// What the contract said of itself last.
#[derive(Debug, Clone, Default)]
struct Facts {
    gateway_app_id: String,
    app_implementation: Option<Address>,
}

/// The contract, for anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contract {
    /// Its chain.
    pub(crate) chain_id: u64,
    /// `0x` and 40 hex digits.
    pub(crate) address: String,
    /// Gateway application, if one is known.
    pub(crate) gateway_app_id: Option<String>,
    /// Code of application contracts, if it is known.
    pub(crate) app_implementation: Option<String>,
}

impl ChainAuthority {
    /// The contract at this address. Asks nothing yet.
    pub(crate) fn new(
        config: ChainConfig,
        contract: Address,
        clock: Clock,
    ) -> Result<Self, InvalidChainConfig> {
        let chain = Chain::new(config, clock)?;
        Ok(Self { chain, contract, facts: Arc::default() })
    }

    /// Which contract decides, and what it said of itself last.
    pub(crate) fn contract(&self) -> Contract {
        let facts = self.facts.lock().clone();
        Contract {
            chain_id: self.chain.config().chain_id,
            address: text(self.contract),
            gateway_app_id: Some(facts.gateway_app_id).filter(|id| !id.is_empty()),
            app_implementation: facts.app_implementation.map(text),
        }
    }

    /// Asks about `boot`. Whatever is not a clear answer is a failure, and no permission.
    pub(crate) async fn ask(&self, question: Question, boot: &BootInfo) -> Result<Grant, KmsError> {
        let asked = as_contracts_ask(question, boot)?;
        let (decision, gateway_app_id) = match question {
            Question::App => tokio::join!(self.chain.is_app_allowed(self.contract, &asked), self.gateway()),
            Question::Kms => (self.chain.is_kms_allowed(self.contract, &asked).await, Ok(String::new())),
        };
        let decision = decision.map_err(|error| unreadable(&error))?;
        if !decision.is_allowed {
            let reason = printable(&decision.reason);
            return Err(KmsError::new(code_of(&reason), format!("the contract refused: {reason}")));
        }
        let gateway_app_id = gateway_app_id.map_err(|error| unreadable(&error))?;
        Ok(Grant { gateway_app_id, authorized_at: Some(self.authorized_at(&decision)) })
    }

    fn authorized_at(&self, decision: &Decision) -> AuthorizedAt {
        AuthorizedAt {
            chain_id: self.chain.config().chain_id,
            block_number: decision.at.number,
            block_hash: Hex::from(decision.at.hash.as_slice()),
        }
    }

    /// The gateway application as it is now.
    async fn gateway(&self) -> Result<String, ChainError> {
        let view = self.chain.kms_contract(self.contract, &[], &[], &[]).await?;
        let facts =
            Facts { gateway_app_id: view.gateway_app_id, app_implementation: view.app_implementation };
        let gateway_app_id = facts.gateway_app_id.clone();
        *self.facts.lock() = facts;
        Ok(gateway_app_id)
    }

    /// Keeps up with what the contract says of itself, for those who only want to know.
    pub(crate) async fn keep_up(self, stop: CancellationToken) {
        let keep_up = async {
            loop {
                if let Err(error) = self.gateway().await {
                    warn!(%error, contract = %self.contract, "the contract that decides cannot be read");
                }
                tokio::time::sleep(FACTS_AGE).await;
            }
        };
        tokio::select! {
            () = keep_up => {}
            () = stop.cancelled() => {}
        }
    }
}

/// What contracts are asked. A KMS that is a process of a host has no application and no image; an application
/// without them is none.
fn as_contracts_ask(question: Question, boot: &BootInfo) -> Result<AppBootInfo, KmsError> {
    let is_complete = boot.app_id.is_some() && boot.compose_hash.is_some() && boot.os_image_hash.is_some();
    if question == Question::App && !is_complete {
        return Err(KmsError::new(
            KmsErrorCode::MeasurementNotFound,
            "the machine measured no application, or booted no image",
        ));
    }
    let address = |bytes: Option<&[u8; 20]>| bytes.map_or(Address::ZERO, |bytes| Address::from(*bytes));
    let word = |bytes: Option<&[u8; 32]>| bytes.map_or(B256::ZERO, |bytes| B256::from(*bytes));
    Ok(AppBootInfo {
        appId: address(boot.app_id.as_ref().map(AppId::as_bytes)),
        composeHash: word(boot.compose_hash.as_ref().map(ComposeHash::as_bytes)),
        instanceId: address(boot.instance_id.as_ref().map(InstanceId::as_bytes)),
        deviceId: B256::from(boot.device_id),
        mrAggregated: B256::from(boot.mr_aggregated),
        mrSystem: B256::from(boot.mr_system),
        osImageHash: word(boot.os_image_hash.as_ref().map(OsImageHash::as_bytes)),
        tcbStatus: boot.tcb_status.to_string(),
        advisoryIds: boot.advisory_ids.clone(),
    })
}

fn unreadable(error: &ChainError) -> KmsError {
    warn!(%error, "the contract that decides could not be asked");
    KmsError::new(
        KmsErrorCode::InternalError,
        format!("the contract that decides could not be asked: {}", printable(&error.to_string())),
    )
}

fn text(address: Address) -> String {
    format!("0x{}", hex::encode(address))
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on chain {}", self.address, self.chain_id)
    }
}

impl fmt::Debug for ChainAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainAuthority").field("contract", &self.contract()).finish_non_exhaustive()
    }
}
