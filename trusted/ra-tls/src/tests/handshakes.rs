use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cloister_development_tee::{SEPT_VE_DISABLE, TdReport};
use cloister_evidence::RuntimeEvent;
use cloister_verifier::{
    Clock, CollateralError, InProcess, Policy, TcbStatus, TrustRoot, TrustRoots, Verifier,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::lab::{APP, Holder, Lab, app, days, events, json, measured, now, subject};
use crate::{
    Acceptor, AttestedKey, Clients, Connector, Evidence, PeerIdentity, PeerPolicy, PeerVerifier,
    client_config, server_config,
};

/// What both ends of a connection saw.
pub(super) struct Outcome {
    /// Who the client is, or why the server refused.
    server: Result<Option<Arc<PeerIdentity>>, String>,
    /// Who the server is, or why the client refused or was refused.
    client: Result<Arc<PeerIdentity>, String>,
}

pub(super) fn chain_of(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

pub(super) fn name() -> ServerName<'static> {
    ServerName::try_from("app.example").unwrap()
}

pub(super) fn acceptor(holder: &Holder, clients: &Clients) -> Acceptor {
    Acceptor::new(server_config(&holder.key, &holder.certificate, clients).unwrap(), clients)
}

pub(super) fn connector(servers: &PeerVerifier, own: Option<&Holder>) -> Connector {
    let own = own.map(|own| (&own.key, &own.certificate));
    Connector::new(client_config(servers, own).unwrap(), servers)
}

/// A handshake over loopback, and one byte from the server: a client learns only then that it is refused.
async fn shake(acceptor: &Acceptor, connector: &Connector) -> Outcome {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut accepted = acceptor.accept(stream).await.map_err(|error| chain_of(&error))?;
        accepted.stream.write_all(b"!").await.map_err(|error| chain_of(&error))?;
        accepted.stream.shutdown().await.ok();
        Ok(accepted.peer)
    };
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut connected = connector.connect(name(), stream).await.map_err(|error| chain_of(&error))?;
        connected.stream.read_u8().await.map_err(|error| error.to_string())?;
        Ok(connected.peer)
    };
    let (server, client) = tokio::join!(server, client);
    Outcome { server, client }
}

fn any_app(lab: &Lab) -> PeerVerifier {
    PeerVerifier::new(lab.verifier(), PeerPolicy::any_app(Policy::default()))
}

/// A client that verifies with `servers` meets `holder`: what it says, and what the server hears.
async fn refused_server(servers: &PeerVerifier, holder: &Holder) -> (String, String) {
    let outcome = shake(&acceptor(holder, &Clients::Anonymous), &connector(servers, None)).await;
    (outcome.client.unwrap_err(), outcome.server.unwrap_err())
}

#[tokio::test]
async fn both_ends_learn_who_the_other_is() {
    let lab = Lab::new();
    let (server, client) = (lab.holder(1), lab.holder(2));
    let clients =
        Clients::Required(PeerVerifier::new(lab.verifier(), PeerPolicy::app(Policy::default(), app(2))));
    let servers = PeerVerifier::new(lab.verifier(), PeerPolicy::app(Policy::default(), app(1)));
    let outcome = shake(&acceptor(&server, &clients), &connector(&servers, Some(&client))).await;
    let (of_server, of_client) = (outcome.client.unwrap(), outcome.server.unwrap().unwrap());
    for (peer, number) in [(of_server, 1), (of_client, 2)] {
        assert_eq!((peer.trust_root, peer.tcb_status), (TrustRoot::Development, TcbStatus::UpToDate));
        assert_eq!(peer.app.app_id, Some(app(number)));
        assert_eq!(peer.app.compose_hash.unwrap().as_bytes(), &[number; 32]);
        assert_eq!(peer.app.instance_id.unwrap().as_bytes(), &[9; 20]);
        assert_eq!(peer.registers, measured(&events(number)).1);
        assert!(peer.valid_until > now());
    }
}

