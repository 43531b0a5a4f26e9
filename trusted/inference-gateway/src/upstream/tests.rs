//! What goes over connections, and over which.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use serde_json::{Value, json};
use tower::Service as _;

use super::client::Client;
use super::connector::{Connector, Manner};
use super::fake::{
    Act, Fake, chunk, gone_after_one, http2, http2_going_away, json as json_reply, reply, stream_head, until,
};
use super::{Answer, ReadFailure, SendFailure, Unanswered, Upstream, UpstreamError, names, target, tls};
use crate::config::GatewayConfig;
use crate::door::{BodyBudget, NoRoom, SMALL, Share};
use crate::verification::Verified;

const IDLE: Duration = Duration::from_secs(10);

fn upstream(url: &str, more: &Value) -> Result<Upstream, UpstreamError> {
    let mut one = json!({"name": "one", "base_url": url, "models": {"m": "m"}, "bearer_token": "s3cret"});
    one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config = json!({"state_dir": "/tmp/x", "upstreams": [one]});
    let config = GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    Upstream::new(&config.upstreams[0])
}

fn channel(pins: &[[u8; 32]]) -> Verified {
    Verified {
        session_id: "0".repeat(64),
        channel_bindings: Vec::new(),
        claims: cloister_aci::session::Claims::default(),
        pins: pins.to_vec(),
    }
}

async fn sent(
    upstream: &Upstream,
    channel: Option<&Verified>,
    patience: Duration,
) -> Result<Answer, Unanswered> {
    upstream.post("/v1/x", &[], Bytes::from_static(b"{\"secret\":1}"), channel, patience).await
}

async fn post(upstream: &Upstream, channel: Option<&Verified>) -> Result<Answer, SendFailure> {
    sent(upstream, channel, IDLE).await.map_err(|unanswered| unanswered.why)
}

fn share() -> Share {
    BodyBudget::new(1 << 20).share(1)
}

async fn whole(answer: Result<Answer, SendFailure>) -> Bytes {
    answer.unwrap().whole(1 << 20, IDLE, &mut share()).await.unwrap()
}

