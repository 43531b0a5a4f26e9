//! People with keys of each kind. A hardware key is played: its signature is one of Ed25519 over other bytes.

use ed25519_dalek::Signer as _;
use p256::ecdsa::signature::Signer as _;
use sha2::{Digest as _, Sha256};
use ssh_key::public::{EcdsaPublicKey, Ed25519PublicKey, KeyData, SkEd25519};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, LineEnding, PublicKey, Signature, SshSig};

use crate::approvals::{ApprovalStatement, NAMESPACE, OwnerKey};

const APPLICATION: &str = "ssh:";

pub(super) enum Person {
    Ed25519(ed25519_dalek::SigningKey),
    P256(p256::ecdsa::SigningKey),
    Hardware(ed25519_dalek::SigningKey),
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

    fn data(&self) -> KeyData {
        match self {
            Self::Ed25519(key) => KeyData::Ed25519(Ed25519PublicKey(key.verifying_key().to_bytes())),
            Self::P256(key) => {
                let point = key.verifying_key().to_sec1_point(false);
                KeyData::Ecdsa(EcdsaPublicKey::from_sec1_bytes(point.as_bytes()).unwrap())
            }
            Self::Hardware(key) => {
                let public = Ed25519PublicKey(key.verifying_key().to_bytes());
                KeyData::SkEd25519(SkEd25519::new(public, APPLICATION))
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
        match self {
            Self::Ed25519(key) => key.sign(&signed).to_vec(),
            Self::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(&signed);
                Signature::try_from(signature).unwrap().as_bytes().to_vec()
            }
            Self::Hardware(key) => {
                let trailer = [flags, 0, 0, 0, 7];
                let hashes = [Sha256::digest(APPLICATION), Sha256::digest(&signed)];
                let message = [hashes[0].as_slice(), &trailer, &hashes[1]].concat();
                [key.sign(&message).to_vec(), trailer.to_vec()].concat()
            }
        }
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::Ed25519,
            Self::P256(_) => Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
            Self::Hardware(_) => Algorithm::SkEd25519,
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

/// A key with these bytes.
pub(super) fn line_of_ed25519(first: [u8; 1], rest: [u8; 31]) -> String {
    let bytes: [u8; 32] = [&first[..], &rest].concat().try_into().unwrap();
    PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(bytes))).to_openssh().unwrap()
}
