//! Roots: made, and checked before they are used.

use std::sync::Arc;
use std::time::Duration;

use cloister_key_derivation::{GenerateError, InvalidKey, RootSecrets};
use cloister_kms_api::{Hex, RootInfo, RootKeys, SecretHex, statements};
use jiff::{SignedDuration, Timestamp};
use pem::Pem;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::clock::{NoRandomness, Random};

/// How long a root's certificate holds. Roots end by rotation; a certificate that ends first would take the
/// whole chain with it.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 365 * 30);
/// How far a caller's clock may be behind.
const SKEW: SignedDuration = SignedDuration::from_hours(24);
/// Longest certificate of a root, PEM, in bytes.
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;

/// One version of the root.
#[derive(Debug)]
pub(crate) struct Root {
    /// Public side.
    pub(crate) info: RootInfo,
    /// Its certificate, PEM: self-signed for the first version, signed by the predecessor for others.
    pub(crate) certificate: String,
}

/// One that still has its keys; cheap to clone.
#[derive(Clone)]
pub(crate) struct LiveRoot {
    /// Its public side.
    pub(crate) root: Arc<Root>,
    /// Its keys.
    pub(crate) secrets: Arc<RootSecrets>,
}

impl LiveRoot {
    /// Counts up from 1.
    pub(crate) fn version(&self) -> u32 {
        self.root.info.version
    }
}

/// A root that was checked, with its keys if it has them.
pub(crate) type CheckedRoot = (Arc<Root>, Option<Arc<RootSecrets>>);