/// Whatever the system's resolver says of them.
#[tokio::test]
async fn names_below_localhost_are_this_machine() {
    let fake = Fake::start(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    for host in ["localhost", "a.Apps.localhost", "a.localhost."] {
        let url = fake.url().replace("127.0.0.1", host);
        assert_eq!(whole(post(&upstream(&url, &json!({})).unwrap(), None).await).await, "{}", "{host}");
    }
    assert_eq!(names::of_this_machine("localhost.example.com"), None);
    assert_eq!(names::of_this_machine("notlocalhost"), None);
}

/// HTTP/1.1 is told the path and the host, HTTP/2 the URI.
#[tokio::test]
async fn origins_and_paths_are_those_of_the_url() {
    let path = target("/base/v1/x?y=z".to_owned()).unwrap();
    for (url, host) in [
        ("http://one.example.com/base", "one.example.com"),
        ("https://one.example.com:443/", "one.example.com"),
        ("https://one.example.com:8443/", "one.example.com:8443"),
        ("http://[::1]:80/", "[::1]"),
        ("http://[::1]:81/", "[::1]:81"),
        ("http://127.0.0.1:443/", "127.0.0.1:443"),
    ] {
        let client = |is_http2| {
            let manner = Manner { connect: Duration::from_secs(2), is_https_only: false, is_http2 };
            Client::new(tls::by_authorities(None).unwrap(), manner, &url.parse().unwrap())
        };
        let (Client::Http1(http1), Client::Http2(http2)) = (client(false), client(true)) else {
            panic!("{url}")
        };
        assert_eq!(http1.host(), host, "{url}");
        let (scheme, _) = url.split_once("://").unwrap();
        assert_eq!(http2.uri(Some(&path)).unwrap(), format!("{scheme}://{host}/base/v1/x?y=z").as_str());
    }
}

#[tokio::test]
async fn paths_are_added_to_the_base() {
    let fake = Fake::start(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    for base in ["", "/", "/a/b", "/a/b/", "/%C3%A9/|^"] {
        let upstream = upstream(&format!("{}{base}", fake.url()), &json!({})).unwrap();
        assert_eq!(whole(post(&upstream, None).await).await, "{}", "{base}");
    }
    let lines: Vec<_> =
        fake.seen.lock().iter().map(|seen| seen.head.lines().next().unwrap().to_owned()).collect();
    let paths = ["/v1/x", "/v1/x", "/a/b/v1/x", "/a/b/v1/x", "/%c3%a9/|^/v1/x"];
    assert_eq!(lines, paths.map(|path| format!("post {path} http/1.1")));
}

#[tokio::test]
async fn only_configured_credentials_go_out() {
    let fake = Fake::start(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    let tier = (HeaderName::from_static("x-user-tier"), HeaderValue::from_static("gold"));
    let base = format!("{}/base/", fake.url());
    let plain = upstream(&base, &json!({})).unwrap();
    let answer = plain.post("/v1/chat", &[tier], Bytes::from_static(b"{}"), None, IDLE).await;
    assert_eq!(whole(answer.map_err(|unanswered| unanswered.why)).await, "{}");
    let anthropic = upstream(&fake.url(), &json!({"provider": "anthropic", "path": "/v1/messages"})).unwrap();
    whole(post(&anthropic, None).await).await;
    let basic = json!({"bearer_token": "user:password", "basic_auth": true});
    whole(post(&upstream(&fake.url(), &basic).unwrap(), None).await).await;
    let seen = fake.seen.lock().clone();
    assert!(seen[2].head.contains("authorization: basic dxnlcjpwyxnzd29yza=="), "{}", seen[2].head);
    assert!(seen[0].head.starts_with("post /base/v1/chat http/1.1"), "{}", seen[0].head);
    for line in ["authorization: bearer s3cret", "x-user-tier: gold", "content-type: application/json"] {
        assert!(seen[0].head.contains(line), "{line}");
    }
    assert!(!seen[0].head.contains("accept-encoding") && !seen[0].head.contains("x-api-key"));
    assert!(seen[1].head.contains("x-api-key: s3cret") && !seen[1].head.contains("authorization"));
    assert!(seen[1].head.contains("anthropic-version: 2023-06-01"));
    assert_eq!(seen[1].body, b"{\"secret\":1}");
}

#[tokio::test]
async fn connections_are_kept() {
    let fake = Fake::start(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    for _ in 0..5 {
        whole(post(&upstream, None).await).await;
    }
    assert_eq!(fake.counts.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let fake = Fake::start(|_, _| vec![Act::Send(reply(307, "location: /elsewhere\r\n", b""))]).await;
    let answer = post(&upstream(&fake.url(), &json!({})).unwrap(), None).await.unwrap();
    assert_eq!((answer.status.as_u16(), fake.seen.lock().len()), (307, 1));
}

#[tokio::test]
async fn heads_are_read() {
    for (headers, retry_after, is_event_stream) in [
        ("retry-after: 2\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n", Some(2), true),
        ("retry-after: 99999999\r\ncontent-type: text/event-streams\r\n", Some(600), false),
        ("retry-after: -1\r\n", None, false),
        ("retry-after: soon\r\n", None, false),
        ("retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n", Some(0), false),
        ("retry-after: Tue, 31 Dec 2999 23:59:59 GMT\r\n", Some(600), false),
        (
            "date: Fri, 31 Dec 1999 23:59:29 GMT\r\nretry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n",
            Some(30),
            false,
        ),
        ("date: soon\r\nretry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n", Some(0), false),
        ("retry-after: Fri, 32 Dec 1999 23:59:59 GMT\r\n", None, false),
    ] {
        let fake = Fake::start(move |_, _| vec![Act::Send(reply(429, headers, b""))]).await;
        let answer = post(&upstream(&fake.url(), &json!({})).unwrap(), None).await.unwrap();
        assert_eq!((answer.retry_after, answer.is_event_stream), (retry_after, is_event_stream), "{headers}");
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_cuts_are_seen() {
    let pieces =
        |end: Act| vec![Act::Send(stream_head()), Act::Send(chunk(b"abc")), Act::Send(chunk(b"def")), end];
    let fake = Fake::start(move |number, _| match number {
        0 | 1 => pieces(Act::Send(chunk(b""))),
        2 => pieces(Act::Close),
        _ => pieces(Act::Hang),
    })
    .await;
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    let read =
        async |limit, idle| post(&upstream, None).await.unwrap().whole(limit, idle, &mut share()).await;
    assert_eq!(read(6, IDLE).await.unwrap(), "abcdef");
    assert_eq!(read(5, IDLE).await, Err(ReadFailure::TooLong));
    assert_eq!(read(6, IDLE).await, Err(ReadFailure::Broken(SendFailure::Transport)));
    let silent = read(6, Duration::from_millis(20)).await;
    assert_eq!(silent, Err(ReadFailure::Broken(SendFailure::TimedOut)));
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_head_is_tried_once_more() {
    let fake = Fake::start(|number, _| match number {
        1 => vec![Act::Send(json_reply(200, "{}"))],
        _ => vec![Act::Close],
    })
    .await;
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    assert_eq!(whole(post(&upstream, None).await).await, "{}");
    assert_eq!(post(&upstream, None).await.unwrap_err(), SendFailure::Transport);
    assert_eq!(fake.seen.lock().len(), 4);
}

fn over_http2(url: &str, pem: String) -> Upstream {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    upstream(url, &json!({"ca_file": file.path(), "http2": true})).unwrap()
}

#[tokio::test]
async fn what_an_upstream_has_not_begun_is_tried_once_more() {
    for (first, tries, is_answered) in [(0, 1, true), (1, 2, true), (2, 2, false)] {
        let (url, pem, requests) = http2(move |number| (number >= first).then_some(1)).await;
        let posted = post(&over_http2(&url, pem), None).await;
        assert_eq!(posted.is_ok(), is_answered, "{posted:?}");
        if is_answered {
            assert_eq!(whole(posted).await, "1");
        }
        assert_eq!(requests.load(Ordering::Relaxed), tries);
    }
}

/// Only an orderly end says that nothing was done.
#[tokio::test]
async fn what_a_connection_that_goes_away_has_not_begun_is_tried_once_more() {
    for (reason, is_answered) in [(h2::Reason::NO_ERROR, true), (h2::Reason::ENHANCE_YOUR_CALM, false)] {
        let (url, pem, connections) = http2_going_away(reason).await;
        let posted = post(&over_http2(&url, pem), None).await;
        assert_eq!(posted.is_ok(), is_answered, "{reason}: {posted:?}");
        if is_answered {
            assert_eq!(whole(posted).await, "1");
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1 + usize::from(is_answered), "{reason}");
    }
}

/// All answers come over one connection, and one that nobody reads takes nothing from the others.
#[tokio::test]
async fn an_answer_that_is_not_read_holds_up_no_other() {
    let (url, pem, _) = http2(|number| Some(if number < 3 { 1 << 20 } else { 1 })).await;
    let upstream = over_http2(&url, pem);
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(post(&upstream, None).await.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(whole(post(&upstream, None).await).await, "1");
    }
    for answer in unread {
        assert_eq!(whole(Ok(answer)).await.len(), 1 << 20);
    }
}

#[tokio::test]
async fn a_body_waits_for_its_room_and_no_longer_than_it_may() {
    const ROOM: usize = 2 * SMALL;
    // What is small needs none.
    let lengths = [ROOM, ROOM, SMALL];
    let fake =
        Fake::start(move |number, _| vec![Act::Send(json_reply(200, &"x".repeat(lengths[number])))]).await;
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    let budget = BodyBudget::new(ROOM);
    let mut other = budget.share(1);
    other.try_cover(1).unwrap();
    let mut share = budget.share(1);
    let mut answer = post(&upstream, None).await.unwrap();
    let read = answer.whole(1 << 20, Duration::from_millis(20), &mut share).await;
    assert_eq!(read, Err(ReadFailure::NoRoom(NoRoom)));
    let mut answer = post(&upstream, None).await.unwrap();
    let (read, ()) = tokio::join!(answer.whole(1 << 20, IDLE, &mut share), async { drop(other) });
    assert_eq!((read.unwrap().len(), budget.left()), (ROOM, 0));
    let mut answer = post(&upstream, None).await.unwrap();
    assert_eq!(answer.whole(1 << 20, IDLE, &mut budget.share(1)).await.unwrap().len(), SMALL);
}

#[tokio::test]
async fn it_is_known_whether_anything_may_have_gone_out() {
    let hanging = Fake::start(|_, _| vec![Act::Hang]).await;
    let closing = Fake::start(|_, _| vec![Act::Close]).await;
    // It takes connections, and says nothing of TLS.
    let silent = hanging.url().replace("http:", "https:");
    let nobody = "http://127.0.0.1:1".to_owned();
    // A name that no resolver asks for.
    let unknown = format!("http://{}.invalid", "x".repeat(64));
    // The operator is told why.
    for (url, patience, why, may_be_out, cause) in [
        (nobody, IDLE, SendFailure::Unreachable, false, "Connection refused"),
        (unknown, IDLE, SendFailure::Unreachable, false, "failed to lookup address"),
        (silent, IDLE, SendFailure::TimedOut, false, "deadline has elapsed"),
        (hanging.url(), Duration::from_secs(1), SendFailure::TimedOut, true, "no answer began within 1 s"),
        (closing.url(), IDLE, SendFailure::Transport, true, "the connection broke: "),
        (gone_after_one().await, IDLE, SendFailure::Unreachable, true, "Connection refused"),
    ] {
        let upstream = upstream(&url, &json!({"timeouts": {"connect": 1}})).unwrap();
        let unanswered = sent(&upstream, None, patience).await.unwrap_err();
        assert_eq!((unanswered.why, unanswered.may_be_out), (why, may_be_out), "{url}");
        assert!(unanswered.cause.contains(cause), "{url}: {}", unanswered.cause);
    }
    let upstream = upstream(&hanging.url(), &json!({})).unwrap();
    let unanswered = sent(&upstream, Some(&channel(&[])), IDLE).await.unwrap_err();
    assert_eq!(unanswered, Unanswered::unsent(SendFailure::Mismatch));
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    let unanswered = sent(&upstream, None, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(unanswered.why, SendFailure::TimedOut);
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test]
async fn nothing_goes_to_a_key_that_is_not_pinned() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    let (pem, pin) = fake.certificate.clone().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let trusting = upstream(&fake.url(), &json!({"ca_file": file.path()})).unwrap();
    // The authority is trusted, and it does not count.
    let failure = post(&trusting, Some(&channel(&[[1; 32]]))).await.unwrap_err();
    assert_eq!(failure, SendFailure::Mismatch);
    assert_eq!(post(&trusting, Some(&channel(&[]))).await.unwrap_err(), SendFailure::Mismatch);
    assert_eq!(fake.counts.bytes.load(Ordering::Relaxed), 0);
    // The pin counts, and the authority need not be trusted.
    let distrusting = upstream(&fake.url(), &json!({})).unwrap();
    assert_eq!(post(&distrusting, None).await.unwrap_err(), SendFailure::Unreachable);
    let pinned = channel(&[[1; 32], pin]);
    for _ in 0..3 {
        assert_eq!(whole(post(&distrusting, Some(&pinned)).await).await, "{}");
    }
    let connections = fake.counts.connections.load(Ordering::Relaxed);
    assert_eq!(connections, 3, "one without the pin, one without trust, one that is kept");
    assert_eq!(whole(post(&trusting, None).await).await, "{}");
}

#[tokio::test]
async fn without_tls_nothing_is_pinned() {
    let fake = Fake::start(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    let failure = post(&upstream, Some(&channel(&[[1; 32]]))).await.unwrap_err();
    assert_eq!(failure, SendFailure::Mismatch);
    assert_eq!(fake.counts.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn sets_of_pins_have_their_own_connections() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let upstream = upstream(&fake.url(), &json!({})).unwrap();
    for other in 0..10_u8 {
        whole(post(&upstream, Some(&channel(&[pin, [other; 32]]))).await).await;
        whole(post(&upstream, Some(&channel(&[[other; 32], pin]))).await).await;
    }
    assert_eq!(fake.counts.connections.load(Ordering::Relaxed), 10);
    assert_eq!(upstream.0.pinned.lock().len(), super::PINNED_CLIENTS);
}

#[test]
fn unusable_authorities_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(file.path(), text).unwrap();
        let made = upstream("https://127.0.0.1:1", &json!({"ca_file": file.path()}));
        assert!(matches!(made, Err(UpstreamError::Authorities { .. })), "{text}");
    }
    let made = upstream("https://127.0.0.1:1", &json!({"ca_file": "/nowhere/ca.pem"}));
    assert!(made.unwrap_err().to_string().contains("/nowhere/ca.pem"));
}

/// A listener whose queue is full: whoever connects hears nothing.
fn silent() -> (std::net::TcpListener, Vec<std::net::TcpStream>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let queued = std::iter::from_fn(|| {
        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()
    })
    .collect();
    (listener, queued)
}

/// One address of a provider that is dead, or silent, costs some of the time, and no request.
#[tokio::test]
async fn the_other_addresses_of_a_name_are_tried() {
    let fake = Fake::start(|_, _| vec![Act::Send(json_reply(200, "{}"))]).await;
    let live = fake.url().rsplit('/').next().unwrap().parse::<SocketAddr>().unwrap();
    let (silent, _queued) = silent();
    let dead = SocketAddr::from(([127, 0, 0, 1], 1));
    let manner = Manner { connect: Duration::from_secs(2), is_https_only: false, is_http2: false };
    for (first, second, is_reached) in [
        (dead, live, true),
        (silent.local_addr().unwrap(), live, true),
        (live, dead, true),
        (dead, silent.local_addr().unwrap(), false),
    ] {
        let names = tower::service_fn(move |_| async move {
            Ok::<_, std::convert::Infallible>([first, second].into_iter())
        });
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut connector = Connector::new(names, tls, manner);
        // Without a port: each address has its own.
        let reached = connector.call(Uri::from_static("http://name.test")).await;
        assert_eq!(reached.is_ok(), is_reached, "{first} {second}");
    }
}
