//! People with keys of each kind. A hardware key is played: its signature is one over other bytes.

use ed25519_dalek::Signer as _;
use p256::ecdsa::signature::Signer as _;
use sha2::{Digest as _, Sha256};
use ssh_key::public::{EcdsaPublicKey, Ed25519PublicKey, KeyData, SkEcdsaSha2NistP256, SkEd25519};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, LineEnding, PublicKey, Signature, SshSig};

use crate::approvals::{ApprovalStatement, NAMESPACE, OwnerKey};

const APPLICATION: &str = "ssh:";

pub(super) enum Person {
    Ed25519(ed25519_dalek::SigningKey),
    P256(p256::ecdsa::SigningKey),
    Hardware(ed25519_dalek::SigningKey),
    HardwareP256(p256::ecdsa::SigningKey),
}

impl Person {
    pub(super) fn ed25519(number: u8) -> Self {
        Self::Ed25519(ed25519_dalek::SigningKey::from_bytes(&[number + 1; 32]))
    }

    pub(super) fn p256(number: u8) -> Self {
        Self::P256(p256::ecdsa::SigningKey::from_slice(&[number + 1; 32]).unwrap())
    }

    pub(super) fn hardware(number: u8) -> Self {
        Self::Hardware(ed25519_dalek::SigningKey::from_bytes(&[number + 101; 32]))
    }

    pub(super) fn hardware_p256(number: u8) -> Self {
        Self::HardwareP256(p256::ecdsa::SigningKey::from_slice(&[number + 101; 32]).unwrap())
    }

    fn data(&self) -> KeyData {
        match self {
            Self::Ed25519(key) => KeyData::Ed25519(Ed25519PublicKey(key.verifying_key().to_bytes())),
            Self::P256(key) => KeyData::Ecdsa(point(key, false)),
            Self::Hardware(key) => {
                let public = Ed25519PublicKey(key.verifying_key().to_bytes());
                KeyData::SkEd25519(SkEd25519::new(public, APPLICATION))
            }
            Self::HardwareP256(key) => {
                let EcdsaPublicKey::NistP256(point) = point(key, false) else { unreachable!() };
                KeyData::SkEcdsaSha2NistP256(SkEcdsaSha2NistP256::new(point, APPLICATION))
            }
        }
    }

    pub(super) fn key(&self) -> OwnerKey {
        PublicKey::new(self.data(), "a comment").to_openssh().unwrap().parse().unwrap()
    }

    pub(super) fn sign(&self, statement: &ApprovalStatement) -> String {
        sign_with(self, NAMESPACE, statement.to_string().as_bytes())
    }

    /// The bytes of a signature; `flags` are those of a hardware key.
    pub(super) fn raw(&self, namespace: &str, text: &[u8], flags: u8) -> Vec<u8> {
        let signed = SshSig::signed_data(namespace, HashAlg::Sha512, text).unwrap();
        let trailer = [flags, 0, 0, 0, 7];
        match self {
            Self::Ed25519(key) => key.sign(&signed).to_vec(),
            Self::P256(key) => scalars(&key.sign(&signed)),
            Self::Hardware(key) => {
                let message = in_hardware(&signed, trailer);
                [key.sign(&message).to_vec(), trailer.to_vec()].concat()
            }
            Self::HardwareP256(key) => {
                let message = in_hardware(&signed, trailer);
                [scalars(&key.sign(&message)), trailer.to_vec()].concat()
            }
        }
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::Ed25519,
            Self::P256(_) => Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
            Self::Hardware(_) => Algorithm::SkEd25519,
            Self::HardwareP256(_) => Algorithm::SkEcdsaSha2NistP256,
        }
    }

    /// These bytes as a signature of this person.
    pub(super) fn armour(&self, namespace: &str, raw: &[u8]) -> String {
        self.try_armour(namespace, raw).unwrap()
    }

    fn try_armour(&self, namespace: &str, raw: &[u8]) -> Option<String> {
        let signature = Signature::new(self.algorithm(), raw).ok()?;
        let signature = SshSig::new(self.data(), namespace, HashAlg::Sha512, signature).ok()?;
        signature.to_pem(LineEnding::LF).ok()
    }

    /// The same, if they have the form of such a signature at all.
    pub(super) fn claim(&self, raw: &[u8]) -> Option<String> {
        self.try_armour(NAMESPACE, raw)
    }
}

pub(super) fn sign_with(person: &Person, namespace: &str, text: &[u8]) -> String {
    person.armour(namespace, &person.raw(namespace, text, 1))
}

fn point(key: &p256::ecdsa::SigningKey, compressed: bool) -> EcdsaPublicKey {
    let point = key.verifying_key().to_sec1_point(compressed);
    EcdsaPublicKey::from_sec1_bytes(point.as_bytes()).unwrap()
}

fn scalars(signature: &p256::ecdsa::Signature) -> Vec<u8> {
    Signature::try_from(*signature).unwrap().as_bytes().to_vec()
}

/// What a hardware key signs.
fn in_hardware(signed: &[u8], trailer: [u8; 5]) -> Vec<u8> {
    let hashes = [Sha256::digest(APPLICATION), Sha256::digest(signed)];
    [hashes[0].as_slice(), &trailer, &hashes[1]].concat()
}

/// The key of [`Person::p256`] in the short form, which OpenSSH does not write.
pub(super) fn compressed_line_of_p256(number: u8) -> String {
    let Person::P256(key) = Person::p256(number) else { unreachable!() };
    PublicKey::from(KeyData::Ecdsa(point(&key, true))).to_openssh().unwrap()
}

/// A key with these bytes.
pub(super) fn line_of_ed25519(first: [u8; 1], rest: [u8; 31]) -> String {
    let bytes: [u8; 32] = [&first[..], &rest].concat().try_into().unwrap();
    PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(bytes))).to_openssh().unwrap()
}
