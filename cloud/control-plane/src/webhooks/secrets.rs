//! Secrets of webhooks at rest: sealed (`crate::sealing`) under a key of the installation, each for its webhook.
//!
//! The key lies beside the fleet's authority, never in the database: a copy of the database alone opens nothing, and
//! a sealed secret that is moved to another webhook opens nowhere.

use std::path::Path;

use cloister_fleet_tls::{FleetTlsError, shared_secret};
use cloister_webhooks::Secret;
use zeroize::Zeroizing;

use crate::clock::{NoRandomness, Random};
use crate::sealing::{SealError, Sealer};

const KEY_FILE: &str = "webhook-secrets.key";

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

impl From<SealError> for SecretsError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Random(error) => Self::Random(error),
            SealError::Cipher => Self::Cipher,
        }
    }
}

/// Seals and opens secrets of webhooks.
pub struct Secrets(Sealer);

impl Secrets {
    /// With the key in a directory, which is made when there is none.
    pub fn open(dir: &Path, random: Random) -> Result<Self, SecretsError> {
        let key = Zeroizing::new(shared_secret(dir, KEY_FILE, random.bytes()?)?);
        Ok(Self(Sealer::new(&key)?))
    }

    /// Seals a secret for a webhook.
    pub fn seal(&self, webhook_id: i64, secret: &Secret, random: Random) -> Result<String, SecretsError> {
        Ok(self.0.seal(&place(webhook_id), secret.expose().as_bytes().to_vec(), random)?)
    }

    /// Opens a secret that was sealed for a webhook.
    pub fn unseal(&self, webhook_id: i64, sealed: &str) -> Result<Secret, SecretsError> {
        let text = self.0.open(&place(webhook_id), sealed).map_err(|_| SecretsError::Foreign)?;
        let text = std::str::from_utf8(&text).map_err(|_| SecretsError::Foreign)?;
        Secret::parse(text).map_err(|_| SecretsError::Foreign)
    }
}

/// What a sealed secret is bound to.
fn place(webhook_id: i64) -> Vec<u8> {
    [b"cloister-webhook-secret".as_slice(), &webhook_id.to_be_bytes()].concat()
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
