//! A CVM tells that it holds nothing under older roots.

use cloister_kms_api::log::Released;
use cloister_kms_api::{ConfirmResealRequest, KmsError};
use hyper::body::Incoming;
use serde_json::json;

use super::caller::{holder, unauthorized};
use super::{Peer, record};
use crate::door::{Answer, Shared, json as json_answer, read};
use crate::policy::Question;

pub(super) async fn release(shared: &Shared, peer: &Peer, body: Incoming) -> Result<Answer, KmsError> {
    let request: ConfirmResealRequest = read(body, shared.limits.body).await?;
    // The agent says it, before there is an application that could.
    if peer.identity.app.ready {
        return Err(unauthorized("what is re-sealed is confirmed before the application starts"));
    }
    let (described, app_id) = peer.application(&request.vm_config)?;
    let boot = &described.boot;
    let grant = shared.keys.authorize(Question::App, boot).await?;
    shared.keys.note_resealed(holder(app_id, boot), request.root_version)?;
    record(shared, &grant, Released::ResealConfirmed, boot.caller(), request.root_version, None).await?;
    json_answer(&json!({}))
}
