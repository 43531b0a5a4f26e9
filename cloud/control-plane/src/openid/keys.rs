//! Keys that a provider publishes (RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Most keys of a set that are looked at.
const MAX_KEYS: usize = 100;

/// A set of keys. Those that cannot be understood are left out (RFC 7517 section 5).
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Jwk>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Keys {
    pub(super) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let set: Set = serde_json::from_slice(text)?;
        let keys = set.keys.into_iter().take(MAX_KEYS);
        Ok(Self(keys.filter_map(|key| serde_json::from_value(key).ok()).collect()))
    }

    /// The key by which a token was signed that names it, or names none: then it has to be the only one that fits
    /// (OpenID Connect Core section 10.1).
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let mut fitting = self.0.iter().filter(|key| {
            fits(key, algorithm) && id.is_none_or(|id| key.common.key_id.as_deref() == Some(id))
        });
        let key = fitting.next()?;
        if id.is_none() && fitting.next().is_some() {
            return None;
        }
        DecodingKey::from_jwk(key).ok()
    }
}

/// Whether a key is for signatures of an algorithm.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let is_of_its_kind = match &key.algorithm {
        AlgorithmParameters::RSA(_) => algorithm == Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(point) => {
            algorithm == Algorithm::ES256 && point.curve == EllipticCurve::P256
        }
        AlgorithmParameters::OctetKeyPair(point) => {
            algorithm == Algorithm::EdDSA && point.curve == EllipticCurve::Ed25519
        }
        _ => false,
    };
    let common = &key.common;
    is_of_its_kind
        && common.key_algorithm.is_none_or(|named| named == KeyAlgorithm::from(algorithm))
        && common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|may| may.contains(&KeyOperations::Verify))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn point(id: &str, more: &Value) -> Value {
        let mut key = json!({"kty": "OKP", "crv": "Ed25519", "kid": id,
                             "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    fn set(keys: &[Value]) -> Keys {
        Keys::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn keys_are_found_by_name_and_use() {
        let none = json!({});
        let found = |keys: &[Value], id: Option<&str>, algorithm| set(keys).find(id, algorithm).is_some();
        let (a, b) = (point("a", &none), point("b", &none));
        assert!(found(&[a.clone(), b.clone()], Some("b"), Algorithm::EdDSA));
        assert!(!found(&[a.clone(), b.clone()], Some("c"), Algorithm::EdDSA));
        assert!(!found(&[a.clone(), b.clone()], None, Algorithm::EdDSA), "which one?");
        assert!(found(&[a.clone(), json!({"kty": "oct", "k": "AAAA", "kid": "b"})], None, Algorithm::EdDSA));
        for algorithm in [Algorithm::RS256, Algorithm::ES256, Algorithm::HS256] {
            assert!(!found(std::slice::from_ref(&a), Some("a"), algorithm), "{algorithm:?}");
        }
        for (more, is_for_signatures) in [
            (json!({"use": "sig", "alg": "EdDSA", "key_ops": ["verify"]}), true),
            (json!({"use": "enc"}), false),
            (json!({"alg": "ES256"}), false),
            (json!({"alg": "something new"}), false),
            (json!({"key_ops": ["encrypt"]}), false),
            (json!({"crv": "X25519"}), false),
        ] {
            assert_eq!(found(&[point("a", &more)], Some("a"), Algorithm::EdDSA), is_for_signatures, "{more}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let keys =
            [json!(7), json!({"kty": "new"}), json!({"kty": "EC", "crv": "P-256"}), point("a", &json!({}))];
        assert!(set(&keys).find(None, Algorithm::EdDSA).is_some());
        // A shared secret signs nothing, whatever it calls itself.
        let secret = [json!({"kty": "oct", "k": "AAAA", "kid": "a", "alg": "HS256"})];
        assert!(set(&secret).find(Some("a"), Algorithm::HS256).is_none());
        for text in ["", "[]", "{}", r#"{"keys": {}}"#] {
            assert!(Keys::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
