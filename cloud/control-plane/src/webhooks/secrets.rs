//! Secrets of webhooks at rest: sealed with AES-256-GCM under a key of the installation, each for its webhook.
//!
//! ```text
//! base64url(version (1 byte, 1) ‖ nonce (12) ‖ ciphertext ‖ tag (16))
//! ```
//!
//! The key lies beside the fleet's authority, never in the database: a copy of the database alone opens nothing, and
//! a sealed secret that is moved to another webhook opens nowhere.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cloister_fleet_tls::{FleetTlsError, shared_secret};
use cloister_webhooks::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::clock::{NoRandomness, Random};

const KEY_FILE: &str = "webhook-secrets.key";
const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;

/// Why a secret cannot be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// The key cannot be read or made.
    #[error(transparent)]
    Key(#[from] FleetTlsError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The cipher refuses.
    #[error("the secret cannot be sealed")]
    Cipher,
    /// What is stored was not sealed with this key for this webhook.
    #[error(
        "the secret of the webhook does not open with {KEY_FILE} of this installation; restore the file, or rotate \
         the secret"
    )]
    Foreign,
}

/// Seals and opens secrets of webhooks.
pub struct Secrets(LessSafeKey);

impl Secrets {
    /// With the key in a directory, which is made when there is none.
    pub fn open(dir: &Path, random: Random) -> Result<Self, SecretsError> {
        let key = Zeroizing::new(shared_secret(dir, KEY_FILE, random.bytes()?)?);
        let key = UnboundKey::new(&AES_256_GCM, &*key).map_err(|_| SecretsError::Cipher)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a secret for a webhook.
    pub fn seal(&self, webhook_id: i64, secret: &Secret, random: Random) -> Result<String, SecretsError> {
        let nonce: [u8; NONCE_BYTES] = random.bytes()?;
        // Becomes the ciphertext in place: no copy in clear stays behind.
        let mut text = secret.expose().as_bytes().to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), context(webhook_id), &mut text)
            .map_err(|_| SecretsError::Cipher)?;
        let sealed = [&[VERSION], nonce.as_slice(), &text].concat();
        Ok(BASE64_URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a secret that was sealed for a webhook.
    pub fn unseal(&self, webhook_id: i64, sealed: &str) -> Result<Secret, SecretsError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(sealed).map_err(|_| SecretsError::Foreign)?;
        let bytes = bytes.strip_prefix(&[VERSION]).ok_or(SecretsError::Foreign)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_BYTES).ok_or(SecretsError::Foreign)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SecretsError::Foreign)?;
        let mut text = Zeroizing::new(text.to_vec());
        let opened =
            self.0.open_in_place(nonce, context(webhook_id), &mut text).map_err(|_| SecretsError::Foreign)?;
        let opened = std::str::from_utf8(opened).map_err(|_| SecretsError::Foreign)?;
        Secret::parse(opened).map_err(|_| SecretsError::Foreign)
    }
}

/// What a sealed secret is bound to.
fn context(webhook_id: i64) -> Aad<Vec<u8>> {
    Aad::from([b"cloister-webhook-secret".as_slice(), &webhook_id.to_be_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_for_its_webhook_in_its_installation_only() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = Secret::generate([7; 32]);
        let secrets = Secrets::open(dir.path(), Random).unwrap();
        let sealed = secrets.seal(3, &secret, Random).unwrap();
        assert!(!sealed.contains(secret.expose()) && !sealed.contains("whsec"));
        assert_ne!(sealed, secrets.seal(3, &secret, Random).unwrap(), "sealed anew each time");
        let again = Secrets::open(dir.path(), Random).unwrap();
        assert_eq!(again.unseal(3, &sealed).unwrap().expose(), secret.expose());
        assert!(again.unseal(4, &sealed).is_err());
        assert!(Secrets::open(elsewhere.path(), Random).unwrap().unseal(3, &sealed).is_err());
    }

    #[test]
    fn what_was_changed_or_cut_does_not_open() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(dir.path(), Random).unwrap();
        let sealed = secrets.seal(3, &Secret::generate([7; 32]), Random).unwrap();
        for end in 0..sealed.len() {
            assert!(secrets.unseal(3, &sealed[..end]).is_err(), "{end}");
        }
        for at in 0..sealed.len() {
            let other = if sealed.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut changed = sealed.clone();
            changed.replace_range(at..=at, other);
            assert!(secrets.unseal(3, &changed).is_err(), "{at}");
        }
    }
}
