//! Keys. An application without a key provider has none: what would need one checks the request and then
//! fails. A fresh TLS key and the check of a signature need none.

use cloister_ra_tls::AttestedKey;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::{Value, json};

use super::answer::ApiError;
use super::message::Message;
use crate::attestation::{Attestation, CertificateError, TlsKeyRequest};
use crate::failure;
use crate::machine::clock;

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("Unsupported algorithm: {0}")]
    Algorithm(String),
    #[error("this application has no key provider, so no keys can be derived for it")]
    NoProvider,
    #[error("Digest must be 32 bytes")]
    Digest,
    #[error("signatures with secp256k1 cannot be checked here; ed25519 can")]
    Unchecked,
}

/// Algorithms of `GetKey`; the empty name means the first.
const KEY_ALGORITHMS: [&str; 4] = ["", "secp256k1", "k256", "ed25519"];
const PREHASHED: &str = "secp256k1_prehashed";
const SECP256K1: [&str; 2] = ["secp256k1", "k256"];

/// `GetKey`, and the legacy `DeriveK256Key`.
pub(super) fn get_key(message: &Message) -> Result<Value, ApiError> {
    message.text("path")?;
    message.text("purpose")?;
    let algorithm = message.text("algorithm")?;
    if !KEY_ALGORITHMS.contains(&algorithm) {
        return Err(unsupported(algorithm));
    }
    Err(KeyError::NoProvider.into())
}

/// `Sign`.
pub(super) fn sign(message: &Message) -> Result<Value, ApiError> {
    let data = message.bytes("data")?;
    match message.text("algorithm")? {
        PREHASHED if data.len() != 32 => Err(KeyError::Digest.into()),
        "ed25519" | PREHASHED => Err(KeyError::NoProvider.into()),
        algorithm if SECP256K1.contains(&algorithm) => Err(KeyError::NoProvider.into()),
        algorithm => Err(unsupported(algorithm)),
    }
}

/// `Verify`, which needs no key of ours.
pub(super) fn verify(message: &Message) -> Result<Value, ApiError> {
    let (data, signature) = (message.bytes("data")?, message.bytes("signature")?);
    let public_key = message.bytes("public_key")?;
    match message.text("algorithm")? {
        "ed25519" => {
            let valid = UnparsedPublicKey::new(&ED25519, public_key).verify(&data, &signature).is_ok();
            Ok(json!({ "valid": valid }))
        }
        PREHASHED => Err(KeyError::Unchecked.into()),
        algorithm if SECP256K1.contains(&algorithm) => Err(KeyError::Unchecked.into()),
        algorithm => Err(unsupported(algorithm)),
    }
}

/// The legacy `DeriveKey`: from the application's key, or a random one when that is asked for.
pub(super) async fn derive_key(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    message.text("path")?;
    if !message.flag("random_seed")? {
        return Err(KeyError::NoProvider.into());
    }
    get_tls_key(attestation, message).await
}

/// `GetTlsKey`.
pub(super) async fn get_tls_key(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let request = TlsKeyRequest {
        subject: message.text("subject")?.to_owned(),
        alt_names: message.list("alt_names")?,
        attested: message.flag("usage_ra_tls")?,
        server: message.flag("usage_server_auth")?,
        client: message.flag("usage_client_auth")?,
        with_app_info: message.flag("with_app_info")?,
        not_before: message.number("not_before")?,
        not_after: message.number("not_after")?,
    };
    let key = AttestedKey::generate().map_err(|error| ApiError::Refused(failure::chain(&error)))?;
    let chain = attestation.tls_certificate(&key, &request, clock::now()).await;
    let chain = chain.map_err(|error| match error {
        CertificateError::Attest(error) => error.into(),
        error => ApiError::Refused(failure::chain(&error)),
    })?;
    let key = key.private_key_pem();
    Ok(json!({ "key": key.as_str(), "certificate_chain": chain }))
}

fn unsupported(algorithm: &str) -> ApiError {
    KeyError::Algorithm(algorithm.chars().take(32).collect()).into()
}
