//! Which connections are kept, and which are closed.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::coop::{consume_budget, has_budget_remaining};
use tokio::task::yield_now;

use super::super::client::origin;
use super::super::connector::Manner;
use super::super::fake::{Act, Fake, chunk, json, stream_head, until};
use super::super::{names::Names, tls};
use super::*;

/// Looks at each connection every few milliseconds, and closes none that stands.
const QUICK: Upkeep = Upkeep { round: Duration::from_millis(5), rounds: u64::MAX };

fn pool(url: &str, tls: rustls::ClientConfig) -> Http1 {
    let connect = Duration::from_secs(10);
    let manner = Manner { connect, is_https_only: false, is_http2: false };
    Http1::new(Connector::new(Names::new(), tls, manner), origin(&url.parse().unwrap()))
}

fn plain(url: &str) -> Http1 {
    pool(url, tls::by_authorities(None).unwrap())
}

async fn ask(http1: &Http1) -> Body {
    asked_with(http1, Bytes::from_static(b"{}")).await.unwrap().into_body()
}

async fn asked_with(http1: &Http1, body: Bytes) -> Result<Response<Body>, Broken> {
    http1.send(Request::post("/v1/x?y=z").body(Full::new(body)).unwrap()).await
}

async fn rest(body: Body) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

fn unused(http1: &Http1) -> usize {
    http1.idle.lines.lock().len()
}

fn count(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

fn piece(bytes: &[u8]) -> Act {
    Act::Send(chunk(bytes))
}

#[tokio::test]
async fn a_connection_is_free_when_a_short_answer_is_there_before_that_is_read() {
    let fake = Fake::start(|number, _| vec![Act::Send(json(200, &format!("{number}")))]).await;
    let http1 = plain(&fake.url());
    let first = ask(&http1).await;
    assert_eq!(unused(&http1), 1);
    let second = ask(&http1).await;
    assert_eq!((rest(second).await, rest(first).await), ("1".into(), "0".into()));
    assert_eq!((unused(&http1), count(&fake.counts.connections)), (1, 1));
    let head = &fake.seen.lock()[0].head;
    assert!(head.starts_with("post /v1/x?y=z http/1.1"), "{head}");
    assert!(head.contains(&format!("host: {}", fake.address)), "{head}");
}

#[tokio::test]
async fn how_an_answer_ends_decides_whether_its_connection_is_kept() {
    const CASES: [(&str, &str, usize); 9] = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "{}", 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", 1),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", 1),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "{}", 1),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}", 1),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}", "{}", 0),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", "{}", 0),
        ("HTTP/1.1 200 OK\r\n\r\n{}", "{}", 0),
        // Bytes that nobody asked for are no answer to the next request.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1",
            "{}",
            0,
        ),
    ];
    for (reply, body, kept) in CASES {
        let fake = Fake::start(move |number, _| match number {
            0 => vec![Act::Send(reply.into()), if kept == 1 { Act::Hang } else { Act::Close }],
            _ => vec![Act::Send(json(200, "next"))],
        })
        .await;
        let http1 = plain(&fake.url());
        assert_eq!(rest(ask(&http1).await).await, body, "{reply}");
        assert_eq!(unused(&http1), kept, "{reply}");
        if kept == 0 {
            assert_eq!(rest(ask(&http1).await).await, "next", "{reply}");
        }
    }
}

#[tokio::test]
async fn a_stream_keeps_its_connection_until_its_end() {
    let gate = Arc::new(Semaphore::new(0));
    let wait = Act::Wait(Arc::clone(&gate));
    let fake = Fake::start(move |_, _| {
        vec![Act::Send(stream_head()), piece(b"abc"), wait.clone(), piece(b"def"), piece(b"")]
    })
    .await;
    let http1 = plain(&fake.url());
    let (first, second) = (ask(&http1).await, ask(&http1).await);
    assert_eq!((unused(&http1), count(&fake.counts.connections)), (0, 2));
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
    let http1 = plain(&fake.url());
    for (unused_then, left) in [(1, 0), (0, 1)] {
        let mut body = ask(&http1).await;
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        drop(body);
        until(|| count(&fake.counts.left) == left).await;
        assert_eq!(unused(&http1), unused_then);
    }
    assert_eq!(count(&fake.counts.connections), 1);
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let http1 = Arc::new(plain(&fake.url()));
    let asking = Arc::clone(&http1);
    let asking = tokio::spawn(async move { ask(&asking).await });
    until(|| fake.seen.lock().len() == 1).await;
    asking.abort();
    until(|| count(&fake.counts.left) == 1).await;
    assert_eq!(unused(&http1), 0);
}

