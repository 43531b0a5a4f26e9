//! Signatures: known values, and that exactly what was signed verifies.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_webhooks::{
    EventId, EventKind, Headered, Secret, TOLERANCE_S, VerifyError, sign, verify_public, verify_standard,
};
use proptest::prelude::*;

const NOW_S: i64 = 1_700_000_000;
const BODY: &[u8] = br#"{"id":"evt_0123456789abcdef","event":"cvm.created","version":"1"}"#;

fn signed(secrets: &[Secret], time: i64, body: &[u8]) -> Vec<(&'static str, String)> {
    let id: EventId = "evt_0123456789abcdef".parse().unwrap();
    let event = Headered { webhook_id: "wh_1", event_id: &id, kind: EventKind::CvmCreated };
    sign(secrets, &event, time, body)
}

fn secret(text: &str) -> Secret {
    Secret::parse(text).unwrap()
}

fn value<'a>(headers: &'a [(&str, String)], name: &str) -> &'a str {
    &headers.iter().find(|(found, _)| *found == name).unwrap().1
}

#[test]
fn the_known_value_of_the_public_scheme() {
    let headers = signed(&[secret("whsec_dGVzdC1zZWNyZXQ")], NOW_S, BODY);
    assert_eq!(
        value(&headers, "X-Webhook-Signature"),
        "sha256=a57ec98a918da026ee52f87d57fe9c5985d641e0ab3162cd07082da33322538d"
    );
    let fixed: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(
        fixed[..5],
        [
            ("Content-Type", "application/json"),
            ("User-Agent", "Cloister-Webhook/1.0"),
            ("X-Webhook-Id", "wh_1"),
            ("X-Webhook-Event", "cvm.created"),
            ("X-Webhook-Timestamp", "1700000000"),
        ]
    );
    assert_eq!(value(&headers, "webhook-id"), "evt_0123456789abcdef");
    assert_eq!(value(&headers, "webhook-timestamp"), "1700000000");
}

