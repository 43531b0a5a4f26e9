//! Who gets past the door.

use cloister_development_tee::{CollateralOptions, Ppid};
use cloister_kms_api::KmsErrorCode::{self, InternalError, MeasurementNotFound, Unauthorized};
use cloister_kms_api::log::Event;
use cloister_kms_api::method;
use cloister_ra_tls::{AttestedKey, AuthorityConnector, AuthorityPolicy};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;

use super::lab::{Holder, Lab, Machine, Options, Word, days, now};

/// What a caller is told, whatever it asks; and that it is told once.
async fn refused(lab: &Lab, holder: Option<&Holder>) -> (KmsErrorCode, String) {
    let mut told = Vec::new();
    for path in [method::META, method::KEY, "/anything"] {
        let mut client = lab.connect(holder).await;
        let answer = client.post(path, &json!({"name": "a", "vm_config": ""})).await;
        told.push((answer.code(), answer.reason()));
        let again = super::lab::post(path, &json!({}));
        assert!(client.try_send(again).await.is_err(), "the connection ends");
    }
    assert!(told.iter().all(|answer| *answer == told[0]), "{told:?}");
    told.remove(0)
}

async fn refusals(lab: &Lab) -> u64 {
    let events = lab.events().await;
    events.iter().map(|event| if let Event::Refusal { count, .. } = event { *count } else { 0 }).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_without_a_certificate_are_told_so_and_recorded_together() {
    let lab = Lab::new().await;
    let (code, reason) = refused(&lab, None).await;
    assert_eq!((code, reason.as_str()), (Unauthorized, "the peer showed no certificate"));
    let events = lab.events().await;
    let counts: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Refusal { asked: None, code: Unauthorized, count, .. } => Some(*count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [1, 2], "the first at once, the others together");
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_must_be_there_and_over_the_key_of_the_certificate() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    let (key, other) = (AttestedKey::generate().unwrap(), AttestedKey::generate().unwrap());
    let evidence = machine.evidence(&lab.platform, &other);
    let holder = Holder::new(key, &evidence, now() - days(1), now() + days(1));
    let (code, reason) = refused(&lab, Some(&holder)).await;
    assert_eq!(code, Unauthorized);
    assert!(reason.contains("another key"), "{reason}");

    // A plain certificate, of an authority of the caller's own.
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["guest".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let plain = params.self_signed(&pair).unwrap();
    let plain = Holder {
        key: AttestedKey::from_pem(&pair.serialize_pem()).unwrap(),
        certificate: cloister_ra_tls::AttestedCertificate::from_pem_chain(&plain.pem()).unwrap(),
    };
    let (code, reason) = refused(&lab, Some(&plain)).await;
    assert_eq!((code, reason.as_str()), (Unauthorized, "the certificate carries no evidence"));
    assert!(refusals(&lab).await >= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_hold_in_their_time_only() {
    let lab = Lab::new().await;
    for (from, until) in [(-2, -1), (1, 2)] {
        let key = AttestedKey::generate().unwrap();
        let evidence = Machine::of(1).evidence(&lab.platform, &key);
        let holder = Holder::new(key, &evidence, now() + days(from), now() + days(until));
        let (code, reason) = refused(&lab, Some(&holder)).await;
        assert_eq!(code, Unauthorized);
        assert!(reason.contains("does not hold"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_platforms_and_old_collateral_are_refused() {
    let expired = |options: &mut CollateralOptions, _: Ppid| {
        options.issued_at = now() - days(40);
        options.next_update = now() - days(1);
        options.revocations_next_update = now() - days(1);
    };
    let revoked = |options: &mut CollateralOptions, platform: Ppid| {
        options.revoked_platforms = vec![platform];
    };
    let signer = |options: &mut CollateralOptions, _: Ppid| options.tcb_signing_revoked = true;
    let changes: [Word; 3] = [Box::new(expired), Box::new(revoked), Box::new(signer)];
    for collateral in changes {
        let lab = Lab::with(Options { collateral, ..Options::default() }).await;
        let machine = Machine::of(1);
        lab.allow(&machine).await;
        let (code, reason) = refused(&lab, Some(&machine.holder(&lab.platform))).await;
        assert_eq!(code, Unauthorized, "{reason}");
        assert!(!lab.events().await.iter().any(|event| matches!(event, Event::Release { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_nobody_can_judge_is_told_to_ask_again_and_gets_nothing() {
    let lab = Lab::with(Options { outage: true, ..Options::default() }).await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let (code, reason) = refused(&lab, Some(&machine.holder(&lab.platform))).await;
    assert_eq!(code, InternalError);
    assert!(reason.contains("could not be verified now") && reason.contains("cannot be reached"), "{reason}");
    assert!(!lab.events().await.iter().any(|event| matches!(event, Event::Release { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_out_of_date_is_let_in_by_the_rules_only() {
    let options = |allowed: &[&str]| Options {
        collateral: Box::new(|options, _| options.status = "SWHardeningNeeded".to_owned()),
        rules: cloister_kms_api::admin::PlatformRules {
            allowed_tcb_statuses: allowed.iter().map(|status| (*status).to_owned()).collect(),
            ..Default::default()
        },
        ..Options::default()
    };
    let machine = Machine::of(1);
    let lab = Lab::with(options(&["UpToDate"])).await;
    lab.allow(&machine).await;
    let told = lab.machine(&machine).await.app_key(&machine.vm_config()).await;
    assert_eq!(told.code(), Unauthorized, "{}", told.reason());
    let lab = Lab::with(options(&["UpToDate", "SWHardeningNeeded"])).await;
    lab.allow(&machine).await;
    assert_eq!(lab.machine(&machine).await.app_key(&machine.vm_config()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn production_takes_no_development_evidence() {
    let lab = Lab::with(Options { production: true, ..Options::default() }).await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let (code, reason) = refused(&lab, Some(&machine.holder(&lab.platform))).await;
    assert_eq!(code, Unauthorized);
    assert!(reason.contains("not hardware"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_of_another_vendor_is_refused() {
    let (lab, other) = (Lab::new().await, Lab::new().await);
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let (code, _) = refused(&lab, Some(&machine.holder(&other.platform))).await;
    assert_eq!(code, Unauthorized);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_registered_gets_nothing() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let mut changed = machine.clone();
    changed.compose_hash[31] ^= 1;
    for (machine, code) in [(Machine::of(2), MeasurementNotFound), (changed, MeasurementNotFound)] {
        let mut client = lab.machine(&machine).await;
        assert_eq!(client.app_key(&machine.vm_config()).await.code(), code);
        assert_eq!(client.key("name", &machine.vm_config()).await.code(), code);
    }
    // Documents of another image than the one that was booted, none at all, and nonsense.
    let other = Machine { kernel: "another kernel", ..machine.clone() };
    for vm_config in [other.vm_config(), String::new(), "{}".to_owned(), "x".repeat(300 << 10)] {
        let told = lab.machine(&machine).await.app_key(&vm_config).await;
        assert_eq!(told.code(), Unauthorized, "{}", told.reason());
    }
    let told = lab.machine(&other).await.app_key(&machine.vm_config()).await;
    assert_eq!(told.code(), Unauthorized);
    assert!(told.reason().contains("RTMR1"), "{}", told.reason());
    assert!(!lab.events().await.iter().any(|event| matches!(event, Event::Release { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_images_and_devices_only() {
    use cloister_kms_api::Hex;
    let machine = Machine::of(1);
    let none = Some(vec![Hex::from([1_u8; 32])]);
    let base = cloister_kms_api::admin::PlatformRules::default;
    for (rules, code) in [
        (cloister_kms_api::admin::PlatformRules { os_images: none.clone(), ..base() }, MeasurementNotFound),
        (cloister_kms_api::admin::PlatformRules { devices: none, ..base() }, Unauthorized),
    ] {
        let lab = Lab::with(Options { rules, ..Options::default() }).await;
        lab.allow(&machine).await;
        assert_eq!(lab.machine(&machine).await.app_key(&machine.vm_config()).await.code(), code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_what_vouches_for_its_evidence() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let mut client = lab.machine(&machine).await;
    assert_eq!(client.key("a", &machine.vm_config()).await.status, 200);
    lab.set_clock(now() + days(35));
    let told = client.key("a", &machine.vm_config()).await;
    assert_eq!(told.code(), Unauthorized);
    assert!(told.reason().contains("expired"), "{}", told.reason());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_2_it_is_the_same() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let holder = machine.holder(&lab.platform);
    let body = json!({"name": "a", "vm_config": machine.vm_config()});
    for (own, status) in [(Some(&holder), 200), (None, 401)] {
        let shown = own.map(|own| (&own.key, &own.certificate));
        let policy = AuthorityPolicy::kms(None);
        let connector = AuthorityConnector::new(policy, shown, &["h2"], now).unwrap();
        let stream = TcpStream::connect(lab.release).await.unwrap();
        let name = ServerName::try_from("kms.example").unwrap();
        let (stream, _) = connector.connect(name, stream).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..if status == 200 { 20 } else { 1 } {
            let (mut sender, request) = (sender.clone(), super::lab::post(method::KEY, &body));
            asked.spawn(async move { sender.send_request(request).await.unwrap().status() });
        }
        assert!(asked.join_all().await.iter().all(|answer| *answer == status));
        if status == 401 {
            // The other side ends it although the caller would go on.
            let ended = tokio::time::timeout(std::time::Duration::from_secs(20), connection).await;
            assert!(ended.is_ok());
        }
    }
}