#[tokio::test]
async fn an_answer_before_all_was_sent_is_read_and_its_connection_is_not_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        stream.read_exact(&mut [0; 1024]).await?;
        stream.write_all(b"HTTP/1.1 413 X\r\ncontent-length: 4\r\n\r\nmuch").await?;
        // The rest of what was begun; then it is closed.
        while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
        Ok::<_, io::Error>(())
    });
    let http1 = plain(&url);
    let answer = asked_with(&http1, vec![b'x'; 32 << 20].into()).await.unwrap();
    assert_eq!(answer.status().as_u16(), 413);
    assert_eq!(rest(answer.into_body()).await, "much");
    assert_eq!(unused(&http1), 0);
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_not_used() {
    let http1 = with_one_that_was_closed().await;
    assert!(http1.idle.take().is_none());
    assert_eq!(rest(ask(&http1).await).await, "second");
}

/// A task may not read any more before others had their turn: it does not see that the connection was closed.
#[tokio::test]
async fn what_a_closed_connection_did_not_take_goes_over_another() {
    let http1 = with_one_that_was_closed().await;
    without_budget().await;
    assert_eq!(rest(ask(&http1).await).await, "second");
}

#[tokio::test]
async fn a_connection_is_not_kept_whose_request_it_may_still_take() {
    let fake = Fake::start(|_, _| vec![Act::Send(json(200, "{}"))]).await;
    let http1 = plain(&fake.url());
    rest(ask(&http1).await).await;
    without_budget().await;
    assert!(ask(&http1).now_or_never().is_none());
    assert_eq!((unused(&http1), fake.seen.lock().len()), (0, 1));
}

/// Uses up what a task may read and write before others have their turn.
async fn without_budget() {
    while has_budget_remaining() {
        consume_budget().await;
    }
}

/// Has a connection that the upstream closed when it had answered a request, which nobody has looked at since.
async fn with_one_that_was_closed() -> Http1 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http1 = plain(&format!("http://{}", listener.local_addr().unwrap()));
    let ((close, told), (say, closed)) = (oneshot::channel(), oneshot::channel());
    tokio::spawn(async move {
        let first = answered(&listener, "first").await?;
        drop(told.await);
        drop(first);
        say.send(()).unwrap();
        answered(&listener, "second").await
    });
    assert_eq!(rest(ask(&http1).await).await, "first");
    close.send(()).unwrap();
    closed.await.unwrap();
    // The runtime looks at its sockets.
    yield_now().await;
    http1
}

/// Accepts a connection, and answers its request.
async fn answered(listener: &TcpListener, with: &str) -> io::Result<TcpStream> {
    let (mut stream, _) = listener.accept().await?;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"{}") {
        stream.read_buf(&mut bytes).await?;
    }
    stream.write_all(&json(200, with)).await?;
    Ok(stream)
}

#[tokio::test]
async fn an_unused_connection_goes_when_the_upstream_has_closed_it() {
    let gate = Arc::new(Semaphore::new(0));
    let wait = Act::Wait(Arc::clone(&gate));
    let fake = Fake::start(move |_, _| vec![Act::Send(json(200, "{}")), wait.clone(), Act::Close]).await;
    let http1 = Http1 { upkeep: QUICK, ..plain(&fake.url()) };
    rest(ask(&http1).await).await;
    until(|| http1.idle.lines.lock().front().is_some_and(|resting| resting.rounds > 3)).await;
    gate.add_permits(1);
    until(|| unused(&http1) == 0).await;
}

#[tokio::test]
async fn an_unused_connection_has_its_time_and_is_closed_in_an_orderly_way() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(json(200, "{}")), Act::Hang]).await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let http1 =
        Http1 { upkeep: Upkeep { rounds: 3, ..QUICK }, ..pool(&fake.url(), tls::by_pins(&[pin]).unwrap()) };
    rest(ask(&http1).await).await;
    assert_eq!(unused(&http1), 1);
    until(|| count(&fake.counts.left) == 1).await;
    assert_eq!((unused(&http1), count(&fake.counts.orderly)), (0, 1));
}

