//! `getKey(name)`: a key of the calling application.

use cloister_kms_api::log::Released;
use cloister_kms_api::{Hex, KeyRequest, KmsError, KmsErrorCode, MAX_KEY_NAME_BYTES};
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};

use super::{Peer, record};
use crate::door::{Answer, Shared, key, read};
use crate::policy::Question;

pub(super) async fn release(shared: &Shared, peer: &Peer, body: Incoming) -> Result<Answer, KmsError> {
    let request: KeyRequest = read(body, shared.limits.body).await?;
    let (described, app_id) = peer.application(&request.vm_config)?;
    let grant = shared.keys.authorize(Question::App, &described.boot).await?;
    check_name(&request.name)?;
    let snapshot = shared.keys.snapshot();
    let root = match request.root_version {
        None => &snapshot.current,
        Some(version) => snapshot
            .live(version)
            .ok_or_else(|| not_found(format!("there are no keys of version {version} of the root")))?,
    };
    let answer = key(root.secrets.named_key(&app_id, &request.name));
    let name_hash = Hex::from(Sha256::digest(&request.name).to_vec());
    record(shared, &grant, Released::NamedKey, described.boot.caller(), root.version(), Some(name_hash))
        .await?;
    Ok(answer)
}

fn check_name(name: &str) -> Result<(), KmsError> {
    if name.is_empty() {
        return Err(not_found("a key needs a name"));
    }
    if name.len() > MAX_KEY_NAME_BYTES {
        return Err(not_found(format!("names of keys have at most {MAX_KEY_NAME_BYTES} bytes")));
    }
    if name.chars().any(char::is_control) {
        return Err(not_found("names of keys hold no control characters"));
    }
    Ok(())
}

fn not_found(reason: impl Into<String>) -> KmsError {
    KmsError::new(KmsErrorCode::KeyNotFound, reason)
}
