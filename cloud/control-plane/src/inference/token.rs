//! The secret by which gateways are known.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::hmac;
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

const MIN_BYTES: usize = 32;
const MAX_BYTES: usize = 512;

/// Why gateways have no token.
#[derive(Debug, thiserror::Error)]
pub enum ControlTokenError {
    /// The file cannot be read.
    #[error("the control token of inference gateways cannot be read from {0}")]
    File(PathBuf, #[source] io::Error),
    /// It holds no token.
    #[error(
        "{0} holds no control token: 32 to 512 printable ASCII characters, such as `openssl rand -hex 32` prints"
    )]
    Form(PathBuf),
    /// No randomness.
    #[error("the operating system gives no randomness")]
    Random,
}

/// A token, known by its code under a key of this process: comparing takes as long whatever is presented.
pub(crate) struct ControlToken {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl ControlToken {
    /// Reads the token, which may end with a line break.
    pub(crate) fn read(path: &Path) -> Result<Self, ControlTokenError> {
        // Allocated once, so that no copy stays behind.
        let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES + 8));
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(3);
        File::open(path)
            .and_then(|file| file.take(most).read_to_string(&mut text))
            .map_err(|error| ControlTokenError::File(path.to_owned(), error))?;
        let token = text.trim_end_matches(['\r', '\n']);
        let is_token = (MIN_BYTES..=MAX_BYTES).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(ControlTokenError::Form(path.to_owned()));
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| ControlTokenError::Random)?;
        Ok(Self { tag: hmac::sign(&key, token.as_bytes()), key })
    }

    /// Whether this is the token.
    pub(crate) fn is(&self, presented: &str) -> bool {
        hmac::verify(&self.key, presented.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let token = "0123456789abcdef0123456789abcdef";
        std::fs::write(file.path(), format!("{token}\r\n")).unwrap();
        let read = ControlToken::read(file.path()).unwrap();
        assert!(read.is(token));
        for other in ["", "0", &token[1..], &format!("{token}\n"), &token.to_uppercase()] {
            assert!(!read.is(other), "{other:?}");
        }
        assert!(!format!("{read:?}").contains("0123"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(513);
        for text in ["", "short", "0123456789abcdef 0123456789abcdef", &format!("{}ü", "x".repeat(40)), &long]
        {
            std::fs::write(file.path(), text).unwrap();
            assert!(matches!(ControlToken::read(file.path()), Err(ControlTokenError::Form(_))), "{text}");
        }
        std::fs::write(file.path(), "x".repeat(512)).unwrap();
        assert!(ControlToken::read(file.path()).is_ok());
        assert!(matches!(ControlToken::read(Path::new("/nonexistent")), Err(ControlTokenError::File(..))));
    }
}
