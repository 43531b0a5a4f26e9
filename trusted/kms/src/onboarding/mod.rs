//! A KMS without roots, or one whose onboarding nobody finished (platform reference, section 10.2).
//!
//! Plain HTTP: whoever can reach the port can onboard the KMS, once. What comes of it is attested, and a KMS
//! that somebody else onboarded has another root than its owner expects.

mod bootstrap;
mod domain;
mod machine;
mod server;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cloister_kms_api::admin::PolicyDocument;
use cloister_kms_api::{
    AttestationInfo, BootstrapRequest, BootstrapResponse, KmsError, KmsErrorCode, OnboardRequest,
    OnboardResponse,
};
use cloister_verifier::{Clock, Verifier};
use tokio::sync::Mutex;
use tracing::error;

use crate::policy::Authority;
use crate::state::{Keys, Store, chain};
use cloister_agent_client::Agent;

pub(crate) use server::serve;

/// What onboarding works with; cheap to clone.
#[derive(Clone)]
pub(crate) struct Onboarding {
    pub(crate) store: Store,
    pub(crate) agent: Agent,
    pub(crate) verifier: Verifier,
    pub(crate) authority: Authority,
    pub(crate) clock: Clock,
    /// Rules to begin with.
    pub(crate) rules: Arc<PolicyDocument>,
    /// The roots, once there are any. Who makes them holds the lock.
    pub(crate) keys: Arc<Mutex<Option<Keys>>>,
}

impl Onboarding {
    /// What this machine would be to others.
    async fn attestation_info(&self) -> Result<AttestationInfo, KmsError> {
        let machine = machine::Machine::look(&self.agent, &self.verifier).await;
        let contract = self.authority.chain().map(|chain| chain.contract().address);
        Ok(machine.map_err(|error| failed(&error))?.info(contract))
    }

    /// Makes the first root.
    async fn bootstrap(&self, request: BootstrapRequest) -> Result<BootstrapResponse, KmsError> {
        let domain = request.domain.parse::<domain::Domain>().map_err(|error| bad_request(&error))?;
        let mut keys = self.keys.lock().await;
        if keys.is_some() {
            return Err(already());
        }
        let (made, response) = self.make_first_root(&domain).await?;
        *keys = Some(made);
        Ok(response)
    }

    /// Takes the roots of another KMS.
    async fn onboard(&self, request: OnboardRequest) -> Result<OnboardResponse, KmsError> {
        let domain = request.domain.parse::<domain::Domain>().map_err(|error| bad_request(&error))?;
        let source = source::Source::new(&request).map_err(|error| bad_request(&error))?;
        let mut keys = self.keys.lock().await;
        if keys.is_some() {
            return Err(already());
        }
        let (taken, response) = self.take_roots(&domain, &source).await?;
        *keys = Some(taken);
        Ok(response)
    }
}

fn already() -> KmsError {
    KmsError::new(KmsErrorCode::BadRequest, "KMS has already been bootstrapped")
}

fn bad_request(error: &dyn std::error::Error) -> KmsError {
    KmsError::new(KmsErrorCode::BadRequest, error.to_string())
}

/// A failure of ours, with what caused it: no secret is in these errors.
fn failed(error: &dyn std::error::Error) -> KmsError {
    let text = chain(error);
    error!(error = text, "onboarding failed");
    KmsError::new(KmsErrorCode::InternalError, text)
}

impl Onboarding {
    /// Ends onboarding, if there is something to end it with. A machine that could not serve afterwards is
    /// not finished.
    async fn finish(&self) -> Result<(), KmsError> {
        let keys = self.keys.lock().await;
        let Some(keys) = keys.as_ref() else {
            return Err(KmsError::new(
                KmsErrorCode::BadRequest,
                "there is nothing to finish yet: call Onboard.Bootstrap or Onboard.Onboard first",
            ));
        };
        machine::Machine::look(&self.agent, &self.verifier).await.map_err(|error| failed(&error))?;
        keys.finish().await
    }
}
