//! What has to be decided, and what those who decide say.

use axum::http::StatusCode;
use cloister_app_compose::ComposeHash;
use cloister_management_api::{ErrorCode, OnChainStatus};

use super::owners::explain;
use crate::App;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::governance::chain_reads_of;
use crate::api::slots::Slot;
use crate::governance::{
    self, AllowedBy, CannotTell, Governance, LOOKS, Needed, PAUSE, Question, Standing, contract_in_words,
    needed, prove,
};
use crate::store::{CvmRow, PreparedChangeRow, StoreError};

/// A document that an application wants to run on a device, and who decides about it.
#[derive(Debug, Clone)]
pub(crate) struct Matter {
    pub(crate) cvm: CvmRow,
    pub(crate) governance: Governance,
    pub(crate) question: Question,
}

impl Matter {
    /// About a document that a CVM, or one like it, is to run on a node.
    pub(crate) async fn new(
        app: &App,
        cvm: &CvmRow,
        governance: Governance,
        compose_hash: ComposeHash,
        node_id: i64,
    ) -> Result<Self, StoreError> {
        let device_id = governance::device_of_node(&app.store, node_id).await?;
        Ok(Self { cvm: cvm.clone(), governance, question: Question { compose_hash, device_id } })
    }

    /// About what was prepared.
    pub(crate) async fn of_row(app: &App, row: &PreparedChangeRow, cvm: &CvmRow) -> Result<Self, StoreError> {
        let device_id = hex::decode(&row.device_id).ok().and_then(|bytes| bytes.try_into().ok());
        let governance = governance::of_cvm(app, cvm).await?;
        let question = Question { compose_hash: row.compose_hash, device_id };
        Ok(Self { cvm: cvm.clone(), governance, question })
    }

    /// What those who decide say now.
    pub(crate) async fn standing(&self, api: &Api) -> ApiResult<Standing> {
        let _turn = self.turn(api)?;
        let standing = governance::standing(api, &self.governance, self.cvm.app_id, self.question).await;
        standing.map_err(cannot_tell)
    }

    /// A turn of the CVM's workspace to ask the chain, where one is asked, whoever wants to know.
    fn turn(&self, api: &Api) -> ApiResult<Option<Slot>> {
        match self.governance {
            Governance::Contract(_) => chain_reads_of(api, self.cvm.workspace_id).map(Some),
            Governance::Workspace | Governance::Owners | Governance::Unknown => Ok(None),
        }
    }

    /// Whether that is yes. A device that is not known is none that was allowed.
    pub(crate) const fn is_allowed(standing: Standing) -> bool {
        standing.is_allowed(true)
    }

    /// What the owner of the contract has still to call.
    pub(crate) fn needed(&self, standing: Standing) -> Vec<Needed> {
        match self.governance {
            Governance::Contract(_) => needed(&self.question, standing),
            Governance::Workspace | Governance::Owners | Governance::Unknown => Vec::new(),
        }
    }

    /// Refuses what was not allowed: first by the transaction that somebody names, then by those who decide.
    pub(crate) async fn clear(&self, api: &Api, allowed_by: AllowedBy) -> ApiResult<()> {
        if let AllowedBy::Transaction(hash) = allowed_by {
            Self::check_transaction(api, std::slice::from_ref(self), hash).await?;
        }
        let mut standing = self.standing(api).await?;
        for _ in 1..LOOKS {
            if Self::is_allowed(standing) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            standing = self.standing(api).await?;
        }
        if Self::is_allowed(standing) {
            Ok(())
        } else {
            Err(explain(api, self, self.denied(standing)).await?)
        }
    }

