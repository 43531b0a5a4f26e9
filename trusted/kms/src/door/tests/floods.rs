//! Those who take too much.

use std::time::Duration;

use cloister_kms_api::KmsErrorCode::TooManyRequests;
use cloister_kms_api::log::Event;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::lab::{Client, Lab, Machine, Options};
use crate::door::Limits;

fn small() -> Limits {
    Limits {
        connections_per_peer: 3,
        head: Duration::from_millis(300),
        idle: Duration::from_millis(600),
        farewell: Duration::from_millis(200),
        ..Limits::default()
    }
}

/// Whether the other side has ended a connection, within a bound.
async fn ended(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let end = tokio::time::timeout(Duration::from_secs(40), stream.read(&mut byte)).await.unwrap();
    matches!(end, Ok(0) | Err(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_end_and_give_their_places_back() {
    let lab = Lab::with(Options { limits: small(), ..Options::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(lab.release).await.unwrap();
        // The beginning of a handshake.
        stream.write_all(&[22, 3, 1]).await.unwrap();
        silent.push(stream);
    }
    // A further one is dropped at once: the three others hold all places.
    let mut fourth = TcpStream::connect(lab.release).await.unwrap();
    assert!(ended(&mut fourth).await);
    for stream in &mut silent {
        assert!(ended(stream).await, "a handshake ends in time");
    }
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    assert_eq!(lab.machine(&machine).await.app_key(&machine.vm_config()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_says_nothing_after_its_handshake_is_let_go() {
    let lab = Lab::with(Options { limits: small(), ..Options::default() }).await;
    let mut idle = Client::connect(lab.directory, None).await;
    assert_eq!(idle.get("/health").await.status, 200);
    tokio::time::timeout(Duration::from_secs(20), idle.ended()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_from_one_peer_is_answered_429_and_fills_no_log() {
    let limits = Limits {
        requests_at_once: 50.0,
        requests_per_second: 1.0,
        handshakes_at_once: 60.0,
        handshakes_per_second: 0.1,
        ..Limits::default()
    };
    let lab = Lab::with(Options { limits, ..Options::default() }).await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let mut client = lab.machine(&machine).await;
    let mut refused = 0;
    for _ in 0..100 {
        let told = client.key("a", &machine.vm_config()).await;
        if told.status != 200 {
            assert_eq!(told.code(), TooManyRequests);
            refused += 1;
        }
    }
    assert!((45..=50).contains(&refused), "{refused}");
    // Strangers in numbers: two records, and from some point on no handshake.
    let before = lab.keys.log().size();
    for _ in 0..40 {
        assert_eq!(lab.connect(None).await.get("/").await.status, 401);
    }
    let events = lab.events().await;
    let further = events.len() as u64 - before;
    assert_eq!(further, 2);
    assert!(matches!(events.last(), Some(Event::Refusal { count: 39, .. })));
    let mut dropped = 0;
    for _ in 0..40 {
        let mut stream = TcpStream::connect(lab.release).await.unwrap();
        stream.write_all(&[22, 3, 1, 0, 1]).await.ok();
        stream.shutdown().await.ok();
        dropped += u32::from(ended(&mut stream).await);
    }
    assert_eq!(dropped, 40);
    let figures = Client::connect(lab.directory, None).await.get("/metrics").await.body;
    let figures = String::from_utf8(figures.to_vec()).unwrap();
    assert!(!figures.contains("cloister_kms_dropped_total{port=\"release\"} 0\n"), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doors_close_in_order() {
    let lab = Lab::new().await;
    let mut client = Client::connect(lab.directory, None).await;
    assert_eq!(client.get("/health").await.status, 200);
    lab.close().await;
    tokio::time::timeout(Duration::from_secs(20), client.ended()).await.unwrap();
}
