//! `GET` and `POST /apps/{app_id}/approvals`, and `DELETE /apps/{app_id}/approvals/{compose_hash}`

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_app_compose::ComposeHash;
use cloister_kms_api::admin::AllowApp;
use cloister_kms_api::approvals::{Action, ApprovalError, ApprovalStatement, Owners, verify};
use cloister_management_api::{
    AppApprovals, Approval, ApprovalRequest, ErrorBody, ErrorCode, KmsId, PlainError, UntoldRevocation,
};
use serde_json::Value;

use super::own::OwnApp;
use super::owners::{governing_kms, own, refused, settle};
use super::statements::{MAX_ITEMS, actions, item, open_changes};
use crate::api::Api;
use crate::api::approvals::Signers;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::governance::owners::{Ownership, named};
use crate::governance::untold;
use crate::kms::Kms;
use crate::store::{ApprovedAction, Caller, MAX_APPROVALS, NewApproval, RevocationRow, UntoldRow};

/// What is answered while the service cannot be told of a revocation.
const UNHEARD: &str = "The revocation is kept, but the key management service cannot be told now: it still gives keys to \
                       the document. It is told again until it has heard; the list of approvals says what it has not heard";
/// When it may have heard.
const RETRY_AFTER_S: u32 = 5;
/// How far ahead of this service's clock a serial may be: one that is much greater would leave none for whoever wants
/// to take it back.
const MAX_AHEAD_MS: i64 = 24 * 60 * 60 * 1000;

/// List what owners have to sign
///
/// Changes that wait for the owners of the application, documents that its CVMs have without their approval, other
/// owners that were proposed, and whatever some owner signed and others have to sign too. Each comes with the text to
/// sign, and with the document: compute its hash yourself before you sign.
#[utoipa::path(
    get, path = "/apps/{app_id}/approvals", tag = "Approvals", operation_id = "get_app_approvals",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    responses(
        (status = 200, description = "The statements, at most 100; none without owners", body = AppApprovals),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
) -> ApiResult<Json<AppApprovals>> {
    let Some(known) = own(&api, &caller, &app).await? else {
        return Ok(Json(AppApprovals { items: Vec::new(), next_serial: 1, untold_revocations: Vec::new() }));
    };
    let signers = Signers::of(&api, caller.workspace_id).await?;
    let open = open_changes(&api, &caller, &app).await?;
    let mut items = Vec::new();
    for (action, reason) in actions(&known, &app, &open).into_iter().take(MAX_ITEMS) {
        items.push(item(&api, &app, &known, &signers, &open, action, reason).await?);
    }
    let untold_revocations = untold_revocations(&api, &app).await?;
    Ok(Json(AppApprovals { items, next_serial: unsigned(least_serial(&known)), untold_revocations }))
}