#[tokio::test]
async fn clients_without_evidence_pass_only_where_they_may() {
    let lab = Lab::new();
    let server = lab.holder(APP);
    let anonymous = connector(&any_app(&lab), None);
    let known = lab.holder(2);
    let known = connector(&any_app(&lab), Some(&known));
    for (clients, passes, is_known) in [
        (Clients::Anonymous, true, false),
        (Clients::Optional(any_app(&lab)), true, true),
        (Clients::Required(any_app(&lab)), false, true),
    ] {
        let acceptor = acceptor(&server, &clients);
        let outcome = shake(&acceptor, &anonymous).await;
        assert_eq!(outcome.server.is_ok_and(|peer| peer.is_none()), passes, "{clients:?}");
        if !passes {
            assert!(outcome.client.unwrap_err().contains("CertificateRequired"));
        }
        let outcome = shake(&acceptor, &known).await;
        assert_eq!(outcome.server.unwrap().is_some(), is_known, "{clients:?}");
    }
}

#[tokio::test]
async fn a_refused_client_hears_it_and_the_server_says_why() {
    let lab = Lab::new();
    let server = lab.holder(APP);
    let client = lab.holder(2);
    let only_three = PeerPolicy::app(Policy::default(), app(3));
    for clients in [
        Clients::Required(PeerVerifier::new(lab.verifier(), only_three.clone())),
        Clients::Optional(PeerVerifier::new(lab.verifier(), only_three)),
    ] {
        let outcome = shake(&acceptor(&server, &clients), &connector(&any_app(&lab), Some(&client))).await;
        let reason = outcome.server.unwrap_err();
        assert!(reason.contains("the peer is application 0202"), "{reason}");
        let heard = outcome.client.unwrap_err();
        assert!(heard.contains("CertificateUnknown"), "{heard}");
    }
}

#[tokio::test]
async fn evidence_that_does_not_hold_is_refused_with_a_reason_and_an_alert() {
    let lab = Lab::new();
    let servers = any_app(&lab);
    let key = || AttestedKey::generate().unwrap();
    let legacy = |evidence: &Evidence| Evidence { attestation: None, ..evidence.clone() };
    let tampered = |at: usize| {
        let key = key();
        let mut evidence = legacy(&lab.evidence(&key, APP));
        evidence.quote.as_mut().unwrap()[at] ^= 1;
        Holder::with(key, &evidence)
    };
    let with_report = |change: &dyn Fn(&mut TdReport)| {
        let key = key();
        let (log, registers) = measured(&events(APP));
        let mut report = TdReport::new(registers, [0; 48], key.report_data());
        change(&mut report);
        let evidence =
            Evidence { quote: Some(lab.report(&report)), event_log: json(&log), attestation: None };
        Holder::with(key, &evidence)
    };
    let measuring = |events: &[RuntimeEvent]| {
        let key = key();
        let (log, registers) = measured(events);
        let evidence =
            Evidence { quote: Some(lab.quote(registers, &key)), event_log: json(&log), attestation: None };
        Holder::with(key, &evidence)
    };
    let mut twice = events(APP);
    twice.insert(2, RuntimeEvent::new("app-id", [8; 20]));
    let mut launched_for = [0; 48];
    launched_for[..2].copy_from_slice(&[1, 0xAB]);
    let cases = [
        ("another key", Holder::with(key(), &lab.evidence(&key(), APP)), "belongs to another key"),
        ("MRTD", tampered(184), "signature"),
        ("RTMR3", tampered(520), "signature"),
        ("report data", tampered(568), "signature"),
        ("debug", with_report(&|report| report.td_attributes = SEPT_VE_DISABLE | 1), "debug mode"),
        ("other root", Lab::new().holder(APP), "root certificate that is not trusted"),
        (
            "launch",
            with_report(&|report| report.mr_config_id = launched_for),
            "launched for another application",
        ),
        ("reordered", lab.holder_with_log(|log| log.swap(5, 6)), "does not lead to RTMR3"),
        ("doubled", lab.holder_with_log(|log| log.insert(5, log[5].clone())), "does not lead to RTMR3"),
        ("left out", lab.holder_with_log(|log| drop(log.pop())), "does not lead to RTMR3"),
        ("all left out", lab.holder_with_log(Vec::clear), "does not lead to RTMR3"),
        ("payload", lab.holder_with_log(|log| log[5].event_payload = "08".repeat(20)), "digest is not that"),
        ("boot event", lab.holder_with_log(|log| log[0].digest = "00".repeat(48)), "does not lead to RTMR0"),
        (
            "payload and digest",
            lab.holder_with_log(|log| log[5] = RuntimeEvent::new("app-id", [8; 20]).entry()),
            "does not lead to RTMR3",
        ),
        ("measured twice", measuring(&twice), "app-id occurs twice"),
    ];
    for (what, holder, reason) in cases {
        let (said, heard) = refused_server(&servers, &holder).await;
        assert!(said.contains(reason), "{what}: {said}");
        assert!(heard.contains("CertificateUnknown"), "{what}: {heard}");
    }
}