/// Why there is no new root.
#[derive(Debug, thiserror::Error)]
pub enum MakeRootError {
    /// No randomness.
    #[error(transparent)]
    Generate(#[from] GenerateError<NoRandomness>),
    /// No certificate.
    #[error("the certificate of the root cannot be made")]
    Certificate(#[from] rcgen::Error),
    /// Keys that nobody can use; practically impossible.
    #[error("the keys of the root cannot be used")]
    Keys(#[from] InvalidKey),
}

/// Why roots cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRoots {
    /// None, or not numbered from 1.
    #[error("the versions of the root are not 1, 2, 3 and so on")]
    Versions,
    /// Keys are missing where they must be, or are there where they must not.
    #[error("version {0} of the root is neither whole nor retired")]
    Half(u32),
    /// The keys are not those that it names.
    #[error("version {0} of the root has other keys than it says")]
    OtherKeys(u32),
    /// The certificate is not of this root, or not by its predecessor.
    #[error("the certificate of version {0} of the root is not its own")]
    Certificate(u32),
    /// The predecessor did not sign it.
    #[error("version {0} of the root is not a successor of the version before")]
    Successor(u32),
}

/// Makes the successor of `predecessor`, or the first root.
pub(crate) fn make(
    predecessor: Option<&LiveRoot>,
    random: Random,
    now: Timestamp,
) -> Result<(RootKeys, Arc<RootSecrets>), MakeRootError> {
    let version = predecessor.map_or(1, |root| root.version() + 1);
    let secrets = RootSecrets::generate(&mut |bytes| random.fill(bytes))?;
    let public = secrets.public();
    let signature = predecessor.map(|before| before.secrets.sign_successor(version, public));
    let keys = RootKeys {
        info: RootInfo {
            version,
            ca_pubkey: Hex::from(public.ca_pubkey.clone()),
            k256_pubkey: Hex::from(public.k256_pubkey),
            created_at: now,
            predecessor_signature: signature.map(Hex::from),
            retired_at: None,
        },
        ca_cert: certificate(version, &secrets, predecessor, now)?,
        ca_key: Some(SecretHex::from(secrets.ca_scalar().to_vec())),
        k256_key: Some(SecretHex::from(secrets.k256_secret().to_vec())),
    };
    Ok((keys, Arc::new(secrets)))
}

fn certificate(
    version: u32,
    secrets: &RootSecrets,
    predecessor: Option<&LiveRoot>,
    now: Timestamp,
) -> Result<String, MakeRootError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // Names differ, so that nobody can take one version's certificate for another's.
    params.distinguished_name.push(DnType::CommonName, format!("Cloister KMS Root v{version}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = predecessor.is_some();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default());
    params.not_before = epoch + at(now.saturating_sub(SKEW).unwrap_or(now));
    params.not_after = epoch + at(now.saturating_add(VALIDITY).unwrap_or(now));
    let key = key_pair(secrets)?;
    let certificate = match predecessor {
        None => params.self_signed(&key)?,
        Some(before) => {
            let issuer = Issuer::from_ca_cert_pem(&before.root.certificate, key_pair(&before.secrets)?)?;
            params.signed_by(&key, &issuer)?
        }
    };
    Ok(certificate.pem())
}

fn key_pair(secrets: &RootSecrets) -> Result<KeyPair, MakeRootError> {
    Ok(KeyPair::try_from(secrets.ca_key_pkcs8()?.as_slice())?)
}

/// Checks that `roots` are what they say, oldest first, each the successor of the one before.
pub(crate) fn check(roots: &[RootKeys]) -> Result<Vec<CheckedRoot>, InvalidRoots> {
    if roots.is_empty() || roots.len() > statements::MAX_ROOTS {
        return Err(InvalidRoots::Versions);
    }
    let mut checked = Vec::with_capacity(roots.len());
    let mut before: Option<&RootKeys> = None;
    for (keys, expected) in roots.iter().zip(1..) {
        let version = keys.info.version;
        if version != expected {
            return Err(InvalidRoots::Versions);
        }
        let secrets = secrets(keys)?;
        // Roots are retired oldest first, and the current one never.
        let after_live = before.is_some_and(|before| before.k256_key.is_some());
        if secrets.is_none() && (after_live || roots.len() == checked.len() + 1) {
            return Err(InvalidRoots::Half(version));
        }
        succession(keys, before)?;
        let root = Root { info: keys.info.clone(), certificate: keys.ca_cert.clone() };
        checked.push((Arc::new(root), secrets));
        before = Some(keys);
    }
    Ok(checked)
}

fn secrets(keys: &RootKeys) -> Result<Option<Arc<RootSecrets>>, InvalidRoots> {
    let version = keys.info.version;
    let (ca, k256) = match (&keys.ca_key, &keys.k256_key, keys.info.retired_at) {
        (Some(ca), Some(k256), None) => (ca, k256),
        (None, None, Some(_)) => return Ok(None),
        _ => return Err(InvalidRoots::Half(version)),
    };
    let whole = (ca.as_ref().try_into().ok()).zip(k256.as_ref().try_into().ok());
    let secrets = whole
        .and_then(|(ca, k256)| RootSecrets::from_bytes(ca, k256).ok())
        .ok_or(InvalidRoots::OtherKeys(version))?;
    if secrets.ca_public_key_der() != keys.info.ca_pubkey.as_ref()
        || secrets.k256_public().as_slice() != keys.info.k256_pubkey.as_ref()
    {
        return Err(InvalidRoots::OtherKeys(version));
    }
    Ok(Some(Arc::new(secrets)))
}

/// The certificate is the root's, and by its predecessor or itself; so is the signature over its other key.
fn succession(keys: &RootKeys, before: Option<&RootKeys>) -> Result<(), InvalidRoots> {
    let version = keys.info.version;
    let issuer = before.unwrap_or(keys);
    if !is_issued(keys, issuer).unwrap_or(false) {
        return Err(InvalidRoots::Certificate(version));
    }
    let Some(before) = before else {
        return match keys.info.predecessor_signature {
            None => Ok(()),
            Some(_) => Err(InvalidRoots::Successor(version)),
        };
    };
    let predecessor = before
        .info
        .k256_pubkey
        .as_ref()
        .try_into()
        .map_err(|_| InvalidRoots::OtherKeys(before.info.version))?;
    statements::verify_successor(&keys.info, predecessor).map_err(|_| InvalidRoots::Successor(version))
}

fn is_issued(keys: &RootKeys, issuer: &RootKeys) -> Option<bool> {
    if keys.ca_cert.len() > MAX_CERTIFICATE_BYTES {
        return None;
    }
    let der = pem::parse(&keys.ca_cert).ok().filter(|pem: &Pem| pem.tag() == "CERTIFICATE")?;
    let (rest, certificate) = X509Certificate::from_der(der.contents()).ok()?;
    let (_, issuer_key) =
        x509_parser::x509::SubjectPublicKeyInfo::from_der(issuer.info.ca_pubkey.as_ref()).ok()?;
    let signed = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &issuer_key.subject_public_key.data)
        .verify(certificate.tbs_certificate.as_ref(), &certificate.signature_value.data)
        .is_ok();
    let own_key = certificate.public_key().raw == keys.info.ca_pubkey.as_ref();
    Some(signed && own_key && rest.is_empty() && certificate.is_ca())
}