#[tokio::test]
async fn with_a_pool_go_its_connections_and_who_looks_after_them() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(json(200, "{}")), Act::Hang]).await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let http1 = pool(&fake.url(), tls::by_pins(&[pin]).unwrap());
    rest(ask(&http1).await).await;
    let attendant = http1.idle.attendant.get().unwrap().clone();
    assert!(!attendant.is_finished());
    drop(http1);
    until(|| count(&fake.counts.left) == 1).await;
    assert_eq!(count(&fake.counts.orderly), 1);
    until(|| attendant.is_finished()).await;
}

/// An upstream that lets no more connections stand.
#[tokio::test]
async fn who_waits_for_a_connection_takes_one_that_becomes_free_sooner() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Nobody speaks TLS there.
    let http1 = plain(&format!("https://{}", listener.local_addr().unwrap()));
    let fake = Fake::start(|_, _| vec![Act::Send(json(200, "{}"))]).await;
    let other = plain(&fake.url());
    drop((ask(&other).await, ask(&other).await, other.idle.take()));
    let mut waiting = [Box::pin(http1.line()), Box::pin(http1.line())];
    for waiting in &mut waiting {
        assert!(waiting.now_or_never().is_none());
    }
    for _ in &waiting {
        let (line, _) = other.line().await.unwrap();
        http1.idle.put(line);
    }
    for waiting in waiting {
        let (_, is_new) = waiting.await.unwrap();
        assert!(!is_new);
    }
}

#[tokio::test]
async fn a_connection_that_comes_too_late_is_kept_for_the_next() {
    let fake = Fake::start(|_, _| vec![Act::Send(json(200, "{}"))]).await;
    let (http1, other) = (plain(&fake.url()), plain(&fake.url()));
    rest(ask(&other).await).await;
    let mut waiting = Box::pin(http1.line());
    assert!((&mut waiting).now_or_never().is_none());
    http1.idle.put(other.idle.take().unwrap());
    let (_line, is_new) = waiting.await.unwrap();
    assert!(!is_new);
    until(|| unused(&http1) == 1).await;
    assert_eq!((count(&fake.counts.connections), http1.late.available_permits()), (2, MAX_LATE));
}

#[tokio::test]
async fn few_connections_that_come_too_late_are_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http1 = plain(&format!("https://{}", listener.local_addr().unwrap()));
    let fake = Fake::start(|_, _| vec![Act::Send(json(200, "{}"))]).await;
    let other = plain(&fake.url());
    for late in 1..MAX_LATE + 3 {
        let mut waiting = Box::pin(http1.line());
        assert!((&mut waiting).now_or_never().is_none());
        http1.idle.put(other.line().await.unwrap().0);
        waiting.await.unwrap();
        assert_eq!(http1.late.available_permits(), MAX_LATE.saturating_sub(late));
    }
    // What is waited for keeps no pool.
    let idle = Arc::downgrade(&http1.idle);
    drop(http1);
    assert_eq!(idle.strong_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_gets_its_own_answer_whoever_gives_up() {
    const WAVE: usize = 40;
    const WAVES: usize = 10;
    let fake = Fake::start(|_, seen| {
        let body = [stream_head(), chunk(&seen.body), chunk(b"!")].concat();
        let end = if seen.body.ends_with(b"3") { Act::Pause(Duration::from_millis(1)) } else { piece(b"?") };
        vec![Act::Send(body), end, piece(b"")]
    })
    .await;
    let http1 = Arc::new(plain(&fake.url()));
    let ask = |number: usize| {
        let http1 = Arc::clone(&http1);
        tokio::spawn(async move {
            let sent = number.to_string();
            let mut asking = Box::pin(asked_with(&http1, sent.clone().into()));
            if number.is_multiple_of(5) {
                // Somewhere on its way.
                for _ in 0..number % 7 {
                    let done = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context).is_ready())).await;
                    if done {
                        return;
                    }
                    yield_now().await;
                }
                return;
            }
            let mut body = asking.await.unwrap().into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(first, sent);
            if !number.is_multiple_of(3) {
                let rest = rest(body).await;
                assert_eq!(rest, if sent.ends_with('3') { "!" } else { "!?" });
            }
        })
    };
    for wave in 0..WAVES {
        let asking: Vec<_> = (0..WAVE).map(|number| ask(WAVE * wave + number)).collect();
        for asked in asking {
            asked.await.unwrap();
        }
    }
    // Those that gave up, or did not read on, may each have spoilt one: 7 of 15.
    assert!(count(&fake.counts.connections) < WAVE + WAVE * WAVES * 8 / 15);
}
