//! Secrets: what is made, what is taken, what is shown.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
use cloister_webhooks::{InvalidSecret, MAX_SECRET, MIN_SECRET, Secret};
use proptest::prelude::*;

#[test]
fn a_secret_has_no_readable_form_but_the_one_that_is_asked_for() {
    let secret = Secret::parse("whsec_dGVzdC1zZWNyZXQ").unwrap();
    assert_eq!(secret.expose(), "whsec_dGVzdC1zZWNyZXQ");
    assert_eq!(secret.masked(), "whsec_****…yZXQ");
    assert_eq!(format!("{secret:?}"), "[secret]");
}

#[test]
fn secrets_of_ones_own_are_bounded() {
    for text in ["a".repeat(MIN_SECRET), "~".repeat(MAX_SECRET), "whsec_0123456789".to_owned()] {
        assert!(Secret::parse(&text).is_ok(), "{text}");
    }
    for text in [
        String::new(),
        "a".repeat(MIN_SECRET - 1),
        "a".repeat(MAX_SECRET + 1),
        "0123456789 abcdef".to_owned(),
        "0123456789abcdef\n".to_owned(),
        "0123456789abcdé".to_owned(),
        "0123456789abcdef\u{7f}".to_owned(),
    ] {
        assert_eq!(Secret::parse(&text).err(), Some(InvalidSecret), "{text:?}");
    }
    assert!(!InvalidSecret.to_string().contains("whsec_"));
}

proptest! {
    #[test]
    fn what_is_made_means_the_same_in_every_library(random: [u8; 32]) {
        let secret = Secret::generate(random);
        let text = secret.expose().strip_prefix("whsec_").unwrap();
        let key = BASE64_STANDARD.decode(text).unwrap();
        prop_assert_eq!(key.len(), 32);
        prop_assert_eq!(&BASE64_URL_SAFE.decode(text).unwrap(), &key);
        prop_assert!(Secret::parse(secret.expose()).is_ok());
        prop_assert!(secret.masked().chars().count() == 15);
    }

    #[test]
    fn different_randomness_gives_different_secrets(one: [u8; 32], other: [u8; 32]) {
        prop_assume!(one != other);
        let (one, other) = (Secret::generate(one), Secret::generate(other));
        prop_assert_ne!(one.expose(), other.expose());
    }
}
