//! What anybody may know.

use cloister_kms_api::{
    AppOwnersRequest, AppOwnersResponse, EnvPublicKeyRequest, EnvPublicKeyResponse, Hex, KmsError, Meta,
};

use super::underivable;
use crate::door::Shared;

/// What this KMS is.
pub(crate) fn meta(shared: &Shared) -> Meta {
    let snapshot = shared.keys.snapshot();
    let current = &snapshot.current.root;
    let contract = shared.keys.contract();
    Meta {
        ca_cert: current.certificate.clone(),
        allow_any_upgrade: false,
        k256_pubkey: current.info.k256_pubkey.clone(),
        bootstrap_info: snapshot.bootstrap.clone(),
        is_dev: shared.is_dev,
        gateway_app_id: contract.as_ref().and_then(|contract| contract.gateway_app_id.clone()),
        kms_contract_address: contract.as_ref().map(|contract| contract.address.clone()),
        chain_id: contract.as_ref().map(|contract| contract.chain_id),
        app_auth_implementation: contract.and_then(|contract| contract.app_implementation),
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
    let timestamp = unix_seconds(shared);
    Ok(EnvPublicKeyResponse {
        public_key: Hex::from(public_key),
        signature: Hex::from(root.secrets.sign_env_public_key(app_id, &public_key, None)),
        timestamp,
        signature_v1: Hex::from(root.secrets.sign_env_public_key(app_id, &public_key, Some(timestamp))),
        root_version: root.version(),
    })
}

/// Who owns an application, in the words of the root.
pub(crate) fn app_owners(shared: &Shared, request: &AppOwnersRequest) -> AppOwnersResponse {
    let snapshot = shared.keys.snapshot();
    let app_id = request.app_id;
    let ownership = snapshot.owned.get(&app_id);
    let documents = snapshot.policy.apps.get(&app_id).map_or(0, Vec::len);
    let unsigned = AppOwnersResponse {
        app_id,
        owners: ownership.map(|ownership| ownership.owners.clone()),
        serial: ownership.map_or(0, |ownership| ownership.serial),
        allowed_documents: u64::try_from(documents).unwrap_or(u64::MAX),
        timestamp: unix_seconds(shared),
        signature: Hex::default(),
        root_version: snapshot.current.version(),
    };
    let signature = Hex::from(snapshot.current.secrets.sign_app_owners(&unsigned));
    AppOwnersResponse { signature, ..unsigned }
}

fn unix_seconds(shared: &Shared) -> u64 {
    u64::try_from(shared.keys.now().as_second()).unwrap_or_default()
}
