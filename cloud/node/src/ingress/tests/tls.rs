use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::support::{
    APP_A, APP_B, Apps, VM_A, VM_B, check_switched, echo_app, exchange_on, get, ingress, issue, raw_app,
    soon, switch, tls, trusting, websocket_like,
};
use crate::ingress::{Limits, server_config};

#[tokio::test]
async fn tls_ends_here_and_feeds_the_same_service() {
    let (ingress, client) =
        ingress(Apps::default().with(VM_A, 80, echo_app("a").await), Limits::default()).await;
    let host = format!("{APP_A}.apps.localhost");
    let stream = tls(ingress.https_address().unwrap(), client, &host).await.unwrap();
    let answer = exchange_on(stream, &get(&host)).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("x-forwarded-proto: https\n"), "{answer}");
}

#[tokio::test]
async fn upgraded_connections_carry_anything_over_tls() {
    let apps = Apps::default().with(VM_A, 80, websocket_like().await);
    let (ingress, client) = ingress(apps, Limits::default()).await;
    let host = format!("{APP_A}.apps.localhost");
    let mut stream = tls(ingress.https_address().unwrap(), client, &host).await.unwrap();
    stream.write_all(&switch(&host)).await.unwrap();
    check_switched(stream).await;
}

/// Sends requests over one HTTP/2 connection and gives status and body of each.
async fn http2(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    uris: &[String],
) -> Vec<(u16, String)> {
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for uri in uris {
        let request = http::Request::get(uri.as_str()).header("te", "trailers");
        let request = request.header("cookie", "a=1").header("cookie", "b=2").body(Empty::<Bytes>::new());
        let request = request.unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        let status = response.status().as_u16();
        let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
        answers.push((status, String::from_utf8(body.to_vec()).unwrap()));
    }
    answers
}

#[tokio::test]
async fn http2_from_the_client_is_routed_by_request_in_either_version_to_the_app() {
    let apps = Apps::default().with(VM_A, 80, echo_app("a").await).with(VM_B, 50051, echo_app("b").await);
    let (ingress, mut client) = ingress(apps, Limits::default()).await;
    client.alpn_protocols = vec![b"h2".to_vec()];
    let first = format!("{APP_A}.apps.localhost");
    let stream = tls(ingress.https_address().unwrap(), client, &first).await.unwrap();
    let uris = [
        format!("https://{first}/one"),
        format!("https://{APP_B}-50051g.apps.localhost:8443/two"),
        format!("https://{APP_B}s.apps.localhost/three"),
    ];
    let answers = http2(stream, &uris).await;
    let [(200, one), (200, two), (421, _)] = &answers[..] else { panic!("{answers:?}") };
    assert!(
        one.starts_with("app a\nHTTP/1.1 GET /one\n") && one.contains(&format!("host: {first}\n")),
        "{one}"
    );
    assert!(one.contains("te: trailers\n") && one.contains("cookie: a=1; b=2\n"), "{one}");
    let authority = format!("http://{APP_B}-50051g.apps.localhost/two");
    assert!(two.starts_with(&format!("app b\nHTTP/2.0 GET {authority}\n")), "{two}");
    assert!(two.contains(&format!("x-forwarded-host: {APP_B}-50051g.apps.localhost:8443\n")), "{two}");
    assert!(two.contains("cookie: a=1\ncookie: b=2\n"), "{two}");
}

#[tokio::test]
async fn names_with_s_reach_tls_inside_the_guest() {
    let name = format!("{APP_A}-8443s.apps.localhost");
    let (credentials, authority) = issue(std::slice::from_ref(&name));
    let acceptor = TlsAcceptor::from(server_config(&credentials).unwrap());
    let app = raw_app(move |stream| {
        let acceptor: TlsAcceptor = acceptor.clone();
        async move {
            let (mut read, mut write) = tokio::io::split(acceptor.accept(stream).await.unwrap());
            let _ = tokio::io::copy(&mut read, &mut write).await;
            let _ = write.shutdown().await;
        }
    })
    .await;
    let (ingress, ingress_trust) = ingress(Apps::default().with(VM_A, 8443, app), Limits::default()).await;
    let address = ingress.https_address().unwrap();
    assert!(
        tls(address, ingress_trust.clone(), &name).await.is_err(),
        "the guest's certificate, not the ingress'"
    );
    let mut stream = tls(address, trusting(authority), &name).await.unwrap();
    let sent = Arc::new(vec![7u8; 300_000]);
    let mut echoed = vec![0; sent.len()];
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let (sending, _) =
        soon(async { tokio::join!(write.write_all(&sent), read.read_exact(&mut echoed)) }).await;
    sending.unwrap();
    assert_eq!(&echoed, &*sent);

    for (name, alert) in [
        (format!("{}s.apps.localhost", "c".repeat(40)), "UnrecognisedName"),
        (format!("{APP_A}-1s.apps.localhost"), "InternalError"),
    ] {
        let error = tls(address, ingress_trust.clone(), &name).await.unwrap_err().to_string();
        assert!(error.contains(alert), "{name}: {error}");
    }
}
