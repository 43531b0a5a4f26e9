//! Attestation documents of AWS Nitro.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cloister_evidence::{Measurement, NitroDocument, NitroKind};
use jiff::{SignedDuration, Timestamp};
use ring::signature::{ECDSA_P384_SHA384_FIXED, UnparsedPublicKey};
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{PolicyViolation, PolicyViolations, TrustRoot, TrustRoots, VerifyError};

/// Oldest document that proves something now.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(1);
/// How far clocks may disagree.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A document whose signatures hold up to a trusted root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedNitro {
    /// Who vouches in the end.
    pub trust_root: TrustRoot,
    /// What the document is about.
    pub kind: NitroKind,
    /// The device: instance id, and for an enclave `-enc` and its number.
    pub module_id: String,
    /// SHA-256 of the instance's id.
    pub device_id: [u8; 32],
    /// When it was made.
    pub timestamp: Timestamp,
    /// Registers by index.
    pub pcrs: BTreeMap<u8, Measurement>,
    /// SHA-256 over registers 0, 1 and 2 of an enclave; `None` unless all three are there.
    pub image_hash: Option<[u8; 32]>,
    /// Data of the machine, up to 512 bytes.
    pub user_data: Option<Vec<u8>>,
    /// Nonce of whoever asked, up to 512 bytes.
    pub nonce: Option<Vec<u8>>,
    /// Public key of the machine, up to 1024 bytes.
    pub public_key: Option<Vec<u8>>,
}

/// What a relying party demands of a verified document; what is absent may be anything. Without `user_data`
/// or `nonce` a document may be shown by anybody for an hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NitroPolicy {
    /// Registers by index.
    pub pcrs: BTreeMap<u8, Measurement>,
    /// The image.
    pub image_hash: Option<[u8; 32]>,
    /// Data of the machine.
    pub user_data: Option<Vec<u8>>,
    /// Nonce.
    pub nonce: Option<Vec<u8>>,
    /// Demands that hardware vouches.
    pub production: bool,
}

impl NitroPolicy {
    /// Judges a verified document; all violations, not only the first.
    pub fn check(&self, document: &VerifiedNitro) -> Result<(), PolicyViolations> {
        let mut violations = Vec::new();
        if self.production && !document.trust_root.is_hardware() {
            violations.push(PolicyViolation::NotHardware);
        }
        for (index, expected) in &self.pcrs {
            let actual = document.pcrs.get(index);
            if actual != Some(expected) {
                violations.push(PolicyViolation::differs(format!("PCR{index}"), expected, actual));
            }
        }
        let bytes = [
            ("image hash", self.image_hash.map(Vec::from), document.image_hash.map(Vec::from)),
            ("user data", self.user_data.clone(), document.user_data.clone()),
            ("nonce", self.nonce.clone(), document.nonce.clone()),
        ];
        for (name, expected, actual) in bytes {
            if let Some(expected) = expected.filter(|expected| Some(expected) != actual.as_ref()) {
                let (expected, actual) = (hex::encode(expected), actual.map(hex::encode));
                violations.push(PolicyViolation::differs(name, expected, actual));
            }
        }
        PolicyViolations::none_of(violations)
    }
}

/// At which time a document must hold.
pub(crate) enum When {
    /// Now: it must be fresh.
    Now(Timestamp),
    /// When it was made: what was stored stays as good as it was.
    Made,
}

fn malformed(reason: impl fmt::Display) -> VerifyError {
    VerifyError::Malformed { kind: "Nitro attestation document", reason: format!("{reason}") }
}

pub(crate) fn verify(bytes: &[u8], roots: &TrustRoots, when: &When) -> Result<VerifiedNitro, VerifyError> {
    let document = NitroDocument::parse(bytes).map_err(malformed)?;
    let made = i64::try_from(document.timestamp)
        .ok()
        .and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok())
        .ok_or_else(|| malformed("its time is out of range"))?;
    // The document's own root is only a name for one that is pinned.
    let named = document.cabundle.first().map(Vec::as_slice).unwrap_or_default();
    let root = [TrustRoot::AwsNitroEnclavesRootG1, TrustRoot::Development]
        .into_iter()
        .find_map(|root| Some((root, roots.certificate(root).filter(|der| *der == named)?)));
    let (trust_root, root_der) = root.ok_or(VerifyError::UnknownRoot)?;

    verify_chain(&document, root_der, made).map_err(|reason| VerifyError::rejected(trust_root, reason))?;
    if let When::Now(now) = when {
        check_age(made, *now)?;
    }
    if document.is_debug() {
        return Err(VerifyError::Debug);
    }
    Ok(VerifiedNitro {
        trust_root,
        kind: document.kind,
        device_id: document.device_id(),
        image_hash: document.image_hash(),
        module_id: document.module_id,
        timestamp: made,
        pcrs: document.pcrs,
        user_data: document.user_data,
        nonce: document.nonce,
        public_key: document.public_key,
    })
}

/// Certificates and signature at the time the document was made.
fn verify_chain(document: &NitroDocument, root: &[u8], made: Timestamp) -> Result<(), String> {
    let seconds = u64::try_from(made.as_second()).map_err(|_| "the document is from before 1970")?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let root = CertificateDer::from(root);
    let anchor = anchor_from_trusted_cert(&root).map_err(|error| format!("the root is unusable: {error}"))?;
    let intermediates: Vec<_> =
        document.cabundle.iter().skip(1).map(|der| CertificateDer::from(der.as_slice())).collect();
    let leaf = CertificateDer::from(document.certificate.as_slice());
    EndEntityCert::try_from(&leaf)
        .and_then(|leaf| {
            leaf.verify_for_usage(
                &[webpki::ring::ECDSA_P384_SHA384],
                &[anchor],
                &intermediates,
                time,
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map(drop)
        })
        .map_err(|error| format!("the certificate chain does not hold: {error}"))?;

    let (_, leaf) =
        X509Certificate::from_der(&document.certificate).map_err(|_| "the certificate is broken")?;
    let usage = leaf.key_usage().ok().flatten().ok_or("the certificate does not say what its key is for")?;
    if !usage.value.digital_signature() || usage.value.key_cert_sign() || leaf.is_ca() {
        return Err("the certificate's key is not one for signing documents".into());
    }
    let key = leaf.public_key().subject_public_key.data.as_ref();
    UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key)
        .verify(&document.signed(), &document.signature)
        .map_err(|_| "the document's signature does not hold".into())
}

fn check_age(made: Timestamp, now: Timestamp) -> Result<(), VerifyError> {
    let age = made.duration_until(now);
    if age > MAX_AGE {
        return Err(VerifyError::Rule("the document is older than an hour"));
    }
    if age < -MAX_SKEW {
        return Err(VerifyError::Rule("the document is from the future"));
    }
    Ok(())
}
