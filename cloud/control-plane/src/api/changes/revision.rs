//! A former configuration as the next one.

use cloister_app_compose::AppCompose;
use cloister_management_api::{ErrorCode, SealedEnv};

use super::Edit;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::fleet::NodeStanding;
use crate::store::{Configuration, RevisionRow};

impl Edit<'_> {
    /// Takes everything from a revision of the same application. A disk only grows, and the CVM keeps its GPUs:
    /// those of a revision may be another node's. A sealed environment that no key of the application is known
    /// to open is refused, unless the caller allows it or brings another one.
    pub(crate) async fn revision(
        &mut self,
        api: &Api,
        revision: &RevisionRow,
        env: Option<&SealedEnv>,
        allow_env_mismatch: bool,
    ) -> ApiResult<()> {
        let former = &revision.configuration;
        let compose = AppCompose::parse(former.app_compose.as_bytes());
        let compose = compose.map_err(|error| ApiError::internal(&error))?;
        self.replace_document(&compose)?;
        self.check_image(api, former).await?;
        if env.is_none() && !allow_env_mismatch {
            self.check_env(revision, &compose)?;
        }
        self.wanted = Configuration {
            disk_gb: former.disk_gb.max(self.present.disk_gb),
            gpus: self.present.gpus.clone(),
            ..former.clone()
        };
        if let Some(env) = env {
            self.seal(api, env).await?;
        }
        Ok(())
    }

    /// A node keeps images only while they are used.
    async fn check_image(&self, api: &Api, former: &Configuration) -> ApiResult<()> {
        if former.os_image_hash == self.present.os_image_hash {
            return Ok(());
        }
        let node = api.fleet.standing(self.cvm.node_id).await?;
        let lacks = |node: &NodeStanding| node.report.is_some() && node.image(former.os_image_hash).is_none();
        if !node.as_ref().is_some_and(lacks) {
            return Ok(());
        }
        let message = format!(
            "the CVM's node does not have OS image {} of the revision any more; have it added again, or choose \
             another revision",
            former.os_image_name
        );
        let error = ApiError::explained(ErrorCode::SourceImageMissing, message);
        Err(error.about("os_image_hash", former.os_image_hash.to_string()))
    }

    fn check_env(&self, revision: &RevisionRow, compose: &AppCompose) -> ApiResult<()> {
        let former = &revision.configuration;
        let message = match (&former.encrypted_env, &former.env_pubkey, &self.present.env_pubkey) {
            // Environments are removed with their CVMs.
            (None, ..) if self.cvm.id != revision.cvm_id && !compose.members().allowed_envs.is_empty() => {
                "the revision has no sealed environment (any more), and its document expects one"
            }
            (Some(_), Some(sealed_to), Some(present)) if sealed_to != present => {
                "the revision's environment was sealed to another key than the application has now; if that key \
                 was retired, the guest cannot open it and the change fails"
            }
            _ => return Ok(()),
        };
        let message = format!("{message}; send encrypted_env, or set allow_env_mismatch");
        Err(ApiError::explained(ErrorCode::IncompatibleParameters, message)
            .about("allow_env_mismatch", false))
    }
}
