//! An honest service is verified; one that differs in anything is not, for the reason that it differs by.

use cloister_aci::session;
use cloister_aci::session::{ClaimSource, ClaimStatus, Fact};
use cloister_evidence::RuntimeEvent;
use cloister_verifier::TrustRoots;
use serde_json::{Value, json};

use super::service::{APP_ID, Parts, Service, Time, custody, custody_of_secret};
use super::{Unverified, World};
use crate::lab::machine::{image, image_hash};
use crate::verification::Trust;

#[tokio::test]
async fn an_honest_service_is_verified_and_its_session_says_how() {
    let world = World::new().await;
    let verified = world.channel(&world.route()).await.unwrap();
    assert_eq!(verified.pins, [world.service.spki]);
    let (id, document, expires_at) = world.records.kept.lock()[0].clone();
    assert_eq!((&id, world.listed()), (&verified.session_id, vec![id.clone()]));

    let record = cloister_aci::parse(&document).unwrap();
    assert_eq!(session::id(&record).unwrap(), id);
    let read: session::Session = serde_json::from_value(record.clone()).unwrap();
    assert_eq!((read.established_at, read.expires_at), (world.time.now(), expires_at));
    assert_eq!(expires_at, world.time.now() + 3600);
    assert_eq!((read.upstream_name.as_str(), read.provider.as_deref()), ("service", Some("service")));
    assert_eq!(read.endpoint, Some(world.service.url()));
    assert_eq!(read.verifier_id, "aci-service/v2");
    assert_eq!(record["channel_binding"][0]["spki_sha256"], hex::encode(world.service.spki));
    let subject = format!("app-id:0x{}", hex::encode(APP_ID.as_bytes()));
    assert_eq!(record["identity"]["subject"], subject);
    let seen: Value = serde_json::from_slice(&read.evidence.bytes().unwrap()).unwrap();
    assert_eq!(seen["report"]["attestation"]["tee_type"], "tdx");
    assert!(seen["nonce"].as_str().is_some_and(|nonce| nonce.len() == 64) && seen["collateral"].is_object());

    // No hardware stands behind it, and the session says so.
    assert_eq!(read.claims.tee_attested.source, Some(ClaimSource::OperatorAsserted));
    assert_eq!(read.claims.extra["hardware"], Fact::Flag(false));
    assert_eq!(read.claims.tcb_up_to_date.status, ClaimStatus::Asserted);
    assert_eq!(read.claims.os_known_good.status, ClaimStatus::Asserted);
    assert_eq!(read.claims.extra["os_image_hash"], Fact::Text(image_hash(&image("kernel"))));
    assert_eq!(read.claims.serving_software_known_good.status, ClaimStatus::Asserted);
    assert_eq!(read.claims.model_weights_provenance.status, ClaimStatus::Unknown);
    assert_eq!(read.claims.extra["app_id"], Fact::Text(hex::encode(APP_ID.as_bytes())));

    let abbreviated = world.verifications.sessions()[0].abbreviated();
    assert_eq!(abbreviated["session_id"], id);
    assert!(abbreviated["evidence"].get("data").is_none() && abbreviated["evidence"]["digest"].is_string());
}

#[tokio::test]
async fn a_stale_platform_is_told_not_hidden() {
    let world = World::new().await;
    {
        let mut collateral = world.service.machine.collateral.lock();
        collateral.status = "OutOfDate".to_owned();
        collateral.advisory_ids = vec!["INTEL-SA-1".to_owned()];
    }
    let verified = world.channel(&world.route()).await.unwrap();
    assert_eq!(verified.claims.tcb_up_to_date.status, ClaimStatus::Refuted);
    assert_eq!(verified.claims.extra["tcb_status"], Fact::Text("OutOfDate".to_owned()));
    assert_eq!(verified.claims.extra["tcb_advisories"], Fact::Text("INTEL-SA-1".to_owned()));
}

#[tokio::test]
async fn keys_of_a_host_and_of_every_host_are_pins() {
    let world = World::new().await;
    world.service.change(|parts| {
        let mut of = |domain: Option<&str>, byte: u8| {
            parts.keyset.tls_public_keys.push(cloister_aci::TlsKey {
                domain: domain.map(str::to_owned),
                spki_sha256: hex::encode([byte; 32]),
            });
        };
        of(Some("127.0.0.1"), 1);
        of(Some("elsewhere.example.com"), 2);
    });
    let verified = world.channel(&world.route()).await.unwrap();
    let mut pins = vec![[1; 32], world.service.spki];
    pins.sort_unstable();
    assert_eq!(verified.pins, pins);
    assert_eq!(verified.channel_bindings.len(), 2);
}