#[tokio::test]
async fn a_certificate_without_evidence_is_refused() {
    let lab = Lab::new();
    let pair = rcgen::KeyPair::generate().unwrap();
    let plain = rcgen::CertificateParams::new(vec!["app.example".to_owned()]).unwrap();
    let pem = plain.self_signed(&pair).unwrap().pem();
    let holder = Holder {
        key: AttestedKey::from_pem(&pair.serialize_pem()).unwrap(),
        certificate: crate::AttestedCertificate::from_pem_chain(&pem).unwrap(),
    };
    let (said, heard) = refused_server(&any_app(&lab), &holder).await;
    assert!(said.contains("carries no evidence"), "{said}");
    assert!(heard.contains("CertificateUnknown"), "{heard}");
}

#[tokio::test]
async fn expired_certificates_and_collateral_are_refused() {
    let lab = Lab::new();
    let key = AttestedKey::generate().unwrap();
    let evidence = lab.evidence(&key, APP);
    for (from, until) in [(-3, -2), (2, 3)] {
        let mut subject = subject();
        (subject.not_before, subject.not_after) = (now() + days(from), now() + days(until));
        let certificate = key.certificate(&evidence, &subject, None).unwrap();
        let holder = Holder { key: AttestedKey::from_pem(&key.private_key_pem()).unwrap(), certificate };
        let (said, heard) = refused_server(&any_app(&lab), &holder).await;
        assert!(said.contains(if until < 0 { "Expired" } else { "NotValidYet" }), "{said}");
        assert!(heard.contains("CertificateExpired"), "{heard}");
    }
    // The vendor's word about the platform is older than it may be.
    let stale = lab.collateral(|options| {
        options.next_update = now() - days(1);
        options.revocations_next_update = now() - days(1);
        options.issued_at = now() - days(40);
    });
    let source = InProcess::new(move |_| Ok::<_, CollateralError>(stale.clone()));
    let servers = PeerVerifier::new(
        lab.verifier_with(source, Clock::fixed(now())),
        PeerPolicy::any_app(Policy::default()),
    );
    let (said, _) = refused_server(&servers, &lab.holder(APP)).await;
    assert!(said.contains("collateral for 2026-10-12"), "{said}");
}

#[tokio::test]
async fn policies_decide() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let outdated = lab.collateral(|options| options.status = "OutOfDate".to_owned());
    let source = InProcess::new(move |_| Ok::<_, CollateralError>(outdated.clone()));
    let outdated = lab.verifier_with(source, Clock::fixed(now()));
    let production = Verifier::offline(TrustRoots::vendors().in_production().unwrap(), Clock::fixed(now()));
    let mut other_compose = PeerPolicy::any_app(Policy::default());
    other_compose.compose_hashes = Some([cloister_app_compose::ComposeHash::from_bytes([1; 32])].into());
    let never = PeerPolicy::any_app(Policy::default()).and(|_| Err("not today".to_owned()));
    for (verifier, policy, reason) in [
        (lab.verifier(), PeerPolicy::app(Policy::default(), app(1)), "application 0707"),
        (lab.verifier(), other_compose, "compose document 0707"),
        (lab.verifier(), never, "not today"),
        (outdated, PeerPolicy::default(), "TCB status is OutOfDate"),
        (production, PeerPolicy::default(), "root certificate that is not trusted"),
        (
            lab.verifier(),
            PeerPolicy::any_app(Policy { production: true, ..Policy::default() }),
            "only a development root vouches",
        ),
    ] {
        let (said, heard) = refused_server(&PeerVerifier::new(verifier, policy), &holder).await;
        assert!(said.contains(reason), "{said}");
        assert!(heard.contains("CertificateUnknown"), "{heard}");
    }
}

