//! The two servers, each in a process of its own. They print their address when they can be asked.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cloister_kms::{Config, Kms};
use cloister_ra_tls::{AttestedKey, AuthoritySubject, CertificateIssuer, Evidence, KMS_USAGE, Subject};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::Outcome;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A KMS on what the parent prepared in `dir`.
pub(crate) async fn kms(dir: &Path, pccs: &str) -> Outcome<()> {
    let mut config = Config::new(dir.join("data"), LOOPBACK, LOOPBACK);
    config.agent_socket = dir.join("agent/socket");
    config.pccs_url = Some(pccs.parse()?);
    config.development_root = Some(dir.join("root.pem"));
    config.initial_rules = Some(dir.join("rules.json"));
    let kms = Kms::start(config).await?;
    println!("{}", kms.address());
    std::future::pending().await
}

/// A handler that reads a body and answers 32 bytes, on the same TLS and HTTP.
pub(crate) async fn bare() -> Outcome<()> {
    let listener = TcpListener::bind(LOOPBACK).await?;
    println!("{}", listener.local_addr()?);
    let acceptor = TlsAcceptor::from(Arc::new(tls()?));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request: Request<Incoming>| async move {
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[7; 32]))))
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn tls() -> Outcome<rustls::ServerConfig> {
    let (now, day) = (Timestamp::now(), SignedDuration::from_hours(24));
    let (not_before, not_after) = (now - day, now + day);
    let authority = AuthoritySubject {
        organization: None,
        common_name: "A root".to_owned(),
        app_id: None,
        usage: None,
        path_length: None,
        not_before,
        not_after,
    };
    let root = rcgen::KeyPair::generate()?.serialize_der();
    let root = CertificateIssuer::authority(&root, &authority, None)?;
    let key = AttestedKey::generate()?;
    let subject = Subject {
        usage: Some(KMS_USAGE.to_owned()),
        ..Subject::new("kms", vec!["kms.example".to_owned()], not_before, not_after)
    };
    let evidence = Evidence { quote: Some(vec![0; 5000]), event_log: "[]".to_owned(), attestation: None };
    let certificate = key.certificate(&evidence, &subject, Some(&root))?;
    Ok(cloister_ra_tls::server_config(&key, &certificate, &cloister_ra_tls::Clients::Anonymous)?)
}