#[tokio::test]
async fn the_key_that_is_vouched_for_may_be_named_once_more() {
    let world = World::new().await;
    let again = json!({"kms_public_key": hex::encode([0x81; 32])});
    world
        .service
        .change(|parts| parts.custody = custody(&APP_ID, "aci.receipt.ed25519.v1", &[0x81; 32], &again));
    world.channel(&world.route()).await.unwrap();
}

type Change = fn(&mut Parts);

fn set(parts: &mut Parts, pointer: &'static str, value: impl Fn(&mut Value) + Send + 'static) {
    parts.on_the_way = Box::new(move |report| value(report.pointer_mut(pointer).unwrap()));
}

fn remove(parts: &mut Parts, pointer: &'static str, member: &'static str) {
    set(parts, pointer, move |value| {
        value.as_object_mut().unwrap().remove(member);
    });
}

/// What is changed, how, and a part of the reason why that is not verified.
const TAMPERED: [(&str, Change, &str); 38] = [
    ("status", |of| of.answer = Some(("404 Not Found", Vec::new())), "answered 404"),
    (
        "redirect",
        |of| of.answer = Some(("302 Found\r\nlocation: https://127.0.0.1:1/", Vec::new())),
        "answered 302",
    ),
    ("no report", |of| of.answer = Some(("200 OK", b"hello".to_vec())), "cannot be read"),
    ("too long", |of| of.answer = Some(("200 OK", vec![b' '; 5 << 20])), "too long"),
    ("no evidence", |of| remove(of, "/attestation", "evidence"), "lacks evidence"),
    ("version", |of| set(of, "/api_version", |of| *of = json!("aci/2")), "of version"),
    ("digest", |of| set(of, "/workload_keyset_digest", |of| *of = json!("sha256:00")), "names the digest"),
    (
        "keyset on the way",
        |of| {
            set(of, "/attestation/workload_keyset/tls_public_keys", |of| {
                *of = json!([{"spki_sha256": "00"}]);
            });
        },
        "names the digest",
    ),
    (
        "another nonce",
        |of| of.nonce = Some("0".repeat(64).parse().unwrap()),
        "not bound to this keyset and nonce",
    ),
    ("quote over something else", |of| of.report_data = Some([1; 64]), "another question"),
    (
        "second half not zero",
        |of| {
            // What the quote covers is only known when it is made: all of it but the end is as it should be.
            of.on_the_way = Box::new(|_| {});
            of.report_data = Some([0; 64]);
        },
        "another question",
    ),
    (
        "said report data",
        |of| set(of, "/attestation/evidence/quote_report_data", |of| *of = json!("00".repeat(64))),
        "made over something else than it was",
    ),
    ("tee type", |of| set(of, "/attestation/tee_type", |of| *of = json!("sev_snp")), "kind of machine"),
    ("no quote", |of| set(of, "/attestation/evidence/quote", |of| *of = json!("00")), "quote is refused"),
    ("quote", |of| set(of, "/attestation/evidence/quote", flip), "quote is refused"),
    ("debug", |of| of.td_attributes |= 1, "debug"),
    ("keyset ended", |of| of.keyset.not_after = 1_700_000_000, "keyset has ended"),
    ("no provenance", |of| remove(of, "/attestation", "source_provenance"), "where the software comes from"),
    (
        "short commit",
        |of| set(of, "/attestation/source_provenance/repo_commit", |of| *of = json!("abcdef0")),
        "no full commit",
    ),
    (
        "event log on the way",
        |of| {
            set(of, "/attestation/evidence/event_log", |of| {
                *of = json!(of.as_str().unwrap().replace("a5a5", "a5a6"));
            });
        },
        "event log",
    ),
    ("no log", |of| set(of, "/attestation/evidence/event_log", |of| *of = json!("[]")), "does not build"),
    (
        "two compose hashes",
        |of| of.events.insert(3, RuntimeEvent::new("compose-hash", [7; 32])),
        "occurs twice",
    ),
    (
        "compose hash after ready",
        |of| of.events.push(RuntimeEvent::new("compose-hash", [7; 32])),
        "platform's name",
    ),
    (
        "no compose hash",
        |of| of.events.retain(|event| event.name != "compose-hash"),
        "measured no compose-hash",
    ),
    ("never ready", |of| of.events.retain(|event| event.name != "system-ready"), "system-ready is missing"),
    ("compose document", |of| of.compose.push(' '), "not the one that was measured"),
    ("launch", |of| of.mr_config_id[1] ^= 1, "launched for something else"),
    ("another application", |of| of.event("app-id").payload[0] ^= 1, "of another application"),
    (
        "another application that admits it",
        |of| {
            of.event("app-id").payload[0] ^= 1;
            of.keyset.subject = None;
        },
        "not an accepted one",
    ),
    ("subject", |of| of.keyset.subject = Some("app-id:0x00".to_owned()), "of another application"),
    ("no custody", |of| of.custody = json!({"provider": "dstack-kms", "keys": []}), "no accepted KMS root"),
    ("custody of others", |of| of.custody["provider"] = json!("local"), "no KMS"),
    (
        "custody for another purpose",
        |of| of.custody = custody(&APP_ID, "signing", &[0x81; 32], &json!({})),
        "no accepted KMS root",
    ),
    (
        "custody of another application",
        |of| {
            let other = cloister_app_compose::AppId::from_bytes([1; 20]);
            of.custody = custody(&other, "aci.receipt.ed25519.v1", &[0x81; 32], &json!({}));
        },
        "no accepted KMS root",
    ),
    (
        "custody of another key of the same secret",
        |of| of.custody = custody_of_secret(),
        "no accepted KMS root",
    ),
    (
        "custody that names another key than it is over",
        |of| of.custody["keys"][0]["kms_public_key"] = json!("02".repeat(33)),
        "no accepted KMS root",
    ),
    (
        "a receipt key beside the one in custody",
        |of| {
            let mut key = of.keyset.receipt_signing_keys[0].clone();
            key.public_key = "00".repeat(32);
            of.keyset.receipt_signing_keys.push(key);
        },
        "no accepted KMS root",
    ),
    (
        "TLS keys of another host",
        |of| of.keyset.tls_public_keys[0].domain = Some("other".to_owned()),
        "ties no TLS key",
    ),
];

