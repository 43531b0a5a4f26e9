//! `GET /attestation` on an app's address.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{APP_A, APP_B, Apps, VM_A, VM_B, echo_app, exchange, ingress, raw_app};
use crate::ingress::Limits;

const AGENT: u16 = 8090;

/// An app that answers everything with this status and its name.
async fn app(name: &'static str, status: &'static str) -> SocketAddr {
    raw_app(move |mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await
}

async fn ask(apps: Apps, host: &str, line: &str) -> String {
    let (ingress, _) = ingress(apps, Limits::default()).await;
    let request = format!(
        "{line} HTTP/1.1\r\nhost: {host}.apps.localhost\r\ncookie: secret=1\r\nauthorization: secret\r\n\
         content-length: 4\r\nconnection: close\r\n\r\nbody"
    );
    exchange(ingress.http_address(), request.as_bytes()).await
}

async fn with_agent(apps: Apps) -> Apps {
    apps.with(VM_A, AGENT, echo_app("agent").await)
}

#[tokio::test]
async fn an_app_that_does_not_know_the_path_leaves_it_to_the_agent() {
    let apps = with_agent(Apps::default().with(VM_A, 80, app("own", "404 Not Found").await)).await;
    let answer = ask(apps, APP_A, "GET /attestation?report_data=00ff").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("app agent\nHTTP/1.1 GET /attestation?report_data=00ff\n"), "{answer}");
    assert!(answer.contains(&format!("\nhost: {APP_A}.apps.localhost\n")), "{answer}");
    assert!(answer.contains("\nx-forwarded-for: 127.0.0.1\n") && answer.ends_with("\n\nbody "), "{answer}");
    assert!(!answer.contains("secret"), "credentials are the app's: {answer}");
}

#[tokio::test]
async fn so_does_one_whose_port_is_closed() {
    let answer = ask(with_agent(Apps::default()).await, APP_A, "GET /attestation").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("app agent\n"), "{answer}");
    let gone = raw_app(|stream| async { drop(stream) }).await;
    let apps = with_agent(Apps::default().with(VM_A, 81, gone)).await;
    let (ingress, _) = ingress(apps, Limits::default()).await;
    for name in [format!("{APP_A}-81"), format!("{APP_A}-81g")] {
        let request =
            format!("GET /attestation HTTP/1.1\r\nhost: {name}.apps.localhost\r\nconnection: close\r\n\r\n");
        let answer = exchange(ingress.http_address(), request.as_bytes()).await;
        assert!(answer.contains("app agent\nHTTP/1.1 GET /attestation\n"), "{name}: {answer}");
    }
}

#[tokio::test]
async fn head_is_answered_without_a_body() {
    let apps = with_agent(Apps::default().with(VM_A, 80, app("", "404 Not Found").await)).await;
    let answer = ask(apps, APP_A, "HEAD /attestation").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn the_apps_own_answer_wins() {
    for status in ["200 OK", "204 No Content", "301 Moved Permanently", "401 Unauthorized", "500 Oops"] {
        let apps = with_agent(Apps::default().with(VM_A, 80, app("", status).await)).await;
        let answer = ask(apps, APP_A, "GET /attestation").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {}", &status[..3])), "{answer}");
        assert!(!answer.contains("agent"), "{answer}");
    }
}

#[tokio::test]
async fn nothing_else_reaches_the_agent() {
    for line in [
        "POST /attestation",
        "DELETE /attestation",
        "GET /attestation/",
        "GET /attestation/x",
        "GET //attestation",
        "GET /Attestation",
        "GET /x/../attestation",
        "GET /?/attestation",
        "GET /containers",
        "OPTIONS /attestation",
    ] {
        let apps = with_agent(Apps::default().with(VM_A, 80, app("own", "404 Not Found").await)).await;
        let answer = ask(apps, APP_A, line).await;
        assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("own"), "{line}: {answer}");
    }
}

#[tokio::test]
async fn without_an_agent_the_apps_answer_stands() {
    let apps = Apps::default().with(VM_A, 80, app("own", "404 Not Found").await);
    let answer = ask(apps, APP_A, "GET /attestation").await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("own"), "{answer}");
    let apps = Apps::default().with(VM_A, 80, app("own", "404 Not Found").await).with(
        VM_A,
        AGENT,
        app("agent", "404 Not Found").await,
    );
    let answer = ask(apps, APP_A, "GET /attestation").await;
    assert!(answer.ends_with("own"), "the agent knows no such path either: {answer}");
    let answer = ask(Apps::default(), APP_A, "GET /attestation").await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let other = with_agent(Apps::default().with(VM_B, 80, app("own", "404 Not Found").await)).await;
    let answer = ask(other, APP_B, "GET /attestation").await;
    assert!(answer.ends_with("own"), "another CVM's agent is not asked: {answer}");
}
