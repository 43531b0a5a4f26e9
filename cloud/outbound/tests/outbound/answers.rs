//! What servers may answer, and what of it is taken.

use cloister_outbound::{MAX_BODY, SendError, Stage};
use tokio::time::Duration;

use crate::names::{Names, local};
use crate::server::{Reply, Server, post, post_within};

#[tokio::test]
async fn redirects_are_answers_and_nobody_follows_them() {
    let target = Server::new(|_, _| Reply::ok("stolen")).await;
    for status in [301, 302, 303, 307, 308] {
        let head =
            format!("HTTP/1.1 {status} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
        let server = Server::new(move |_, _| Reply::Send(head.clone().into_bytes())).await;
        let answer = post(&local(Names::of(&[])), &server.url()).await.unwrap();
        assert_eq!(answer.status, status);
    }
    assert_eq!(target.opened(), 0);
}

#[tokio::test]
async fn every_status_is_an_answer() {
    for status in [200, 204, 299, 400, 410, 429, 500, 503, 599] {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        let server = Server::new(move |_, _| Reply::Send(head.clone().into_bytes())).await;
        assert_eq!(post(&local(Names::of(&[])), &server.url()).await.unwrap().status, status);
    }
}

#[tokio::test]
async fn the_wait_that_a_server_asks_for_is_read_in_both_forms() {
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (headers, expected) in [
        ("retry-after: 120\r\n", Some(120)),
        ("retry-after: 0\r\n", Some(0)),
        (&format!("{date}retry-after: Sun, 06 Nov 1994 08:51:37 GMT\r\n"), Some(120)),
        (&format!("{date}retry-after: Sun, 06 Nov 1994 08:00:00 GMT\r\n"), Some(0)),
        ("retry-after: Sun, 06 Nov 1994 08:51:37 GMT\r\n", None),
        ("retry-after: soon\r\n", None),
        ("retry-after: -5\r\n", None),
        ("retry-after: 99999999999999999999999\r\n", None),
        ("", None),
    ] {
        let head = format!("HTTP/1.1 503 Busy\r\n{headers}content-length: 0\r\n\r\n");
        let server = Server::new(move |_, _| Reply::Send(head.clone().into_bytes())).await;
        let answer = post(&local(Names::of(&[])), &server.url()).await.unwrap();
        assert_eq!(answer.retry_after, expected.map(Duration::from_secs), "{headers}");
    }
}

#[tokio::test]
async fn the_beginning_of_a_body_is_kept_and_the_rest_dropped() {
    let body = "b".repeat(20_000);
    let server = Server::new(move |_, _| Reply::ok(&body)).await;
    let client = local(Names::of(&[]));
    for _ in 0..2 {
        let answer = post(&client, &server.url()).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, MAX_BODY));
        assert!(answer.body.iter().all(|byte| *byte == b'b'));
    }
    assert_eq!(server.opened(), 1, "a small rest is read, so that the connection can be used again");
}

#[tokio::test]
async fn a_body_without_end_is_cut_and_its_connection_closed() {
    for head in ["content-length: 99999999999", "x: y", "transfer-encoding: chunked"] {
        let chunk = if head.starts_with('t') {
            format!("1000\r\n{}\r\n", "z".repeat(4096))
        } else {
            "z".repeat(4096)
        };
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        let server = Server::new(move |_, _| Reply::Flood(head.clone().into(), chunk.clone().into())).await;
        let answer = post(&local(Names::of(&[])), &server.url()).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, MAX_BODY));
        server.closed(1).await;
    }
}

#[tokio::test]
async fn the_status_counts_when_the_body_does_not_come() {
    for rest in ["content-length: 100\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes();
        let server = Server::new(move |_, _| Reply::Hang(bytes.clone())).await;
        let client = local(Names::of(&[]));
        let answer = post_within(&client, &server.url(), Duration::from_secs(2)).await.unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"abc"[..]));
        server.closed(1).await;
    }
}

#[tokio::test]
async fn a_body_that_is_not_what_it_says_is_dropped_and_its_connection_closed() {
    for rest in [
        "3\r\nabc\r\nzz\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "3\r\nabc\r\nffffffffffffffffff\r\nx",
        "3\r\nabc\r\n-1\r\n",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{rest}").into_bytes();
        let server = Server::new(move |_, _| Reply::Hang(bytes.clone())).await;
        let answer = post(&local(Names::of(&[])), &server.url()).await.unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"abc"[..]), "{rest}");
        server.closed(1).await;
    }
}

#[tokio::test]
async fn what_is_not_http_is_no_answer() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na\0b: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"\x16\x03\x01\x00\xff",
    ] {
        let server = Server::new(move |_, _| Reply::Hang(bytes.to_vec())).await;
        let sent = post(&local(Names::of(&[])), &server.url()).await;
        assert_eq!(sent, Err(SendError::Malformed), "{:?}", String::from_utf8_lossy(bytes));
        server.closed(1).await;
    }
}

#[tokio::test]
async fn a_connection_that_ends_early_is_no_answer() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-type: text"] {
        let server = Server::new(move |_, _| Reply::Last(bytes.to_vec())).await;
        assert_eq!(post(&local(Names::of(&[])), &server.url()).await, Err(SendError::Disconnected));
    }
}

#[tokio::test]
async fn heads_are_bounded() {
    let field = format!("x: {}\r\n", "y".repeat(1000));
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(40_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(200));
    for reply in [
        Reply::Flood(b"HTTP/1.1 200 OK\r\n".to_vec(), field.into()),
        Reply::Flood(b"HTTP/1.1 200 ".to_vec(), b"OK".to_vec()),
        Reply::Hang(long.into()),
        Reply::Hang(many.into()),
    ] {
        let server = Server::new(move |_, _| reply.clone()).await;
        assert_eq!(post(&local(Names::of(&[])), &server.url()).await, Err(SendError::TooLarge));
        server.closed(1).await;
    }
}

#[tokio::test]
async fn interim_answers_are_passed_over_but_not_for_ever() {
    let some = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(3)
        + "HTTP/1.1 201 Made\r\ncontent-length: 0\r\n\r\n";
    let server = Server::new(move |_, _| Reply::Send(some.clone().into())).await;
    assert_eq!(post(&local(Names::of(&[])), &server.url()).await.unwrap().status, 201);
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    let server = Server::new(move |_, _| Reply::Flood(Vec::new(), interim.clone())).await;
    assert_eq!(post(&local(Names::of(&[])), &server.url()).await, Err(SendError::TooLarge));
    server.closed(1).await;
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_time_that_was_given() {
    for bytes in
        ["", "HTTP/1.1 ", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", "HTTP/1.1 100 Continue\r\n\r\n"]
    {
        let server = Server::new(move |_, _| Reply::Hang(bytes.into())).await;
        let sent = post_within(&local(Names::of(&[])), &server.url(), Duration::from_secs(1)).await;
        assert_eq!(sent, Err(SendError::Timeout(Stage::Answering)));
        server.closed(1).await;
    }
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one() {
    let two =
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n"
            .to_vec();
    let server = Server::new(
        move |connection, _| if connection == 0 { Reply::Hang(two.clone()) } else { Reply::ok("") },
    )
    .await;
    let client = local(Names::of(&[]));
    assert_eq!(post(&client, &server.url()).await.unwrap().status, 200);
    assert_eq!(post(&client, &server.url()).await.unwrap().status, 200);
    assert_eq!(server.opened(), 2);
}
