//! Published values, and what an attacker might do to others.

use proptest::prelude::*;

use super::*;

const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn context(suite: Suite) -> Context<'static> {
    Context {
        algo: suite.algo(),
        field: "messages.0.content",
        id: None,
        model: "demo-model",
        nonce: NONCE,
        purpose: Purpose::Request,
        ts: 1_750_000_000,
    }
}

#[test]
fn the_published_values() {
    for (suite, published) in [
        (
            Suite::X25519,
            "ac01b2209e86354fb853237b5de0f4fab13c7fcbf433a61c019369617fecf10b050505050505050505050505feb53041c4fbae7f82260ca7f3c8ae718e73359281",
        ),
        (
            Suite::Secp256k1,
            "04462779ad4aad39514614751a71085f2f10e1c7a593e4e030efb5b8721ce55b0b199c07969f5442000bea455d72ae826a86bfac9089cb18152ed756ebb2a596f5050505050505050505050505b28ac920877bad59dfeea8b486827d4f8b3d98a28a",
        ),
    ] {
        let service = SecretKey::new(suite, &[3; 32]).unwrap();
        let ephemeral = SecretKey::new(suite, &[4; 32]).unwrap();
        let sealed = seal(&service.public_key(), &ephemeral, [5; 12], &context(suite), b"hello").unwrap();
        assert_eq!(sealed, published);
        assert_eq!(open(&service, &context(suite), published).unwrap().as_slice(), b"hello");
    }
}

#[test]
fn what_is_authenticated_is_canonical() {
    let answer = Context { id: Some("é\u{1}\""), purpose: Purpose::Response, ..context(Suite::X25519) };
    let value = serde_json::to_value(answer).unwrap();
    assert_eq!(serde_json::to_vec(&answer).unwrap(), crate::canonical(&value).unwrap());
}

#[test]
fn keys_in_all_their_forms() {
    let secp = SecretKey::new(Suite::Secp256k1, &[3; 32]).unwrap().public_key();
    let text = hex::encode(&secp);
    for form in [text.clone(), format!("0x{text}"), text[2..].to_owned(), text.to_uppercase()] {
        assert_eq!(public_key(Suite::Secp256k1, &form), Ok(secp.clone()));
    }
    for bad in ["", "0x", "zz", &text[4..]] {
        assert!(public_key(Suite::Secp256k1, bad).is_err() && public_key(Suite::X25519, bad).is_err());
    }
    assert!(SecretKey::new(Suite::Secp256k1, &[0xff; 32]).is_err());
}

#[test]
fn a_key_that_shares_nothing_secret_is_refused() {
    let ephemeral = SecretKey::new(Suite::X25519, &[4; 32]).unwrap();
    assert_eq!(seal(&[0; 32], &ephemeral, [5; 12], &context(Suite::X25519), b"x"), Err(E2eeError::PublicKey));
}

#[test]
fn the_older_version_opens_its_own_values_only() {
    let signer = ed25519_dalek::SigningKey::from_bytes(&[6; 32]);
    let of_ed25519 = v1::secret_of_ed25519(&signer).unwrap();
    assert_eq!(v1::public_of_ed25519(signer.verifying_key().as_bytes()).unwrap(), of_ed25519.public_key());
    assert!(v1::public_of_ed25519(&[2; 32]).is_err() || v1::public_of_ed25519(&[2; 31]).is_err());
    for secret in [of_ed25519, SecretKey::new(Suite::Secp256k1, &[6; 32]).unwrap()] {
        let suite = secret.suite();
        let ephemeral = SecretKey::new(suite, &[4; 32]).unwrap();
        let sealed = v1::seal(&secret.public_key(), &ephemeral, [5; 12], b"hello").unwrap();
        assert_eq!(v1::open(&secret, &sealed).unwrap().as_slice(), b"hello");
        assert!(open(&secret, &context(suite), &sealed).is_err());
        let newer = seal(&secret.public_key(), &ephemeral, [5; 12], &context(suite), b"hello").unwrap();
        assert!(v1::open(&secret, &newer).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A value opens in its own place, with its own key, unchanged; in no other.
    #[test]
    fn a_value_belongs_to_its_place(
        secp in any::<bool>(), text in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(), field in "[a-z.0-9]{0,20}", ts in any::<i64>(),
    ) {
        let suite = if secp { Suite::Secp256k1 } else { Suite::X25519 };
        let (service, ephemeral) =
            (SecretKey::new(suite, &[7; 32]).unwrap(), SecretKey::new(suite, &[8; 32]).unwrap());
        let place = Context { field: &field, ts, ..context(suite) };
        let sealed = seal(&service.public_key(), &ephemeral, [9; 12], &place, &text).unwrap();
        let opened = open(&service, &place, &sealed).unwrap();
        prop_assert_eq!(opened.as_slice(), text.as_slice());
        let elsewhere = Context { ts: ts.wrapping_add(1), ..place };
        prop_assert!(open(&service, &elsewhere, &sealed).is_err());
        let elsewhere = Context { purpose: Purpose::Response, ..place };
        prop_assert!(open(&service, &elsewhere, &sealed).is_err());
        let mut bytes = hex::decode(&sealed).unwrap();
        let index = at.index(bytes.len());
        bytes[index] ^= 1;
        // The highest bit of a curve25519 key is ignored by the curve, not by this: bit 0 is changed here.
        prop_assert!(open(&service, &place, &hex::encode(&bytes)).is_err());
        prop_assert!(open(&service, &place, &sealed[..sealed.len() - 2]).is_err());
    }

    /// Nothing makes it panic.
    #[test]
    fn anything_may_come(value in "[0-9a-f]{0,300}", any in any::<String>()) {
        let service = SecretKey::new(Suite::Secp256k1, &[7; 32]).unwrap();
        prop_assert!(open(&service, &context(Suite::Secp256k1), &value).is_err());
        prop_assert!(open(&service, &context(Suite::Secp256k1), &any).is_err());
        let _ = public_key(Suite::Secp256k1, &any);
    }
}
