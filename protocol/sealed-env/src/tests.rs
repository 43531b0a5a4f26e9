use std::convert::Infallible;

use proptest::prelude::*;
use zeroize::Zeroizing;

use crate::*;

/// The worked vector of the platform reference, section 3.
const SECRET: &str = "dcd635b698cfd91e829f55b08ba733bbe7db49f4b76bec023dd1b4d5a6ca8158";
const PUBLIC: &str = "37b1015eaf9a2746b9f2d34a7ed828d3ba8679c78db4162619633a5c4cbf5c5e";
const PLAINTEXT: &str = r#"{"env":[{"key":"API_KEY","value":"s3cr3t"},{"key":"LOG_LEVEL","value":"debug"}]}"#;
const BLOB: &str = "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22040404040404040404040404d71afa643d119e5dded68857c961a47fa81c720b178f68a8c4421877eff92b673c991f2c74b03e96ab91b65a24d4356b2b6a0be406fb8d5d4e62519b1cfb623f2d577ac9be7f36297e1f5ee37fde4f62cbaf0f0c3ecd9abb393178dc95bcd54e";

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

fn key(text: &str) -> [u8; 32] {
    bytes(text).try_into().unwrap()
}

/// Fills what is asked for with one byte, then with the next one.
fn fixed(mut bytes: impl Iterator<Item = u8>) -> impl FnMut(&mut [u8]) -> Result<(), Infallible> {
    move |to| {
        to.fill(bytes.next().unwrap());
        Ok(())
    }
}

/// Different at every call, from a seed.
fn seeded(seed: u64) -> impl FnMut(&mut [u8]) -> Result<(), Infallible> {
    let mut state = seed;
    move |to| {
        for byte in to {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[2];
        }
        Ok(())
    }
}

#[test]
fn seals_and_opens_the_platforms_vector() {
    assert_eq!(public_key(&key(SECRET)), key(PUBLIC));
    let environment = Environment::parse(PLAINTEXT.as_bytes()).unwrap();
    assert_eq!(environment.to_json().as_slice(), PLAINTEXT.as_bytes());
    let blob = seal(&key(PUBLIC), &environment, &mut fixed([3, 4].into_iter())).unwrap();
    assert_eq!(hex::encode(&blob), BLOB);
    assert_eq!(open(&key(SECRET), &blob).unwrap().as_slice(), PLAINTEXT.as_bytes());
}

#[test]
fn seals_and_opens_the_clients_vector() {
    // Management API dossier, section 12.2.
    let recipient = key("7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13");
    assert_eq!(public_key(&[0x11; 32]), recipient);
    let plaintext = br#"{"env":[{"key":"API_KEY","value":"secret"}]}"#;
    let blob = seal_bytes(&recipient, plaintext, &mut fixed([0x22, 0x33].into_iter())).unwrap();
    assert_eq!(
        hex::encode(&blob),
        "0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f2033333333333333333333333313c2a34971c12ae4f37f3e84eda2c29c252a025c8786737b7f47f84c6bea52cc05c9f31d79e62cfc4de5eebeb44df75af8bd46fc8b02942e411f5388"
    );
    assert_eq!(open(&[0x11; 32], &blob).unwrap().as_slice(), plaintext);
}

