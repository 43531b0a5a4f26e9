//! Composing another configuration for a CVM: what every operation that changes one shares.
//!
//! An [`Edit`] starts from what the CVM has, collects changes, and refuses what the CVM could not come back
//! from. Its kind, which the history shows, follows from what differs in the end. It is accepted through the
//! lifecycle, which refuses it again when the CVM was changed meanwhile.

mod accept;
mod approval;
mod document;
mod env;
mod machine;
mod request;
mod revision;
mod text;

use cloister_app_compose::{AppCompose, ComposeHash, Runner};
use cloister_management_api::ErrorCode;
use serde_json::Value;

pub(in crate::api) use super::cvms::power::request_error;
use super::error::{ApiError, ApiResult};
use crate::operations::{CvmStatus, OperationKind};
use crate::store::{Configuration, CvmRow};

pub(crate) use accept::{Manner, accept, answer, in_progress};
pub(crate) use approval::{Approval, allowed_by};
pub(crate) use document::{compose_error, with_kept_settings};
pub(crate) use env::check_names;
pub(crate) use request::{edit_of, manner_of};
pub(crate) use text::{SCRIPT, Text, YAML};

/// Another configuration for a CVM, in the making.
pub(crate) struct Edit<'a> {
    cvm: &'a CvmRow,
    present: Configuration,
    wanted: Configuration,
}

impl<'a> Edit<'a> {
    /// What the CVM has.
    pub(crate) fn of(cvm: &'a CvmRow) -> Self {
        let present = cvm.configuration();
        Self { cvm, wanted: present.clone(), present }
    }

    /// The document that the CVM would get.
    pub(crate) fn document(&self) -> ApiResult<AppCompose> {
        // What is stored was checked; a failure is ours.
        AppCompose::parse(self.wanted.app_compose.as_bytes()).map_err(|error| ApiError::internal(&error))
    }

    /// Changes members of the document; null removes one, and all others stay.
    pub(crate) fn members(&mut self, changes: Vec<(&'static str, Value)>) -> ApiResult<()> {
        let compose = self.document()?.with(changes).map_err(|error| compose_error(error, &["body"]))?;
        self.replace_document(&compose)
    }

    /// Refuses a compose file for a CVM that runs something else.
    pub(crate) fn check_runner(&self) -> ApiResult<()> {
        if self.document()?.members().runner == Runner::DockerCompose {
            return Ok(());
        }
        let message =
            "the CVM's document has another runner than docker-compose; give it a whole new document";
        Err(ApiError::explained(ErrorCode::IncompatibleParameters, message).about("runner", "bash"))
    }

    /// Puts another document in the place of the present one.
    pub(crate) fn replace_document(&mut self, compose: &AppCompose) -> ApiResult<()> {
        document::check_immutable(&self.document()?, compose)?;
        self.wanted.compose_hash = compose.compose_hash();
        self.wanted.app_compose = String::from_utf8_lossy(compose.bytes()).into_owned();
        Ok(())
    }

    /// Sets the configuration that is not measured.
    pub(crate) fn user_config(&mut self, text: &str) -> ApiResult<()> {
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            let message = "user_config is not JSON text";
            return Err(ApiError::explained(ErrorCode::InvalidParameter, message));
        }
        self.wanted.user_config = Some(text.to_owned());
        Ok(())
    }

    /// Hash of the document that the CVM would get.
    pub(crate) const fn compose_hash(&self) -> ComposeHash {
        self.wanted.compose_hash
    }

    /// Whether the document differs from the present one.
    pub(crate) fn changes_document(&self) -> bool {
        self.wanted.app_compose != self.present.app_compose
    }

    /// What kind of operation brings it; `None` where nothing changes.
    pub(crate) fn kind(&self) -> Option<OperationKind> {
        let (old, new) = (&self.present, &self.wanted);
        let size = |of: &Configuration| (of.vcpu, of.memory_mb, of.disk_gb);
        let aspects = [
            (self.changes_document(), OperationKind::ComposeUpdate),
            (old.encrypted_env != new.encrypted_env, OperationKind::EnvUpdate),
            (size(old) != size(new), OperationKind::Resize),
            (old.os_image_hash != new.os_image_hash, OperationKind::OsUpgrade),
            (old.user_config != new.user_config || old.gpus != new.gpus, OperationKind::Update),
        ];
        let changed: Vec<_> =
            aspects.into_iter().filter_map(|(differs, kind)| differs.then_some(kind)).collect();
        match changed.as_slice() {
            [] => None,
            [kind] => Some(*kind),
            // An application that is replaced often comes with its own environment.
            [OperationKind::ComposeUpdate, OperationKind::EnvUpdate] => Some(OperationKind::ComposeUpdate),
            _ => Some(OperationKind::Update),
        }
    }

    /// Refuses a change of a CVM that is up where the caller wants no restart.
    pub(crate) fn check_restart(&self, allow_restart: Option<bool>) -> ApiResult<()> {
        if allow_restart == Some(false) && self.kind().is_some() && self.cvm.status != CvmStatus::Stopped {
            let message = "the change restarts the CVM, which allow_restart forbids; allow it, or stop the CVM \
                           first";
            let error = ApiError::explained(ErrorCode::IncompatibleParameters, message);
            return Err(error.about("allow_restart", false));
        }
        Ok(())
    }

    /// What the CVM would get.
    pub(crate) fn into_configuration(self) -> Configuration {
        self.wanted
    }
}
