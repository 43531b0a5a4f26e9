//! Where connections go, what is sent on them, and how long they are kept.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use cloister_outbound::{Lookup, Outbound, OutboundConfig, Refused, Resolve, SendError, Stage};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::net::TcpListener;
use tokio::time::Duration;

use crate::names::{Names, allowing, local, strict};
use crate::server::{ENOUGH, Reply, Server, post, post_within};

#[tokio::test]
async fn a_request_says_what_was_given_and_which_host_was_meant() {
    let server = Server::new(|_, _| Reply::ok("thanks")).await;
    let client = local(Names::of(&[("hooks.example.com", &["127.0.0.1"])]));
    let url = format!("http://hooks.example.com:{}/a/b?c=%20d", server.address.port());
    let url = client.check(&url).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.append("x-two", HeaderValue::from_static("1"));
    headers.append("x-two", HeaderValue::from_static("2"));
    let answer = client.post(&url, headers, Bytes::from_static(b"{\"a\":1}"), ENOUGH).await.unwrap();
    assert_eq!((answer.status, &*answer.body, answer.retry_after), (200, &b"thanks"[..], None));
    let requests = server.requests();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /a/b?c=%20d HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: hooks.example.com:{}", server.address.port());
    assert_eq!(lines, ["content-length: 7", "content-type: application/json", &host, "x-two: 1", "x-two: 2"]);
    assert_eq!(body, "{\"a\":1}");
}

