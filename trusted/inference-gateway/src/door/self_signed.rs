//! Certificates that the gateway makes itself, for whatever name a client asks for. Nobody vouches for them: evidence does,
//! for the key that all of them have.
//!
//! A certificate follows from the key and the name alone. So whoever keeps one finds the same after a restart, and at every
//! replica that has the key: clients compare all of it, and another form of it would be another certificate to all of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_agent_client::{Agent, KeyName};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::EncodePrivateKey as _;
use parking_lot::Mutex;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, PublicKeyData, SerialNumber,
    SignatureAlgorithm,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::tls::CertificateError;

/// The key's name in the application.
const KEY: KeyName = KeyName {
    path: "cloister/inference-tls/v1",
    purpose: "cloister.inference-tls.v1",
    algorithm: "secp256k1",
};
/// Most certificates that are remembered; more names than this come from nobody who means well.
const MAX_NAMES: usize = 256;
/// From the begin of a day to its last second.
const LAST_SECOND: Duration = Duration::from_secs(24 * 60 * 60 - 1);
/// Longest common name (RFC 5280, appendix A.1), in characters.
const MAX_COMMON_NAME: usize = 64;
/// Bytes of a serial number (RFC 5280, 4.1.2.2: at most 20).
const SERIAL_BYTES: usize = 16;

/// The gateway's own TLS key, with its certificates.
#[derive(Debug)]
pub(super) struct SelfSigned {
    signer: Signer,
    key: Arc<dyn rustls::sign::SigningKey>,
    shown: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl SelfSigned {
    /// With the key of the application that runs here, or a fresh one where no agent is named.
    pub(super) async fn of(agent_socket: Option<&Path>) -> Result<Self, CertificateError> {
        if let Some(socket) = agent_socket {
            let own = Agent::new(socket).key(&KEY).await.map_err(CertificateError::Agent)?;
            return Self::new(&own.secret);
        }
        let mut fresh = Zeroizing::new([0; 32]);
        getrandom::fill(fresh.as_mut_slice()).map_err(|_| CertificateError::NoRandomness)?;
        Self::new(&fresh)
    }

    /// Fails for one of four thousand million secrets, which are no key of the curve.
    fn new(secret: &[u8; 32]) -> Result<Self, CertificateError> {
        let secret = p256::SecretKey::from_slice(secret).map_err(|_| CertificateError::Key)?;
        let pkcs8 = secret.to_pkcs8_der().map_err(|_| CertificateError::Key)?;
        let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_bytes()));
        let key = any_supported_type(&pkcs8).map_err(|_| CertificateError::Key)?;
        let point = secret.public_key().to_sec1_point(false).as_bytes().to_vec();
        Ok(Self { signer: Signer { key: secret.into(), point }, key, shown: Mutex::default() })
    }

    /// SHA-256 of the key (`SubjectPublicKeyInfo`, DER).
    pub(super) fn spki_sha256(&self) -> [u8; 32] {
        Sha256::digest(self.signer.subject_public_key_info()).into()
    }

    /// The certificate for a name; for none at all, one without.
    fn certificate(&self, name: Option<&str>) -> Result<Arc<CertifiedKey>, rcgen::Error> {
        let name = name.unwrap_or_default().to_ascii_lowercase();
        if let Some(known) = self.shown.lock().get(&name) {
            return Ok(Arc::clone(known));
        }
        let made = self.params(&name)?.self_signed(&self.signer)?;
        let made = Arc::new(CertifiedKey::new(vec![made.der().clone()], Arc::clone(&self.key)));
        let mut shown = self.shown.lock();
        if shown.len() >= MAX_NAMES
            && let Some(any) = shown.keys().next().cloned()
        {
            shown.remove(&any);
        }
        shown.insert(name, Arc::clone(&made));
        Ok(made)
    }

    fn params(&self, name: &str) -> Result<CertificateParams, rcgen::Error> {
        let names = if name.is_empty() { Vec::new() } else { vec![name.to_owned()] };
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::OrganizationName, "Cloister inference gateway");
        // So that no certificate looks as if that for another name had issued it.
        params.distinguished_name.push(DnType::CommonName, name.get(..MAX_COMMON_NAME).unwrap_or(name));
        // Clients refuse two certificates of one issuer with the same number.
        let number = Sha256::new().chain_update(self.spki_sha256()).chain_update(name).finalize();
        let mut serial = [0; SERIAL_BYTES];
        serial.iter_mut().zip(number).for_each(|(to, from)| *to = from);
        serial[0] = serial[0] & 0x3f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        // How long the key holds is for the keyset to say, and clocks of guests may be wrong. The end is the one without meaning
        // (RFC 5280, 4.1.2.5).
        params.not_before = rcgen::date_time_ymd(1970, 1, 1);
        params.not_after = rcgen::date_time_ymd(9999, 12, 31) + LAST_SECOND;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params)
    }
}

