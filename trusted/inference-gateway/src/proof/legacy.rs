//! Signatures of the older interface, over the hashes of a request and its answer.

use std::str::FromStr;

use cloister_aci::e2ee::E2eeError;
use ed25519_dalek::Signer as _;
use k256::ecdsa::SigningKey;
use sha2::{Digest as _, Sha256};
use sha3::Keccak256;

use crate::error::{GatewayError, Kind};

/// How older clients have texts signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SigningAlgo {
    /// Personal messages (EIP-191) over secp256k1.
    Ecdsa,
    /// Ed25519 over the text.
    Ed25519,
}

impl SigningAlgo {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ecdsa => "ecdsa",
            Self::Ed25519 => "ed25519",
        }
    }

    /// The one that a caller names; `ecdsa` without a name.
    pub(super) fn asked(name: Option<&str>) -> Result<Self, GatewayError> {
        name.map_or(Ok(Self::Ecdsa), str::parse)
            .map_err(|()| GatewayError::new(Kind::SigningAlgo, "signing_algo must be 'ecdsa' or 'ed25519'"))
    }
}

impl FromStr for SigningAlgo {
    type Err = ();

    /// In any case of letters, as clients write them.
    fn from_str(name: &str) -> Result<Self, ()> {
        let names = [("ecdsa", Self::Ecdsa), ("ed25519", Self::Ed25519)];
        names.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, algo)| algo).ok_or(())
    }
}

/// A key of each algorithm.
pub(crate) struct Signers {
    ecdsa: SigningKey,
    pub(crate) ed25519: ed25519_dalek::SigningKey,
}

impl Signers {
    pub(super) fn new(ecdsa: &[u8; 32], ed25519: &[u8; 32]) -> Result<Self, E2eeError> {
        Ok(Self {
            ecdsa: SigningKey::from_slice(ecdsa).map_err(|_| E2eeError::PublicKey)?,
            ed25519: ed25519_dalek::SigningKey::from_bytes(ed25519),
        })
    }

    pub(crate) fn ed25519_public_key(&self) -> [u8; 32] {
        self.ed25519.verifying_key().to_bytes()
    }

    /// The public key in hex: 65 bytes for ECDSA.
    pub(super) fn public_key(&self, algo: SigningAlgo) -> String {
        match algo {
            SigningAlgo::Ecdsa => hex::encode(self.ecdsa.verifying_key().to_sec1_point(false)),
            SigningAlgo::Ed25519 => hex::encode(self.ed25519_public_key()),
        }
    }

    /// What stands for the key in evidence: an Ethereum address of 20 bytes, or the key itself.
    fn address_bytes(&self, algo: SigningAlgo) -> Vec<u8> {
        match algo {
            SigningAlgo::Ecdsa => {
                let point = self.ecdsa.verifying_key().to_sec1_point(false);
                let hash = Keccak256::digest(point.as_bytes().get(1..).unwrap_or_default());
                hash.iter().skip(12).copied().collect()
            }
            SigningAlgo::Ed25519 => self.ed25519_public_key().to_vec(),
        }
    }

    /// The same as clients get it.
    pub(super) fn address(&self, algo: SigningAlgo) -> String {
        let hex = hex::encode(self.address_bytes(algo));
        match algo {
            SigningAlgo::Ecdsa => format!("0x{hex}"),
            SigningAlgo::Ed25519 => hex,
        }
    }

    /// A signature as clients get it.
    pub(super) fn sign(&self, algo: SigningAlgo, text: &str) -> String {
        match algo {
            SigningAlgo::Ecdsa => {
                let (signature, recovery) = self.ecdsa.sign_prehash_recoverable(&personal(text));
                format!("0x{}{:02x}", hex::encode(signature.to_bytes()), recovery.to_byte() + 27)
            }
            SigningAlgo::Ed25519 => hex::encode(self.ed25519.sign(text.as_bytes()).to_bytes()),
        }
    }

    /// What a quote is made over for older clients: the key, alone (version 1) or with the TLS key that the caller
    /// sees (version 2), and the nonce.
    pub(super) fn report_data(
        &self,
        algo: SigningAlgo,
        tls_spki: Option<&[u8; 32]>,
        nonce: &[u8; 32],
    ) -> [u8; 64] {
        let address = self.address_bytes(algo);
        let mut data = [0; 64];
        let (key, challenge) = data.split_at_mut(32);
        match tls_spki {
            Some(spki) => {
                key.copy_from_slice(&Sha256::new().chain_update(&address).chain_update(spki).finalize());
            }
            None => key.iter_mut().zip(&address).for_each(|(to, from)| *to = *from),
        }
        challenge.copy_from_slice(nonce);
        data
    }
}

