use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::hmac;
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

/// Shortest token, in bytes: 16 random bytes in hex.
const MIN_TOKEN_BYTES: usize = 32;
/// Longest one.
const MAX_TOKEN_BYTES: u64 = 1024;

/// Why there is no administrator's token.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// Its file cannot be read.
    #[error("{}: the administrator's token cannot be read", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// Too easy to guess, or not a token.
    #[error("{}: the administrator's token must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} printable ASCII \
             characters without spaces", .0.display())]
    Form(PathBuf),
    /// No randomness.
    #[error("the operating system gives no random bytes")]
    Random,
}

/// The administrator's token, as something to compare with. Comparing takes as long for any other token.
pub(crate) struct AdminToken {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl AdminToken {
    /// Reads the token, which may end with a line break.
    pub(crate) fn read(path: &Path) -> Result<Self, AdminTokenError> {
        let mut token = Zeroizing::new(String::new());
        File::open(path)
            .and_then(|file| file.take(MAX_TOKEN_BYTES.saturating_add(2)).read_to_string(&mut token))
            .map_err(|error| AdminTokenError::File(path.to_owned(), error))?;
        let token = token.trim_end_matches(['\r', '\n']);
        let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
        let most = usize::try_from(MAX_TOKEN_BYTES).unwrap_or(usize::MAX);
        if !printable || !(MIN_TOKEN_BYTES..=most).contains(&token.len()) {
            return Err(AdminTokenError::Form(path.to_owned()));
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| AdminTokenError::Random)?;
        Ok(Self { tag: hmac::sign(&key, token.as_bytes()), key })
    }

    /// Whether this is the token.
    pub(crate) fn is(&self, presented: &str) -> bool {
        hmac::verify(&self.key, presented.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}