impl ResolvesServerCert for SelfSigned {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificate(hello.server_name())
            .inspect_err(|error| tracing::warn!(%error, "no certificate can be made for a name that a client asks for"))
            .ok()
    }
}

/// Signs certificates with numbers that follow from what is signed (RFC 6979), so that each is the same every time.
struct Signer {
    key: SigningKey,
    /// The public key, SEC 1, uncompressed.
    point: Vec<u8>,
}

/// Without the key.
impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Signer").field("point", &hex::encode(&self.point)).finish_non_exhaustive()
    }
}

impl PublicKeyData for Signer {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Signer {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature: DerSignature = self.key.try_sign(message).map_err(|_| rcgen::Error::RemoteKeyError)?;
        Ok(signature.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &SelfSigned, name: Option<&str>) -> Vec<u8> {
        key.certificate(name).unwrap().cert[0].to_vec()
    }

    #[test]
    fn certificates_follow_from_the_key_and_the_name() {
        let [one, same, other] = [[7; 32], [7; 32], [8; 32]].map(|secret| SelfSigned::new(&secret).unwrap());
        assert_eq!(shown(&one, Some("A.example")), shown(&same, Some("a.example")));
        assert_eq!(shown(&one, None), shown(&same, None));
        assert_ne!(shown(&one, Some("a.example")), shown(&one, Some("b.example")));
        assert_ne!(shown(&one, Some("a.example")), shown(&other, Some("a.example")));
        assert_eq!(one.spki_sha256(), same.spki_sha256());
        // What clients have kept, whatever library makes it.
        assert_eq!(
            hex::encode(Sha256::digest(shown(&one, Some("a.example")))),
            "fbe21d8e39c9b8fdaa948a0f3de321f6cabafd36bc8c7572086598d1c46ff8df"
        );
        assert_eq!(
            hex::encode(Sha256::digest(shown(&one, None))),
            "08f2f29217182e0381826d63688c8d3366531c28d3d286385997df1397738405"
        );
        let der = shown(&one, Some("a.example"));
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        parsed.verify_signature(None).unwrap();
        assert_eq!(Sha256::digest(parsed.public_key().raw)[..], one.spki_sha256());
        assert!(!parsed.is_ca());
        assert_eq!(parsed.validity().not_after.timestamp(), 253_402_300_799);
        let serial = |key, name| {
            let der = shown(key, Some(name));
            let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
            parsed.raw_serial().to_vec()
        };
        assert_ne!(serial(&one, "a.example"), serial(&one, "b.example"));
        assert_ne!(serial(&one, "a.example"), serial(&other, "a.example"));
        shown(&one, Some(&format!("{}.example", ["x"; 64].join("."))));
        assert!(matches!(SelfSigned::new(&[0xff; 32]), Err(CertificateError::Key)));
        assert!(!format!("{one:?}").contains(&hex::encode([7; 32])));
    }

    #[test]
    fn strangers_with_many_names_take_no_memory() {
        let key = SelfSigned::new(&[7; 32]).unwrap();
        let first = shown(&key, Some("first.example"));
        for number in 0..2 * MAX_NAMES {
            shown(&key, Some(&format!("{number}.example")));
            assert!(key.shown.lock().len() <= MAX_NAMES);
        }
        assert_eq!(shown(&key, Some("first.example")), first);
    }
}