/// Digest of a personal message.
fn personal(text: &str) -> [u8; 32] {
    Keccak256::new()
        .chain_update("\x19Ethereum Signed Message:\n")
        .chain_update(text.len().to_string())
        .chain_update(text)
        .finalize()
        .into()
}

/// A challenge of an older client: 32 bytes in hex, or the hash of its text.
pub(super) fn challenge(nonce: &str) -> [u8; 32] {
    let bytes = hex::decode(nonce).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_else(|| Sha256::digest(nonce).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const TEXT: &str = concat!(
        "94d809bf47380d8a2eab0eb6e126d4dda9364b0b4725cdf7ead52dd70b2aa87b",
        ":",
        "dedfffe5b14d031b8e2c01996d021a15293cb7c63b56be7e4be9e89b6f0a5f61",
    );

    fn signers() -> Signers {
        Signers::new(&[3; 32], &[5; 32]).unwrap()
    }

    #[test]
    fn the_published_signature() {
        assert_eq!(
            hex::encode(personal(TEXT)),
            "f99517671b45934b9b99809245208cf76f9ad951d090cf2d01c8bf02bd5058e8"
        );
        let signers = signers();
        assert_eq!(signers.address(SigningAlgo::Ecdsa), "0x3325a78425f17a7e487eb5666b2bfd93abb06c70");
        assert_eq!(
            signers.sign(SigningAlgo::Ecdsa, TEXT),
            "0xaf63e2293eca134a33fb686858639486077e61e4a75ee9d4539780d1f03120751f0a39ca3c6757897419212da46d59a1b4a87abe6eabf3fbc2e20abaf02988881b"
        );
        assert_eq!(
            signers.public_key(SigningAlgo::Ecdsa),
            "04531fe6068134503d2723133227c867ac8fa6c83c537e9a44c3c5bdbdcb1fe3379e92c265e71e481ba82a84675a47ac705a200fcd524e92d93b0e7386f26a5458"
        );
    }

    #[test]
    fn an_ed25519_signature_is_over_the_text() {
        let signers = signers();
        let signature = hex::decode(signers.sign(SigningAlgo::Ed25519, TEXT)).unwrap();
        let key: [u8; 32] = hex::decode(signers.address(SigningAlgo::Ed25519)).unwrap().try_into().unwrap();
        let key = ed25519_dalek::VerifyingKey::from_bytes(&key).unwrap();
        let signature = ed25519_dalek::Signature::from_slice(&signature).unwrap();
        assert!(key.verify_strict(TEXT.as_bytes(), &signature).is_ok());
        assert!(key.verify_strict(b"other", &signature).is_err());
    }

    #[test]
    fn the_published_report_data() {
        let signers = signers();
        let nonce = challenge(NONCE);
        assert_eq!(
            hex::encode(signers.report_data(SigningAlgo::Ecdsa, None, &nonce)),
            format!("3325a78425f17a7e487eb5666b2bfd93abb06c70000000000000000000000000{NONCE}")
        );
        assert_eq!(
            hex::encode(signers.report_data(SigningAlgo::Ecdsa, Some(&[0xc0; 32]), &nonce)),
            format!("cd50c6a9af1d2b88049c32dca37b0a4d0880b9f54866c38a2c66aa45692d6f46{NONCE}")
        );
    }

    #[test]
    fn a_nonce_that_is_not_32_bytes_is_hashed() {
        for text in ["", "00", &NONCE[..62], &format!("0x{NONCE}"), "hello"] {
            assert_eq!(challenge(text), <[u8; 32]>::from(Sha256::digest(text)), "{text}");
        }
        assert_eq!(challenge(&NONCE.to_uppercase()), challenge(NONCE));
    }

    #[test]
    fn algorithms_are_named_in_any_case() {
        assert_eq!(("ECDSA".parse(), "Ed25519".parse()), (Ok(SigningAlgo::Ecdsa), Ok(SigningAlgo::Ed25519)));
        assert_eq!(["rsa", "", " ecdsa"].map(str::parse::<SigningAlgo>), [Err(()); 3]);
    }
}