#[tokio::test]
async fn there_is_only_tls_1_3() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let acceptor = acceptor(&holder, &Clients::Anonymous);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let old = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(old)).connect(name(), stream).await.unwrap_err()
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        chain_of(&acceptor.accept(stream).await.unwrap_err())
    };
    let (heard, said) = tokio::join!(client, server);
    assert!(heard.to_string().contains("ProtocolVersion"), "{heard}");
    assert!(said.contains("the TLS handshake failed"), "{said}");
}

/// A verifier that counts how often it really verifies.
fn counting(verifier: Verifier) -> (PeerVerifier, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let policy = PeerPolicy::any_app(Policy::default()).and(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    (PeerVerifier::new(verifier, policy), count)
}

#[tokio::test]
async fn a_known_peer_is_not_verified_again_until_it_is_forgotten() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let time = Arc::new(parking_lot::Mutex::new(now()));
    let shared = Arc::clone(&time);
    let (servers, count) = counting(lab.verifier_at(Clock::from_fn(move || *shared.lock())));
    let acceptor = acceptor(&holder, &Clients::Anonymous);
    let connector = connector(&servers, None);
    for _ in 0..3 {
        shake(&acceptor, &connector).await.client.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    *time.lock() = now() + jiff::SignedDuration::from_mins(6);
    shake(&acceptor, &connector).await.client.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // Back in time, what was found out later does not count.
    *time.lock() = now();
    shake(&acceptor, &connector).await.client.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // Memory does not outlast the certificate.
    *time.lock() = now() + days(1) + jiff::SignedDuration::from_secs(1);
    shake(&acceptor, &connector).await.client.unwrap_err();
}

#[tokio::test]
async fn many_known_peers_are_kept_and_each_is_who_it_is() {
    let lab = Lab::new();
    let (servers, count) = counting(lab.verifier());
    let holders: Vec<Holder> = (0..8).map(|number| lab.holder(number)).collect();
    for _ in 0..2 {
        for (number, holder) in (0..).zip(&holders) {
            let peer = servers.chain(holder.certificate.chain(), crate::Role::Server).unwrap();
            assert_eq!(peer.app.app_id, Some(app(number)));
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), holders.len());
}

#[tokio::test]
async fn sessions_are_not_resumed() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let acceptor = acceptor(&holder, &Clients::Optional(any_app(&lab)));
    let connector = connector(&any_app(&lab), Some(&holder));
    for _ in 0..3 {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (accepted, connected) = tokio::join!(acceptor.accept(near), connector.connect(name(), far));
        let (mut accepted, mut connected) = (accepted.unwrap(), connected.unwrap());
        accepted.stream.write_all(b"!").await.unwrap();
        // Whatever came before the byte, such as tickets, has been read too.
        connected.stream.read_u8().await.unwrap();
        assert_eq!(connected.stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}

#[tokio::test]
async fn a_copied_certificate_is_worth_nothing_without_its_key() {
    let lab = Lab::new();
    let (owner, thief) = (lab.holder(APP), AttestedKey::generate().unwrap());
    let key = rustls::crypto::ring::sign::any_supported_type(&thief.private_key_der()).unwrap();
    let stolen = rustls::sign::CertifiedKey::new(owner.certificate.chain().to_vec(), key);
    let mut config = server_config(&owner.key, &owner.certificate, &Clients::Anonymous).unwrap();
    config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(stolen));
    let outcome = shake(&Acceptor::new(config, &Clients::Anonymous), &connector(&any_app(&lab), None)).await;
    assert!(outcome.client.unwrap_err().contains("BadSignature"));
    assert!(outcome.server.unwrap_err().contains("DecryptError"));
}
