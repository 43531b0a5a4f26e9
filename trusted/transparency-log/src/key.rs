use std::fmt;

use ed25519_dalek::Signer as _;
use zeroize::Zeroizing;

use crate::LogError;

/// Longest name of a log, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Signs checkpoints: an Ed25519 key, wiped when dropped.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// A key from `random`, which fills the bytes that it is given or says why it cannot.
    pub fn generate<E>(random: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut seed = Zeroizing::new([0; 32]);
        random(seed.as_mut_slice())?;
        Ok(Self::from_seed(&seed))
    }

    /// The key of a seed (RFC 8032).
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// The seed, to keep the key in a safe place.
    #[must_use]
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public key for readers of the log called `name`: `<name>+<hash>+<key>` (C2SP `signed-note`).
    #[must_use]
    pub fn verifier_key(&self, name: &str) -> String {
        signed_note::new_ed25519_verifier_key(name, &self.0.verifying_key())
    }

    /// A note of `text` signed in the name of `name`.
    pub(crate) fn sign(&self, name: &str, text: &[u8]) -> Result<String, LogError> {
        let bad_name = || LogError::Name(name.to_owned());
        let key = [&[1], self.0.verifying_key().as_bytes().as_slice()].concat();
        let signature = signed_note::Signature::new(
            name.to_owned(),
            signed_note::key_id(name, &key),
            self.0.sign(text).to_vec(),
        )
        .map_err(|_| bad_name())?;
        let note = signed_note::Note::new(text, &[signature]).map_err(|_| bad_name())?;
        String::from_utf8(note.to_bytes()).map_err(|_| bad_name())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.verifier_key("log")).finish()
    }
}

/// Whether a log can have this name: 1 to 255 bytes without spaces, plus signs and control characters.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && signed_note::is_key_name_valid(name)
        && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_into_a_note() {
        for good in ["kms.example", "kms.example:12001", "127.0.0.1/log", "ü"] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", "a b", "a+b", "a\nb", "a\u{7f}b", &"a".repeat(256)] {
            assert!(!is_valid_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_key_shows_its_public_side_only() {
        let key = SigningKey::generate(|bytes| {
            bytes.fill(7);
            Ok::<_, LogError>(())
        })
        .unwrap();
        assert_eq!(*key.seed(), [7; 32]);
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.verifier_key("log")), "{shown}");
        assert!(!shown.contains("7, 7, 7"), "{shown}");
    }
}