    /// Refuses a transaction that allowed none of these, about all of which the same ones decide.
    pub(super) async fn check_transaction(api: &Api, matters: &[Self], hash: [u8; 32]) -> ApiResult<()> {
        let Some(first) = matters.first() else { return Ok(()) };
        let chain_id = match first.governance {
            Governance::Workspace => return Ok(()),
            Governance::Unknown => return Err(cannot_tell(CannotTell::NoKms)),
            Governance::Owners => {
                let text = "the application's owners decide by their signatures, not on a chain; leave \
                            transaction_hash empty";
                return Err(ApiError::explained(ErrorCode::TransactionInvalid, text));
            }
            Governance::Contract(contract) => contract.chain_id,
        };
        let shown = format!("0x{}", hex::encode(hash));
        let refused = |text: String| {
            ApiError::explained(ErrorCode::TransactionInvalid, text).about("transaction_hash", shown.as_str())
        };
        let mut receipt = None;
        for look in 0..LOOKS {
            if look > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let _turn = first.turn(api)?;
            receipt = api.contracts.receipt(chain_id, hash).await.map_err(cannot_tell)?;
            if receipt.is_some() {
                break;
            }
        }
        let receipt = receipt.ok_or_else(|| {
            refused(format!(
                "chain {chain_id} has no such transaction in a confirmed block (yet); wait for its \
                 confirmations and commit again"
            ))
        })?;
        let mut proofs = matters.iter().map(|matter| prove(&receipt, matter.cvm.app_id, &matter.question));
        let first = proofs.next().unwrap_or(Ok(()));
        proofs.fold(first, Result::or).map_err(|error| refused(error.to_string()))
    }

    pub(super) fn denied(&self, standing: Standing) -> ApiError {
        let mut error = ApiError::explained(ErrorCode::HashDenied, self.missing_in_words(standing))
            .about("compose_hash", self.question.compose_hash.to_string())
            .about("device_id", self.question.device_id.map(hex::encode))
            .about("onchain_status", status_json(standing));
        for text in self.suggestions(standing) {
            error = error.suggest(text);
        }
        error
    }

    /// What is not allowed, by whom.
    pub(crate) fn missing_in_words(&self, standing: Standing) -> String {
        let what =
            match (standing.compose_hash_allowed, standing.allow_any_device || standing.device_id_allowed) {
                (false, true) => "the compose hash",
                (true, false) => "the device",
                (true, true) | (false, false) => "the compose hash and the device",
            };
        match self.governance {
            Governance::Contract(contract) => format!(
                "the application's {} does not allow {what}",
                contract_in_words(self.cvm.app_id, contract.chain_id)
            ),
            Governance::Workspace | Governance::Owners | Governance::Unknown => {
                "the application's owners have not allowed the compose hash".to_owned()
            }
        }
    }

    /// Who has to do what.
    pub(crate) fn suggestions(&self, standing: Standing) -> Vec<String> {
        let Governance::Contract(contract) = self.governance else {
            let (app, hash) = (self.cvm.app_id, self.question.compose_hash);
            return vec![format!("Have the owners sign it: each of them runs cloister approve {app} {hash}")];
        };
        let whose = contract_in_words(self.cvm.app_id, contract.chain_id);
        let call = |call: Needed| {
            format!("Have the owner call {}(0x{}) of {whose}", call.method, hex::encode(call.argument))
        };
        self.needed(standing).into_iter().map(call).collect()
    }
}

/// What those who decide say, on the wire.
pub(crate) const fn status(standing: Standing) -> OnChainStatus {
    OnChainStatus {
        compose_hash_allowed: standing.compose_hash_allowed,
        device_id_allowed: standing.device_id_allowed,
        is_allowed: Matter::is_allowed(standing),
    }
}

pub(crate) fn status_json(standing: Standing) -> serde_json::Value {
    serde_json::to_value(status(standing)).unwrap_or_default()
}

/// Nobody could be asked. Nothing is allowed then: what passes by itself may be tried again, what the operator
/// has to set right may not.
#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
pub(crate) fn cannot_tell(error: CannotTell) -> ApiError {
    let text = format!("Nobody can say whether this is allowed: {error}");
    match error {
        CannotTell::Chain(_) => {
            ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER_S)
        }
        CannotTell::UnknownChain(_) | CannotTell::NoContract { .. } | CannotTell::NoKms => {
            ApiError::plain(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}
