//! One signature in the form of `ssh-keygen -Y sign`.

use ed25519_dalek::{Signature as Ed25519Signature, VerifyingKey};
use sha2::{Digest as _, Sha256};
use ssh_key::public::KeyData;
use ssh_key::{PublicKey, SshSig};

use super::OwnerKey;

/// Namespace of signatures: one made for anything else approves nothing.
pub const NAMESPACE: &str = "cloister-approval";
/// Longest armoured signature, in bytes.
pub const MAX_SIGNATURE_BYTES: usize = 4096;

/// What a hardware key adds to its signature: a byte of flags, and a counter.
const TRAILER_BYTES: usize = 5;
/// Flag of a hardware key: somebody touched it.
const USER_PRESENT: u8 = 1;

/// Why a signature does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSignature {
    /// Not a signature at all.
    #[error(
        "this is not what `ssh-keygen -Y sign` writes; send the whole file, from BEGIN SSH SIGNATURE to END"
    )]
    Form,
    /// Made for something else.
    #[error("it was made for {0:?}; sign with `-n {NAMESPACE}`")]
    Namespace(String),
    /// Somebody's, but not over this.
    #[error("{0} signed something else; sign the statement's text as it is, byte for byte")]
    Statement(String),
    /// The hardware key was not touched: a program may have used it.
    #[error("{0} signed without being touched; make keys without `no-touch-required`")]
    NotTouched(String),
}

/// A signature whose form is right.
pub(super) struct Signature(SshSig);

impl Signature {
    pub(super) fn parse(armoured: &str) -> Result<Self, InvalidSignature> {
        if armoured.len() > MAX_SIGNATURE_BYTES {
            return Err(InvalidSignature::Form);
        }
        let signature = SshSig::from_pem(armoured.trim()).map_err(|_| InvalidSignature::Form)?;
        if signature.namespace() == NAMESPACE {
            return Ok(Self(signature));
        }
        let printable = |c: &char| !c.is_control();
        Err(InvalidSignature::Namespace(signature.namespace().chars().filter(printable).take(64).collect()))
    }

    /// Whether it says that `key` made it.
    pub(super) fn is_of(&self, key: &OwnerKey) -> bool {
        self.0.public_key() == key.data()
    }

    /// That `key` made it, over `text`.
    pub(super) fn verify(&self, key: &OwnerKey, text: &[u8]) -> Result<(), InvalidSignature> {
        let Self(signature) = self;
        let hardware = matches!(key.data(), KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_));
        if hardware && !self.touched() {
            return Err(InvalidSignature::NotTouched(key.fingerprint()));
        }
        let verified = signature.algorithm() == key.data().algorithm()
            && match key.data() {
                KeyData::Ed25519(public) => self.ed25519(&public.0, text),
                KeyData::SkEd25519(public) => {
                    self.sk_ed25519(&public.public_key().0, public.application(), text)
                }
                other => PublicKey::from(other.clone()).verify(NAMESPACE, text, signature).is_ok(),
            };
        if verified { Ok(()) } else { Err(InvalidSignature::Statement(key.fingerprint())) }
    }

    fn touched(&self) -> bool {
        let trailer = self.0.signature_bytes().last_chunk::<TRAILER_BYTES>();
        trailer.is_some_and(|[flags, ..]| flags & USER_PRESENT != 0)
    }

    /// What the key signs instead of `text`.
    fn signed(&self, text: &[u8]) -> Option<Vec<u8>> {
        SshSig::signed_data(NAMESPACE, self.0.hash_alg(), text).ok()
    }

    fn ed25519(&self, public: &[u8; 32], text: &[u8]) -> bool {
        self.signed(text).is_some_and(|signed| strictly(public, &signed, self.0.signature_bytes()))
    }

    fn sk_ed25519(&self, public: &[u8; 32], application: &str, text: &[u8]) -> bool {
        let Some((bytes, trailer)) = self.0.signature_bytes().split_last_chunk::<TRAILER_BYTES>() else {
            return false;
        };
        self.signed(text).is_some_and(|signed| {
            let mut message = Sha256::digest(application).to_vec();
            message.extend_from_slice(trailer);
            message.extend_from_slice(&Sha256::digest(&signed));
            strictly(public, &message, bytes)
        })
    }
}

/// With the strict rules: one key, one message, one signature.
fn strictly(public: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(public) else { return false };
    Ed25519Signature::from_slice(signature)
        .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok())
}
