//! `GET` and `POST /apps/{app_id}/approvals`, and `DELETE /apps/{app_id}/approvals/{compose_hash}`

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_app_compose::ComposeHash;
use cloister_kms_api::admin::AllowApp;
use cloister_kms_api::approvals::{Action, ApprovalError, ApprovalStatement, Owners, verify};
use cloister_management_api::{
    AppApprovals, Approval, ApprovalCvm, ApprovalRequest, ErrorBody, ErrorCode, PlainError, StatedOwners,
};
use serde_json::Value;

use super::own::OwnApp;
use super::owners::{governing_kms, own, refused, settle};
use crate::api::Api;
use crate::api::approvals::{Signers, wanted};
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::governance::owners::{Ownership, named};
use crate::kms::Kms;
use crate::store::{ApprovedAction, Caller, MAX_APPROVALS, NewApproval, OpenChange, RevocationRow};

/// Most statements of an application that are listed.
const MAX_ITEMS: usize = 100;
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
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
) -> ApiResult<Json<AppApprovals>> {
    let Some(known) = own(&api, &caller, &app).await? else {
        return Ok(Json(AppApprovals { items: Vec::new(), next_serial: 1 }));
    };
    let signers = Signers::of(&api, caller.workspace_id).await?;
    let open = open_changes(&api, &caller, &app).await?;
    let mut items = Vec::new();
    for (action, reason) in actions(&known, &app, &open).into_iter().take(MAX_ITEMS) {
        items.push(item(&api, &app, &known, &signers, &open, action, reason).await?);
    }
    Ok(Json(AppApprovals { items, next_serial: unsigned(least_serial(&known)) }))
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
        (status = 503, description = "The signature is kept, and the key management service cannot be told now: hand it in again", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn approve(
    State(api): State<Arc<Api>>,
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
        (status = 503, description = "The signature is kept, and the key management service cannot be told now: hand it in again", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
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
    if change.count_approvals(app_id).await? >= MAX_APPROVALS {
        let text = format!("The application has {MAX_APPROVALS} signatures, which is the most that are kept");
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
            change.put_owner_revocation(app_id, RevocationRow { compose_hash, serial }, now_ms).await?;
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
    kms.revoke_app(&revoke).await.map_err(|error| refused(&error))
}

/// Changes that wait, the first one for each document.
async fn open_changes(
    api: &Api,
    caller: &Caller,
    app: &OwnApp,
) -> ApiResult<BTreeMap<ComposeHash, Vec<OpenChange>>> {
    let limit = i64::try_from(MAX_ITEMS).unwrap_or(i64::MAX);
    let rows =
        api.store.open_changes_of_app(app.app_id, caller.workspace_id, api.clock.now_ms(), limit).await?;
    let mut open: BTreeMap<ComposeHash, Vec<OpenChange>> = BTreeMap::new();
    for row in rows {
        open.entry(row.compose_hash).or_default().push(row);
    }
    Ok(open)
}

/// What is to be signed and why, each once.
fn actions(
    known: &Ownership,
    app: &OwnApp,
    open: &BTreeMap<ComposeHash, Vec<OpenChange>>,
) -> Vec<(Action, &'static str)> {
    let mut actions: Vec<(Action, &'static str)> = Vec::new();
    let mut add = |action: Action, reason| {
        if !actions.iter().any(|(known, _)| *known == action) {
            actions.push((action, reason));
        }
    };
    if let Some(proposal) = &known.proposal {
        add(Action::SetOwners(proposal.owners.0.digest()), "proposed");
    }
    for hash in open.keys() {
        add(Action::AllowComposeHash(*hash), "prepared");
    }
    for cvm in &app.cvms {
        if !known.allows(cvm.compose_hash) {
            add(Action::AllowComposeHash(cvm.compose_hash), "in_use");
        }
    }
    for row in known.approvals() {
        let Ok(hash) = row.subject.parse::<ComposeHash>() else { continue };
        let action = match row.action {
            ApprovedAction::Allow => Action::AllowComposeHash(hash),
            ApprovedAction::Revoke => Action::RevokeComposeHash(hash),
            ApprovedAction::SetOwners => continue,
        };
        let ballot = known.ballot(action);
        if !ballot.signed.is_empty() && !known.is_approved(&ballot) {
            add(action, "signed");
        }
    }
    actions
}

async fn item(
    api: &Api,
    app: &OwnApp,
    known: &Ownership,
    signers: &Signers,
    open: &BTreeMap<ComposeHash, Vec<OpenChange>>,
    action: Action,
    reason: &str,
) -> ApiResult<Approval> {
    let ballot = known.ballot(action);
    let hash = match action {
        Action::AllowComposeHash(hash) | Action::RevokeComposeHash(hash) => Some(hash),
        Action::SetOwners(_) => None,
    };
    let waiting = hash.and_then(|hash| open.get(&hash)).map(Vec::as_slice).unwrap_or_default();
    let concerns =
        |id: i64, has: ComposeHash| waiting.iter().any(|row| row.cvm_id == id) || hash == Some(has);
    let cvms: Vec<_> = app.cvms.iter().filter(|cvm| concerns(cvm.id, cvm.compose_hash)).collect();
    let proposed = known.proposal.as_ref().map(|row| &row.owners.0);
    let proposed = proposed.filter(|owners| action == Action::SetOwners(owners.digest()));
    let of_cvm = cvms.iter().find(|cvm| hash == Some(cvm.compose_hash));
    let app_compose = match (of_cvm, waiting.first()) {
        (Some(cvm), _) => Some(cvm.app_compose.clone()),
        (None, Some(row)) => prepared(api, app, row).await?,
        (None, None) => None,
    };
    Ok(Approval {
        action: named(&action).0.as_str().to_owned(),
        compose_hash: hash,
        statement: known.statement(action, ballot.serial).to_string(),
        threshold: known.owners().threshold(),
        signed_by: signers.signed(&ballot),
        is_approved: known.is_approved(&ballot),
        reason: reason.to_owned(),
        current_app_compose: cvms.first().map(|cvm| cvm.app_compose.clone()),
        cvms: cvms.iter().map(|cvm| ApprovalCvm { vm_uuid: cvm.vm_uuid, name: cvm.name.clone() }).collect(),
        app_compose,
        proposed_owners: proposed.map(|owners| StatedOwners {
            threshold: owners.threshold(),
            keys: owners.keys().iter().map(ToString::to_string).collect(),
        }),
    })
}

/// The document of a change that waits.
async fn prepared(api: &Api, app: &OwnApp, row: &OpenChange) -> ApiResult<Option<String>> {
    let Some(cvm) = app.cvms.iter().find(|cvm| cvm.id == row.cvm_id) else { return Ok(None) };
    let change = api.store.pending_change(row.cvm_id, row.kind, api.clock.now_ms()).await?;
    let Some(change) = change.filter(|change| change.id == row.id) else { return Ok(None) };
    Ok(wanted(api, &change, cvm).await?.map(|configuration| configuration.app_compose))
}

fn signed(serial: u64) -> i64 {
    i64::try_from(serial).unwrap_or(i64::MAX)
}

fn unsigned(serial: i64) -> u64 {
    u64::try_from(serial).unwrap_or_default()
}