#[test]
fn opens_what_a_published_client_sealed() {
    let secret = key("7c282bf94b35dc47801dc953bfa0896fc2bd313381d3e8eca4e42f6536d2a96f");
    let blob = bytes(
        "0bd18749612f4c8b9dd583c7d6a646b90abd34e3c731a7708d0caf9039095641e1f0948e775f0b7351788db7f246d51806954626dcccb6a60d64665ca3715c6bef75616cab476d27bba04080361200d6a58cec",
    );
    assert_eq!(open(&secret, &blob).unwrap().as_slice(), br#"[{"key":"","value":""}]"#);
}

#[test]
fn opens_what_todays_clients_seal() {
    for blob in [
        // dstack-sdk 0.5.4 for Python: spaces, and escapes instead of other characters than ASCII.
        "5425539107e96d7f4af87bab01727764d402a1202f2210227662ea8a1f2d5f4cfe45ee4d10ae483958d8145c307a62af0ab96e59fadde3eb099b01c87683f3a408687c63d922e6e332487fd383a52340c4156f8655c2a7e0eb19889e199934b4d24d742f53dae921f978093ecfe344a72c81b5f928c860b6c3203dab076a2182641e1b8c78f5e90f22f4c4562682084d61",
        // @phala/dstack-sdk 0.5.8 for JavaScript: compact, as it is.
        "a554e79d2776c5593a40bde39b6279064ebb88a2ad2f9fd790764e9c9bed14078187ece4fda450d4a5d2bb2b289c4ccfe668f663ddca3917332c3fb0f17f58c77a5d61ad2691837a373ba0148e472bf73ea494bfeede57bbfe36065191c5fa44edd1126680b3f801df64e0e4326c821cd8dffb0cc0e63951d1dc9660474fabd35019f13d37",
    ] {
        let environment = Environment::parse(&open(&key(SECRET), &bytes(blob)).unwrap()).unwrap();
        assert_eq!(environment.iter().collect::<Vec<_>>(), [("A", "ü \"q\""), ("LD_PRELOAD", "x")]);
    }
}

#[test]
fn every_changed_byte_and_every_other_length_is_refused() {
    let (secret, blob) = (key(SECRET), bytes(BLOB));
    for at in 0..blob.len() {
        let mut changed = blob.clone();
        changed[at] ^= 1 << (at % 7);
        assert_eq!(open(&secret, &changed), Err(OpenError::NotOpened), "byte {at}");
    }
    // X25519 does not look at the highest bit of a public key: the one change that means the same.
    let mut same = blob.clone();
    same[31] ^= 0x80;
    assert_eq!(open(&secret, &same).unwrap().as_slice(), PLAINTEXT.as_bytes());
    for length in 0..blob.len() {
        let expected = if length < MIN_BLOB_BYTES { OpenError::Length(length) } else { OpenError::NotOpened };
        assert_eq!(open(&secret, &blob[..length]), Err(expected));
    }
    assert_eq!(open(&secret, &[&blob[..], &[0]].concat()), Err(OpenError::NotOpened));
    assert_eq!(open(&[7; 32], &blob), Err(OpenError::NotOpened));
    let long = vec![1; MAX_BLOB_BYTES + 1];
    assert_eq!(open(&secret, &long), Err(OpenError::Length(MAX_BLOB_BYTES + 1)));
}

#[test]
fn weak_keys_are_refused_on_both_sides() {
    // Points of small order: the shared secret with them is zero for every secret.
    for point in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ] {
        let point = key(point);
        let sealed = seal_bytes(&point, b"secret", &mut seeded(1));
        assert_eq!(sealed, Err(SealError::WeakKey));
        let blob = [&point[..], &[0; 40]].concat();
        assert_eq!(open(&[1; 32], &blob), Err(OpenError::WeakKey));
    }
}

#[test]
fn a_failing_source_of_randomness_seals_nothing() {
    for fails_at in 0..2 {
        let mut calls = 0;
        let sealed = seal_bytes(&key(PUBLIC), b"secret", &mut |to| {
            to.fill(5);
            calls += 1;
            if calls > fails_at { Err("broken") } else { Ok(()) }
        });
        assert_eq!(sealed, Err(SealError::Randomness("broken")));
    }
}

#[test]
fn what_does_not_fit_is_said_before_it_is_sealed() {
    let fits = vec![b'x'; MAX_BLOB_BYTES - MIN_BLOB_BYTES];
    let blob = seal_bytes(&key(PUBLIC), &fits, &mut seeded(1)).unwrap();
    assert_eq!(open(&key(SECRET), &blob), Ok(Zeroizing::new(fits.clone())));
    let sealed = seal_bytes(&key(PUBLIC), &[&fits[..], b"x"].concat(), &mut seeded(1));
    assert_eq!(sealed, Err(SealError::TooLong(MAX_BLOB_BYTES + 1)));
}

fn parse(json: &str) -> Result<Environment, InvalidEnvironment> {
    Environment::parse(json.as_bytes())
}

