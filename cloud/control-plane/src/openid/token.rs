//! ID tokens (OpenID Connect Core section 3.1.3.7).

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::jws::ALGORITHMS;
use super::policy::Claimed;
use crate::people::is_subject;

/// How far clocks may differ, in seconds.
const SKEW_S: i64 = 60;
/// Oldest token: it was made for the login that is under way. In seconds.
const MAX_AGE_S: i64 = 10 * 60;

/// Why an ID token says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenFault {
    /// It has no such form.
    #[error("the ID token cannot be read")]
    Unreadable,
    /// It is signed in a way that is not accepted, or not at all.
    #[error("the ID token is not signed with RS256, ES256 or EdDSA; configure the client at the provider so")]
    Algorithm,
    /// It asks for extensions (RFC 7515 section 4.1.11).
    #[error("the ID token has critical extensions, of which none is known")]
    Critical,
    /// The key is not known.
    #[error("the ID token is signed with a key that the provider does not publish")]
    Key,
    /// It was not made by the provider, or was changed.
    #[error("the signature of the ID token is wrong")]
    Signature,
    /// It is another provider's.
    #[error("the ID token is of another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the ID token is for another client")]
    Audience,
    /// It ended.
    #[error("the ID token has expired; are the clocks right?")]
    Expired,
    /// It was made for a login before.
    #[error("the ID token is too old; are the clocks right?")]
    Old,
    /// It begins later.
    #[error("the ID token is from the future; are the clocks right?")]
    Early,
    /// It is of another login.
    #[error("the ID token is of another login")]
    Nonce,
    /// It names nobody.
    #[error("the subject of the ID token is not 1 to 255 printable ASCII characters")]
    Subject,
}

/// What a token has to say.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_ms: i64,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: Number,
    iat: Number,
    nbf: Option<Number>,
    nonce: Option<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn all(&self) -> &[String] {
        match self {
            Self::One(audience) => std::slice::from_ref(audience),
            Self::Many(audiences) => audiences,
        }
    }
}

fn fault(error: &Error) -> TokenFault {
    match error.kind() {
        ErrorKind::InvalidSignature => TokenFault::Signature,
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenFault::Algorithm,
        _ => TokenFault::Unreadable,
    }
}

/// How a token is signed, and with which key, as it says itself.
pub(super) fn signed_with(token: &str) -> Result<(Algorithm, Option<String>), TokenFault> {
    // What is not in the library's list, such as `none`, is a header that it cannot read.
    let header = decode_header(token).map_err(|error| match error.kind() {
        ErrorKind::Json(_) => TokenFault::Algorithm,
        _ => TokenFault::Unreadable,
    })?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(TokenFault::Algorithm);
    }
    if header.crit.is_some() {
        return Err(TokenFault::Critical);
    }
    Ok((header.alg, header.kid))
}

/// What a token says, if it is signed with a key, and for the login that is under way.
pub(super) fn verified(
    token: &str,
    (algorithm, key): (Algorithm, &DecodingKey),
    expected: &Expected<'_>,
) -> Result<Claimed, TokenFault> {
    // The library judges by a clock of its own, and issuers and audiences less strictly: here it looks at the signature.
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let claims: Claims = decode(token, key, &validation).map_err(|error| fault(&error))?.claims;
    claims.check(expected)?;
    Ok(Claimed { subject: claims.sub, claims: claims.other })
}

impl Claims {
    fn check(&self, expected: &Expected<'_>) -> Result<(), TokenFault> {
        if self.iss != expected.issuer {
            return Err(TokenFault::Issuer);
        }
        self.check_audience(expected.client_id)?;
        self.check_times(expected.now_ms)?;
        if self.nonce.as_deref() != Some(expected.nonce) {
            return Err(TokenFault::Nonce);
        }
        if is_subject(&self.sub) { Ok(()) } else { Err(TokenFault::Subject) }
    }

    /// With others among the audience, it has to say that it was made for this client (`azp`).
    fn check_audience(&self, client_id: &str) -> Result<(), TokenFault> {
        let audiences = self.aud.all();
        let is_for_us = audiences.iter().any(|audience| audience == client_id);
        let was_asked_for_by_us = match &self.azp {
            Some(azp) => azp == client_id,
            None => audiences.len() == 1,
        };
        if is_for_us && was_asked_for_by_us { Ok(()) } else { Err(TokenFault::Audience) }
    }

    fn check_times(&self, now_ms: i64) -> Result<(), TokenFault> {
        let now = now_ms.div_euclid(1000);
        let (ends, made) = (seconds(&self.exp)?, seconds(&self.iat)?);
        if ends.saturating_add(SKEW_S) <= now {
            return Err(TokenFault::Expired);
        }
        if made.saturating_add(MAX_AGE_S + SKEW_S) <= now {
            return Err(TokenFault::Old);
        }
        let begins = match &self.nbf {
            Some(nbf) => made.max(seconds(nbf)?),
            None => made,
        };
        if begins > now.saturating_add(SKEW_S) { Err(TokenFault::Early) } else { Ok(()) }
    }
}

/// Whole seconds of a date (RFC 7519 section 2, `NumericDate`).
fn seconds(date: &Number) -> Result<i64, TokenFault> {
    let text = date.to_string();
    let whole = text.split_once('.').map_or(text.as_str(), |(whole, _)| whole);
    whole.parse().map_err(|_| TokenFault::Unreadable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dates_are_whole_seconds() {
        let of = |value: Value| match value {
            Value::Number(number) => seconds(&number),
            other => panic!("{other}"),
        };
        for (date, whole) in [(json!(1_700_000_000), 1_700_000_000), (json!(-1), -1), (json!(1.75), 1)] {
            assert_eq!(of(date), Ok(whole));
        }
        for date in [json!(1e300), json!(u64::MAX)] {
            assert_eq!(of(date), Err(TokenFault::Unreadable));
        }
    }
}
