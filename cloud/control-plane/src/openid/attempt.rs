//! One login: what goes to the provider and has to come back, all of it computed from one secret of the browser.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::sealing::{SealError, derived};

/// What a browser's cookie stands for. Who has the state and the nonce, which the provider sees, cannot compute the
/// verifier, and neither can who has the database.
pub(crate) struct Attempt {
    /// Comes back with the code (RFC 6749 section 10.12).
    pub(crate) state: String,
    /// Stands in the ID token (OpenID Connect Core section 3.1.2.1).
    pub(crate) nonce: String,
    /// Shows that the code was asked for from here (RFC 7636 section 4.1).
    pub(crate) verifier: Zeroizing<String>,
}

impl Attempt {
    /// What belongs to a cookie.
    pub(crate) fn of(cookie: &str) -> Result<Self, SealError> {
        let part = |of: &[u8]| {
            derived(cookie.as_bytes(), b"cloister-openid", of).map(|key| BASE64_URL_SAFE_NO_PAD.encode(*key))
        };
        Ok(Self {
            state: part(b"state")?,
            nonce: part(b"nonce")?,
            verifier: Zeroizing::new(part(b"verifier")?),
        })
    }

    /// SHA-256 of the verifier, as the provider gets it first (`S256`).
    pub(crate) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_of_one_cookie_and_nothing_is_twice_the_same() {
        let (one, same, other) = (Attempt::of("a"), Attempt::of("a"), Attempt::of("b"));
        let (one, same, other) = (one.unwrap(), same.unwrap(), other.unwrap());
        let texts = |attempt: &Attempt| {
            [attempt.state.clone(), attempt.nonce.clone(), attempt.verifier.to_string(), attempt.challenge()]
        };
        assert_eq!(texts(&one), texts(&same));
        let all: std::collections::BTreeSet<_> = [texts(&one), texts(&other)].into_iter().flatten().collect();
        assert_eq!(all.len(), 8);
        // RFC 7636 section 4.1: 43 to 128 unreserved characters.
        assert!(all.iter().all(|text| text.len() == 43 && !text.contains('=')));
    }

    /// RFC 7636 appendix B.
    #[test]
    fn the_challenge_is_that_of_the_standard() {
        let verifier = Zeroizing::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        let attempt = Attempt { state: String::new(), nonce: String::new(), verifier };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
