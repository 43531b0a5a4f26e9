//! The listener's certificate: of files that change, and of the gateway's making.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Bench, PATIENCE, client, start, tls};
use crate::error::chain;
use crate::lab::agent::TestAgent;
use crate::upstream::tls::by_pins;

fn roots(pem: &str) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pem::parse(pem).unwrap().into_contents().into()).unwrap();
    roots
}

#[tokio::test]
async fn another_certificate_is_shown_and_listed() {
    let write = |dir: &TempDir| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        made.cert.pem()
    };
    let mut first = String::new();
    let bench = Bench::new(|config, dir| {
        first = write(dir);
        let path = |name: &str| dir.path().join(name);
        config["tls"] = json!({ "certificate": path("cert.pem"), "key": path("key.pem") });
    })
    .await;
    let port = bench.running.address().port();
    let get = |pem: String| async move {
        let client = client(roots(&pem), Some(([127, 0, 0, 1], port).into()));
        client.get(format!("https://localhost:{port}/")).send().await
    };
    let response = get(first.clone()).await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
    // Who does not ask for HTTP/2 speaks HTTP/1.1.
    for asked in [vec![], vec![&b"http/1.1"[..]]] {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let connector = TlsConnector::from(Arc::new(tls(roots(&first), &asked)));
        let mut tls = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        tls.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let _ = tls.read_to_string(&mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let digest = response.headers()["x-aci-keyset-digest"].clone();
    let keys = || bench.running.gateway.notary.identity().keyset.tls_public_keys.clone();
    let before = keys();
    assert_eq!(before.len(), 1);
    let second = write(&bench.dir);
    bench.running.reload();
    let deadline = Instant::now() + PATIENCE;
    let response = loop {
        if let Ok(response) = get(second.clone()).await {
            break response;
        }
        assert!(Instant::now() < deadline, "the new certificate is not shown");
        tokio::task::yield_now().await;
    };
    assert_ne!(response.headers()["x-aci-keyset-digest"], digest);
    assert_ne!(keys(), before);
    assert!(get(first).await.is_err());
}

/// A gateway whose certificate is its own, and the hash of its key by the keyset.
async fn of_its_own(agent: Option<&TestAgent>) -> (Bench, [u8; 32]) {
    let bench = Bench::new(|config, _| {
        config["tls"] = json!({ "self_signed": true });
        config["agent_socket"] = json!(agent.map(|agent| &agent.socket));
    })
    .await;
    let keyset = bench.running.gateway.notary.identity().keyset.clone();
    let [key] = keyset.tls_public_keys.as_slice() else { panic!("{keyset:?}") };
    assert_eq!(key.domain, None);
    (bench, hex::decode(&key.spki_sha256).unwrap().try_into().unwrap())
}

/// The certificate that somebody is shown who asks for a name.
async fn shown(bench: &Bench, name: &str, config: rustls::ClientConfig) -> std::io::Result<Vec<u8>> {
    let stream = TcpStream::connect(bench.running.address()).await?;
    let name = name.to_owned().try_into().unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(tls.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

#[tokio::test]
async fn a_certificate_of_its_own_is_for_any_name_and_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let agent = TestAgent::serve(&dir);
    let (first, pin) = of_its_own(Some(&agent)).await;
    let named = shown(&first, "a.example", by_pins(&[pin]).unwrap()).await.unwrap();
    shown(&first, "a.example", by_pins(&[[0; 32]]).unwrap()).await.unwrap_err();
    // Without a name, which an address is not.
    shown(&first, "127.0.0.1", by_pins(&[pin]).unwrap()).await.unwrap();

    let (second, same) = of_its_own(Some(&agent)).await;
    assert_eq!(same, pin);
    assert_eq!(shown(&second, "A.example", by_pins(&[pin]).unwrap()).await.unwrap(), named);
    // Who kept it trusts it, for its name alone.
    let kept = || {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(named.clone().into()).unwrap();
        tls(roots, &[b"h2"])
    };
    assert_eq!(shown(&second, "a.example", kept()).await.unwrap(), named);
    shown(&second, "b.example", kept()).await.unwrap_err();

    // Keys that no application has end with the process.
    let ((one, _), (other, _)) = (of_its_own(None).await, of_its_own(None).await);
    let any = |bench: &Bench| bench.running.gateway.notary.identity().keyset.tls_public_keys.clone();
    assert_ne!(any(&one), any(&other));
    shown(&one, "a.example", kept()).await.unwrap_err();
}

#[tokio::test]
async fn without_a_key_for_tls_nothing_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let agent = TestAgent::serve(&dir);
    let (bench, _) = of_its_own(Some(&agent)).await;
    agent.refuse();
    let refused = chain(&start(&bench.file()).await.unwrap_err());
    assert!(refused.starts_with("tls: the guest agent gives no key for TLS: "), "{refused}");
}
