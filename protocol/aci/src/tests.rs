//! Published vectors, and what an attacker might do to a receipt.

use std::collections::BTreeMap;

use ed25519_dalek::{Signature, SignatureError, Signer, SigningKey};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::receipt::{Event, Receipt, SignError, Verification};
use crate::report::{Nonce, bound, report_data, statement};
use crate::session::{
    ChannelBinding, Claim, ClaimSource, ClaimStatus, Claims, Evidence, Fact, Session, TlsSpkiKind,
};
use crate::verify::{self, Check, Finding, Known, Logged, gateway};
use crate::{
    API_VERSION, E2EE_X25519, Keyset, PublicKey, RECEIPT_ED25519, TlsKey, canonical, log, parse, sha256,
};

const DIGEST: &str = "sha256:53a5cd44b30dcc51999754c719f2628a041f174ecbf9662a6f8e898a10cd9371";
const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const REQUEST: &[u8] = br#"{"messages":[{"content":"hi","role":"user"}],"model":"demo-model"}"#;
const RESPONSE: &[u8] = br#"{"choices":[],"id":"chatcmpl-123"}"#;
const SESSION: &str = "95ad1cb4dd25445808c2e9d116caf420b05703730b506395e8fc1ca6faeae28f";

fn key(algo: &str, key_id: &str, public_key: &str) -> PublicKey {
    PublicKey { algo: algo.into(), key_id: key_id.into(), public_key: public_key.into() }
}

fn keyset() -> Keyset {
    Keyset {
        e2ee_public_keys: vec![key(
            E2EE_X25519,
            "e2ee-1",
            "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22",
        )],
        not_after: 1_800_000_000,
        receipt_signing_keys: vec![key(
            RECEIPT_ED25519,
            "receipt-1",
            "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394",
        )],
        subject: Some("dstack-app://example-app".into()),
        tls_public_keys: vec![TlsKey {
            domain: Some("api.example.com".into()),
            spki_sha256: "c0".repeat(32),
        }],
    }
}

fn session() -> Session {
    Session {
        api_version: API_VERSION.into(),
        channel_binding: vec![ChannelBinding::TlsSpki {
            origin: "https://upstream.example.com".into(),
            spki_sha256: "d1".repeat(32),
            kind: TlsSpkiKind::TlsSpkiSha256,
        }],
        claims: Claims {
            extra: BTreeMap::from([
                ("tcb_status".into(), Fact::Text("UpToDate".into())),
                ("gpu_arch".into(), Fact::Text("HOPPER".into())),
            ]),
            tee_attested: Claim {
                status: ClaimStatus::Asserted,
                source: Some(ClaimSource::HardwareProven),
                reason: Some("example quote verified".into()),
            },
            ..Claims::default()
        },
        endpoint: Some("https://upstream.example.com".into()),
        established_at: 1_750_000_000,
        evidence: Evidence::new("text/plain", b"example-evidence"),
        expires_at: 1_750_003_600,
        identity: None,
        provider: None,
        upstream_name: "demo-upstream".into(),
        verifier_id: "example/1".into(),
    }
}

/// Keeps a key that it does not sign with.
struct Silent;

impl Signer<Signature> for Silent {
    fn try_sign(&self, _: &[u8]) -> Result<Signature, SignatureError> {
        Err(SignatureError::new())
    }
}

#[test]
fn a_key_that_does_not_sign_makes_no_receipt() {
    assert!(matches!(superset().sign("receipt-1", &Silent), Err(SignError::Key(_))));
}

fn superset() -> Receipt {
    let session = session();
    Receipt {
        chat_id: Some("chatcmpl-123".into()),
        endpoint: "/v1/chat/completions".into(),
        event_log: vec![
            Event::RequestReceived { body_hash: sha256(REQUEST) },
            Event::RequestForwarded { body_hash: sha256(REQUEST) },
            Event::UpstreamVerified {
                model_id: "demo-model".into(),
                required: true,
                upstream_name: Some("demo-upstream".into()),
                verification: Verification::Verified {
                    session_id: SESSION.into(),
                    channel_bindings: session.channel_binding,
                    claims: Box::new(session.claims),
                },
            },
            Event::ResponseReturned { body_hash: sha256(RESPONSE), cleartext_hash: sha256(RESPONSE) },
        ],
        method: "POST".into(),
        model: Some("demo-model".into()),
        receipt_id: "rcpt-0001".into(),
        served_at: 1_750_000_000,
        workload_keyset_digest: DIGEST.into(),
    }
}

