//! Changes of the policy, and the end of onboarding.

use std::sync::Arc;

use cloister_kms_api::admin::{AllowApp, PlatformRules, PolicyDocument};
use cloister_kms_api::log::Event;
use cloister_kms_api::{KmsError, KmsErrorCode};

use super::Keys;
use crate::policy;

/// Most documents of one application: old ones are taken back.
const MAX_DOCUMENTS: usize = 10_000;

impl Keys {
    /// The rules.
    pub(crate) fn policy(&self) -> Arc<PolicyDocument> {
        Arc::clone(&self.snapshot().policy)
    }

    /// Lets an application run a document. Idempotent.
    pub(crate) async fn allow_app(&self, allow: AllowApp) -> Result<(), KmsError> {
        let AllowApp { app_id, compose_hash } = allow;
        if self.policy().apps.get(&app_id).is_some_and(|known| known.contains(&compose_hash)) {
            return Ok(());
        }
        self.change("allow-app", move |state, _| {
            let documents = state.policy.apps.entry(app_id).or_default();
            if documents.contains(&compose_hash) {
                return Ok(((), Vec::new()));
            }
            if documents.len() >= MAX_DOCUMENTS {
                return Err(KmsError::new(
                    KmsErrorCode::BadRequest,
                    format!("application {app_id} has {MAX_DOCUMENTS} documents; revoke old ones first"),
                ));
            }
            documents.push(compose_hash);
            Ok(((), vec![Event::AppAllowed { app_id, compose_hash }]))
        })
        .await
    }

    /// Takes that back. Idempotent.
    pub(crate) async fn revoke_app(&self, revoke: AllowApp) -> Result<(), KmsError> {
        let AllowApp { app_id, compose_hash } = revoke;
        self.change("revoke-app", move |state, _| {
            let Some(documents) = state.policy.apps.get_mut(&app_id) else { return Ok(((), Vec::new())) };
            let before = documents.len();
            documents.retain(|known| *known != compose_hash);
            let changed = documents.len() < before;
            if documents.is_empty() {
                state.policy.apps.remove(&app_id);
            }
            let events = changed.then_some(Event::AppRevoked { app_id, compose_hash });
            Ok(((), events.into_iter().collect()))
        })
        .await
    }

    /// Replaces the rules for platforms, images and other KMSes. Idempotent.
    pub(crate) async fn set_platform_rules(&self, rules: PlatformRules) -> Result<(), KmsError> {
        policy::check_platform_rules(&rules)
            .map_err(|error| KmsError::new(KmsErrorCode::BadRequest, error.to_string()))?;
        self.change("set-platform-rules", move |state, _| {
            if state.policy.platform == rules {
                return Ok(((), Vec::new()));
            }
            state.policy.platform = rules.clone();
            Ok(((), vec![Event::PlatformRulesSet { rules }]))
        })
        .await
    }
}
