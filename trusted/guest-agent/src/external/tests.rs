//! The listener as others see it: over TCP, plain and through TLS.

use std::net::SocketAddr;

use cloister_evidence::Quote;
use cloister_guest_channel::NODE_TOKEN_HEADER;
use cloister_ra_tls::{CarriedEvidence, inspect};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio_rustls::TlsConnector;

use super::*;
use crate::attestation::testing::booted;

async fn open(public: bool, attestation: Option<Arc<Attestation>>) -> SocketAddr {
    open_with(public, attestation, quote_slots()).await
}

async fn open_with(public: bool, attestation: Option<Arc<Attestation>>, quotes: Semaphore) -> SocketAddr {
    open_before(Engine::at("/nonexistent/engine.sock"), public, attestation, quotes).await
}

async fn open_before(
    engine: Engine,
    public: bool,
    attestation: Option<Arc<Attestation>>,
    quotes: Semaphore,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let external = External {
        engine,
        public_logs: public,
        public_sysinfo: public,
        public_tcbinfo: public,
        node_token: NodeToken::from_bytes([1; 32]),
        attestation: watch::channel(attestation).1,
        quotes,
    };
    tokio::spawn(accept(listener, Arc::new(external)));
    address
}

async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<NodeToken>,
) -> (u16, String) {
    let token = token.map(|token| format!("{NODE_TOKEN_HEADER}: {}\r\n", token.header_value()));
    let token = token.unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    // A peer that closes without farewell is no error here.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get(address: SocketAddr, path: &str, token: Option<NodeToken>) -> (u16, Value) {
    let (status, body) = ask(TcpStream::connect(address).await.unwrap(), path, token).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[tokio::test]
async fn evidence_answers_a_challenge_by_either_name() {
    let address = open(true, Some(booted().await)).await;
    for path in ["/attestation?report_data=0x0102", "/attestation?reportData=0102"] {
        let (status, document) = get(address, path, None).await;
        let quote = hex::decode(document["quote"].as_str().unwrap()).unwrap();
        assert_eq!((status, &Quote::parse(&quote).unwrap().report_data()[..3]), (200, &[1, 2, 0][..]));
    }
    let (status, document) = get(address, "/attestation", None).await;
    assert_eq!((status, document["report_data"].as_str()), (200, Some("0".repeat(128).as_str())));
    let (status, refusal) =
        get(address, &format!("/attestation?report_data={}", "00".repeat(65)), None).await;
    assert_eq!((status, refusal["error"].as_str().unwrap().contains("too long")), (400, true));
}

#[tokio::test]
async fn the_outside_gets_no_evidence_for_keys_of_its_own() {
    let address = open(true, Some(booted().await)).await;
    let token = NodeToken::from_bytes([1; 32]);
    // What certificates carry evidence over: whoever got a quote over it for a key of his would be this CVM.
    let of_a_stranger = hex::encode(cloister_evidence::report_data::of_tls_key(b"a stranger's key"));
    for (challenge, status) in [(of_a_stranger, 400), ("ab".repeat(33), 400), ("ab".repeat(32), 200)] {
        for path in
            ["/attestation?report_data=", "/attestation?reportData=0x", "/node/attestation?report_data="]
        {
            let answer = get(address, &format!("{path}{challenge}"), Some(token.clone())).await;
            assert_eq!(answer.0, status, "{path}{challenge}");
        }
    }
}

#[tokio::test]
async fn private_measurements_are_the_nodes_alone() {
    let address = open(false, Some(booted().await)).await;
    let (right, wrong) = (NodeToken::from_bytes([1; 32]), NodeToken::from_bytes([2; 32]));
    for path in ["/attestation", "/node/attestation"] {
        assert_eq!(get(address, path, None).await.0, 403);
        assert_eq!(get(address, path, Some(wrong.clone())).await.0, 403);
        assert_eq!(get(address, path, Some(right.clone())).await.0, 200);
    }
    let public = open(true, Some(booted().await)).await;
    assert_eq!(get(public, "/node/attestation", None).await.0, 403);
}

#[tokio::test]
async fn the_outside_sees_info_and_version_and_no_other_method() {
    let address = open(true, Some(booted().await)).await;
    for path in ["/prpc/Worker.Info", "/prpc/Info"] {
        assert_eq!(get(address, path, None).await.1["app_name"], "grüße");
    }
    assert_eq!(get(address, "/prpc/Worker.Version", None).await.1["version"], env!("CARGO_PKG_VERSION"));
    for path in ["/prpc/GetTlsKey", "/prpc/Worker.EmitEvent?event=x", "/prpc/GetQuote", "/prpc/"] {
        let (status, refusal) = get(address, path, None).await;
        assert_eq!(status, 400, "{path}");
        assert!(refusal["error"].as_str().unwrap().starts_with("Service not found: "), "{path}");
    }
    for path in ["/GetQuote", "/EmitEvent", "/Info"] {
        assert_eq!(get(address, path, None).await.0, 404, "{path}");
    }
}

/// A compose file puts values of the sealed environment into commands.
#[tokio::test]
async fn containers_are_listed_without_what_they_were_told() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let engine = UnixListener::bind(&socket).unwrap();
    let containers = r#"[{"Id":"1f","Names":["/web"],"Image":"web:1","ImageID":"2e","Command":"serve --token=s3cr3t","Created":7,"State":"running","Status":"Up 3 seconds","Labels":{"token":"s3cr3t"}}]"#;
    tokio::spawn(async move {
        let (mut stream, _) = engine.accept().await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{containers}", containers.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let address = open_before(Engine::at(socket), false, None, quote_slots()).await;
    let (status, listed) = get(address, "/containers", Some(NodeToken::from_bytes([1; 32]))).await;
    assert_eq!(status, 200);
    assert_eq!(
        listed,
        serde_json::json!({"containers": [{
            "id": "1f", "names": ["/web"], "image": "web:1", "image_id": "2e",
            "created": 7, "state": "running", "status": "Up 3 seconds",
        }]})
    );
}

#[tokio::test]
async fn the_machine_is_told_to_the_node_and_to_all_only_where_the_document_says_so() {
    let (private, public) = (open(false, None).await, open(true, None).await);
    let (right, wrong) = (NodeToken::from_bytes([1; 32]), NodeToken::from_bytes([2; 32]));
    for (address, token, statuses) in [
        (private, None, (403, 403)),
        (private, Some(wrong.clone()), (403, 403)),
        (private, Some(right.clone()), (200, 200)),
        (public, None, (403, 200)),
        (public, Some(wrong), (403, 200)),
    ] {
        let stats = get(address, "/stats", token.clone()).await;
        let metrics = get(address, "/metrics", token).await;
        assert_eq!((stats.0, metrics.0), statuses);
        if stats.0 == 200 {
            let told: cloister_node_api::GuestStats = serde_json::from_value(stats.1).unwrap();
            assert!(told.total_memory > 0);
        }
        if metrics.0 == 200 {
            assert!(metrics.1.as_str().unwrap().contains("\nsystem_memory_total "));
        }
    }
}

#[tokio::test]
async fn evidence_for_the_signing_key_is_as_private_as_measurements() {
    let path = "/prpc/Worker.GetAttestationForAppKey";
    let private = open(false, Some(booted().await)).await;
    assert_eq!(get(private, path, None).await.0, 403);
    assert_eq!(get(private, path, Some(NodeToken::from_bytes([2; 32]))).await.0, 403);
    assert_eq!(get(private, path, Some(NodeToken::from_bytes([1; 32]))).await.0, 400);
    let public = open(true, Some(booted().await)).await;
    let (status, refusal) = get(public, path, None).await;
    assert_eq!((status, refusal["error"].as_str().unwrap().contains("no key provider")), (400, true));
    let busy = open_with(true, Some(booted().await), Semaphore::new(0)).await;
    assert_eq!(get(busy, path, None).await.0, 503);
}

#[tokio::test]
async fn methods_read_a_query_or_a_short_body() {
    let address = open(true, Some(booted().await)).await;
    let path = "/prpc/Worker.GetAttestationForAppKey";
    let post = async |body: String| {
        let length = body.len();
        let request = format!(
            "POST {path}?json HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let unsupported = "Unsupported algorithm: rsa";
    assert_eq!(get(address, &format!("{path}?algorithm=rsa"), None).await.1["error"], unsupported);
    assert!(post(r#"{"algorithm":"rsa"}"#.to_owned()).await.contains(unsupported));
    assert!(post("[]".to_owned()).await.contains("not a JSON object"));
    assert!(post(" ".repeat(5000)).await.contains("too long"));
}

#[tokio::test]
async fn before_the_boot_is_measured_there_is_no_evidence() {
    let address = open(true, None).await;
    for path in ["/attestation", "/prpc/Worker.Info"] {
        assert_eq!(get(address, path, None).await.0, 503);
    }
    assert_eq!(get(address, "/health", None).await.0, 200);
}

#[tokio::test]
async fn the_outside_waits_for_few_quotes_at_a_time() {
    let address = open_with(true, Some(booted().await), Semaphore::new(0)).await;
    assert_eq!(get(address, "/attestation", None).await.0, 503);
    assert_eq!(get(address, "/prpc/Worker.Info", None).await.0, 200);
}

#[tokio::test]
async fn the_same_port_speaks_tls_whose_certificate_carries_evidence_for_its_key() {
    let address = open(true, Some(booted().await)).await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("anything.example").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap().to_vec();
    assert_eq!(chain.len(), 2);
    let leaf = inspect(&chain[0]).unwrap();
    let CarriedEvidence::Tdx { quote, .. } = &leaf.evidence;
    let bound = cloister_evidence::report_data::of_tls_key(&leaf.public_key);
    assert_eq!(Quote::parse(quote).unwrap().report_data(), &bound);
    assert_eq!(ask(stream, "/health", None).await, (200, "ok\n".to_owned()));
}

/// What is checked is the certificate afterwards.
#[derive(Debug)]
struct AnyCertificate;

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _leaf: &rustls::pki_types::CertificateDer<'_>,
        _intermediates: &[rustls::pki_types::CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &rustls::pki_types::CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 is expected".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
