//! What anybody may know.

use cloister_kms_api::{EnvPublicKeyRequest, EnvPublicKeyResponse, Hex, KmsError, Meta};

use super::underivable;
use crate::door::Shared;

/// What this KMS is.
pub(crate) fn meta(shared: &Shared) -> Meta {
    let snapshot = shared.keys.snapshot();
    let current = &snapshot.current.root;
    Meta {
        ca_cert: current.certificate.clone(),
        allow_any_upgrade: false,
        k256_pubkey: current.info.k256_pubkey.clone(),
        bootstrap_info: snapshot.bootstrap.clone(),
        is_dev: shared.is_dev,
        gateway_app_id: None,
        kms_contract_address: None,
        chain_id: None,
        app_auth_implementation: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        domain: snapshot.domain.clone(),
        roots: snapshot.root_infos(),
        log_verifier_key: shared.keys.log().verifier_key(),
    }
}

/// To what an application's environment is sealed.
pub(crate) fn env_public_key(
    shared: &Shared,
    request: &EnvPublicKeyRequest,
) -> Result<EnvPublicKeyResponse, KmsError> {
    let root = &shared.keys.snapshot().current;
    let app_id = &request.app_id;
    let public_key = root.secrets.env_public_key(app_id).map_err(underivable)?;
    let timestamp = u64::try_from(shared.keys.now().as_second()).unwrap_or_default();
    Ok(EnvPublicKeyResponse {
        public_key: Hex::from(public_key),
        signature: Hex::from(root.secrets.sign_env_public_key(app_id, &public_key, None)),
        timestamp,
        signature_v1: Hex::from(root.secrets.sign_env_public_key(app_id, &public_key, Some(timestamp))),
        root_version: root.version(),
    })
}
