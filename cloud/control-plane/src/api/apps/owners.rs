//! `GET` and `PUT /apps/{app_id}/owners`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_kms_api::AppOwnersResponse;
use cloister_kms_api::admin::SetOwners;
use cloister_kms_api::approvals::{Action, InvalidOwnerKey, OwnerKey, Owners};
use cloister_management_api::{
    AppOwner, AppOwners, ErrorBody, ErrorCode, OwnersStatement, PlainError, SetAppOwnersRequest,
};

use super::approvals::invalid;
use super::own::OwnApp;
use crate::api::Api;
use crate::api::approvals::{Signers, approval_json};
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::kms::call_error;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::governance::owners::{Ownership, owners_row};
use crate::kms::{Kms, KmsCallError};
use crate::store::{Caller, OwnerProposalRow, StoredOwners};

/// Get the owners of an application
///
/// Their keys, how many of them have to sign, and what the key management service says about it, signed by its root,
/// so that nobody has to believe this service. Without owners the workspace decides what the application runs.
#[utoipa::path(
    get, path = "/apps/{app_id}/owners", tag = "Approvals", operation_id = "get_app_owners",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    responses(
        (status = 200, description = "The owners", body = AppOwners),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
) -> ApiResult<Json<AppOwners>> {
    let stated = match kms_of(&api, &caller, &app).await? {
        Some(kms) => kms.app_owners(app.app_id).await.map_err(|error| error.to_string()),
        None => Err("the application gets no keys from a key management service".to_owned()),
    };
    view(&api, &caller, &app, stated).await.map(Json)
}