fn flip(quote: &mut Value) {
    let mut text = quote.as_str().unwrap().to_owned().into_bytes();
    // The measurement of the firmware.
    text[500] = if text[500] == b'0' { b'1' } else { b'0' };
    *quote = json!(String::from_utf8(text).unwrap());
}

#[tokio::test]
async fn whatever_differs_is_not_verified() {
    let world = World::new().await;
    for (what, change, reason) in TAMPERED {
        let spki = world.service.spki;
        world.service.change(|parts| {
            *parts = Parts::new(&spki);
            change(parts);
        });
        // Failures are remembered for some seconds.
        world.time.advance(60);
        match world.channel(&world.route()).await {
            Err(Unverified::Failed(text)) => assert!(text.contains(reason), "{what}: {text}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(world.listed().is_empty() && world.records.kept.lock().is_empty());
    // It was the changes alone.
    let spki = world.service.spki;
    world.service.change(|parts| *parts = Parts::new(&spki));
    world.time.advance(60);
    world.channel(&world.route()).await.unwrap();
}

#[tokio::test]
async fn keys_under_a_root_that_is_not_accepted() {
    let world = World::new().await;
    let route = world.route_with(&json!({"accepted_kms_root_public_keys": ["03".repeat(33)]}));
    let refused = world.channel(&route).await.unwrap_err().to_string();
    assert!(refused.contains("no accepted KMS root"), "{refused}");
}

#[tokio::test]
async fn without_the_development_root_nothing_of_it_counts() {
    let (service, time) = (Service::start().await, Time::new());
    let verifier = cloister_verifier::Verifier::offline(TrustRoots::vendors(), time.clock());
    let world = World::trusting(service, time, Trust::of_verifier(verifier));
    let refused = world.channel(&world.route()).await.unwrap_err().to_string();
    assert!(refused.contains("not trusted here"), "{refused}");
}

#[tokio::test]
async fn a_certificate_of_nobody_is_not_asked() {
    let world = World::new().await;
    let route = world.route_with(&json!({"ca_file": null}));
    let refused = world.channel(&route).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be reached"), "{refused}");
    assert_eq!(world.service.asked(), 0);
}
