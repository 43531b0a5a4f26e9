//! Keys of the application, derived from what the KMS released (platform reference, sections 7.3 and 7.5).
//!
//! An application without a key provider has none: what would need one checks the request and then fails. A
//! fresh TLS key and the check of a signature need none. While a root is being replaced, keys come from the
//! current one; `root_version` in a request names a former one.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cloister_key_derivation::{Algorithm, AppKey, DerivedKey, InvalidKey, UnknownAlgorithm, VerifyError};
use cloister_ra_tls::AttestedKey;
use rcgen::KeyPair;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::answer::ApiError;
use super::message::Message;
use super::{quotes, report_data};
use crate::attestation::{Attestation, CertificateError, TlsKeyRequest};
use crate::failure;
use crate::keys::RootedKeys;
use crate::machine::clock;

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error(transparent)]
    Algorithm(#[from] UnknownAlgorithm),
    #[error("this application has no key provider, so no keys can be derived for it")]
    NoProvider,
    #[error("there are no keys under version {asked} of the root; there are those under {held}")]
    NoSuchRoot { asked: u64, held: String },
    #[error("the key cannot be used; choose another path")]
    Unusable(#[from] InvalidKey),
    #[error(transparent)]
    Signature(#[from] VerifyError),
}

/// Where the key of `Sign` is, unless the caller says.
const SIGN_PATH: &str = "vms";
const SIGN_PURPOSE: &str = "signing";

/// `GetKey`: a key at a path, and who vouches for its public side.
pub(super) fn get_key(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let (path, purpose) = (message.text("path")?, message.text("purpose")?);
    let algorithm = key_algorithm(message)?;
    let named = NamedKey::of(attestation, message, path)?;
    let public_key = named.key.public_key(algorithm).map_err(KeyError::from)?;
    Ok(json!({
        "key": hex::encode(named.key.as_bytes()),
        "signature_chain": named.chain(purpose, &public_key),
        "root_version": named.rooted.root_version(),
    }))
}

/// The legacy `DeriveK256Key`: the same by other names.
pub(super) fn derive_k256_key(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let (path, purpose) = (message.text("path")?, message.text("purpose")?);
    let named = NamedKey::of(attestation, message, path)?;
    let public_key = named.key.public_key(Algorithm::Secp256k1).map_err(KeyError::from)?;
    Ok(json!({
        "k256_key": hex::encode(named.key.as_bytes()),
        "k256_signature_chain": named.chain(purpose, &public_key),
    }))
}

/// `Sign`: with a key that never leaves the agent by this call. `path` is our addition.
pub(super) fn sign(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let data = message.bytes("data")?;
    let algorithm: Algorithm = message.text("algorithm")?.parse().map_err(KeyError::from)?;
    if algorithm == Algorithm::Secp256k1Prehashed && data.len() != 32 {
        return Err(KeyError::from(VerifyError::Digest).into());
    }
    let path = message.text("path")?;
    let path = if path.is_empty() { SIGN_PATH } else { path };
    let named = NamedKey::of(attestation, message, path)?;
    let public_key = named.key.public_key(algorithm).map_err(KeyError::from)?;
    let signature = hex::encode(named.key.sign(algorithm, &data).map_err(KeyError::from)?);
    let [by_app, by_root] = named.chain(SIGN_PURPOSE, &public_key);
    Ok(json!({
        "signature": signature,
        "signature_chain": [signature, by_app, by_root],
        "public_key": hex::encode(public_key),
        "root_version": named.rooted.root_version(),
    }))
}

/// `Verify`, which needs no key of ours.
pub(super) fn verify(message: &Message) -> Result<Value, ApiError> {
    let (data, signature) = (message.bytes("data")?, message.bytes("signature")?);
    let public_key = message.bytes("public_key")?;
    let algorithm: Algorithm = message.text("algorithm")?.parse().map_err(KeyError::from)?;
    let valid = cloister_key_derivation::verify(algorithm, &data, &signature, &public_key);
    Ok(json!({ "valid": valid.map_err(KeyError::from)? }))
}

/// The legacy `DeriveKey`: a TLS key from the application's key, or a random one when that is asked for.
pub(super) async fn derive_key(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let path = message.text("path")?;
    if message.flag("random_seed")? {
        return get_tls_key(attestation, message).await;
    }
    let rooted = rooted(attestation, message)?;
    let derived = app_key(rooted)?.derive_p256(path).map_err(KeyError::from)?;
    let unusable = |error: &dyn std::error::Error| ApiError::Refused(failure::chain(error));
    let pair = KeyPair::try_from(derived.as_slice()).map_err(|error| unusable(&error))?;
    let pem = Zeroizing::new(pair.serialize_pem());
    let key = AttestedKey::from_pem(&pem).map_err(|error| unusable(&error))?;
    certified(attestation, message, &key).await
}

/// `GetTlsKey`.
pub(super) async fn get_tls_key(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let key = AttestedKey::generate().map_err(|error| ApiError::Refused(failure::chain(&error)))?;
    certified(attestation, message, &key).await
}

/// A quote over the public side of the key of `Sign`, for anybody: the agent chooses what is quoted, so no
/// stranger gets evidence for something of his own.
pub(crate) async fn attestation_for_app_key(
    attestation: &Attestation,
    message: &Message,
) -> Result<Value, ApiError> {
    let algorithm = key_algorithm(message)?;
    let named = NamedKey::of(attestation, message, SIGN_PATH)?;
    let public_key = named.key.public_key(algorithm).map_err(KeyError::from)?;
    let kind = if algorithm == Algorithm::Ed25519 { "ed25519" } else { "secp256k1c" };
    let text = format!("dip1::{kind}-pk:{}", BASE64_URL_SAFE_NO_PAD.encode(public_key));
    quotes::quote(attestation, &report_data::given(text.as_bytes())?).await
}

async fn certified(
    attestation: &Attestation,
    message: &Message,
    key: &AttestedKey,
) -> Result<Value, ApiError> {
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
    let chain = attestation.tls_certificate(key, &request, clock::now()).await;
    let chain = chain.map_err(|error| match error {
        CertificateError::Attest(error) => error.into(),
        error => ApiError::Refused(failure::chain(&error)),
    })?;
    let key = key.private_key_pem();
    Ok(json!({ "key": key.as_str(), "certificate_chain": chain }))
}

/// A key at a path, with those who vouch for it.
struct NamedKey<'a> {
    rooted: &'a RootedKeys,
    app: AppKey,
    key: DerivedKey,
}

impl<'a> NamedKey<'a> {
    fn of(attestation: &'a Attestation, message: &Message, path: &str) -> Result<Self, ApiError> {
        let rooted = rooted(attestation, message)?;
        let app = app_key(rooted)?;
        let key = app.derive(path);
        Ok(Self { rooted, app, key })
    }

    /// The application's signature over the public side, and the root's over the application's key.
    fn chain(&self, purpose: &str, public_key: &[u8]) -> [String; 2] {
        [hex::encode(self.app.chain(purpose, public_key)), hex::encode(self.rooted.k256_signature())]
    }
}

fn app_key(rooted: &RootedKeys) -> Result<AppKey, ApiError> {
    Ok(AppKey::from_bytes(rooted.k256_key()).map_err(KeyError::from)?)
}

/// Keys under the version of the root that is asked for, or the current one.
fn rooted<'a>(attestation: &'a Attestation, message: &Message) -> Result<&'a RootedKeys, ApiError> {
    let asked = message.number("root_version")?;
    let keys = attestation.keys().ok_or(KeyError::NoProvider)?;
    let Some(asked) = asked else { return Ok(keys.current()) };
    let found = u32::try_from(asked).ok().and_then(|version| keys.of_version(version));
    Ok(found.ok_or_else(|| {
        let held = std::iter::once(keys.current()).chain(keys.former());
        let held: Vec<String> = held.map(|keys| keys.root_version().to_string()).collect();
        KeyError::NoSuchRoot { asked, held: held.join(", ") }
    })?)
}

/// What a key is for: secp256k1 unless the caller says, and never something that only signing tells apart.
fn key_algorithm(message: &Message) -> Result<Algorithm, ApiError> {
    let name = message.text("algorithm")?;
    let name = if name.is_empty() { "secp256k1" } else { name };
    match name.parse().map_err(KeyError::from)? {
        Algorithm::Secp256k1Prehashed => Err(KeyError::from(UnknownAlgorithm::of(name)).into()),
        algorithm => Ok(algorithm),
    }
}
