//! The sealed form: `ephemeral public key (32) ‖ nonce (12) ‖ ciphertext ‖ tag (16)`. The key of AES-256-GCM
//! is the X25519 shared secret as it is; there is no associated data. Public clients fix all of that.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use x25519_dalek::{PublicKey, SharedSecret, StaticSecret};
use zeroize::{Zeroize as _, Zeroizing};

use crate::Environment;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// Shortest sealed form, in bytes: of an empty plaintext.
pub const MIN_BLOB_BYTES: usize = KEY_BYTES + NONCE_LEN + TAG_BYTES;

/// Longest sealed form, in bytes: what fits onto a configuration disk.
pub const MAX_BLOB_BYTES: usize = 256 * 1024;

/// Why nothing was sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError<E> {
    /// The source of randomness failed.
    #[error("no randomness to seal with")]
    Randomness(#[source] E),
    /// The recipient's key leads to a shared secret that everybody knows.
    #[error("the recipient's public key is weak; ask a KMS you trust for the application's key")]
    WeakKey,
    /// More than [`MAX_BLOB_BYTES`] when sealed.
    #[error("the environment is too large: {0} bytes when sealed, at most {MAX_BLOB_BYTES} are taken")]
    TooLong(usize),
    /// The cipher refused; it never does for these lengths.
    #[error("AES-256-GCM refused to seal")]
    Cipher,
}

/// Why a sealed form does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Shorter than [`MIN_BLOB_BYTES`] or longer than [`MAX_BLOB_BYTES`].
    #[error("{0} bytes cannot be a sealed environment: it has {MIN_BLOB_BYTES} to {MAX_BLOB_BYTES}")]
    Length(usize),
    /// The sender's key leads to a shared secret that everybody knows.
    #[error("the sender's public key in the sealed environment is weak")]
    WeakKey,
    /// Sealed to another key, or changed on the way.
    #[error("the sealed environment does not open: it was sealed to another key, or was changed")]
    NotOpened,
}

/// Seals an environment to the application's X25519 key `recipient`. `random` fills 32 bytes for the
/// ephemeral secret, then 12 for the nonce; both must be fresh for every call.
pub fn seal<E>(
    recipient: &[u8; 32],
    environment: &Environment,
    random: &mut dyn FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Vec<u8>, SealError<E>> {
    seal_bytes(recipient, &environment.to_json(), random)
}

/// The same for a plaintext as it is.
pub fn seal_bytes<E>(
    recipient: &[u8; 32],
    plaintext: &[u8],
    random: &mut dyn FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Vec<u8>, SealError<E>> {
    let length = plaintext.len().saturating_add(MIN_BLOB_BYTES);
    if length > MAX_BLOB_BYTES {
        return Err(SealError::TooLong(length));
    }
    let mut secret = Zeroizing::new([0; KEY_BYTES]);
    random(secret.as_mut_slice()).map_err(SealError::Randomness)?;
    let mut nonce = [0; NONCE_LEN];
    random(&mut nonce).map_err(SealError::Randomness)?;

    let secret = StaticSecret::from(*secret);
    let sender = PublicKey::from(&secret);
    let cipher =
        cipher(&secret.diffie_hellman(&PublicKey::from(*recipient))).map_err(|error| match error {
            NoCipher::WeakKey => SealError::WeakKey,
            NoCipher::Refused => SealError::Cipher,
        })?;

    // Allocated once, so that no copy of the plaintext stays behind.
    let mut blob = Vec::with_capacity(length);
    blob.extend_from_slice(sender.as_bytes());
    blob.extend_from_slice(&nonce);
    blob.extend_from_slice(plaintext);
    let (_, body) = blob.split_at_mut(KEY_BYTES + NONCE_LEN);
    let sealed = cipher.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), body);
    let Ok(tag) = sealed else {
        blob.zeroize();
        return Err(SealError::Cipher);
    };
    blob.extend_from_slice(tag.as_ref());
    Ok(blob)
}

/// Opens a sealed form with the application's X25519 secret.
pub fn open(secret: &[u8; 32], blob: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let wrong_length = OpenError::Length(blob.len());
    if !(MIN_BLOB_BYTES..=MAX_BLOB_BYTES).contains(&blob.len()) {
        return Err(wrong_length);
    }
    let (sender, rest) = blob.split_first_chunk::<KEY_BYTES>().ok_or(wrong_length)?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_LEN>().ok_or(wrong_length)?;
    let shared = StaticSecret::from(*secret).diffie_hellman(&PublicKey::from(*sender));
    let cipher = cipher(&shared).map_err(|error| match error {
        NoCipher::WeakKey => OpenError::WeakKey,
        NoCipher::Refused => OpenError::NotOpened,
    })?;
    let mut body = Zeroizing::new(body.to_vec());
    let length = cipher
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), body.as_mut_slice())
        .map_err(|_| OpenError::NotOpened)?
        .len();
    body.truncate(length);
    Ok(body)
}

/// The public side of an X25519 secret.
#[must_use]
pub fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    PublicKey::from(&StaticSecret::from(*secret)).to_bytes()
}

enum NoCipher {
    WeakKey,
    Refused,
}

fn cipher(shared: &SharedSecret) -> Result<LessSafeKey, NoCipher> {
    // A point of small order makes the secret zero, whatever the other side's key is.
    if !shared.was_contributory() {
        return Err(NoCipher::WeakKey);
    }
    let key = UnboundKey::new(&AES_256_GCM, shared.as_bytes()).map_err(|_| NoCipher::Refused)?;
    Ok(LessSafeKey::new(key))
}