#[test]
fn reads_what_clients_write() {
    let spaced =
        parse(r#"{"env": [{"key": "A", "value": "\u00fc"}, {"value": "", "key": "_b2", "x": 1}], "y": 2}"#);
    let spaced = spaced.unwrap();
    assert_eq!(spaced.iter().collect::<Vec<_>>(), [("A", "ü"), ("_b2", "")]);
    assert_eq!(spaced.get("A"), Some("ü"));
    assert_eq!(spaced.get("B"), None);
    let twice = parse(r#"{"env":[{"key":"A","value":"1"},{"key":"B","value":"2"},{"key":"A","value":"3"}]}"#);
    assert_eq!(twice.unwrap().iter().collect::<Vec<_>>(), [("B", "2"), ("A", "3")]);
    assert!(parse(r#"{"env":[]}"#).unwrap().is_empty());
}

#[test]
fn refuses_what_is_no_environment() {
    for json in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"env":{}}"#,
        r#"{"env":[1]}"#,
        r#"{"env":[{"key":"A"}]}"#,
        r#"{"env":[{"key":"A","value":1}]}"#,
        r#"{"env":[{"key":"A","value":null}]}"#,
        r#"{"env":[]} {}"#,
        r#"{"env":[],"env":[]}"#,
        r#"[{"key":"","value":""}]"#,
        r#"{"env":[{"key":"A","value":"\ud800"}]}"#,
    ] {
        assert_eq!(parse(json), Err(InvalidEnvironment::Form), "{json}");
    }
    assert_eq!(
        Environment::parse(b"{\"env\":[{\"key\":\"A\",\"value\":\"\xFF\"}]}"),
        Err(InvalidEnvironment::Form)
    );
    assert_eq!(parse(&"[".repeat(100_000)), Err(InvalidEnvironment::Form));
    for name in ["", "1A", "A-B", "A B", "A=B", "Ä", "A\n", &"A".repeat(MAX_NAME_BYTES + 1)] {
        let pairs = [("OK", "x"), (name, "x")];
        assert_eq!(Environment::from_pairs(pairs), Err(InvalidEnvironment::Name(2)), "{name:?}");
    }
    assert_eq!(Environment::from_pairs([("A", "x\0y")]), Err(InvalidEnvironment::Nul(1)));
}

#[test]
fn limits_hold_to_the_byte() {
    let numbered = |count: usize| (0..count).map(|n| (format!("V{n}"), "x"));
    assert_eq!(Environment::from_pairs(numbered(MAX_VARIABLES)).unwrap().len(), MAX_VARIABLES);
    let many = Environment::from_pairs(numbered(MAX_VARIABLES + 1));
    assert_eq!(many, Err(InvalidEnvironment::Count(MAX_VARIABLES + 1)));

    // With name, `=` and NUL; this system starts programs with the largest.
    for name in ["A".to_owned(), "A".repeat(MAX_NAME_BYTES)] {
        let largest = "x".repeat(MAX_VALUE_BYTES - name.len() - 2);
        let environment = Environment::from_pairs([(name.as_str(), largest.as_str())]).unwrap();
        let run = std::process::Command::new("true").envs(environment.iter()).status();
        assert!(run.unwrap().success());
        let larger = Environment::from_pairs([(name, format!("{largest}x"))]);
        assert_eq!(larger, Err(InvalidEnvironment::Value(1)));
    }
    let largest = "x".repeat(MAX_VALUE_BYTES - 4);

    let mut pairs: Vec<(String, String)> = (0..7).map(|n| (format!("V{n}"), largest.clone())).collect();
    pairs.push(("W".into(), "x".repeat(MAX_VALUE_BYTES - 3)));
    let rest =
        MAX_TOTAL_BYTES - pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() - 1;
    pairs.push(("Z".into(), "x".repeat(rest)));
    assert!(Environment::from_pairs(pairs.clone()).is_ok());
    pairs[8].1.push('x');
    assert_eq!(Environment::from_pairs(pairs), Err(InvalidEnvironment::Total));
}

#[test]
fn values_are_not_shown() {
    let environment = Environment::from_pairs([("NAME", "planted-value")]).unwrap();
    let selection = environment.clone().select(["NAME"]);
    for shown in [format!("{environment:?}"), format!("{selection:?}")] {
        assert!(shown.contains("NAME") && !shown.contains("planted"), "{shown}");
    }
    let error = parse(r#"{"env":[{"key":"planted value","value":"planted"}]}"#).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("planted"));
}

#[test]
fn an_application_gets_what_its_document_allows_and_nothing_dangerous() {
    let pairs = [("B", "1"), ("LD_PRELOAD", "/tmp/x.so"), ("OTHER", "2"), ("A", "3")];
    let selection = Environment::from_pairs(pairs).unwrap().select(["A", "B", "LD_PRELOAD", "MISSING"]);
    assert_eq!(selection.kept.iter().collect::<Vec<_>>(), [("B", "1"), ("A", "3")]);
    let skipped: Vec<String> =
        selection.skipped.iter().map(|skipped| format!("{}: {}", skipped.name, skipped.why)).collect();
    assert_eq!(
        skipped,
        [
            "LD_PRELOAD: no environment may set it: it makes the dynamic linker load other code into every program",
            "OTHER: it is not in allowed_envs of the compose document",
        ]
    );
}

#[test]
fn dangerous_names_are_those_that_reach_past_the_application() {
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "GLIBC_TUNABLES",
        "PATH",
        "HOME",
        "IFS",
        "ENV",
        "BASH_ENV",
        "BASH_FUNC_x",
        "PS4",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "DOCKER_HOST",
        "DOCKER_TLS_VERIFY",
        "COMPOSE_FILE",
        "COMPOSE_PROFILES",
        "CONTAINER_HOST",
        "CONTAINERS_CONF",
        "HTTPS_PROXY",
        "https_proxy",
        "SSL_CERT_FILE",
        "GODEBUG",
        "DSTACK_SIMULATOR_ENDPOINT",
    ] {
        assert!(is_dangerous(name), "{name}");
    }
    // What applications are deployed with, and what public clients add.
    for name in [
        "API_KEY",
        "DATABASE_URL",
        "DSTACK_AUTHORIZED_KEYS",
        "DSTACK_DOCKER_PASSWORD",
        "DOCKER_USERNAME",
        "GIT_COMMIT",
        "SSH_PUBLIC_KEY",
        "LISTEN_ADDR",
        "NODE_ENV",
        "ENVIRONMENT",
        "PATHS",
        "MY_PATH",
        "HOMEPAGE",
        "path",
        "TZ",
        "LANG",
        "OLD_LD_PRELOAD",
    ] {
        assert!(!is_dangerous(name), "{name}");
    }
    for row in DANGEROUS_NAMES {
        let name = row.pattern.replace('*', "");
        let alone = DANGEROUS_NAMES.iter().filter(|other| {
            other
                .pattern
                .strip_suffix('*')
                .map_or(other.pattern == row.pattern, |start| name.starts_with(start))
        });
        assert_eq!(alone.count(), 1, "{} stands in two rows", row.pattern);
        assert!(is_dangerous(&name) && !row.reason.ends_with('.'), "{}", row.pattern);
    }
}

prop_compose! {
    fn environments()(pairs in proptest::collection::vec(("[A-Za-z_][A-Za-z0-9_]{0,20}", "[^\0]{0,40}"), 0..30))
        -> Environment { Environment::from_pairs(pairs).unwrap() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_sealed_opens_again(environment in environments(), secret: [u8; 32], seed: u64) {
        let blob = seal(&public_key(&secret), &environment, &mut seeded(seed)).unwrap();
        let plaintext = open(&secret, &blob).unwrap();
        prop_assert_eq!(blob.len(), plaintext.len() + MIN_BLOB_BYTES);
        prop_assert_eq!(Environment::parse(&plaintext).unwrap(), environment);
    }

    #[test]
    fn a_changed_blob_never_opens(environment in environments(), seed: u64, at: prop::sample::Index, flip in 1u8..) {
        let mut blob = seal(&public_key(&[9; 32]), &environment, &mut seeded(seed)).unwrap();
        let at = at.index(blob.len());
        blob[at] ^= flip;
        prop_assume!(at != 31 || flip != 0x80);
        prop_assert_eq!(open(&[9; 32], &blob), Err(OpenError::NotOpened));
    }

    #[test]
    fn hostile_blobs_and_plaintexts_do_no_harm(secret: [u8; 32], bytes: Vec<u8>, text: String) {
        prop_assert!(open(&secret, &bytes).is_err());
        let _ = Environment::parse(&bytes);
        let _ = Environment::parse(text.as_bytes());
        let json = serde_json::json!({ "env": [{ "key": text.clone(), "value": text.clone() }] }).to_string();
        if let Ok(environment) = Environment::parse(json.as_bytes()) {
            prop_assert_eq!(environment.get(&text), Some(text.as_str()));
        }
    }

    #[test]
    fn a_selection_loses_nothing_and_adds_nothing(environment in environments(), allowed in proptest::collection::vec("[A-Z]{1,2}", 0..5)) {
        let all: Vec<(String, String)> = environment.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let selection = environment.select(allowed.iter().map(String::as_str));
        prop_assert_eq!(selection.kept.len() + selection.skipped.len(), all.len());
        for (name, value) in selection.kept.iter() {
            prop_assert!(allowed.iter().any(|allowed| allowed == name) && !is_dangerous(name));
            prop_assert!(all.contains(&(name.to_owned(), value.to_owned())));
        }
    }
}
