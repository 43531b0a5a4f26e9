//! Who may log in, of those whom the provider names.

use serde_json::{Map, Value};

use super::config::OpenidConfig;
use crate::people::{is_mail_address, is_username};

/// Whom the provider names, and what it says of that person. The issuer is the configured one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claimed {
    /// The provider's own name for the person, which never means anybody else.
    pub(crate) subject: String,
    /// Everything else.
    pub(super) claims: Map<String, Value>,
}

/// Why somebody whom the provider knows is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotLetIn {
    /// The mail address.
    #[error("the provider vouches for no mail address of an allowed domain")]
    Email,
    /// A claim.
    #[error("a claim that is required is not what it has to be")]
    Claim,
}

impl Claimed {
    fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.as_str()
    }

    /// The mail address, if the provider vouches for it and it has the form of one.
    pub(crate) fn email(&self) -> Option<&str> {
        // Some providers write it as a text.
        let is_verified = match self.claims.get("email_verified") {
            Some(Value::Bool(is_verified)) => *is_verified,
            Some(Value::String(text)) => text == "true",
            _ => false,
        };
        self.text("email").filter(|email| is_verified && is_mail_address(email))
    }

    /// Whether the operator lets this person in, with or without an account.
    pub(crate) fn check(&self, config: &OpenidConfig) -> Result<(), NotLetIn> {
        let domains = &config.allowed_email_domains;
        let domain = self.email().and_then(|email| email.rsplit_once('@')).map(|(_, domain)| domain);
        let is_of_a_domain = domains.is_empty()
            || domain.is_some_and(|own| domains.iter().any(|domain| domain.eq_ignore_ascii_case(own)));
        if !is_of_a_domain {
            return Err(NotLetIn::Email);
        }
        let all = config.required_claims.iter().all(|required| {
            let found = if required.claim.starts_with('/') {
                self.pointed_at(&required.claim)
            } else {
                self.claims.get(&required.claim)
            };
            found.is_some_and(|found| has_one_of(found, &required.any_of))
        });
        if all { Ok(()) } else { Err(NotLetIn::Claim) }
    }

    /// What stands at a place (RFC 6901).
    fn pointed_at(&self, pointer: &str) -> Option<&Value> {
        let (first, rest) = pointer.strip_prefix('/')?.split_once('/').map_or_else(
            || (pointer.get(1..).unwrap_or_default(), ""),
            |(first, _)| (first, pointer.get(first.len() + 1..).unwrap_or_default()),
        );
        self.claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
    }

    /// The login name that a new account would have; none if the claim cannot be one.
    pub(crate) fn username(&self, config: &OpenidConfig) -> Option<String> {
        let claimed = self.text(&config.username_claim)?;
        let name = claimed.split('@').next().unwrap_or_default().to_ascii_lowercase();
        is_username(&name).then_some(name)
    }

    /// Whether the provider asked for a second factor in a way that the operator trusts.
    pub(crate) fn has_second_factor(&self, config: &OpenidConfig) -> bool {
        let amr = self.claims.get("amr").filter(|amr| amr.is_array());
        let acr = self.claims.get("acr").filter(|acr| acr.is_string());
        amr.is_some_and(|amr| has_one_of(amr, &config.trusted_amr))
            || acr.is_some_and(|acr| has_one_of(acr, &config.trusted_acr))
    }
}