fn signing_key() -> SigningKey {
    SigningKey::from_bytes(&[2; 32])
}

fn signed() -> Value {
    parse(&superset().sign("receipt-1", &signing_key()).unwrap()).unwrap()
}

fn record(document: &Value) -> String {
    log::Record::of(document).unwrap().text()
}

fn findings(document: &Value) -> Vec<(Check, Finding)> {
    let (keyset, session, record) = (keyset(), session().document().unwrap(), record(&signed()));
    verify::receipt(
        document,
        &Known {
            keyset: Some(&keyset),
            keyset_digest: Some(DIGEST),
            subject: keyset.subject.as_deref(),
            id: Some("rcpt-0001"),
            request: Some(REQUEST),
            response: Some(RESPONSE),
            session: Some(&session),
            logged: Logged::Record(&record),
            ..Known::default()
        },
    )
}

fn failing(document: &Value) -> Vec<Check> {
    findings(document)
        .into_iter()
        .filter_map(|(check, finding)| matches!(finding, Finding::Fails(_)).then_some(check))
        .collect()
}

#[test]
fn keyset_and_statement_are_the_published_ones() {
    let keyset = keyset();
    assert_eq!(keyset.digest(), DIGEST);
    let value = serde_json::to_value(&keyset).unwrap();
    assert_eq!(canonical(&value).unwrap(), keyset.canonical().into_bytes());
    let nonce: Nonce = NONCE.parse().unwrap();
    assert_eq!(statement(DIGEST, Some(&nonce)).len(), 197);
    assert_eq!(statement(DIGEST, None).len(), 135);
    assert_eq!(
        hex::encode(report_data(DIGEST, Some(&nonce))),
        "df2174d28130852b413646a3786927b93e94c11d770268b65def8bdba45cb49e"
    );
    assert_eq!(
        hex::encode(report_data(DIGEST, None)),
        "0633919ca3f00e97bafaa3304278eb22420cc3ff0d19f87dfca2d3f7508150bc"
    );
}

#[test]
fn a_nonce_is_hex_of_two_lengths() {
    for good in [NONCE, &NONCE[..32]] {
        assert!(good.parse::<Nonce>().is_ok());
    }
    for bad in ["", "00", &NONCE.to_uppercase(), &format!("{NONCE}00"), &"g".repeat(64), &"é".repeat(16)] {
        assert!(bad.parse::<Nonce>().is_err(), "{bad}");
    }
}

#[test]
fn a_report_binds_its_keyset_to_the_nonce() {
    let nonce: Nonce = NONCE.parse().unwrap();
    let report = json!({
        "api_version": "aci/1",
        "workload_keyset_digest": DIGEST,
        "attestation": {
            "workload_keyset": keyset(),
            "report_data": hex::encode(report_data(DIGEST, Some(&nonce))),
        },
    });
    assert_eq!(bound(&report, Some(&nonce)).unwrap().keyset, keyset());
    assert!(bound(&report, None).is_err());
    for (pointer, value) in [
        ("/api_version", json!("aci/2")),
        ("/workload_keyset_digest", json!(sha256(b""))),
        ("/attestation/report_data", json!("00".repeat(32))),
        ("/attestation/workload_keyset/not_after", json!(1_900_000_000)),
        ("/attestation/workload_keyset/subject", json!(1.5)),
    ] {
        let mut forged = report.clone();
        *forged.pointer_mut(pointer).unwrap() = value;
        assert!(bound(&forged, Some(&nonce)).is_err(), "{pointer}");
    }
}

#[test]
fn a_session_has_the_published_id() {
    let record = session().document().unwrap();
    assert_eq!(crate::session::id(&record).unwrap(), SESSION);
    assert_eq!(serde_json::from_value::<Session>(record).unwrap(), session());
}

