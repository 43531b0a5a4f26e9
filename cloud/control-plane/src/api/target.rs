//! Which CVM a path names, and whether the caller may know.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use cloister_app_compose::AppId;
use cloister_management_api::{CvmIdentifier, ErrorCode};

use super::Api;
use super::auth::Auth;
use super::error::{ApiError, ApiResult};
use crate::store::{Caller, CvmRow};

/// The CVM that the path's `cvm_id` names; it belongs to the caller's workspace.
pub(crate) struct Target(pub(crate) CvmRow);

impl FromRequestParts<Api> for Target {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, api).await?;
        let missing = |_| ApiError::coded(ErrorCode::CvmNotFound);
        let path = RawPathParams::from_request_parts(parts, api).await.map_err(missing)?;
        let text = path.iter().find_map(|(name, value)| (name == "cvm_id").then_some(value));
        find(api, &caller, text.unwrap_or_default()).await.map(Self)
    }
}

/// The application id that a text of a path is, in any of its forms.
pub(crate) fn app_id(text: &str) -> Option<AppId> {
    let digits = text.strip_prefix("app_").unwrap_or(text);
    digits.strip_prefix("0x").unwrap_or(digits).parse().ok()
}

/// The CVM that a text names.
pub(crate) async fn find(api: &Api, caller: &Caller, text: &str) -> ApiResult<CvmRow> {
    let Ok(identifier) = text.parse::<CvmIdentifier>();
    let store = &api.store;
    match identifier {
        CvmIdentifier::Id(id) => one(caller, store.cvm(id.0).await?, ErrorCode::IdentifierAmbiguous),
        CvmIdentifier::Uuid(uuid) => {
            one(caller, store.cvm_by_uuid(uuid).await?, ErrorCode::IdentifierAmbiguous)
        }
        CvmIdentifier::Instance(id) => {
            one(caller, store.cvms_by_instance(id).await?, ErrorCode::IdentifierAmbiguous)
        }
        CvmIdentifier::AppOrInstance(app, instance) => {
            let mut found = store.cvms_of_app(app).await?;
            if found.is_empty() {
                found = store.cvms_by_instance(instance).await?;
            }
            one(caller, found, ErrorCode::IdentifierAmbiguous)
        }
        CvmIdentifier::Name(name) => {
            one(caller, store.cvm_by_name(caller.workspace_id, &name).await?, ErrorCode::NameAmbiguous)
        }
        CvmIdentifier::Nothing => Err(ApiError::coded(ErrorCode::CvmNotFound)),
    }
}

/// The only one of the caller's; foreign ones count only when there is none.
fn one(caller: &Caller, found: impl IntoIterator<Item = CvmRow>, ambiguous: ErrorCode) -> ApiResult<CvmRow> {
    let (own, foreign): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|cvm| cvm.workspace_id == caller.workspace_id);
    match (<[CvmRow; 1]>::try_from(own), foreign.is_empty()) {
        (Ok([cvm]), _) => Ok(cvm),
        (Err(own), _) if !own.is_empty() => Err(ApiError::coded(ambiguous)),
        (Err(_), true) => Err(ApiError::coded(ErrorCode::CvmNotFound)),
        (Err(_), false) if caller.is_admin() => Err(ApiError::coded(ErrorCode::CvmInOtherWorkspace)),
        (Err(_), false) => Err(ApiError::coded(ErrorCode::CvmMaskedWorkspace)),
    }
}
