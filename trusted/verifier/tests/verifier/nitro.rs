//! Nitro attestation documents.

use cloister_evidence::Measurement;
use cloister_verifier::{NitroPolicy, TrustRoot, Verifier, VerifyError};
use jiff::{SignedDuration, Timestamp};

use crate::support::{at, offline, read};

fn made(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

#[test]
fn documents_of_aws() {
    let verifier = offline(None);
    for (name, timestamp, image, user_data) in [
        (
            "nitro/doc_a.cose",
            1_766_668_537_578,
            "e0e742bd62280472ea840647754203d599cb39a7966cfed11237c1e86de9c857",
            "0".repeat(128),
        ),
        (
            "nitro/doc_b.cose",
            1_766_678_659_346,
            "1894b0b29e94a9db16e88a2914f0923e52bb16c08bf3bb484df786a147e2eb79",
            format!(
                "{}{}",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "0".repeat(64)
            ),
        ),
    ] {
        let Some(document) = read(name) else { return };
        let proven = verifier.nitro_stored(&document).unwrap();
        assert_eq!(proven.trust_root, TrustRoot::AwsNitroEnclavesRootG1);
        assert_eq!(proven.timestamp, made(timestamp));
        assert_eq!(proven.image_hash.map(hex::encode).as_deref(), Some(image));
        assert_eq!(proven.user_data.as_deref().map(hex::encode), Some(user_data));
        assert_eq!((proven.nonce.as_ref(), proven.public_key.as_ref()), (None, None));
        for index in [0, 1, 2, 4] {
            assert_ne!(proven.pcrs[&index], Measurement::ZERO);
        }
        check_age(&verifier, &document, made(timestamp));
    }
    if let Some(debug) = read("nitro/doc_debug.cose") {
        assert_eq!(verifier.nitro_stored(&debug).unwrap_err(), VerifyError::Debug);
    }
}

/// Fresh up to an hour, and from clocks that are up to five minutes ahead.
fn check_age(verifier: &Verifier, document: &[u8], made: Timestamp) {
    let (hour, minutes) = (SignedDuration::from_hours(1), SignedDuration::from_mins(5));
    let moment = SignedDuration::from_millis(1);
    for good in [made, made + hour, made - minutes] {
        verifier.nitro(document, good).unwrap();
    }
    for (bad, reason) in [(made + hour + moment, "older"), (made - minutes - moment, "future")] {
        let error = verifier.nitro(document, bad).unwrap_err();
        assert!(matches!(error, VerifyError::Rule(text) if text.contains(reason)), "{error}");
    }
}

#[test]
fn documents_of_a_root_of_our_own() {
    let Some(root) = read("minted/nitro_root_ca.der") else { return };
    let verifier = offline(Some(&root));
    for name in ["minted/nitro_untagged.cose", "minted/nitro_tagged.cose"] {
        let document = read(name).unwrap();
        let proven = verifier.nitro(&document, made(1_790_000_000_000)).unwrap();
        assert_eq!(proven.trust_root, TrustRoot::Development);
        assert_eq!(
            proven.image_hash.map(hex::encode).as_deref(),
            Some("2cc35be11a332cbdfe462725a65dd826f84d8bcf40dde2fc1dce8360a161df83")
        );
        assert_eq!(proven.pcrs[&0], Measurement::of("cloister-test/pcr0"));
        assert_eq!(proven.user_data, Some((0..64).collect()));
        assert_eq!(offline(None).nitro_stored(&document).unwrap_err(), VerifyError::UnknownRoot);
        check_policy(&proven);
    }
    let debug = read("minted/nitro_debug_zero_pcrs.cose").unwrap();
    assert_eq!(verifier.nitro_stored(&debug).unwrap_err(), VerifyError::Debug);
    let forged = read("minted/nitro_bad_signature.cose").unwrap();
    let error = verifier.nitro_stored(&forged).unwrap_err();
    assert!(error.to_string().contains("signature does not hold"), "{error}");
}

fn check_policy(proven: &cloister_verifier::VerifiedNitro) {
    let good = NitroPolicy {
        pcrs: [(0, Measurement::of("cloister-test/pcr0"))].into(),
        image_hash: proven.image_hash,
        user_data: Some((0..64).collect()),
        nonce: Some((0..32).collect()),
        production: false,
    };
    good.check(proven).unwrap();
    let violations = |change: &dyn Fn(&mut NitroPolicy)| {
        let mut policy = good.clone();
        change(&mut policy);
        policy.check(proven).unwrap_err().as_slice().len()
    };
    assert_eq!(violations(&|policy| policy.production = true), 1);
    assert_eq!(violations(&|policy| policy.nonce = Some(vec![0; 32])), 1);
    assert_eq!(violations(&|policy| policy.user_data = Some(Vec::new())), 1);
    assert_eq!(violations(&|policy| policy.image_hash = Some([0; 32])), 1);
    assert_eq!(
        violations(&|policy| policy.pcrs = [(31, Measurement::ZERO), (0, Measurement::ZERO)].into()),
        2
    );
}

#[test]
fn no_changed_byte_passes() {
    let Some(root) = read("minted/nitro_root_ca.der") else { return };
    let verifier = offline(Some(&root));
    let document = read("minted/nitro_untagged.cose").unwrap();
    verifier.nitro_stored(&document).unwrap();
    let mut passed = Vec::new();
    for place in 0..document.len() {
        let mut damaged = document.clone();
        damaged[place] ^= 1 << (place % 8);
        if verifier.nitro_stored(&damaged).is_ok() {
            passed.push(place);
        }
    }
    assert_eq!(passed, [0_usize; 0], "of {} bytes", document.len());
    for length in 0..document.len() {
        assert!(verifier.nitro_stored(&document[..length]).is_err(), "{length} bytes");
    }
    let mut longer = document;
    longer.push(0);
    assert!(verifier.nitro_stored(&longer).unwrap_err().is_malformed());
    assert!(verifier.nitro(&vec![0xd2; 1 << 20], at(1_790_000_000)).unwrap_err().is_malformed());
}
