//! The policy, and changes of its rules for platforms.

use std::sync::Arc;

use cloister_kms_api::admin::{PlatformRules, PolicyDocument};
use cloister_kms_api::log::Event;
use cloister_kms_api::{KmsError, KmsErrorCode};

use super::Keys;
use crate::policy;

impl Keys {
    /// The rules.
    pub(crate) fn policy(&self) -> Arc<PolicyDocument> {
        Arc::clone(&self.snapshot().policy)
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
