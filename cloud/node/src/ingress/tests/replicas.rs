//! Several VMs of one app: who gets a request, what is tried again, and what flows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::support::{
    APP_A, APP_B, Apps, VM_A, VM_A2, VM_A3, check_switched, echo_app, exchange, get, ingress, raw_app,
    read_response, soon, switch, websocket_like,
};
use crate::Readiness;
use crate::ingress::Limits;

async fn three() -> Arc<Apps> {
    let apps = Apps::default().replica(APP_A, VM_A2).replica(APP_A, VM_A3);
    let apps = apps.with(VM_A, 80, echo_app("a1").await).with(VM_A2, 80, echo_app("a2").await);
    Arc::new(apps.with(VM_A3, 80, echo_app("a3").await))
}

fn host() -> String {
    format!("{APP_A}.apps.localhost")
}

/// The names of the replicas that answer so many requests in turn, sorted.
async fn answering(address: SocketAddr, requests: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..requests {
        let answer = exchange(address, &get(&host())).await;
        let name = answer.lines().find_map(|line| line.strip_prefix("app "));
        names.push(name.unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    names.sort();
    names
}

#[tokio::test]
async fn idle_replicas_take_turns_and_those_that_are_not_ready_get_nothing() {
    let apps = three().await;
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    assert_eq!(answering(ingress.http_address(), 6).await, ["a1", "a1", "a2", "a2", "a3", "a3"]);
    for readiness in [Readiness::Starting, Readiness::Leaving, Readiness::Unhealthy] {
        apps.set(VM_A2, readiness);
        assert_eq!(answering(ingress.http_address(), 4).await, ["a1", "a1", "a3", "a3"], "{readiness:?}");
    }
    apps.set(VM_A2, Readiness::Ready);
    assert_eq!(answering(ingress.http_address(), 3).await, ["a1", "a2", "a3"]);
}

#[tokio::test]
async fn a_busy_replica_gets_less() {
    let apps = three().await;
    apps.set(VM_A3, Readiness::Starting);
    apps.serve(VM_A, 81, websocket_like().await);
    apps.serve(VM_A2, 81, websocket_like().await);
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    let mut tunnel = TcpStream::connect(ingress.http_address()).await.unwrap();
    tunnel.write_all(&switch(&format!("{APP_A}-81.apps.localhost"))).await.unwrap();
    read_response(&mut tunnel).await;
    let busy = if apps.flows(VM_A).count() == 1 { "a1" } else { "a2" };
    let idle = if busy == "a1" { "a2" } else { "a1" };
    assert_eq!(answering(ingress.http_address(), 3).await, [idle; 3]);
}

#[tokio::test]
async fn without_a_ready_replica_the_answer_says_why() {
    let apps = Arc::new(Apps::default().replica(APP_A, VM_A2));
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    for (first, second, text) in [
        (Readiness::Starting, Readiness::Unhealthy, "The app is starting."),
        (Readiness::Leaving, Readiness::Unhealthy, "The app is being updated, moved or stopped."),
        (Readiness::Unhealthy, Readiness::Unhealthy, "The app is unhealthy"),
    ] {
        apps.set(VM_A, first);
        apps.set(VM_A2, second);
        let answer = exchange(ingress.http_address(), &get(&host())).await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 2\r\n"), "{answer}");
        assert!(answer.contains(text), "{answer}");
    }
    assert_eq!(*apps.connections.lock().unwrap(), [], "nothing reaches a replica that is not ready");
    let answer = exchange(ingress.http_address(), &get(&format!("{}.apps.localhost", "cc".repeat(20)))).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

/// A request with a body on a connection of its own.
fn post(method: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} / HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}",
        host()
    )
    .into_bytes()
}

#[tokio::test]
async fn a_replica_that_takes_no_connection_costs_no_request() {
    // Every second one would begin with the dead replica.
    let apps = Apps::default().replica(APP_A, VM_A2).with(VM_A2, 80, echo_app("alive").await);
    let (ingress, _) = ingress(apps, Limits::default()).await;
    for _ in 0..4 {
        let answer = exchange(ingress.http_address(), &post("POST", "whole")).await;
        assert!(answer.contains("app alive\n") && answer.ends_with("body whole"), "{answer}");
    }
}

#[tokio::test]
async fn at_most_three_replicas_are_tried() {
    let apps = (0..5).fold(Apps::none(), |apps, number| apps.replica(APP_B, Uuid::from_u128(number)));
    let apps = Arc::new(apps);
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    let answer = exchange(ingress.http_address(), &get(&format!("{APP_B}.apps.localhost"))).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let mut tried = apps.connections.lock().unwrap().clone();
    tried.dedup();
    assert_eq!(tried.len(), 3, "{tried:?}");
}

/// An app that reads a request, says these words and hangs up; and how many requests it saw.
async fn hangs_up(words: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let address = raw_app(move |mut stream| {
        let seen = Arc::clone(&counter);
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            seen.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(words).await;
        }
    })
    .await;
    (address, seen)
}

