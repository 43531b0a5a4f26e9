//! Which connections are kept, and which are closed.

use std::sync::atomic::Ordering;

use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::super::client::Manner;
use super::super::fake::{Act, Fake, chunk, json, stream_head, until};
use super::super::{names::Names, tls};
use super::*;

const ROUND: Duration = Duration::from_millis(10);

fn http1(fake: &Fake) -> Http1 {
    let connect = Duration::from_secs(10);
    let manner = Manner { connect, is_https_only: false, is_http2: false };
    let connector = Connector::new(Names::new(), tls::by_authorities(None).unwrap(), manner);
    Http1 { round: ROUND, ..Http1::new(connector, &fake.url().parse().unwrap()) }
}

async fn ask(http1: &Http1) -> Body {
    let request = Request::post("http://elsewhere/v1/x?y=z").body(Full::new(Bytes::from_static(b"{}")));
    http1.send(request.unwrap()).await.unwrap().into_body()
}

async fn rest(body: Body) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

fn unused(http1: &Http1) -> usize {
    http1.idle.lines.lock().len()
}

fn connections(fake: &Fake) -> usize {
    fake.counts.connections.load(Ordering::Relaxed)
}

fn piece(bytes: &[u8]) -> Act {
    Act::Send(chunk(bytes))
}

#[tokio::test]
async fn a_connection_is_free_when_a_short_answer_is_there_before_that_is_read() {
    let fake = Fake::start(|number, _| vec![Act::Send(json(200, &format!("{number}")))]).await;
    let http1 = http1(&fake);
    let first = ask(&http1).await;
    assert_eq!(unused(&http1), 1);
    let second = ask(&http1).await;
    assert_eq!((rest(second).await, rest(first).await), ("1".into(), "0".into()));
    assert_eq!((unused(&http1), connections(&fake)), (1, 1));
    let head = &fake.seen.lock()[0].head;
    assert!(head.starts_with("post /v1/x?y=z http/1.1"), "{head}");
    assert!(head.contains(&format!("host: {}", fake.address)), "{head}");
}

#[tokio::test]
async fn a_stream_keeps_its_connection_until_its_end() {
    let gate = Arc::new(Semaphore::new(0));
    let wait = Act::Wait(Arc::clone(&gate));
    let fake = Fake::start(move |_, _| {
        vec![Act::Send(stream_head()), piece(b"abc"), wait.clone(), piece(b"def"), piece(b"")]
    })
    .await;
    let http1 = http1(&fake);
    let (first, second) = (ask(&http1).await, ask(&http1).await);
    assert_eq!((unused(&http1), connections(&fake)), (0, 2));
    gate.add_permits(2);
    assert_eq!((rest(first).await, rest(second).await), ("abcdef".into(), "abcdef".into()));
    assert_eq!(unused(&http1), 2);
}

#[tokio::test]
async fn what_is_not_read_on_leaves_its_connection_if_its_end_is_there_and_else_closes_it() {
    let fake = Fake::start(|number, _| {
        let begun = [stream_head(), chunk(b"abc")].concat();
        if number == 0 {
            return vec![Act::Send([begun, chunk(b"")].concat())];
        }
        vec![Act::Send(begun), Act::Hang]
    })
    .await;
    let http1 = http1(&fake);
    for (unused_then, left) in [(1, 0), (0, 1)] {
        let mut body = ask(&http1).await;
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        drop(body);
        until(|| fake.counts.left.load(Ordering::Relaxed) == left).await;
        assert_eq!(unused(&http1), unused_then);
    }
    assert_eq!(connections(&fake), 1);
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let http1 = http1(&fake);
    timeout(Duration::from_millis(20), ask(&http1)).await.unwrap_err();
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
    assert_eq!(unused(&http1), 0);
}

#[tokio::test]
async fn an_answer_after_which_the_upstream_closes_leaves_no_connection() {
    let fake = Fake::start(|_, _| {
        let reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}".to_vec();
        vec![Act::Send(reply), Act::Close]
    })
    .await;
    let http1 = http1(&fake);
    assert_eq!((rest(ask(&http1).await).await, unused(&http1)), ("{}".into(), 0));
}

#[tokio::test]
async fn an_unused_connection_goes_when_the_upstream_closes_it() {
    let gate = Arc::new(Semaphore::new(0));
    let wait = Act::Wait(Arc::clone(&gate));
    let fake = Fake::start(move |_, _| vec![Act::Send(json(200, "{}")), wait.clone(), Act::Close]).await;
    let http1 = http1(&fake);
    rest(ask(&http1).await).await;
    assert_eq!(unused(&http1), 1);
    gate.add_permits(1);
    until(|| unused(&http1) == 0).await;
}

#[tokio::test]
async fn an_unused_connection_has_its_time() {
    let fake = Fake::start(|_, _| vec![Act::Send(json(200, "{}")), Act::Hang]).await;
    let http1 = http1(&fake);
    rest(ask(&http1).await).await;
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
    assert_eq!(unused(&http1), 0);
    // The attendant has gone with its pool.
    let idle = Arc::downgrade(&http1.idle);
    drop(http1);
    until(|| idle.strong_count() == 0).await;
}
