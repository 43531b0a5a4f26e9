//! Changes that somebody has to allow first: the server's answer as a type, what to say about it, and the commit.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_management_api::{KmsInfo, OnChainStatus};
use serde::Deserialize;
use serde_json::{Value, json};

use super::owners;
use crate::api::Client;
use crate::failure::{Exit, Failure};

/// What somebody commits who has no transaction to show.
pub(crate) const ALREADY_ALLOWED: &str = "already-registered";

/// What has to be allowed before a change is made (status 465). All of it is the server's word: whoever signs compares
/// it with what they computed themselves, with [`Needed::check`] first.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Needed {
    /// Hash of the document that the change would run.
    pub(crate) compose_hash: ComposeHash,
    /// The application; where a contract decides, its address.
    pub(crate) app_id: AppId,
    /// Device that it would run on, 64 hex digits; empty while nobody knows.
    #[serde(default)]
    pub(crate) device_id: String,
    /// Where the application's keys come from; names chain and contract where a contract decides.
    pub(crate) kms_info: Option<KmsInfo>,
    /// What the commit is authorised with, if the change was kept.
    pub(crate) commit_token: Option<String>,
    /// A page for people on which they can commit it.
    pub(crate) commit_url: Option<String>,
    /// How it stood when the server looked.
    pub(crate) onchain_status: Option<OnChainStatus>,
    /// What owners of an application without a contract have to sign.
    pub(crate) approval: Option<Value>,
}

/// What a commit token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Another configuration for a CVM.
    Update,
    /// Another CVM like one.
    Replica,
}

impl Kind {
    const fn path(self) -> &'static str {
        match self {
            Self::Update => "commit-update",
            Self::Replica => "commit-replica",
        }
    }
}

impl Needed {
    /// What a failed request waits for. Gives the failure back if it failed for another reason.
    pub(crate) fn of(failure: Failure) -> Result<Self, Failure> {
        let Some(members) = &failure.approval else { return Err(failure) };
        Self::deserialize(Value::Object(members.as_ref().clone())).map_err(|error| {
            Failure::local("the server does not say what has to be allowed", error)
                .hint("compare `cloister version` with the server's version")
        })
    }

    /// Refuses an answer about another application or document than was asked for: nobody shall allow what the server
    /// would like to run.
    pub(crate) fn check(&self, app_id: AppId, compose_hash: ComposeHash) -> Result<(), Failure> {
        let wrong = |what: &str, theirs: String, ours: String| {
            let message =
                format!("the server wants {what} {theirs} to be allowed, and this change has {ours}");
            Err(Failure::new(Exit::Unverified, message).hint("nothing was sent or signed; do not allow it"))
        };
        if self.app_id != app_id {
            return wrong("application", self.app_id.to_string(), app_id.to_string());
        }
        if self.compose_hash != compose_hash {
            return wrong("document", self.compose_hash.to_string(), compose_hash.to_string());
        }
        Ok(())
    }

    /// The command that carries the change out once it is allowed.
    pub(crate) fn commit_command(&self, cvm: &str, kind: Kind) -> Option<String> {
        let token = self.commit_token.as_deref()?;
        let replica = if kind == Kind::Replica { " --replica" } else { "" };
        Some(format!("cloister commit {cvm}{replica} --token {token}"))
    }

    /// That the change waits, with the ways to go on.
    pub(crate) fn waits(&self, cvm: &str, kind: Kind) -> Failure {
        let message =
            format!("{cvm}: document {} waits to be allowed; nothing was changed", self.compose_hash);
        let mut failure = Failure::new(Exit::AwaitsApproval, message);
        if let Some(approval) = &self.approval {
            let (app, hash) = (self.app_id.to_string(), self.compose_hash.to_string());
            failure.hints.extend(owners::hints(&app, &hash, approval));
        }
        failure.hints.extend(self.commit_command(cvm, kind).map(|command| format!("then: {command}")));
        failure.hints.extend(self.commit_url.as_ref().map(|page| format!("or open {page}")));
        failure
    }
}

/// Has a prepared change carried out; the server's answer. `transaction` allowed it, if one did.
pub(crate) async fn commit(
    client: &Client,
    cvm: &str,
    kind: Kind,
    token: &str,
    transaction: Option<&str>,
) -> Result<Value, Failure> {
    let transaction = transaction.unwrap_or(ALREADY_ALLOWED);
    let body = json!({ "token": token, "transaction_hash": transaction });
    client.post(&["cvms", cvm, kind.path()], Some(&body)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(details: &Value) -> Failure {
        let mut failure = Failure::new(Exit::AwaitsApproval, "not allowed");
        failure.approval = Some(Box::new(details.as_object().unwrap().clone()));
        failure
    }

    #[test]
    fn what_is_needed_is_read_and_compared() {
        let (app, hash) = ("ab".repeat(20), "cd".repeat(32));
        let token = "0b6a4a5e-5d7c-4b7e-9f0e-0c5f5b1d8f3a";
        let needed = Needed::of(failure(&json!({
            "compose_hash": hash, "app_id": app, "device_id": "", "kms_info": null, "commit_token": token,
            "commit_url": "https://cloud.example.org/commit", "onchain_status": null, "other": 1,
        })));
        let needed = needed.unwrap();
        let (app, hash): (AppId, ComposeHash) = (app.parse().unwrap(), hash.parse().unwrap());
        needed.check(app, hash).unwrap();
        let others = (AppId::from_bytes([1; 20]), ComposeHash::from_bytes([1; 32]));
        assert_eq!(needed.check(others.0, hash).unwrap_err().exit, Exit::Unverified);
        assert_eq!(needed.check(app, others.1).unwrap_err().exit, Exit::Unverified);
        let waits = needed.waits("hello", Kind::Replica);
        assert_eq!(waits.exit, Exit::AwaitsApproval);
        assert!(waits.hints[0].contains(&format!("commit hello --replica --token {token}")), "{waits:?}");
    }

    #[test]
    fn other_failures_stay_and_answers_without_the_facts_are_failures() {
        let other = Needed::of(Failure::new(Exit::Conflict, "busy")).unwrap_err();
        assert_eq!(other.exit, Exit::Conflict);
        assert_eq!(Needed::of(failure(&json!({ "app_id": "x" }))).unwrap_err().exit, Exit::Failed);
    }
}