#[tokio::test]
async fn what_an_app_may_have_seen_is_repeated_only_if_that_makes_no_difference() {
    for (request, words, repeated) in [
        (post("GET", ""), &b""[..], true),
        (post("HEAD", ""), b"", true),
        (post("DELETE", ""), b"", true),
        (post("PUT", "body"), b"", false),
        (post("POST", "body"), b"", false),
        (post("POST", ""), b"", false),
        (post("PATCH", ""), b"", false),
        (post("GET", ""), b"SSH-2.0-not-http\r\n", false),
    ] {
        let (address, seen) = hangs_up(words).await;
        let apps = Apps::default().replica(APP_A, VM_A2);
        // The first request of an ingress begins with the first of equals.
        let apps = apps.with(VM_A, 80, address).with(VM_A2, 80, echo_app("alive").await);
        let (ingress, _) = ingress(apps, Limits::default()).await;
        let answer = exchange(ingress.http_address(), &request).await;
        let status = if repeated { "HTTP/1.1 200" } else { "HTTP/1.1 502" };
        let request = String::from_utf8_lossy(&request);
        assert!(answer.starts_with(status), "{request}: {answer}");
        assert_eq!(seen.load(Ordering::SeqCst), 1, "{request}");
    }
}

#[tokio::test]
async fn a_single_replica_is_asked_again_when_it_hung_up_on_a_kept_connection() {
    // Answers one request per connection, whatever it promises, and hangs up on the second.
    let app = raw_app(|mut stream| async move {
        let mut head = Vec::new();
        for answer in [&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"[..], b""] {
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            head.clear();
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let (ingress, _) = ingress(Apps::default().with(VM_A, 80, app), Limits::default()).await;
    for _ in 0..6 {
        let answer = exchange(ingress.http_address(), &get(&host())).await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
}

#[tokio::test]
async fn an_app_that_always_hangs_up_is_asked_twice() {
    let (address, seen) = hangs_up(b"").await;
    let (ingress, _) = ingress(Apps::default().with(VM_A, 80, address), Limits::default()).await;
    let answer = exchange(ingress.http_address(), &get(&host())).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_flows_into_a_leaving_replica_goes_on_and_nothing_new_begins() {
    let apps = three().await;
    apps.set(VM_A3, Readiness::Starting);
    apps.set(VM_A2, Readiness::Starting);
    apps.serve(VM_A, 81, websocket_like().await);
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    let mut kept = TcpStream::connect(ingress.http_address()).await.unwrap();
    kept.write_all(format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", host()).as_bytes()).await.unwrap();
    assert!(read_response(&mut kept).await.contains("app a1\n"));
    let mut tunnel = TcpStream::connect(ingress.http_address()).await.unwrap();
    tunnel.write_all(&switch(&format!("{APP_A}-81.apps.localhost"))).await.unwrap();
    let mut first = [0; 1];
    soon(tunnel.peek(&mut first)).await.unwrap();

    let flows = apps.flows(VM_A);
    apps.set(VM_A, Readiness::Leaving);
    apps.set(VM_A2, Readiness::Ready);
    let mut ended = Box::pin(flows.ended());
    assert!(ended.as_mut().now_or_never().is_none(), "the switched connection flows");
    kept.write_all(format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", host()).as_bytes()).await.unwrap();
    assert!(read_response(&mut kept).await.contains("app a2\n"), "a kept connection goes elsewhere");
    assert_eq!(flows.count(), 1);
    check_switched(tunnel).await;
    soon(ended).await;
}

#[tokio::test]
async fn an_answer_flows_until_its_last_byte() {
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let finished = Arc::new(tokio::sync::Mutex::new(Some(finished)));
    let app = raw_app(move |mut stream| {
        let finished = Arc::clone(&finished);
        async move {
            let mut head = [0; 1024];
            assert!(stream.read(&mut head).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha").await.unwrap();
            finished.lock().await.take().unwrap().await.unwrap();
            stream.write_all(b"lf").await.unwrap();
        }
    })
    .await;
    let apps = Arc::new(Apps::default().with(VM_A, 80, app));
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    let mut stream = TcpStream::connect(ingress.http_address()).await.unwrap();
    stream.write_all(&get(&host())).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"ha") {
        soon(stream.read_buf(&mut answer)).await.unwrap();
    }
    let flows = apps.flows(VM_A);
    apps.set(VM_A, Readiness::Leaving);
    assert_eq!(flows.count(), 1);
    finish.send(()).unwrap();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.ends_with(b"half"));
    soon(flows.ended()).await;
}

#[tokio::test]
async fn connections_kept_to_a_leaving_replica_are_closed() {
    let (closed, mut closings) = mpsc::unbounded_channel();
    let app = raw_app(move |mut stream| {
        let closed = closed.clone();
        async move {
            let mut head = [0; 1024];
            assert!(stream.read(&mut head).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            while stream.read(&mut head).await.is_ok_and(|read| read > 0) {}
            closed.send(()).unwrap();
        }
    })
    .await;
    let apps = Apps::default().replica(APP_A, VM_A2).with(VM_A, 80, app);
    let apps = Arc::new(apps.with(VM_A2, 80, echo_app("other").await));
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    let answer = exchange(ingress.http_address(), &get(&host())).await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(closings.try_recv().is_err(), "it is kept for the next request");
    apps.set(VM_A, Readiness::Leaving);
    let answer = exchange(ingress.http_address(), &get(&host())).await;
    assert!(answer.contains("app other\n"), "{answer}");
    soon(closings.recv()).await.unwrap();
}
