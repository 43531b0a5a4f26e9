//! All keys of a CVM that boots.

use cloister_app_compose::AppId;
use cloister_kms_api::log::Released;
use cloister_kms_api::{AppKeyRequest, AppKeyResponse, FormerKeys, Hex, KmsError, SecretHex};
use hyper::body::Incoming;

use super::caller::{Stage, holder, unauthorized};
use super::{Peer, record, underivable};
use crate::door::{Answer, Shared, bad, read, secret_json};
use crate::policy::{BootInfo, Question};
use crate::state::LiveRoot;

/// Newest version of the call.
const MAX_API_VERSION: u32 = 1;

pub(super) async fn release(shared: &Shared, peer: &Peer, body: Incoming) -> Result<Answer, KmsError> {
    let request: AppKeyRequest = read(body, shared.limits.body).await?;
    if request.api_version > MAX_API_VERSION {
        return Err(bad(format!("api_version {} is not known here", request.api_version)));
    }
    // Whatever a machine measures behind that may be said by its application, which must not get the key
    // of the disk that it runs on.
    if peer.stage == Stage::Past {
        return Err(unauthorized(
            "the machine has gone past the point where it asks for its keys; they are given while it boots",
        ));
    }
    let (described, app_id) = peer.application(&request.vm_config)?;
    let boot = &described.boot;
    let grant = shared.keys.authorize(Question::App, boot).await?;

    let snapshot = shared.keys.snapshot();
    let current = keys(&snapshot.current, app_id, boot)?;
    let former = snapshot.former.iter().map(|root| keys(root, app_id, boot)).collect::<Result<_, _>>()?;
    let answer = AppKeyResponse {
        ca_cert: snapshot.current.root.certificate.clone(),
        disk_crypt_key: current.disk_crypt_key,
        env_crypt_key: current.env_crypt_key,
        k256_key: current.k256_key,
        k256_signature: current.k256_signature,
        tproxy_app_id: grant.gateway_app_id.clone(),
        gateway_app_id: grant.gateway_app_id.clone(),
        os_image_hash: Hex::from(described.os_image_hash.as_bytes().as_slice()),
        root_version: current.root_version,
        former,
    };
    let answer = secret_json(&answer)?;
    shared.keys.note_keys_given(holder(app_id, boot), snapshot.current.version())?;
    record(shared, &grant, Released::AppKeys, boot.caller(), snapshot.current.version(), None).await?;
    Ok(answer)
}

fn keys(root: &LiveRoot, app_id: AppId, boot: &BootInfo) -> Result<FormerKeys, KmsError> {
    let secrets = &root.secrets;
    let secret = |bytes: &[u8; 32]| SecretHex::from(bytes.as_slice());
    let disk = secrets.disk_key(&app_id, boot.instance_id.as_ref()).map_err(underivable)?;
    let env = secrets.env_key(&app_id).map_err(underivable)?;
    let app = secrets.app_key(&app_id).map_err(underivable)?;
    let signature = secrets.sign_app_key(&app_id).map_err(underivable)?;
    Ok(FormerKeys {
        root_version: root.version(),
        disk_crypt_key: secret(&disk),
        env_crypt_key: secret(&env),
        k256_key: secret(app.secret()),
        k256_signature: Hex::from(signature),
    })
}