#[tokio::test]
async fn no_header_can_split_a_request_or_change_its_frame() {
    for value in ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\0b"] {
        assert!(HeaderValue::from_str(value).is_err());
    }
    let server = Server::new(|_, _| Reply::ok("")).await;
    let client = local(Names::of(&[]));
    let url = client.check(&server.url()).unwrap();
    for name in
        ["host", "content-length", "transfer-encoding", "connection", "upgrade", "expect", "te", "trailer"]
    {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
        let sent = client.post(&url, headers, Bytes::new(), ENOUGH).await;
        assert_eq!(sent, Err(SendError::Request), "{name}");
    }
    let split = client.check(&format!("{}?a=%0d%0aHost:%20evil&b=ä\"<>", server.url())).unwrap();
    client.post(&split, HeaderMap::new(), Bytes::new(), ENOUGH).await.unwrap();
    let requests = server.requests();
    assert!(
        requests[0].starts_with("POST /hook?a=%0d%0aHost:%20evil&b=%C3%A4%22%3C%3E HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert_eq!(server.opened(), 1);
}

#[tokio::test]
async fn a_name_server_that_changes_its_mind_leads_nowhere_else() {
    let server = Server::new(|_, _| Reply::ok("inside")).await;
    let names = Names::of(&[]);
    names.then("rebind.example.com", &["93.184.216.34"]);
    names.then("rebind.example.com", &["127.0.0.1"]);
    let client = allowing(&[], false, names.clone());
    let url = client.check(&format!("https://rebind.example.com:{}/", server.address.port())).unwrap();
    assert_eq!(client.vet(&url).await, Ok(()));
    let sent = client.post(&url, HeaderMap::new(), Bytes::new(), ENOUGH).await;
    assert_eq!(sent, Err(SendError::Refused(Refused::Address)));
    assert_eq!((server.opened(), names.asked().len()), (0, 2));
}

#[tokio::test]
async fn a_connection_goes_to_an_address_that_was_judged() {
    let server = Server::new(|_, _| Reply::Last(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())).await;
    let names = Names::of(&[]);
    // Looked up once more for the connection, it would lead elsewhere.
    names.then("flips.example.com", &["127.0.0.1"]);
    names.then("flips.example.com", &["10.0.0.1"]);
    let client = local(names.clone());
    let url = format!("http://flips.example.com:{}/", server.address.port());
    assert_eq!(post(&client, &url).await.unwrap().status, 200);
    assert_eq!(names.asked(), ["flips.example.com"]);
    assert_eq!(post(&client, &url).await, Err(SendError::Refused(Refused::Address)));
    assert_eq!(server.opened(), 1);
}

#[tokio::test]
async fn one_address_among_many_that_is_not_public_is_enough() {
    let server = Server::new(|_, _| Reply::ok("")).await;
    let names = Names::of(&[("mixed.example.com", &["127.0.0.1", "10.0.0.1"])]);
    let client = local(names);
    let sent = post(&client, &format!("http://mixed.example.com:{}/", server.address.port())).await;
    assert_eq!(sent, Err(SendError::Refused(Refused::Address)));
    assert_eq!(server.opened(), 0);
}

#[tokio::test]
async fn what_was_never_checked_is_checked_when_it_is_sent() {
    let server = Server::new(|_, _| Reply::ok("")).await;
    let url = server.url().parse().unwrap();
    let sent = strict().post(&url, HeaderMap::new(), Bytes::new(), ENOUGH).await;
    assert_eq!(sent, Err(SendError::Refused(Refused::Scheme)));
    let url = server.url().replace("http:", "https:").parse().unwrap();
    let sent = strict().post(&url, HeaderMap::new(), Bytes::new(), ENOUGH).await;
    assert_eq!(sent, Err(SendError::Refused(Refused::Address)));
    assert_eq!(server.opened(), 0);
}

#[tokio::test]
async fn connections_are_kept_and_looked_up_once() {
    let server = Server::new(|_, _| Reply::ok("x")).await;
    let names = Names::of(&[("hooks.example.com", &["127.0.0.1"])]);
    let client = local(names.clone());
    let url = format!("http://hooks.example.com:{}/", server.address.port());
    for _ in 0..5 {
        assert_eq!(post(&client.clone(), &url).await.unwrap().status, 200);
    }
    assert_eq!((server.opened(), server.requests().len(), names.asked().len()), (1, 5, 1));
    assert_eq!(post(&client, &server.url()).await.unwrap().status, 200);
    assert_eq!(server.opened(), 2, "another host is another connection");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_costs_nothing() {
    // The first connection takes one request; the second request on it is read and never answered.
    let server = Server::new(|connection, request| match (connection, request) {
        (0, 1) => Reply::Last(Vec::new()),
        _ => Reply::ok("x"),
    })
    .await;
    let client = local(Names::of(&[]));
    for _ in 0..3 {
        assert_eq!(post(&client, &server.url()).await.unwrap().status, 200);
    }
    assert_eq!((server.opened(), server.requests().len()), (2, 4));
}

#[tokio::test]
async fn a_request_is_not_made_again_when_a_new_connection_breaks_or_an_answer_has_begun() {
    let server = Server::new(|connection, request| match (connection, request) {
        (0, _) => Reply::Last(Vec::new()),
        (_, 1) => Reply::Last(b"HTTP/1.1 2".to_vec()),
        _ => Reply::ok("x"),
    })
    .await;
    let client = local(Names::of(&[]));
    assert_eq!(post(&client, &server.url()).await, Err(SendError::Disconnected));
    assert_eq!(post(&client, &server.url()).await.unwrap().status, 200);
    assert_eq!(post(&client, &server.url()).await, Err(SendError::Disconnected));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let server = Server::new(|_, _| Reply::ok("x")).await;
    let client = local(Names::of(&[]));
    post(&client, &server.url()).await.unwrap();
    // Time runs on where nothing else happens.
    tokio::time::pause();
    server.closed(1).await;
    tokio::time::resume();
    assert_eq!(post(&client, &server.url()).await.unwrap().status, 200);
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn a_busy_connection_does_not_lead_for_ever_where_its_host_led_once() {
    let server = Server::new(|_, _| Reply::ok("x")).await;
    let names = Names::of(&[]);
    names.then("moves.example.com", &["127.0.0.1"]);
    names.then("moves.example.com", &["10.0.0.1"]);
    let client = local(names.clone());
    let url = format!("http://moves.example.com:{}/", server.address.port());
    for _ in 0..15 {
        assert_eq!(post(&client, &url).await.unwrap().status, 200);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(20)).await;
        tokio::time::resume();
    }
    assert_eq!((server.opened(), names.asked().len()), (1, 1));
    assert_eq!(post(&client, &url).await, Err(SendError::Refused(Refused::Address)));
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_ends_its_connection() {
    let server = Server::new(|_, _| Reply::Hang(Vec::new())).await;
    let client = local(Names::of(&[]));
    let sent = post_within(&client, &server.url(), Duration::from_secs(1)).await;
    assert_eq!(sent, Err(SendError::Timeout(Stage::Answering)));
    server.closed(1).await;
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_takes_no_connection() {
    let server = Server::new(|_, _| Reply::ok("x")).await;
    let names = Names::of(&[("hooks.example.com", &["::1", "127.0.0.9", "127.0.0.1"])]);
    let client = local(names);
    let url = format!("http://hooks.example.com:{}/", server.address.port());
    assert_eq!(post(&client, &url).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = local(Names::of(&[("hooks.example.com", &["127.0.0.1"])]));
    let sent = post(&client, &format!("http://hooks.example.com:{}/", free.port())).await.unwrap_err();
    assert_eq!(sent, SendError::ConnectionRefused);
    assert!(!sent.to_string().contains("127."));
}

#[tokio::test]
async fn name_servers_that_hang_cost_no_more_than_the_time_that_was_given() {
    #[derive(Debug)]
    struct Silent;
    impl Resolve for Silent {
        fn lookup<'a>(&'a self, _: &'a str) -> Lookup<'a> {
            Box::pin(std::future::pending::<Result<Vec<IpAddr>, _>>())
        }
    }
    let client = Outbound::new(OutboundConfig::default(), Arc::new(Silent));
    let sent = post_within(&client, "https://hooks.example.com/", Duration::from_millis(50)).await;
    assert_eq!(sent, Err(SendError::Timeout(Stage::Lookup)));
    tokio::time::pause();
    let url = client.check("https://hooks.example.com/").unwrap();
    assert_eq!(client.vet(&url).await, Err(Refused::NoAnswer));
}