#[test]
fn the_key_of_the_standard_scheme_is_what_the_base64_means() {
    let of = |text: &str| value(&signed(&[secret(text)], NOW_S, BODY), "webhook-signature").to_owned();
    // With and without padding, with and without prefix, in either alphabet: the same key.
    let key = [0xfb, 0xef, 0xff, 0x3e, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let standard = BASE64_STANDARD.encode(key);
    let url = standard.replace('+', "-").replace('/', "_");
    assert!(url != standard);
    let first = of(&format!("whsec_{standard}"));
    for text in [
        standard.clone(),
        url.clone(),
        format!("whsec_{url}"),
        format!("whsec_{}", url.trim_end_matches('=')),
    ] {
        assert_eq!(of(&text), first, "{text}");
    }
    // What is not base64 is the key as it stands, prefix and all.
    assert_ne!(of("whsec_not*base64*at*all"), of("not*base64*at*all"));
}

#[test]
fn during_a_rotation_both_secrets_verify_and_the_new_one_comes_first() {
    let (new, old, other) = (secret(&"n".repeat(20)), secret(&"o".repeat(100)), secret(&"x".repeat(20)));
    let both = signed(&[new.clone(), old.clone()], NOW_S, BODY);
    for secret in [&new, &old] {
        assert_eq!(verify_public(secret, &both, BODY, NOW_S), Ok(()));
        assert_eq!(verify_standard(secret, &both, BODY, NOW_S), Ok(()));
    }
    assert_eq!(verify_public(&other, &both, BODY, NOW_S), Err(VerifyError::Signature));
    assert_eq!(verify_standard(&other, &both, BODY, NOW_S), Err(VerifyError::Signature));
    let one = signed(&[new], NOW_S, BODY);
    assert_eq!(value(&both, "X-Webhook-Signature"), value(&one, "X-Webhook-Signature"));
    assert!(value(&both, "webhook-signature").starts_with(value(&one, "webhook-signature")));
    assert!(one.iter().all(|(name, _)| *name != "X-Webhook-Signature-Previous"));
    assert_eq!(verify_public(&old, &one, BODY, NOW_S), Err(VerifyError::Signature));
}

type Verify = fn(&Secret, &[(&'static str, String)], &[u8], i64) -> Result<(), VerifyError>;
const VERIFIERS: [(Verify, &[&str]); 2] = [
    (verify_public, &["X-Webhook-Timestamp", "X-Webhook-Signature"]),
    (verify_standard, &["webhook-id", "webhook-timestamp", "webhook-signature"]),
];

#[test]
fn every_header_is_needed_exactly_once_in_any_case() {
    let secret = secret("whsec_dGVzdC1zZWNyZXQ");
    let headers = signed(std::slice::from_ref(&secret), NOW_S, BODY);
    for (verify, names) in VERIFIERS {
        for &name in names {
            let without: Vec<_> = headers.iter().filter(|(found, _)| *found != name).cloned().collect();
            assert_eq!(verify(&secret, &without, BODY, NOW_S), Err(VerifyError::Header(name)));
            let twice: Vec<_> =
                headers.iter().chain(headers.iter().filter(|(found, _)| *found == name)).cloned().collect();
            assert_eq!(verify(&secret, &twice, BODY, NOW_S), Err(VerifyError::Header(name)));
        }
    }
    let shouted: Vec<_> = headers.iter().map(|(name, value)| (name.to_uppercase(), value)).collect();
    assert_eq!(verify_public(&secret, &shouted, BODY, NOW_S), Ok(()));
    assert_eq!(verify_standard(&secret, &shouted, BODY, NOW_S), Ok(()));
}

#[test]
fn a_time_that_is_none_is_refused() {
    let secret = secret("whsec_dGVzdC1zZWNyZXQ");
    for time in ["", "x", "+1700000000", "-1", "1700000000.5", " 1700000000", "99999999999999999999"] {
        let mut headers = signed(std::slice::from_ref(&secret), NOW_S, BODY);
        for (name, value) in &mut headers {
            if name.to_ascii_lowercase().ends_with("timestamp") {
                time.clone_into(value);
            }
        }
        for (verify, _) in VERIFIERS {
            assert_eq!(verify(&secret, &headers, BODY, NOW_S), Err(VerifyError::Time), "{time}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_signed_verifies_within_the_tolerance_and_not_outside(
        text in "[!-~]{16,200}",
        body: Vec<u8>,
        time in 0..i64::MAX / 2,
        off in -2 * TOLERANCE_S..=2 * TOLERANCE_S,
    ) {
        let secret = secret(&text);
        let headers = signed(std::slice::from_ref(&secret), time, &body);
        let now = time + off;
        let expected = if off.abs() <= TOLERANCE_S { Ok(()) } else { Err(VerifyError::Stale) };
        prop_assert_eq!(verify_public(&secret, &headers, &body, now), expected);
        prop_assert_eq!(verify_standard(&secret, &headers, &body, now), expected);
    }

    #[test]
    fn no_changed_byte_of_body_time_id_signature_or_secret_verifies(
        text in "whsec_[a-z0-9]{16,60}",
        body in proptest::collection::vec(any::<u8>(), 1..200),
        at: prop::sample::Index,
        flip in 1..=255_u8,
        off in 1..TOLERANCE_S,
    ) {
        let right = secret(&text);
        let headers = signed(std::slice::from_ref(&right), NOW_S, &body);
        let mut changed = body.clone();
        changed[at.index(body.len())] ^= flip;
        for (verify, names) in VERIFIERS {
            prop_assert_eq!(verify(&right, &headers, &changed, NOW_S), Err(VerifyError::Signature));
            for &name in names {
                let mut headers = headers.clone();
                let value = &mut headers.iter_mut().find(|(found, _)| *found == name).unwrap().1;
                if name.to_ascii_lowercase().ends_with("timestamp") {
                    *value = (NOW_S + off).to_string();
                } else {
                    // Another character of the same set, so that only the value is wrong.
                    let place = value.len() - 2 - at.index(value.len().min(30) - 10);
                    let mut bytes = value.clone().into_bytes();
                    bytes[place] = if bytes[place] == b'a' { b'b' } else { b'a' };
                    *value = String::from_utf8(bytes).unwrap();
                }
                prop_assert_eq!(verify(&right, &headers, &body, NOW_S), Err(VerifyError::Signature), "{}", name);
            }
        }
        let mut other = text.clone().into_bytes();
        let place = "whsec_".len() + at.index(text.len() - "whsec_".len() - 3);
        other[place] = if other[place] == b'a' { b'b' } else { b'a' };
        let other = secret(std::str::from_utf8(&other).unwrap());
        prop_assert_eq!(verify_public(&other, &headers, &body, NOW_S), Err(VerifyError::Signature));
        prop_assert_eq!(verify_standard(&other, &headers, &body, NOW_S), Err(VerifyError::Signature));
    }

    #[test]
    fn no_headers_make_it_panic_or_verify(
        names in proptest::collection::vec("(webhook|X-Webhook)-(id|timestamp|signature|Timestamp|Signature)", 0..6),
        values in proptest::collection::vec("(1700000000|v1,|sha256=|[ -~]{0,20}){0,4}", 6),
    ) {
        let secret = secret("whsec_dGVzdC1zZWNyZXQ");
        let headers: Vec<_> = names.iter().zip(&values).collect();
        prop_assert!(verify_public(&secret, &headers, BODY, NOW_S).is_err());
        prop_assert!(verify_standard(&secret, &headers, BODY, NOW_S).is_err());
    }
}
