//! What the operations share that tell who decides about an application, and what they say.

use std::collections::HashMap;

use axum::http::StatusCode;
use cloister_app_compose::AppId;
use cloister_management_api::{DeviceId, IsAllowed};

use super::Api;
use super::error::{ApiError, ApiResult, RETRY_AFTER_S};
use super::slots::Slot;
use crate::governance::{self, Address, CannotTell, Governance, Question, Standing};
use crate::store::Caller;

/// Questions to chains that a workspace may have under way at a time.
pub(super) const MAX_CHAIN_READS: usize = 8;
/// What is said where nobody has to be asked.
const NOBODY_DECIDES: &str = "neither a contract nor owners decide about this application: whoever may deploy in \
                              its workspace does";

/// A turn to ask chains, so that no workspace uses up what an installation may ask.
pub(crate) fn chain_reads(api: &Api, caller: &Caller) -> ApiResult<Slot> {
    chain_reads_of(api, caller.workspace_id)
}

/// The same for a workspace that somebody acts for who has no account in it.
pub(crate) fn chain_reads_of(api: &Api, workspace_id: i64) -> ApiResult<Slot> {
    api.chain_reads.take(workspace_id).ok_or_else(|| {
        let text = "The workspace has too many questions to chains under way; wait for their answers";
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })
}

/// An address as clients write it.
pub(crate) fn hex_address(address: &Address) -> String {
    format!("0x{}", hex::encode(address))
}

/// The bytes of a stored device id.
pub(crate) fn device_bytes(text: &str) -> Option<[u8; 32]> {
    text.parse().ok().map(|DeviceId(bytes)| bytes)
}

/// An application, and who decides about it.
pub(crate) struct Subject {
    pub(crate) app_id: AppId,
    pub(crate) governance: Governance,
}

impl Subject {
    /// An application of the workspace, which was found to be one.
    pub(crate) async fn of_app(api: &Api, caller: &Caller, app_id: AppId) -> ApiResult<Self> {
        let kms = api.store.kms_of_app(app_id, caller.workspace_id).await?;
        Ok(Self { app_id, governance: governance::of_app(api, app_id, kms).await? })
    }

    /// Address of its contract; empty where none decides.
    pub(crate) fn contract(&self) -> String {
        match &self.governance {
            Governance::Contract(_) => format!("0x{}", self.app_id),
            Governance::Workspace | Governance::Owners | Governance::Unknown => String::new(),
        }
    }

    /// What those who decide say to each question, in their order. Each different question is asked once.
    pub(crate) async fn ask(&self, api: &Api, questions: &[Question]) -> Vec<IsAllowed> {
        let mut distinct: Vec<Question> = Vec::new();
        let mut places: HashMap<Question, usize> = HashMap::new();
        for question in questions {
            places.entry(*question).or_insert_with(|| {
                distinct.push(*question);
                distinct.len() - 1
            });
        }
        let standings = match self.governance {
            Governance::Workspace => Err(NOBODY_DECIDES.to_owned()),
            Governance::Contract(_) | Governance::Owners | Governance::Unknown => {
                let asked = governance::standings(api, &self.governance, self.app_id, distinct).await;
                asked.map_err(|error| told(&error))
            }
        };
        let answer = |question: &Question| match &standings {
            Ok(standings) => {
                let standing = places.get(question).and_then(|place| standings.get(*place));
                self.answer(question, standing.copied().unwrap_or_default())
            }
            Err(why) => self.refuse(question, why),
        };
        questions.iter().map(answer).collect()
    }

    /// What they say to one question.
    pub(crate) async fn ask_one(&self, api: &Api, question: Question) -> IsAllowed {
        let mut answers = self.ask(api, &[question]).await;
        answers.pop().unwrap_or_else(|| self.refuse(&question, "there was no answer"))
    }

    fn answer(&self, question: &Question, standing: Standing) -> IsAllowed {
        IsAllowed {
            compose_hash_allowed: standing.compose_hash_allowed,
            allow_any_device: standing.allow_any_device,
            device_id_allowed: question.device_id.map(|_| standing.device_id_allowed),
            is_allowed: standing.is_allowed(question.device_id.is_some()),
            ..self.nothing_allowed(question)
        }
    }

    /// The answer to a question that could not be put: nothing is allowed, and why.
    pub(crate) fn refuse(&self, question: &Question, why: &str) -> IsAllowed {
        IsAllowed { error: Some(why.to_owned()), ..self.nothing_allowed(question) }
    }

    fn nothing_allowed(&self, question: &Question) -> IsAllowed {
        IsAllowed {
            app_contract_address: self.contract(),
            compose_hash: question.compose_hash.to_string(),
            device_id: question.device_id.map(hex::encode).unwrap_or_default(),
            ..IsAllowed::default()
        }
    }
}

/// Why nothing can be told, for the caller; the operator finds it in the log.
fn told(error: &CannotTell) -> String {
    tracing::warn!(%error, "those who decide about an application could not be asked");
    error.to_string()
}

/// Which device a request means: that of a node, or one that it names. `Err` says why that cannot be told.
pub(crate) async fn device(
    api: &Api,
    node_id: Option<i64>,
    device_id: Option<DeviceId>,
) -> ApiResult<Result<Option<[u8; 32]>, String>> {
    let named = device_id.map(|DeviceId(bytes)| bytes);
    let Some(node_id) = node_id else { return Ok(Ok(named)) };
    Ok(match governance::device_of_node(&api.store, node_id).await? {
        None => Err(format!("node {node_id} does not exist or has not proved which device it is")),
        Some(device) if named.is_some_and(|named| named != device) => {
            Err(format!("device_id is not the device of node {node_id}; leave one of them out"))
        }
        Some(device) => Ok(Some(device)),
    })
}

/// What is wrong with the chain that a request names, if anything is.
pub(crate) fn wrong_chain(subject: &Subject, chain_id: Option<i64>) -> Option<String> {
    let Governance::Contract(contract) = &subject.governance else { return None };
    let chain_id = chain_id.filter(|id| *id != contract.wire_chain_id())?;
    let decides = contract.chain_id;
    Some(format!(
        "the contract of this application is on chain {decides}; chain {chain_id} decides nothing here"
    ))
}