/// Set the owners of an application
///
/// The first owners need nobody's approval. From then on the key management service gives keys to no document that
/// they did not sign, whoever asks, and takes back all that were allowed before: have what the application runs
/// approved next, before its CVMs start again. Other owners need the signatures of the present ones, so many as the
/// threshold says: the answer is then 465 with the statement that they sign (`POST /apps/{app_id}/approvals`), and
/// the new owners are set when the last of them has.
#[utoipa::path(
    put, path = "/apps/{app_id}/owners", tag = "Approvals", operation_id = "set_app_owners",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    request_body = SetAppOwnersRequest,
    responses(
        (status = 200, description = "They are the owners", body = AppOwners),
        (status = 400, description = "These can be no owners (ERR-02-008)", body = ErrorBody),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 409, description = "A contract decides about the application, it gets no keys, or the key management service refuses", body = PlainError),
        (status = 465, description = "The present owners have to sign first (ERR-01-005)", body = ErrorBody),
        (status = 503, description = "The key management service cannot be asked now", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn set(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    Body(body): Body<SetAppOwnersRequest>,
) -> ApiResult<Json<AppOwners>> {
    let owners = owners_of(&body)?;
    let kms = governing_kms(&api, &caller, &app).await?;
    let known = own(&api, &caller, &app).await?;
    let known = match known {
        Some(known) => known,
        None => first(&api, &caller, &app, &kms, &owners).await?,
    };
    if *known.owners() != owners {
        propose(&api, &caller, &app, &owners).await?;
        settle(&api, &caller, &app, &kms).await?;
        let now = own(&api, &caller, &app).await?.ok_or_else(ApiError::unexpected)?;
        if *now.owners() != owners {
            return Err(required(&api, &caller, &now, &owners).await?);
        }
    }
    let stated = kms.app_owners(app.app_id).await.map_err(|error| error.to_string());
    view(&api, &caller, &app, stated).await.map(Json)
}

/// Sets the first owners. Where the service has some that were never written down here, they are the answer.
async fn first(api: &Api, caller: &Caller, app: &OwnApp, kms: &Kms, owners: &Owners) -> ApiResult<Ownership> {
    let set = SetOwners {
        app_id: app.app_id,
        owners: owners.clone(),
        serial: u64::try_from(api.clock.now_ms()).unwrap_or_default(),
        signatures: Vec::new(),
    };
    let outcome = kms.set_owners(&set).await;
    adopt(api, caller, app, kms).await?;
    match (own(api, caller, app).await?, outcome) {
        (Some(known), _) => Ok(known),
        (None, Err(error)) => Err(refused(&error)),
        (None, Ok(())) => Err(ApiError::unexpected()),
    }
}

fn owners_of(body: &SetAppOwnersRequest) -> ApiResult<Owners> {
    let keys = body.keys.iter().map(|line| line.parse());
    let keys = keys.collect::<Result<Vec<_>, InvalidOwnerKey>>();
    let keys = keys.map_err(|error| invalid("keys", error.to_string()))?;
    Owners::new(body.threshold, keys).map_err(|error| invalid("threshold", error.to_string()))
}

/// The owners, unless they were set in another workspace, of which nothing is told here.
pub(super) async fn own(api: &Api, caller: &Caller, app: &OwnApp) -> ApiResult<Option<Ownership>> {
    let known = Ownership::of(&api.store, app.app_id).await?;
    match known {
        Some(known) if known.row.workspace_id != caller.workspace_id => Err(super::missing()),
        known => Ok(known),
    }
}

async fn kms_of(api: &Api, caller: &Caller, app: &OwnApp) -> ApiResult<Option<Arc<Kms>>> {
    let id = api.store.kms_of_app(app.app_id, caller.workspace_id).await?;
    Ok(id.and_then(|id| api.kmses.get(id)).cloned())
}

/// The service that enforces what owners say.
pub(super) async fn governing_kms(api: &Api, caller: &Caller, app: &OwnApp) -> ApiResult<Arc<Kms>> {
    let conflict = |text: &str| ApiError::plain(StatusCode::CONFLICT, text);
    let kms = kms_of(api, caller, app).await?.ok_or_else(|| {
        conflict("The application gets no keys from a key management service, so nobody would enforce what owners say")
    })?;
    if kms.contract().is_some() {
        return Err(conflict("A contract decides about this application; its owner is set there"));
    }
    Ok(kms)
}

/// Writes down whom the service names: it decides when two are set at the same time.
async fn adopt(api: &Api, caller: &Caller, app: &OwnApp, kms: &Kms) -> ApiResult<()> {
    let stated = kms.app_owners(app.app_id).await.map_err(|error| refused(&error))?;
    let Some(owners) = stated.owners else { return Ok(()) };
    let row = owners_row(app.app_id, caller.workspace_id, owners, stated.serial, api.clock.now_ms());
    let mut change = api.store.change().await?;
    change.put_app_owners(&row, caller.user_id).await?;
    Ok(change.commit().await?)
}

/// Keeps what owners the application is to get until the present ones signed; the same again is the same statement.
async fn propose(api: &Api, caller: &Caller, app: &OwnApp, owners: &Owners) -> ApiResult<()> {
    // Before the change begins: who holds a lock and waits for a second connection may wait for those who wait for
    // the lock.
    let Some(known) = Ownership::of(&api.store, app.app_id).await? else { return Ok(()) };
    let mut change = api.store.change().await?;
    let waiting = change.lock_owner_proposal(app.app_id).await?;
    if waiting.is_some_and(|waiting| waiting.owners.0 == *owners) {
        return Ok(());
    }
    let now_ms = api.clock.now_ms();
    let serial = now_ms.max(known.row.serial.saturating_add(1));
    let row = OwnerProposalRow { owners: StoredOwners(owners.clone()), serial, proposed_at_ms: now_ms };
    change.put_owner_proposal(app.app_id, &row, caller.user_id).await?;
    Ok(change.commit().await?)
}

/// Sets the proposed owners if enough of the present ones signed.
pub(super) async fn settle(api: &Api, caller: &Caller, app: &OwnApp, kms: &Kms) -> ApiResult<()> {
    let Some(known) = Ownership::of(&api.store, app.app_id).await? else { return Ok(()) };
    let Some(proposal) = &known.proposal else { return Ok(()) };
    let action = Action::SetOwners(proposal.owners.0.digest());
    if !known.is_approved(&known.ballot(action)) {
        return Ok(());
    }
    let signed = known.signatures(&api.store, action, proposal.serial).await?;
    let Some(signed) = signed else { return Ok(()) };
    let set = SetOwners {
        app_id: app.app_id,
        owners: proposal.owners.0.clone(),
        serial: signed.serial,
        signatures: signed.signatures,
    };
    kms.set_owners(&set).await.map_err(|error| refused(&error))?;
    adopt(api, caller, app, kms).await
}

async fn required(api: &Api, caller: &Caller, known: &Ownership, owners: &Owners) -> ApiResult<ApiError> {
    let signers = Signers::of(api, caller.workspace_id).await?;
    let action = Action::SetOwners(owners.digest());
    let message = format!(
        "{} of the {} present owners have to sign who is to own the application; nothing was changed",
        known.threshold(),
        known.owners().keys().len()
    );
    Ok(ApiError::explained(ErrorCode::HashRegistrationRequired, message)
        .about("app_id", known.row.app_id.to_string())
        .about("approval", approval_json(known, action, &signers))
        .suggest(format!("Have each of them run: cloister approve {} --owners", known.row.app_id)))
}

/// What the service says to owners: its words are for those who set them.
pub(super) fn refused(error: &KmsCallError) -> ApiError {
    match error {
        KmsCallError::Refused { refusal, .. } if !refusal.code.is_temporary() => ApiError::plain(
            StatusCode::CONFLICT,
            format!("The key management service refuses: {}", refusal.error),
        ),
        error => call_error(error),
    }
}

async fn view(
    api: &Api,
    caller: &Caller,
    app: &OwnApp,
    stated: Result<AppOwnersResponse, String>,
) -> ApiResult<AppOwners> {
    let known = own(api, caller, app).await?;
    let signers = Signers::of(api, caller.workspace_id).await?;
    let owners = known.as_ref().map(|known| known.owners().keys()).unwrap_or_default().iter();
    let owner = |key: &OwnerKey| {
        let fingerprint = key.fingerprint();
        AppOwner { key: key.to_string(), members: signers.members(&fingerprint), fingerprint }
    };
    let (kms_statement, kms_error) = match stated {
        Ok(stated) => (Some(statement(&stated)?), None),
        Err(error) => (None, Some(error)),
    };
    Ok(AppOwners {
        app_id: app.app_id,
        threshold: known.as_ref().map_or(0, |known| known.owners().threshold()),
        owners: owners.map(owner).collect(),
        serial: known.as_ref().map_or(0, |known| u64::try_from(known.row.serial).unwrap_or_default()),
        set_at: known.as_ref().map(|known| time(known.row.set_at_ms)),
        kms_statement,
        kms_error,
    })
}

/// What the service said, as it said it.
fn statement(stated: &AppOwnersResponse) -> ApiResult<OwnersStatement> {
    let same = serde_json::to_value(stated).and_then(serde_json::from_value);
    same.map_err(|error| ApiError::internal(&error))
}
