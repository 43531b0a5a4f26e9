//! TLS: whose certificates are taken, and what is said of others.

use std::sync::Arc;

use cloister_outbound::{Outbound, OutboundConfig, SendError, Stage, TlsError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::Duration;

use crate::names::Names;
use crate::server::{Reply, Server, post, post_within};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// What a test makes of a certificate.
type Change = fn(&mut CertificateParams);

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server's configuration, with a certificate for `hooks.example.com` that a test may change.
fn server_config(issuer: &Authority, change: impl Fn(&mut CertificateParams)) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let mut params =
        CertificateParams::new(vec!["hooks.example.com".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    change(&mut params);
    let certificate = params.signed_by(&key, issuer).unwrap();
    config(certificate.der().clone(), &key, rustls::ALL_VERSIONS)
}

fn config(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ServerConfig {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// Trusts one authority, and reaches `hooks.example.com` on loopback.
fn trusting(authority: &Authority) -> Outbound {
    let config = OutboundConfig {
        allowed: vec!["127.0.0.0/8".parse().unwrap()],
        plain_http_to_allowed: false,
        extra_roots: vec![authority.der().clone()],
    };
    let names = ["hooks.example.com", "other.example.com"].map(|name| (name, &["127.0.0.1"][..]));
    Outbound::new(config, Names::of(&names))
}

#[tokio::test]
async fn the_name_is_asked_for_and_proved_whatever_address_it_has() {
    let authority = authority();
    let server = Server::with_tls(server_config(&authority, |_| {}), |_, _| Reply::ok("sealed")).await;
    let client = trusting(&authority);
    let port = server.address.port();
    for host in ["hooks.example.com", "hooks.example.com.", "HOOKS.example.com", "127.0.0.1"] {
        let answer = post(&client, &format!("https://{host}:{port}/")).await;
        assert_eq!(answer.map(|answer| answer.status), Ok(200), "{host}");
    }
    assert_eq!(server.opened(), 3, "one name in two cases has one connection");
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_named() {
    let trusted = authority();
    let cases: [(&Authority, Change, TlsError); 4] = [
        (&authority(), |_| {}, TlsError::UnknownIssuer),
        (&trusted, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1), TlsError::Expired),
        (&trusted, |params| params.not_before = rcgen::date_time_ymd(4000, 1, 1), TlsError::NotYetValid),
        (&trusted, |params| params.subject_alt_names.clear(), TlsError::WrongName),
    ];
    for (issuer, change, expected) in cases {
        let server = Server::with_tls(server_config(issuer, change), |_, _| Reply::ok("")).await;
        let url = format!("https://hooks.example.com:{}/", server.address.port());
        assert_eq!(post(&trusting(&trusted), &url).await, Err(SendError::Tls(expected)));
        assert!(server.requests().is_empty());
    }
    let server = Server::with_tls(server_config(&trusted, |_| {}), |_, _| Reply::ok("")).await;
    let url = format!("https://other.example.com:{}/", server.address.port());
    assert_eq!(post(&trusting(&trusted), &url).await, Err(SendError::Tls(TlsError::WrongName)));
}

#[tokio::test]
async fn a_self_signed_certificate_is_not_taken() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["hooks.example.com".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let server =
        Server::with_tls(config(certificate, &key, rustls::ALL_VERSIONS), |_, _| Reply::ok("")).await;
    let url = format!("https://hooks.example.com:{}/", server.address.port());
    assert_eq!(post(&trusting(&authority()), &url).await, Err(SendError::Tls(TlsError::UnknownIssuer)));
}

#[tokio::test]
async fn tls_1_2_is_enough() {
    let authority = authority();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["hooks.example.com".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap().der().clone();
    let config = config(certificate, &key, &[&rustls::version::TLS12]);
    let server = Server::with_tls(config, |_, _| Reply::ok("")).await;
    let url = format!("https://hooks.example.com:{}/", server.address.port());
    assert_eq!(post(&trusting(&authority), &url).await.map(|answer| answer.status), Ok(200));
}

#[tokio::test]
async fn a_port_that_speaks_something_else_is_named() {
    let authority = authority();
    for (bytes, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], TlsError::NotTls),
        (b"SSH-2.0-OpenSSH_9.2\r\n", TlsError::NotTls),
        // A fatal alert: no version in common.
        (b"\x15\x03\x03\x00\x02\x02\x46", TlsError::Alert),
        (b"", TlsError::Alert),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://hooks.example.com:{}/", listener.local_addr().unwrap().port());
        let client = trusting(&authority);
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            stream
        };
        let (sent, _stream) = tokio::join!(post(&client, &url), serve);
        assert_eq!(sent, Err(SendError::Tls(expected)));
    }
}

#[tokio::test]
async fn a_handshake_that_hangs_costs_the_time_that_was_given() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://hooks.example.com:{}/", listener.local_addr().unwrap().port());
    let sent = post_within(&trusting(&authority()), &url, Duration::from_secs(1)).await;
    assert_eq!(sent, Err(SendError::Timeout(Stage::Handshake)));
}
