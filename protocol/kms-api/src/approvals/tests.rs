//! Approvals as owners make them, and everything that is none.

mod people;
mod tool;

use std::sync::LazyLock;

use proptest::prelude::*;

use self::people::{Person, sign_with};
use super::*;
use cloister_app_compose::{AppId, ComposeHash};

fn app(number: u8) -> AppId {
    AppId::from_bytes([number; 20])
}

fn hash(number: u8) -> ComposeHash {
    ComposeHash::from_bytes([number; 32])
}

fn statement() -> ApprovalStatement {
    ApprovalStatement { app_id: app(1), action: Action::AllowComposeHash(hash(2)), serial: 1_763_800_000_000 }
}

fn people() -> [Person; 4] {
    [Person::ed25519(1), Person::p256(2), Person::hardware(3), Person::ed25519(4)]
}

fn owners(threshold: u32, people: &[Person]) -> Owners {
    Owners::new(threshold, people.iter().map(Person::key).collect()).unwrap()
}

/// What `verify` says to these signatures over the statement, with 2 of the first three people.
fn judged(signatures: &[String]) -> Result<Vec<String>, ApprovalError> {
    static OWNERS: LazyLock<Owners> = LazyLock::new(|| owners(2, &people()[..3]));
    verify(&statement(), &OWNERS, signatures)
}

fn not_enough(signatures: &[String]) -> (usize, usize) {
    match judged(signatures) {
        Err(ApprovalError::NotEnough { approved, threshold: 2, unknown, statement: text }) => {
            assert_eq!(text, statement().to_string());
            (approved, unknown)
        }
        other => panic!("{other:?}"),
    }
}