/// Whether a claim is one of some texts, or a list with one of them.
fn has_one_of(claim: &Value, texts: &[String]) -> bool {
    let is_one = |claim: &Value| claim.as_str().is_some_and(|claim| texts.iter().any(|text| text == claim));
    match claim {
        Value::Array(claims) => claims.iter().any(is_one),
        other => is_one(other),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::config::RequiredClaim;
    use super::*;

    fn config() -> OpenidConfig {
        crate::openid::tests::described("https://id.example.org", Path::new("secret"))
    }

    fn claimed(claims: Value) -> Claimed {
        match claims {
            Value::Object(claims) => Claimed { subject: "1".into(), claims },
            other => panic!("{other}"),
        }
    }

    #[test]
    fn only_a_mail_address_that_the_provider_vouches_for_counts() {
        let config = OpenidConfig { allowed_email_domains: vec!["Example.org".into()], ..config() };
        for (claims, is_let_in) in [
            (json!({"email": "ada@example.org", "email_verified": true}), true),
            (json!({"email": "ada@EXAMPLE.ORG", "email_verified": "true"}), true),
            (json!({"email": "ada@example.org", "email_verified": false}), false),
            (json!({"email": "ada@example.org", "email_verified": 1}), false),
            (json!({"email": "ada@example.org"}), false),
            (json!({"email": "ada@sub.example.org", "email_verified": true}), false),
            (json!({"email": "ada@notexample.org", "email_verified": true}), false),
            (json!({"email": "ada@example.org@evil.example", "email_verified": true}), false),
            (json!({"email": "@example.org", "email_verified": true}), false),
            (json!({"email": ["ada@example.org"], "email_verified": true}), false),
            (json!({}), false),
        ] {
            assert_eq!(claimed(claims.clone()).check(&config).is_ok(), is_let_in, "{claims}");
        }
        assert_eq!(claimed(json!({})).check(&self::config()), Ok(()));
    }

    #[test]
    fn every_required_claim_has_to_be_met() {
        let required = |claim: &str| RequiredClaim {
            claim: claim.into(),
            any_of: vec!["cloud".into(), "admins".into()],
        };
        let with = |claims: &[&str]| OpenidConfig {
            required_claims: claims.iter().map(|claim| required(claim)).collect(),
            ..config()
        };
        for (claims, is_met) in [
            (json!({"groups": ["users", "cloud"]}), true),
            (json!({"groups": "admins"}), true),
            (json!({"groups": ["cloudy"]}), false),
            (json!({"groups": []}), false),
            (json!({"groups": {"cloud": true}}), false),
            (json!({}), false),
        ] {
            let config = with(&["groups"]);
            assert_eq!(claimed(claims.clone()).check(&config).is_ok(), is_met, "{claims}");
        }
        let both = with(&["groups", "/realm_access/roles"]);
        let roles = json!({"roles": ["cloud"]});
        assert_eq!(claimed(json!({"groups": "cloud", "realm_access": roles})).check(&both), Ok(()));
        for missing in [json!({"groups": "cloud"}), json!({"realm_access": roles})] {
            assert_eq!(claimed(missing).check(&both), Err(NotLetIn::Claim));
        }
        assert_eq!(claimed(json!({"a/b": "cloud"})).check(&with(&["/a~1b"])), Ok(()));
        let address = json!({"https://example.org/groups": ["cloud"]});
        assert_eq!(claimed(address).check(&with(&["https://example.org/groups"])), Ok(()));
    }

    #[test]
    fn a_name_is_one_that_people_have_here() {
        for (claims, name) in [
            (json!({"preferred_username": "Ada"}), Some("ada")),
            (json!({"preferred_username": "ada@example.org"}), Some("ada")),
            (json!({"preferred_username": "ada.l-1_x"}), Some("ada.l-1_x")),
            (json!({"preferred_username": "../admin"}), None),
            (json!({"preferred_username": "a da"}), None),
            (json!({"preferred_username": "\u{212a}elvin"}), None),
            (json!({"preferred_username": "a".repeat(40)}), None),
            (json!({"preferred_username": ""}), None),
            (json!({"preferred_username": 7}), None),
            (json!({"name": "ada"}), None),
        ] {
            assert_eq!(claimed(claims.clone()).username(&config()).as_deref(), name, "{claims}");
        }
    }

    #[test]
    fn a_second_factor_counts_only_as_far_as_it_is_trusted() {
        let trusting = OpenidConfig {
            trusted_amr: vec!["mfa".into()],
            trusted_acr: vec!["urn:strong".into()],
            ..config()
        };
        for (claims, is_trusted) in [
            (json!({"amr": ["pwd", "mfa"]}), true),
            (json!({"acr": "urn:strong"}), true),
            (json!({"amr": ["pwd"], "acr": "0"}), false),
            (json!({"amr": "mfa"}), false),
            (json!({"acr": ["urn:strong"]}), false),
            (json!({"acr": "mfa", "amr": ["urn:strong"]}), false),
            (json!({}), false),
        ] {
            assert_eq!(claimed(claims.clone()).has_second_factor(&trusting), is_trusted, "{claims}");
            assert!(!claimed(claims).has_second_factor(&config()), "nothing is trusted");
        }
    }
}
