use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{
    APP_A, APP_B, Apps, GONE, ONE_TOO_MANY, VM_A, VM_B, check_switched, echo_app, exchange, get, ingress,
    raw_app, read_response, soon, switch, websocket_like,
};
use crate::ingress::Limits;

async fn two_apps() -> Apps {
    Apps::default().with(VM_A, 80, echo_app("a").await).with(VM_A, 8080, echo_app("a8080").await).with(
        VM_B,
        80,
        echo_app("b").await,
    )
}

#[tokio::test]
async fn each_name_reaches_its_app_and_port() {
    let (ingress, _) = ingress(two_apps().await, Limits::default()).await;
    for (host, app) in [
        (format!("{APP_A}.apps.localhost"), "app a\n"),
        (format!("{APP_A}-8080.apps.localhost:{}", ingress.http_address().port()), "app a8080\n"),
        (format!("{}.APPS.localhost.", APP_B.to_uppercase()), "app b\n"),
    ] {
        let answer = exchange(ingress.http_address(), &get(&host)).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(app), "{host}: {answer}");
        assert!(answer.contains(&format!("\nhost: {host}\n")), "{answer}");
        assert!(answer.contains("HTTP/1.1 GET /path?q=1\n"), "{answer}");
    }
}

#[tokio::test]
async fn refusals_are_short_and_echo_nothing() {
    let gone = raw_app(|stream| async { drop(stream) }).await;
    let (ingress, _) = ingress(two_apps().await.with(VM_B, 81, gone), Limits::default()).await;
    let unknown = "c".repeat(40);
    for (host, status, retry) in [
        ("<script>alert(1)</script>".to_owned(), "404", false),
        ("evil.example".to_owned(), "404", false),
        ("[::1]".to_owned(), "404", false),
        (format!("{APP_A}gs.apps.localhost"), "404", false),
        (format!("{unknown}.apps.localhost"), "404", false),
        (format!("{APP_A}s.apps.localhost"), "421", false),
        (format!("{APP_A}-9.apps.localhost"), "502", true),
        (format!("{APP_A}-{GONE}.apps.localhost"), "503", true),
        (format!("{APP_A}-{ONE_TOO_MANY}.apps.localhost"), "503", true),
        (format!("{APP_B}-81.apps.localhost"), "502", true),
        (String::new(), "400", false),
        (format!("{APP_A}.apps.localhost\r\nhost: {APP_B}.apps.localhost"), "400", false),
    ] {
        let answer = exchange(ingress.http_address(), &get(&host)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        assert_eq!(answer.contains("retry-after: 2\r\n"), retry, "{answer}");
        assert!(answer.len() < 600 && !answer.contains("script") && !answer.contains("evil"), "{answer}");
    }
    let connect = exchange(
        ingress.http_address(),
        b"CONNECT 10.0.0.1:22 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(connect.starts_with("HTTP/1.1 405"), "{connect}");
}

#[tokio::test]
async fn a_kept_connection_is_routed_anew_for_each_request() {
    let (ingress, _) = ingress(two_apps().await, Limits::default()).await;
    let mut stream = TcpStream::connect(ingress.http_address()).await.unwrap();
    for (app, name) in [(APP_A, "a"), (APP_B, "b"), (APP_A, "a")] {
        let request =
            format!("POST / HTTP/1.1\r\nhost: {app}.apps.localhost\r\ncontent-length: 5\r\n\r\nhello");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_response(&mut stream).await;
        assert!(answer.contains(&format!("app {name}\n")) && answer.ends_with("body hello"), "{answer}");
    }
}

#[tokio::test]
async fn a_head_request_gets_the_length_and_no_body() {
    let (ingress, _) = ingress(two_apps().await, Limits::default()).await;
    let request = format!("HEAD / HTTP/1.1\r\nhost: {APP_A}.apps.localhost\r\nconnection: close\r\n\r\n");
    let answer = exchange(ingress.http_address(), request.as_bytes()).await;
    assert!(answer.contains("\r\ncontent-length: ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn an_old_app_ends_no_kept_connection() {
    let old = raw_app(|mut stream| async move {
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold").await.unwrap();
    })
    .await;
    let (ingress, _) = ingress(Apps::default().with(VM_A, 80, old), Limits::default()).await;
    let mut stream = TcpStream::connect(ingress.http_address()).await.unwrap();
    for _ in 0..2 {
        let request = format!("GET / HTTP/1.1\r\nhost: {APP_A}.apps.localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_response(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("old"), "{answer}");
    }
}

#[tokio::test]
async fn the_request_line_outweighs_the_host_header() {
    let (ingress, _) = ingress(two_apps().await, Limits::default()).await;
    let request = format!(
        "GET http://{APP_B}.apps.localhost/x HTTP/1.1\r\nhost: {APP_A}.apps.localhost\r\nconnection: close\r\n\r\n"
    );
    let answer = exchange(ingress.http_address(), request.as_bytes()).await;
    assert!(
        answer.contains("app b\n") && answer.contains(&format!("\nhost: {APP_B}.apps.localhost\n")),
        "{answer}"
    );
}

#[tokio::test]
async fn the_app_learns_the_client_and_not_what_it_claims() {
    let (ingress, _) = ingress(two_apps().await, Limits::default()).await;
    let host = format!("{APP_A}.apps.localhost");
    let request = format!(
        "GET / HTTP/1.1\r\nhost: {host}\r\nx-forwarded-for: 6.6.6.6\r\nx-forwarded-proto: https\r\n\
         forwarded: for=6.6.6.6\r\nx-hop: 1\r\nproxy-authorization: x\r\nconnection: close, x-hop\r\n\r\n"
    );
    let answer = exchange(ingress.http_address(), request.as_bytes()).await;
    assert!(answer.contains("x-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\n"), "{answer}");
    assert!(answer.contains(&format!("x-forwarded-host: {host}\n")), "{answer}");
    let (_, seen) = answer.split_once("\r\n\r\n").unwrap();
    for gone in ["6.6.6.6", "x-hop", "proxy-authorization", "connection"] {
        assert!(!seen.contains(gone), "{gone}: {answer}");
    }
}

#[tokio::test]
async fn no_second_request_hides_in_a_body() {
    let (ingress, _) = ingress(two_apps().await, Limits::default()).await;
    let host = format!("{APP_A}.apps.localhost");
    let hidden = format!("GET /hidden HTTP/1.1\r\nhost: {host}\r\n\r\n");
    for framing in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
        "content-length: 4\r\ncontent-length: 5",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked, identity",
        "content-length: +5",
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: {host}\r\n{framing}\r\n\r\n0\r\n\r\n{hidden}");
        let answer = exchange(ingress.http_address(), request.as_bytes()).await;
        assert!(!answer.contains("/hidden"), "{framing}: {answer}");
        assert!(!(answer.contains("content-length: 4\n")), "{framing}: {answer}");
    }
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let app = raw_app(|mut stream| async move {
        let mut head = [0; 1];
        let mut seen = Vec::new();
        while !seen.ends_with(b"one\r\n") {
            stream.read_exact(&mut head).await.unwrap();
            seen.extend_from_slice(&head);
        }
        // Answers before the request is complete, and only then waits for its rest.
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nuno\r\n").await.unwrap();
        while !seen.ends_with(b"0\r\n\r\n") {
            stream.read_exact(&mut head).await.unwrap();
            seen.extend_from_slice(&head);
        }
        stream.write_all(b"3\r\ndue\r\n0\r\n\r\n").await.unwrap();
    })
    .await;
    let (ingress, _) = ingress(Apps::default().with(VM_A, 80, app), Limits::default()).await;
    let mut stream = TcpStream::connect(ingress.http_address()).await.unwrap();
    let head =
        format!("POST / HTTP/1.1\r\nhost: {APP_A}.apps.localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"3\r\none\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("uno") {
        soon(stream.read_buf(&mut answer)).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    while !String::from_utf8_lossy(&answer).contains("due") {
        soon(stream.read_buf(&mut answer)).await.unwrap();
    }
}

#[tokio::test]
async fn upgraded_connections_carry_anything() {
    let (ingress, _) =
        ingress(Apps::default().with(VM_A, 80, websocket_like().await), Limits::default()).await;
    let mut stream = TcpStream::connect(ingress.http_address()).await.unwrap();
    stream.write_all(&switch(&format!("{APP_A}.apps.localhost"))).await.unwrap();
    check_switched(stream).await;
}

#[tokio::test]
async fn an_app_at_its_limit_is_busy_until_a_request_ends() {
    let limits = Limits { streams_per_vm: 1, ..Limits::default() };
    let apps = two_apps().await.with(VM_A, 81, websocket_like().await);
    let (ingress, _) = ingress(apps, limits).await;
    let mut tunnel = TcpStream::connect(ingress.http_address()).await.unwrap();
    tunnel.write_all(&switch(&format!("{APP_A}-81.apps.localhost"))).await.unwrap();
    read_response(&mut tunnel).await;
    let host = format!("{APP_A}.apps.localhost");
    let busy = exchange(ingress.http_address(), &get(&host)).await;
    assert!(busy.starts_with("HTTP/1.1 503") && busy.contains("retry-after: 2\r\n"), "{busy}");
    let other = exchange(ingress.http_address(), &get(&format!("{APP_B}.apps.localhost"))).await;
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    drop(tunnel);
    soon(async { while !exchange(ingress.http_address(), &get(&host)).await.starts_with("HTTP/1.1 200") {} })
        .await;
}

#[tokio::test]
async fn slow_heads_idle_connections_and_huge_heads_are_cut_off() {
    let limits =
        Limits { head: Duration::from_millis(300), idle: Duration::from_millis(600), ..Limits::default() };
    let silent = raw_app(|stream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let (ingress, _) = ingress(two_apps().await.with(VM_A, 81, silent), limits).await;
    let head = format!("GET / HTTP/1.1\r\nhost: {APP_A}.apps.localhost\r\n");
    exchange(ingress.http_address(), b"").await;
    exchange(ingress.http_address(), head.as_bytes()).await;
    exchange(ingress.https_address().unwrap(), b"\x16").await;
    exchange(ingress.https_address().unwrap(), b"").await;
    exchange(ingress.http_address(), &get(&format!("{APP_A}-81.apps.localhost"))).await;
    let huge = format!("{head}x: {}\r\n\r\n", "y".repeat(100_000));
    let answer = exchange(ingress.http_address(), huge.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many = format!("{head}{}\r\n", "x: y\r\n".repeat(200));
    let answer = exchange(ingress.http_address(), many.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let (ingress, _) = ingress(two_apps().await, Limits { connections: 3, ..Limits::default() }).await;
    // Each listener holds the place that its next connection will take.
    let first = TcpStream::connect(ingress.http_address()).await.unwrap();
    let mut waiting = TcpStream::connect(ingress.http_address()).await.unwrap();
    waiting.write_all(&get(&format!("{APP_A}.apps.localhost"))).await.unwrap();
    drop(first);
    let mut answer = String::new();
    soon(waiting.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn stopping_finishes_requests_and_then_ends_everything() {
    let apps = two_apps().await.with(VM_A, 81, websocket_like().await);
    let (ingress, _) = ingress(apps, Limits::default()).await;
    let address = ingress.http_address();
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut tunnel = TcpStream::connect(address).await.unwrap();
    tunnel.write_all(&switch(&format!("{APP_A}-81.apps.localhost"))).await.unwrap();
    read_response(&mut tunnel).await;
    soon(ingress.stop(Duration::from_millis(200))).await;
    let _ = soon(idle.read_to_end(&mut Vec::new())).await;
    let _ = soon(tunnel.read_to_end(&mut Vec::new())).await;
    assert!(TcpStream::connect(address).await.is_err());
}
