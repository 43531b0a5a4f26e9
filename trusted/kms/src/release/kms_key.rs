//! All roots, for another KMS.

use cloister_kms_api::log::Released;
use cloister_kms_api::{KmsError, KmsKeyRequest};
use hyper::body::Incoming;

use super::caller::named_image;
use super::{Peer, record};
use crate::door::{Answer, Shared, read, secret_json};
use crate::policy::{BootInfo, Form, Question};

pub(super) async fn release(shared: &Shared, peer: &Peer, body: Incoming) -> Result<Answer, KmsError> {
    let request: KmsKeyRequest = read(body, shared.limits.body).await?;
    let os_image_hash = named_image(&peer.identity.registers, &request.vm_config)?;
    let boot = BootInfo::of_peer(&peer.identity, os_image_hash, Form::Full);
    let grant = shared.keys.authorize(Question::Kms, &boot).await?;
    let answer = shared.keys.export().await?;
    let version = answer.roots.last().map_or(0, |root| root.info.version);
    let answer = secret_json(&answer)?;
    record(shared, &grant, Released::Roots, boot.caller(), version, None).await?;
    Ok(answer)
}