fn refusal(signature: String) -> InvalidSignature {
    let good = people()[0].sign(&statement());
    match judged(&[good, signature]) {
        Err(ApprovalError::Signature { number: 2, source }) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_statement_says_what_is_signed() {
    assert_eq!(
        statement().to_string(),
        "cloister approval v1\n\
         application: 0101010101010101010101010101010101010101\n\
         action: allow-compose-hash\n\
         compose-hash: 0202020202020202020202020202020202020202020202020202020202020202\n\
         serial: 1763800000000\n"
    );
    let people = people();
    let owners = owners(1, &people[..1]);
    assert_eq!(owners.to_string(), format!("cloister owners v1\nthreshold: 1\nkey: {}\n", people[0].key()));
    let action = Action::SetOwners(owners.digest());
    let text = ApprovalStatement { action, ..statement() }.to_string();
    assert!(text.contains(&format!("action: set-owners\nowners-sha256: {}\n", owners.digest())), "{text}");
}

#[test]
fn a_statement_has_one_text() {
    let text = statement().to_string();
    assert_eq!(text.parse(), Ok(statement()));
    let revoke = text.replace("allow-", "revoke-");
    assert_eq!(
        revoke.parse(),
        Ok(ApprovalStatement { action: Action::RevokeComposeHash(hash(2)), ..statement() })
    );
    for (from, to) in [
        ("cloister approval v1", "cloister approval v2"),
        ("\n", "\r\n"),
        ("serial: 1", "serial: 01"),
        ("serial: 1763800000000", "serial: 0"),
        ("serial: 1", "serial: +1"),
        ("serial: 1763800000000", "serial: 9007199254740992"),
        ("serial: 1763800000000\n", "serial: 1763800000000"),
        ("serial: 1763800000000\n", "serial: 1763800000000\n\n"),
        ("application: 01", "application: 0x01"),
        ("application: ", "application:  "),
        ("allow-compose-hash", "Allow-compose-hash"),
        ("allow-compose-hash", "set-owners"),
        ("compose-hash: 02", "compose-hash: "),
        ("action: allow-compose-hash\n", ""),
    ] {
        let changed = text.replace(from, to);
        assert!(changed.parse::<ApprovalStatement>().is_err(), "{changed}");
    }
}

#[test]
fn owners_are_distinct_people_and_agree_by_a_threshold() {
    let keys: Vec<_> = people().iter().map(Person::key).collect();
    assert_eq!(Owners::new(1, Vec::new()), Err(InvalidOwners::Count(0)));
    let many = (0..33).map(|number| Person::ed25519(number).key()).collect();
    assert_eq!(Owners::new(1, many), Err(InvalidOwners::Count(33)));
    for threshold in [0, 5, u32::MAX] {
        assert_eq!(
            Owners::new(threshold, keys.clone()),
            Err(InvalidOwners::Threshold { threshold, keys: 4 })
        );
    }
    let mut reversed = keys.clone();
    reversed.reverse();
    assert_eq!(Owners::new(2, keys.clone()).unwrap(), Owners::new(2, reversed).unwrap());
    assert_ne!(
        Owners::new(2, keys.clone()).unwrap().digest(),
        Owners::new(3, keys.clone()).unwrap().digest()
    );

    // The comment is no part of a key.
    let twice = [keys[0].clone(), format!("{} somebody else", keys[0]).parse().unwrap()];
    assert_eq!(Owners::new(1, twice.to_vec()), Err(InvalidOwners::Twice(keys[0].fingerprint())));
    let json = serde_json::to_string(&Owners::new(2, keys).unwrap()).unwrap();
    let read: Owners = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
    assert!(serde_json::from_str::<Owners>(&json.replace("\"threshold\":2", "\"threshold\":0")).is_err());
}

#[test]
fn keys_that_cannot_stand_for_a_person_are_refused() {
    let kind = |line: &str| match line.parse::<OwnerKey>() {
        Err(InvalidOwnerKey::Kind(kind)) => kind,
        other => panic!("{other:?}"),
    };
    let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDC4VqZWXXxOsQJrWjIxGBKnMRhxLBnjxGtXRY1xwTTtsRGOTPO9T1BnmJRXKTeLvJxXlvgIj4vGa9TJ0DMSmc6cdHQy7XAqbGSHxiaPWhBDo8vLxvIJNQKjDXmSgOhsCmc/JE7mrRlQOSvzfdSrnN1rXuHXT4JGZTWDM4VnCrHcQ==";
    assert_eq!(kind(rsa), "ssh-rsa");
    // The neutral element: its signatures are good for everything.
    assert_eq!(people::line_of_ed25519([1; 1], [0; 31]).parse::<OwnerKey>(), Err(InvalidOwnerKey::Weak));
    // One key in two forms would be two people.
    assert_eq!(people::compressed_line_of_p256(2).parse::<OwnerKey>(), Err(InvalidOwnerKey::Weak));
    let good = people()[0].key().to_string();
    for line in
        ["", "ssh-ed25519", "ssh-ed25519 AAAA", &good[1..], &format!("{good}\n{good}"), &"a".repeat(2000)]
    {
        assert_eq!(line.parse::<OwnerKey>(), Err(InvalidOwnerKey::Form), "{line}");
    }
}

#[test]
fn enough_owners_of_any_kind_approve() {
    let people = people();
    let signatures: Vec<_> = people[..3].iter().map(|person| person.sign(&statement())).collect();
    for pair in [[0, 1], [1, 2], [2, 0]] {
        let mut expected: Vec<_> = pair.map(|index| people[index].key()).to_vec();
        expected.sort();
        let expected: Vec<_> = expected.iter().map(OwnerKey::fingerprint).collect();
        assert_eq!(judged(&pair.map(|index| signatures[index].clone())), Ok(expected));
    }
    assert_eq!(judged(&signatures).unwrap().len(), 3);
}

#[test]
fn a_hardware_key_of_the_other_kind_approves_when_it_is_touched() {
    let person = Person::hardware_p256(1);
    let owners = owners(1, std::slice::from_ref(&person));
    let verify = |signature: String| verify(&statement(), &owners, &[signature]);
    assert_eq!(verify(person.sign(&statement())), Ok(vec![person.key().fingerprint()]));
    let text = statement().to_string();
    let raw = |flags| person.raw(NAMESPACE, text.as_bytes(), flags);
    let mut pretended = raw(0);
    let flags = pretended.len() - 5;
    pretended[flags] = 1;
    for (raw, why) in [
        (raw(0), InvalidSignature::NotTouched(person.key().fingerprint())),
        (pretended, InvalidSignature::Statement(person.key().fingerprint())),
    ] {
        let refused = ApprovalError::Signature { number: 1, source: why };
        assert_eq!(verify(person.armour(NAMESPACE, &raw)), Err(refused));
    }
}

#[test]
fn too_few_owners_do_not() {
    let [first, _, _, stranger] = people();
    assert_eq!(not_enough(&[]), (0, 0));
    let one = first.sign(&statement());
    assert_eq!(not_enough(std::slice::from_ref(&one)), (1, 0));
    // However often.
    assert_eq!(not_enough(&[one.clone(), one.clone(), one.clone()]), (1, 0));
    // And whoever else says it too.
    assert_eq!(not_enough(&[one.clone(), stranger.sign(&statement())]), (1, 1));
    assert_eq!(judged(&vec![one; MAX_SIGNATURES + 1]), Err(ApprovalError::TooMany(MAX_SIGNATURES + 1)));
}

#[test]
fn a_signature_over_anything_else_is_refused() {
    for person in &people()[1..3] {
        let other = InvalidSignature::Statement(person.key().fingerprint());
        let elsewhere = ApprovalStatement { app_id: app(9), ..statement() };
        let revoked = ApprovalStatement { action: Action::RevokeComposeHash(hash(2)), ..statement() };
        let later = ApprovalStatement { serial: statement().serial + 1, ..statement() };
        for signed in [elsewhere, revoked, later] {
            assert_eq!(refusal(person.sign(&signed)), other);
        }
        // With a stolen name: the key of one, the signature of another.
        let text = statement().to_string();
        let stolen = person.claim(&Person::hardware(7).raw(NAMESPACE, text.as_bytes(), 1));
        assert!(stolen.is_none_or(|stolen| refusal(stolen) == other));
    }
    let person = &people()[1];
    let text = statement().to_string();
    let namespace = sign_with(person, "git", text.as_bytes());
    assert_eq!(refusal(namespace), InvalidSignature::Namespace("git".to_owned()));
    let untouched = people()[2].armour(NAMESPACE, &people()[2].raw(NAMESPACE, text.as_bytes(), 0));
    assert_eq!(refusal(untouched), InvalidSignature::NotTouched(people()[2].key().fingerprint()));
}

#[test]
fn garbage_is_refused() {
    let good = people()[1].sign(&statement());
    let cut = good.replace("-----END SSH SIGNATURE-----", "");
    let label = good.replace("SSH SIGNATURE", "CERTIFICATE");
    for garbage in ["", "garbage", &cut, &label, &"A".repeat(MAX_SIGNATURE_BYTES + 1)] {
        assert_eq!(refusal(garbage.to_owned()), InvalidSignature::Form);
    }
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_the_same(text in "(cloister approval v1\n)?(application: [0-9a-f]{40}\n)?(action: (allow|revoke)-compose-hash\n)?(compose-hash: [0-9a-fA-F]{64}\n)?(serial: [0-9]{1,20}\n){0,2}") {
        if let Ok(read) = text.parse::<ApprovalStatement>() {
            prop_assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn every_statement_is_read_again(app_id: [u8; 20], bytes: [u8; 32], kind in 0..3, serial in 1..=MAX_SERIAL) {
        let action = match kind {
            0 => Action::AllowComposeHash(ComposeHash::from_bytes(bytes)),
            1 => Action::RevokeComposeHash(ComposeHash::from_bytes(bytes)),
            _ => Action::SetOwners(OwnersDigest::from_bytes(bytes)),
        };
        let statement = ApprovalStatement { app_id: AppId::from_bytes(app_id), action, serial };
        let text = statement.to_string();
        prop_assert!(text.len() <= MAX_STATEMENT_BYTES);
        prop_assert_eq!(text.parse(), Ok(statement));
    }

    #[test]
    fn no_text_is_a_key_or_a_signature_by_accident(text in "\\PC{0,300}") {
        prop_assert!(text.parse::<OwnerKey>().is_err());
        prop_assert!(judged(&[text]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Approved is what at least `threshold` different owners signed, whatever else comes with it.
    #[test]
    fn different_owners_count(signers in proptest::collection::vec(0_usize..6, 0..8), count in 1_usize..5, threshold in 1_u32..5) {
        prop_assume!(threshold as usize <= count);
        let people: Vec<_> = (0..6).map(Person::ed25519).collect();
        let signatures: Vec<_> = signers.iter().map(|signer| people[*signer].sign(&statement())).collect();
        let different: std::collections::BTreeSet<_> = signers.iter().filter(|signer| **signer < count).collect();
        let approved = verify(&statement(), &owners(threshold, &people[..count]), &signatures);
        prop_assert_eq!(approved.is_ok(), different.len() >= threshold as usize);
    }
}
