//! What is kept in the database and must not be read there: sealed with AES-256-GCM (NIST SP 800-38D), each text for one
//! place only.
//!
//! ```text
//! base64url(version (1 byte, 1) ‖ nonce (12) ‖ ciphertext ‖ tag (16))
//! ```

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, Salt};
use zeroize::Zeroizing;

use crate::clock::{NoRandomness, Random};

const VERSION: u8 = 1;

/// Why something was not sealed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// No randomness.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The cipher refuses.
    #[error("the text cannot be sealed")]
    Cipher,
}

/// What is stored was not sealed with this key for this place.
#[derive(Debug, thiserror::Error)]
#[error("what is stored does not open with this key")]
pub(crate) struct Foreign;

/// A key for a purpose from a secret that nobody guesses (HKDF-SHA256, RFC 5869).
pub(crate) fn derived(secret: &[u8], purpose: &[u8], of: &[u8]) -> Result<Zeroizing<[u8; 32]>, SealError> {
    let mut key = Zeroizing::new([0; 32]);
    Salt::new(HKDF_SHA256, purpose)
        .extract(secret)
        .expand(&[of], HKDF_SHA256)
        .and_then(|output| output.fill(&mut *key))
        .map_err(|Unspecified| SealError::Cipher)?;
    Ok(key)
}

/// Seals and opens under one key.
pub(crate) struct Sealer(LessSafeKey);

impl Sealer {
    /// With a key of 32 bytes.
    pub(crate) fn new(key: &[u8; 32]) -> Result<Self, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|Unspecified| SealError::Cipher)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a text for a place. It becomes the ciphertext: no copy in clear stays behind.
    pub(crate) fn seal(&self, place: &[u8], mut text: Vec<u8>, random: Random) -> Result<String, SealError> {
        let nonce: [u8; NONCE_LEN] = random.bytes()?;
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut text)
            .map_err(|Unspecified| SealError::Cipher)?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&[VERSION], nonce.as_slice(), &text].concat()))
    }

    /// Opens what was sealed for a place.
    pub(crate) fn open(&self, place: &[u8], sealed: &str) -> Result<Zeroizing<Vec<u8>>, Foreign> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(sealed).map_err(|_| Foreign)?;
        let bytes = bytes.strip_prefix(&[VERSION]).ok_or(Foreign)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(Foreign)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|Unspecified| Foreign)?;
        let mut text = Zeroizing::new(text.to_vec());
        let length =
            self.0.open_in_place(nonce, Aad::from(place), &mut text).map_err(|Unspecified| Foreign)?.len();
        text.truncate(length);
        Ok(text)
    }
}