#[test]
fn a_receipt_has_the_published_bytes_and_signature() {
    let receipt = superset();
    let bytes = receipt.signing_bytes("receipt-1").unwrap();
    assert_eq!(bytes.len(), 1680);
    assert_eq!(sha256(&bytes), "sha256:59dd84a5131ecd5140ea27f096eba7bdcb0b0001d6ec2565e1b073ef038386e2");
    let document = signed();
    assert_eq!(
        document["signature"],
        "633c1466f7af75670ed7083c378a43a7fce7284354546466de5282f504ac048206682a54590e17ab35254069228c9822780e5009df500b9d497f0f06cc1c1a02"
    );
    assert_eq!(receipt.sign("receipt-1", &signing_key()).unwrap(), canonical(&document).unwrap());
    let found = findings(&document);
    assert!(found.iter().all(|(_, finding)| *finding == Finding::Holds), "{found:?}");
    assert!(verify::holds(&found));
}

#[test]
fn what_a_receipt_does_not_know_is_null_and_what_an_event_does_not_is_absent() {
    let event_log = vec![
        Event::RequestReceived { body_hash: "sha256:1".into() },
        Event::MiddlewareForwarded { body_hash: "sha256:2".into() },
        Event::RouteSelected { target_route_id: "up:m".into() },
        Event::RequestForwarded { body_hash: "sha256:3".into() },
        Event::UpstreamVerified {
            model_id: "m".into(),
            required: false,
            upstream_name: None,
            verification: Verification::Failed { reason: "none".into() },
        },
        Event::ResponseReceived { body_hash: "sha256:4".into() },
        Event::ResponseReturned { body_hash: "sha256:5".into(), cleartext_hash: "sha256:6".into() },
    ];
    let receipt = Receipt { chat_id: None, model: None, event_log, ..superset() };
    let written = String::from_utf8(receipt.signing_bytes("receipt-1").unwrap()).unwrap();
    let expected = [
        r#"{"api_version":"aci/1","chat_id":null,"endpoint":"/v1/chat/completions","event_log":["#,
        r#"{"body_hash":"sha256:1","seq":0,"type":"request.received"},"#,
        r#"{"body_hash":"sha256:2","seq":1,"type":"middleware.forwarded"},"#,
        r#"{"seq":2,"target_route_id":"up:m","type":"route.selected"},"#,
        r#"{"body_hash":"sha256:3","seq":3,"type":"request.forwarded"},"#,
        r#"{"model_id":"m","reason":"none","required":false,"result":"failed","seq":4,"type":"upstream.verified"},"#,
        r#"{"body_hash":"sha256:4","seq":5,"type":"response.received"},"#,
        r#"{"body_hash":"sha256:5","cleartext_hash":"sha256:6","seq":6,"type":"response.returned","wire_hash":"sha256:5"}"#,
        r#"],"key_id":"receipt-1","method":"POST","model":null,"receipt_id":"rcpt-0001","served_at":1750000000,"#,
    ];
    let end = format!(r#""workload_id":"{DIGEST}","workload_keyset_digest":"{DIGEST}"}}"#);
    assert_eq!(written, expected.concat() + &end);
}

#[test]
fn a_receipt_of_the_plain_protocol_verifies() {
    let mut document = signed();
    let members = document.as_object_mut().unwrap();
    members.shift_remove("workload_id");
    for event in members["event_log"].as_array_mut().unwrap() {
        for extra in ["seq", "provider", "channel_bindings", "claims", "wire_hash", "cleartext_hash"] {
            event.as_object_mut().unwrap().shift_remove(extra);
        }
    }
    document["signature"] = json!(
        "d5b005e093bde3b577faf270b7184b09e169cacb0ecb206b103bd2581f997db03da616175454b063323a23ac1dc68f1ce506c2a6eba8aa0561d5e724f0b80c03"
    );
    // It is another document than the one in the log.
    assert_eq!(failing(&document), [Check::Logged]);
}

#[test]
fn every_change_of_a_receipt_is_found() {
    for (pointer, value, check) in [
        ("/api_version", json!("aci/2"), Check::Version),
        ("/key_id", json!("receipt-2"), Check::Key),
        ("/served_at", json!(1_750_003_601), Check::Session),
        ("/served_at", json!(1_800_000_000), Check::Keyset),
        ("/receipt_id", json!("rcpt-0002"), Check::Id),
        ("/workload_keyset_digest", json!(sha256(b"")), Check::Keyset),
        ("/event_log/0/body_hash", json!(sha256(b"")), Check::Request),
        ("/event_log/3/body_hash", json!(sha256(b"")), Check::Response),
        ("/event_log/1/body_hash", json!(sha256(b"")), Check::Unchanged),
        ("/event_log/2/result", json!("failed"), Check::Upstream),
        ("/event_log/2/session_id", json!("00".repeat(32)), Check::Session),
        ("/event_log/2/seq", json!(3), Check::Order),
        ("/event_log/0/type", json!("request.other"), Check::Order),
    ] {
        let mut forged = signed();
        *forged.pointer_mut(pointer).unwrap() = value;
        let failing = failing(&forged);
        assert!(failing.contains(&check) && failing.contains(&Check::Signature), "{pointer}: {failing:?}");
        assert!(failing.contains(&Check::Logged), "{pointer}: {failing:?}");
        assert!(!verify::holds(&findings(&forged)), "{pointer}");
    }
}

#[test]
fn an_event_that_says_two_things_says_nothing() {
    let mut forged = signed();
    let events = forged["event_log"].as_array_mut().unwrap();
    events.insert(2, json!({"type": "upstream.verified", "result": "verified", "session_id": SESSION}));
    assert!(failing(&forged).contains(&Check::Upstream));
}

/// What runs in the gateway's own machine has nothing else to prove; what is said of an upstream counts all the same.
#[test]
fn a_gateway_that_serves_directly_says_nothing_of_an_upstream() {
    let judged = |events: &[Value], serves_directly| {
        let mut receipt = signed();
        receipt["event_log"] = json!(events);
        let known = Known { serves_directly, ..Known::default() };
        verify::receipt(&receipt, &known).into_iter().find(|(check, _)| *check == Check::Upstream).unwrap().1
    };
    let failed = json!({"type": "upstream.verified", "result": "failed", "reason": "none"});
    assert!(matches!(judged(&[], true), Finding::Open(_)));
    let verified = json!({"type": "upstream.verified", "result": "verified", "session_id": SESSION});
    assert_eq!(judged(&[verified], true), Finding::Holds);
    for (events, serves_directly) in
        [(vec![], false), (vec![failed.clone()], true), (vec![failed.clone(), failed], true)]
    {
        assert!(matches!(judged(&events, serves_directly), Finding::Fails(_)), "{events:?}");
    }
}

#[test]
fn without_a_keyset_nothing_holds() {
    let found = verify::receipt(&signed(), &Known::default());
    assert!(!verify::holds(&found));
}

/// What one check finds with other knowledge.
fn finding(check: Check, change: impl Fn(&mut Known<'_>)) -> (Finding, bool) {
    let (keyset, session) = (keyset(), session().document().unwrap());
    let mut known = Known {
        keyset: Some(&keyset),
        keyset_digest: Some(DIGEST),
        session: Some(&session),
        ..Known::default()
    };
    change(&mut known);
    found(check, &known)
}

fn found(check: Check, known: &Known<'_>) -> (Finding, bool) {
    let found = verify::receipt(&signed(), known);
    let holds = verify::holds(&found);
    (found.into_iter().find(|(of, _)| *of == check).unwrap().1, holds)
}

#[test]
fn a_session_that_is_missing_is_a_failure() {
    let (found, holds) = finding(Check::Session, |known| known.session = None);
    assert!(matches!(&found, Finding::Fails(why) if why.contains("not at hand")) && !holds, "{found:?}");
    let (found, holds) = finding(Check::Session, |_| {});
    assert!(found == Finding::Holds && holds, "{found:?}");
}

#[test]
fn a_receipt_is_the_one_that_was_asked_for() {
    for id in ["rcpt-0001", "chatcmpl-123"] {
        assert_eq!(finding(Check::Id, |known| known.id = Some(id)), (Finding::Holds, true));
    }
    let (found, holds) = finding(Check::Id, |known| known.id = Some("rcpt-0002"));
    assert!(matches!(found, Finding::Fails(_)) && !holds);
    // Nobody asked: it is a file.
    let (found, holds) = finding(Check::Id, |_| {});
    assert!(matches!(found, Finding::Open(_)) && holds);
}

#[test]
fn a_record_of_the_log_is_the_published_one_and_that_of_its_receipt_alone() {
    let document = signed();
    let hashes = [sha256(b"rcpt-0001"), sha256(&canonical(&document).unwrap())];
    let [id, receipt] = hashes;
    let text =
        format!(r#"{{"receipt_id_sha256":"{id}","receipt_sha256":"{receipt}","served_at":1750000000}}"#);
    assert_eq!(record(&document), text);
    assert_eq!(canonical(&parse(text.as_bytes()).unwrap()).unwrap(), text.as_bytes());
    let (keyset, session) = (keyset(), session().document().unwrap());
    let known = Known {
        keyset: Some(&keyset),
        keyset_digest: Some(DIGEST),
        session: Some(&session),
        ..Known::default()
    };
    let at = |logged| found(Check::Logged, &Known { logged, ..known });
    assert_eq!(at(Logged::Record(&text)), (Finding::Holds, true));
    let (unseen, holds) = at(Logged::default());
    assert!(matches!(unseen, Finding::Open(_)) && holds);
    let spaced = text.replace(',', ", ");
    for logged in [Logged::Record(&spaced), Logged::Record(""), Logged::Refused("no proof")] {
        let (found, holds) = at(logged);
        assert!(matches!(found, Finding::Fails(_)) && !holds, "{logged:?}");
    }
    for (member, value) in [("receipt_id", json!(1)), ("served_at", json!("1")), ("model", json!(1.5))] {
        let mut other = document.clone();
        other[member] = value;
        assert_eq!(log::Record::of(&other), None, "{member}");
    }
}

#[test]
fn hashes_of_a_proof_are_of_32_bytes() {
    let hash = "ab".repeat(32);
    assert_eq!(log::hashes(std::slice::from_ref(&hash)), Some(vec![[0xab; 32]]));
    for bad in ["", "ab", &"gg".repeat(32), &hash[2..]] {
        assert_eq!(log::hashes(&[hash.clone(), bad.to_owned()]), None, "{bad}");
    }
}

#[test]
fn a_keyset_is_that_of_the_measured_application_and_holds() {
    let (found, holds) = finding(Check::Subject, |known| known.subject = Some("dstack-app://example-app"));
    assert_eq!((found, holds), (Finding::Holds, true));
    let (found, holds) = finding(Check::Subject, |known| known.subject = Some("app-id:0x00"));
    assert!(matches!(found, Finding::Fails(_)) && !holds);
    let ended = Keyset { not_after: 1_750_000_000, ..keyset() };
    let session = session().document().unwrap();
    let known = Known {
        keyset: Some(&ended),
        keyset_digest: Some(DIGEST),
        session: Some(&session),
        ..Known::default()
    };
    let found = verify::receipt(&signed(), &known);
    let ended = Finding::Fails("the keyset had ended when the request was served".to_owned());
    assert!(found.contains(&(Check::Keyset, ended)) && !verify::holds(&found));
}

#[test]
fn a_member_twice_is_no_document() {
    assert!(parse(br#"{"a":1,"a":1}"#).is_err());
    assert!(parse(br#"{"a":[{"b":1,"\u0062":2}]}"#).is_err());
    assert!(parse(br#"{"a":1} x"#).is_err());
    assert!(canonical(&parse(br#"{"a":1.5}"#).unwrap()).is_err());
    assert!(canonical(&parse(b"9007199254740993").unwrap()).is_err());
    assert!(canonical(&json!(-9_007_199_254_740_992_i64)).is_ok());
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert!(parse(&deep).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What is written in one pass is the canonical form, whatever stands in the strings.
    #[test]
    fn receipts_are_written_in_canonical_form(
        texts in proptest::array::uniform6(prop_oneof![any::<String>(), "[\\x00-\\x7f]{0,6}"]),
        model in proptest::option::of(any::<String>()),
        required in any::<bool>(),
        verified in any::<bool>(),
    ) {
        let [chat_id, endpoint, model_id, upstream, reason, fact] = texts;
        let mut claims = session().claims;
        claims.extra.insert("fact".into(), Fact::Text(fact));
        let verification = if verified {
            Verification::Verified {
                session_id: SESSION.into(),
                channel_bindings: session().channel_binding,
                claims: Box::new(claims),
            }
        } else {
            Verification::Failed { reason }
        };
        let mut receipt = Receipt { chat_id: Some(chat_id), endpoint, model, ..superset() };
        receipt.event_log.insert(1, Event::RouteSelected { target_route_id: format!("{upstream}:{model_id}") });
        receipt.event_log[3] =
            Event::UpstreamVerified { model_id, required, upstream_name: Some(upstream), verification };
        let document = receipt.sign("receipt-1", &signing_key()).unwrap();
        let parsed = parse(&document).unwrap();
        prop_assert_eq!(&document, &canonical(&parsed).unwrap());
        let failing = failing(&parsed);
        prop_assert!(!failing.contains(&Check::Signature));
    }

    /// No byte of a receipt can be changed unnoticed.
    #[test]
    fn no_byte_can_be_changed(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = superset().sign("receipt-1", &signing_key()).unwrap();
        let original = signed();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(document) = parse(&bytes) && document != original {
            // Hex digits of the signature may change their case: the signature stays the same.
            let same_case = document["signature"].as_str().map(str::to_lowercase)
                == original["signature"].as_str().map(str::to_lowercase);
            let mut lowered = document.clone();
            lowered["signature"] = original["signature"].clone();
            prop_assert!((same_case && lowered == original) || failing(&document).contains(&Check::Signature));
        }
    }
}

#[test]
fn whom_tls_ends_at_is_one_of_the_keys_for_the_host() {
    let keyset = keyset();
    let every = Keyset {
        tls_public_keys: vec![TlsKey { domain: None, spki_sha256: "AB".repeat(32) }],
        ..keyset.clone()
    };
    let none = Keyset { tls_public_keys: Vec::new(), ..keyset.clone() };
    let (holds, fails, open) = (Some("holds"), Some("fails"), None);
    for (keyset, host, key, wanted) in [
        (&keyset, "api.example.com", Some(0xc0), holds),
        (&keyset, "API.example.com.", Some(0xc0), holds),
        (&keyset, "api.example.com", Some(0xc1), fails),
        (&keyset, "example.com", Some(0xc0), fails),
        (&keyset, "api.example.com", None, open),
        (&every, "any.example", Some(0xab), holds),
        (&every, "any.example", Some(0xc0), fails),
        (&none, "any.example", Some(0xc0), open),
    ] {
        let subject = keyset.subject.as_deref();
        let tls_key = key.map(|byte| [byte; 32]);
        let known = gateway::Known { keyset, subject, host, tls_key, at: 1_750_000_000 };
        let found = gateway::gateway(&known);
        let (_, tls) = found.iter().find(|(check, _)| *check == gateway::Check::Tls).unwrap();
        let said = match tls {
            Finding::Holds => Some("holds"),
            Finding::Fails(_) => Some("fails"),
            Finding::Open(_) => None,
        };
        assert_eq!(said, wanted, "{host} {key:?}");
        assert_eq!(gateway::holds(&found, false), wanted == holds, "{host} {key:?}");
        assert_eq!(gateway::holds(&found, true), wanted != fails, "{host} {key:?}");
    }
}

#[test]
fn a_gateway_is_that_of_the_measured_application_and_its_keyset_holds() {
    let keyset = keyset();
    let own = keyset.subject.as_deref();
    for (subject, at, failing) in [
        (own, 1_799_999_999, None),
        (None, 1_750_000_000, None),
        (Some("app-id:0x00"), 1_750_000_000, Some(gateway::Check::Subject)),
        (own, 1_800_000_000, Some(gateway::Check::Keyset)),
    ] {
        let known = gateway::Known { keyset: &keyset, subject, host: "api.example.com", tls_key: None, at };
        let found = gateway::gateway(&known);
        let fails = found.iter().find(|(_, finding)| matches!(finding, Finding::Fails(_)));
        assert_eq!(fails.map(|(check, _)| *check), failing, "{subject:?} at {at}");
        assert_eq!(gateway::holds(&found, true), failing.is_none());
    }
}
