//! Sealed environments of CVMs that exist.

use cloister_app_compose::AppCompose;
use cloister_management_api::{ErrorCode, SealedEnv};
use serde_json::json;

use super::Edit;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::provisioning::nothing_opens_it;

impl Edit<'_> {
    /// Replaces the sealed environment.
    pub(crate) async fn seal(&mut self, api: &Api, env: &SealedEnv) -> ApiResult<()> {
        let kms = self.cvm.kms_id.ok_or_else(nothing_opens_it)?;
        // Whoever seals asks for the key anyway; here it is only noted.
        let known = match api.kmses.get(kms) {
            Some(kms) => kms.env_public_key(self.cvm.app_id).await.ok(),
            None => None,
        };
        self.wanted.env_pubkey = known.map(|key| hex::encode(&key.public_key));
        self.wanted.encrypted_env = Some(env.as_hex().to_owned());
        Ok(())
    }

    /// Makes these the names that the document allows, unless they are so already; whether it changed.
    pub(crate) fn allow_names(&mut self, names: &[String]) -> ApiResult<bool> {
        let document = self.document()?;
        let allowed = &document.members().allowed_envs;
        let has_all = |some: &[String], of: &[String]| some.iter().all(|name| of.contains(name));
        if has_all(allowed, names) && has_all(names, allowed) {
            return Ok(false);
        }
        self.members(vec![("allowed_envs", json!(names))])?;
        Ok(true)
    }
}

/// Refuses names of an environment that the document does not allow.
pub(crate) fn check_names(compose: &AppCompose, names: Option<&[String]>) -> ApiResult<()> {
    let allowed = &compose.members().allowed_envs;
    match names.unwrap_or_default().iter().find(|name| !allowed.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let message = "env_keys names a variable that the compose document does not allow; set \
                           update_env_vars, or name it in allowed_envs";
            Err(ApiError::explained(ErrorCode::InvalidParameter, message).about("env_keys", name.as_str()))
        }
    }
}