/// Hand in a signature
///
/// Of an owner, over a statement about this application; whoever works in the workspace may hand it in, again too.
/// With the last signature that is needed a change can be committed; a revocation, and other owners, take effect.
#[utoipa::path(
    post, path = "/apps/{app_id}/approvals", tag = "Approvals", operation_id = "approve_app_change",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    request_body = ApprovalRequest,
    responses(
        (status = 200, description = "It counts: the statement, and who signed it by now", body = Approval),
        (status = 400, description = "It is not an owner's signature over a statement about this application (ERR-02-008)", body = ErrorBody),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 409, description = "The application has no owners, or the key management service refuses", body = PlainError),
        (status = 503, description = "The signature is kept, and the key management service cannot be told now; a revocation is told again until it has heard, other owners are handed in again", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn approve(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    Body(body): Body<ApprovalRequest>,
) -> ApiResult<Json<Approval>> {
    hand_in(&api, &caller, &app, &body, None).await.map(Json)
}

/// Take a document back
///
/// With a signature of an owner over the revocation. Once enough of them signed, the application gets keys for the
/// document no more, and no approval up to the revocation's serial allows it again.
#[utoipa::path(
    delete, path = "/apps/{app_id}/approvals/{compose_hash}", tag = "Approvals", operation_id = "revoke_app_approval",
    params(
        ("app_id" = String, Path, description = "App id, with or without `0x` or `app_`"),
        ("compose_hash" = String, Path, description = "Hash of the document, 64 hex digits"),
    ),
    request_body = ApprovalRequest,
    responses(
        (status = 200, description = "It counts: the statement, and who signed it by now", body = Approval),
        (status = 400, description = "It is not an owner's signature over the revocation of this document (ERR-02-008)", body = ErrorBody),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 409, description = "The application has no owners, or the key management service refuses", body = PlainError),
        (status = 503, description = "The signature is kept, and the key management service cannot be told now; a revocation is told again until it has heard, other owners are handed in again", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn revoke(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    Path(path): Path<(String, String)>,
    Body(body): Body<ApprovalRequest>,
) -> ApiResult<Json<Approval>> {
    let hash = path.1.parse().map_err(|_| invalid("compose_hash", "this is no compose hash"))?;
    hand_in(&api, &caller, &app, &body, Some(hash)).await.map(Json)
}

pub(super) fn invalid(field: &str, why: impl Into<String>) -> ApiError {
    ApiError::explained(ErrorCode::InvalidParameter, why).about(field, Value::Null)
}

/// Keeps a signature and lets what it completes take effect; `revoked` is the document that it has to take back.
async fn hand_in(
    api: &Api,
    caller: &Caller,
    app: &OwnApp,
    body: &ApprovalRequest,
    revoked: Option<ComposeHash>,
) -> ApiResult<Approval> {
    let known = own(api, caller, app).await?.ok_or_else(|| {
        let text = "The application has no owners; set them first (PUT /apps/{app_id}/owners)";
        ApiError::plain(StatusCode::CONFLICT, text)
    })?;
    let statement = statement(api, &known, body, revoked)?;
    let fingerprint = signer(&known, &statement, &body.signature)?;
    keep(api, caller, &known, &statement, &fingerprint, &body.signature).await?;

    let kms = governing_kms(api, caller, app).await?;
    let complete = own(api, caller, app).await?.ok_or_else(ApiError::unexpected)?;
    let serial = signed(statement.serial);
    match statement.action {
        Action::RevokeComposeHash(hash) if complete.revoked_until(&hash) == serial => {
            tell_revocation(api, &complete, &kms, hash, serial).await?;
        }
        Action::SetOwners(_) => settle(api, caller, app, &kms).await?,
        Action::AllowComposeHash(_) | Action::RevokeComposeHash(_) => {}
    }
    let open = open_changes(api, caller, app).await?;
    let signers = Signers::of(api, caller.workspace_id).await?;
    item(api, app, &complete, &signers, &open, statement.action, "signed").await
}

/// The statement, if it is about this application and can still count.
fn statement(
    api: &Api,
    known: &Ownership,
    body: &ApprovalRequest,
    revoked: Option<ComposeHash>,
) -> ApiResult<ApprovalStatement> {
    let wrong = |why: &str| Err(invalid("statement", why));
    let statement: ApprovalStatement =
        body.statement.parse().map_err(|error: cloister_kms_api::approvals::InvalidStatement| {
            invalid("statement", error.to_string())
        })?;
    if statement.app_id != known.row.app_id {
        return wrong("the statement is about another application");
    }
    if revoked.is_some_and(|hash| statement.action != Action::RevokeComposeHash(hash)) {
        return wrong("the statement does not take this document back");
    }
    let serial = signed(statement.serial);
    match statement.action {
        Action::AllowComposeHash(hash) if serial <= known.revoked_until(&hash) => {
            wrong("owners took this document back after this statement; sign a new one")
        }
        Action::RevokeComposeHash(hash)
            if serial < known.revoked_until(&hash) || serial <= last_allowing(known, hash) =>
        {
            wrong("the serial of a revocation has to be greater than that of every approval of the document")
        }
        Action::SetOwners(digest)
            if known
                .proposal
                .as_ref()
                .is_none_or(|row| row.owners.0.digest() != digest || row.serial != serial) =>
        {
            wrong("nobody proposes these owners with this serial (any more)")
        }
        _ if serial > api.clock.now_ms().saturating_add(MAX_AHEAD_MS) => {
            wrong("the serial is too far in the future; take Unix time in milliseconds")
        }
        _ => Ok(statement),
    }
}

fn last_allowing(known: &Ownership, hash: ComposeHash) -> i64 {
    let hash = hash.to_string();
    let allowing =
        known.approvals().iter().filter(|row| row.action == ApprovedAction::Allow && row.subject == hash);
    allowing.map(|row| row.serial).max().unwrap_or_default()
}

/// Greater than everything that was signed.
fn least_serial(known: &Ownership) -> i64 {
    let last = known.approvals().iter().map(|row| row.serial).max().unwrap_or_default();
    last.saturating_add(1).max(known.next_serial())
}

/// Fingerprint of the owner who signed.
fn signer(known: &Ownership, statement: &ApprovalStatement, signature: &str) -> ApiResult<String> {
    let anyone =
        Owners::new(1, known.owners().keys().to_vec()).map_err(|error| ApiError::internal(&error))?;
    match verify(statement, &anyone, &[signature]) {
        Ok(signers) => signers.into_iter().next().ok_or_else(ApiError::unexpected),
        Err(ApprovalError::NotEnough { .. }) => {
            Err(invalid("signature", "the key that signed is no owner's of this application"))
        }
        Err(ApprovalError::Signature { source, .. }) => Err(invalid("signature", source.to_string())),
        Err(error) => Err(invalid("signature", error.to_string())),
    }
}

async fn keep(
    api: &Api,
    caller: &Caller,
    known: &Ownership,
    statement: &ApprovalStatement,
    fingerprint: &str,
    signature: &str,
) -> ApiResult<()> {
    let (app_id, now_ms) = (known.row.app_id, api.clock.now_ms());
    let ((action, subject), serial) = (named(&statement.action), signed(statement.serial));
    let mut change = api.store.change().await?;
    change.lock_owner_proposal(app_id).await?;
    if change.count_approvals(app_id, action).await? >= MAX_APPROVALS {
        let text = format!(
            "The application has {MAX_APPROVALS} signatures of this kind, which is the most that are kept; \
             revocations make room: they end the approvals of their document"
        );
        return Err(ApiError::explained(ErrorCode::QuotaExceeded, text));
    }
    let new = NewApproval {
        app_id,
        action,
        subject: &subject,
        serial,
        key_fingerprint: fingerprint,
        signature,
        user_id: caller.user_id,
    };
    change.insert_approval(&new, now_ms).await?;
    if let Action::RevokeComposeHash(compose_hash) = statement.action {
        let all = change.approval_signers(app_id, action, &subject, serial).await?;
        let present = known.owners().keys().iter().filter(|key| all.contains(&key.fingerprint())).count();
        if present >= known.threshold() {
            let revocation = RevocationRow { compose_hash, serial };
            change.put_owner_revocation(app_id, revocation, now_ms).await?;
            untold::enqueue(&mut change, &api.kmses, app_id, revocation, now_ms).await?;
        }
    }
    Ok(change.commit().await?)
}

async fn tell_revocation(
    api: &Api,
    known: &Ownership,
    kms: &Kms,
    hash: ComposeHash,
    serial: i64,
) -> ApiResult<()> {
    let action = Action::RevokeComposeHash(hash);
    let approvals = known.signatures(&api.store, action, serial).await?;
    let revoke = AllowApp { approvals, ..AllowApp::new(known.row.app_id, hash) };
    match untold::tell_now(api, kms, &revoke, serial).await? {
        Err(error) if error.is_transient() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a revocation was not heard");
            Err(ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, UNHEARD).retry_after(RETRY_AFTER_S))
        }
        told => told.map_err(|error| refused(&error)),
    }
}

/// Revocations that services have still to hear of.
async fn untold_revocations(api: &Api, app: &OwnApp) -> ApiResult<Vec<UntoldRevocation>> {
    let rows = api.store.untold_of_app(app.app_id).await?;
    let view = |row: UntoldRow| UntoldRevocation {
        compose_hash: row.compose_hash,
        kms: api
            .kmses
            .get(row.kms_id)
            .map_or_else(|| KmsId(row.kms_id).to_string(), |kms| kms.slug().to_owned()),
        serial: unsigned(row.serial),
        since: time(row.since_ms),
        attempts: unsigned(row.attempts),
        next_attempt_at: time(row.next_attempt_at_ms),
        error: row.error,
    };
    Ok(rows.into_iter().map(view).collect())
}

fn signed(serial: u64) -> i64 {
    i64::try_from(serial).unwrap_or(i64::MAX)
}

fn unsigned(serial: i64) -> u64 {
    u64::try_from(serial).unwrap_or_default()
}
