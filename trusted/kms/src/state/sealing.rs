//! Sealing of the state file: AES-256-GCM under a key that this machine gets again after a restart.
//!
//! ```text
//! "CLOISTER-KMS-STATE" ‖ version (1 byte, 1) ‖ id of the sealing key (16) ‖ nonce (12) ‖ ciphertext ‖ tag (16)
//! ```
//!
//! Everything in front of the nonce is authenticated.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use zeroize::Zeroizing;

use crate::clock::{NoRandomness, Random};

const MAGIC: &[u8] = b"CLOISTER-KMS-STATE";
const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const HEADER_BYTES: usize = MAGIC.len() + 1 + KEY_ID_BYTES;

/// Why a sealed text does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// Not written by a KMS.
    #[error("it is not the state of a KMS")]
    Foreign,
    /// Of another version of this program.
    #[error("it has version {0}, and this program reads version {VERSION}")]
    Version(u8),
    /// Of another machine.
    #[error("it was sealed under another key: this is another machine, or its key provider changed")]
    OtherKey,
    /// Not what was written.
    #[error("it is cut off or was changed")]
    Damaged,
}

/// Why a text cannot be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No nonce.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The cipher refuses.
    #[error("the state is too long to be sealed")]
    Cipher,
}

/// Key of the state file.
pub(crate) struct SealingKey {
    id: [u8; KEY_ID_BYTES],
    cipher: LessSafeKey,
}

impl SealingKey {
    /// From the machine's secret. The key of the file is derived, so that the secret itself encrypts
    /// nothing.
    pub(crate) fn new(secret: &[u8; 32]) -> Option<Self> {
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, b"cloister-kms-state").extract(secret);
        let mut id = [0; KEY_ID_BYTES];
        derived.expand(&[b"key id"], Bytes(KEY_ID_BYTES)).ok()?.fill(&mut id).ok()?;
        let mut key = Zeroizing::new([0; 32]);
        derived.expand(&[b"aes-256-gcm"], Bytes(32)).ok()?.fill(&mut *key).ok()?;
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key).ok()?);
        Some(Self { id, cipher })
    }

    /// Seals `text` under a fresh nonce. The text is wiped.
    pub(crate) fn seal(&self, text: Zeroizing<Vec<u8>>, random: Random) -> Result<Vec<u8>, SealError> {
        let mut text = text;
        let mut nonce = [0; NONCE_BYTES];
        random.fill(&mut nonce)?;
        let mut sealed = Vec::with_capacity(HEADER_BYTES + NONCE_BYTES + text.len() + TAG_BYTES);
        sealed.extend_from_slice(MAGIC);
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.id);
        let tag = self
            .cipher
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(sealed.as_slice()),
                text.as_mut_slice(),
            )
            .map_err(|_| SealError::Cipher)?;
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&text);
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens what [`SealingKey::seal`] made.
    pub(crate) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        let rest = sealed.strip_prefix(MAGIC).ok_or(if MAGIC.starts_with(sealed) {
            UnsealError::Damaged
        } else {
            UnsealError::Foreign
        })?;
        let (version, rest) = rest.split_first().ok_or(UnsealError::Damaged)?;
        if *version != VERSION {
            return Err(UnsealError::Version(*version));
        }
        let (id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>().ok_or(UnsealError::Damaged)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(UnsealError::Damaged)?;
        let header = sealed.get(..HEADER_BYTES).ok_or(UnsealError::Damaged)?;
        let mut text = Zeroizing::new(text.to_vec());
        let length = self
            .cipher
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(header), &mut text)
            .map_err(|_| if *id == self.id { UnsealError::Damaged } else { UnsealError::OtherKey })?
            .len();
        text.truncate(length);
        Ok(text)
    }
}

struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}
