//! What a webhook's requests are signed with.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const PREFIX: &str = "whsec_";
/// Fewest characters of a secret of one's own.
pub const MIN_SECRET: usize = 16;
/// Most characters of a secret.
pub const MAX_SECRET: usize = 200;
/// How many characters at its end tell secrets apart.
const SHOWN: usize = 4;

/// Receivers' libraries differ in what they forgive, so all of it is forgiven here.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// A text that cannot be a secret. It may be one that was meant for something else: it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret has 16 to 200 characters, all of them printable ASCII without spaces")]
pub struct InvalidSecret;

/// The secret that a webhook and its receiver share. It is wiped when dropped and has no readable form but
/// [`Self::expose`].
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A secret of 32 random bytes: `whsec_` and base64url. It has no character that base64 and base64url write
    /// differently, and its padding, so that every library reads the same key from it.
    #[must_use]
    pub fn generate(random: [u8; 32]) -> Self {
        let mut bytes = Zeroizing::new(random);
        loop {
            let text = Zeroizing::new(BASE64_URL_SAFE.encode(*bytes));
            if !text.contains(['-', '_']) {
                return Self(Zeroizing::new(format!("{PREFIX}{}", *text)));
            }
            // Three of four texts have one of these. As hard to guess as what it was made of.
            bytes = Zeroizing::new(Sha256::digest(*bytes).into());
        }
    }

    /// A secret that somebody brings, or that was kept.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let is_usable = (MIN_SECRET..=MAX_SECRET).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_usable { Ok(Self(Zeroizing::new(text.to_owned()))) } else { Err(InvalidSecret) }
    }

    /// The secret itself, for the few places that show or keep it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What may be shown of it.
    #[must_use]
    pub fn masked(&self) -> String {
        // A secret is ASCII, so this is a boundary of characters.
        let shown = self.0.get(self.0.len().saturating_sub(SHOWN)..).unwrap_or_default();
        format!("{PREFIX}****…{shown}")
    }

    /// The key of the public scheme: the whole text.
    pub(crate) fn public_key(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The key of Standard Webhooks: what stands in base64 behind `whsec_`, or without that prefix; a secret that is
    /// not base64 counts as it is, with its prefix.
    pub(crate) fn standard_key(&self) -> Zeroizing<Vec<u8>> {
        let text = self.0.strip_prefix(PREFIX).unwrap_or(&self.0);
        let alphabets = [STANDARD, URL_SAFE];
        let decoded =
            alphabets.iter().find_map(|alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(text).ok());
        let decoded = decoded.filter(|key| !key.is_empty());
        Zeroizing::new(decoded.unwrap_or_else(|| self.0.as_bytes().to_vec()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
