//! A verification that waits for collateral holds up nobody else.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cloister_verifier::{Clock, Collateral, CollateralKey, CollateralSource, FetchFuture, Policy, Update};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::handshakes::{acceptor, connector, name};
use super::lab::{APP, Lab, now};
use crate::{Clients, JudgingAcceptor, PeerPolicy, PeerVerifier, client_config};

/// A collateral service that answers when it is told to.
struct Held {
    collateral: Collateral,
    asked: Arc<Notify>,
    answer: Arc<Notify>,
}

impl CollateralSource for Held {
    fn fetch<'a>(&'a self, _: &'a CollateralKey, _: Update) -> FetchFuture<'a> {
        Box::pin(async {
            self.asked.notify_one();
            self.answer.notified().await;
            Ok(self.collateral.clone())
        })
    }
}

async fn others_proceed() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let source =
        Held { collateral: lab.collateral(|_| {}), asked: Arc::clone(&asked), answer: Arc::clone(&answer) };
    let policy = || PeerPolicy::any_app(Policy::default());
    let slow = PeerVerifier::new(lab.verifier_with(source, Clock::fixed(now())), policy());
    let quick = PeerVerifier::new(lab.verifier(), policy());

    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(&holder, &Clients::Anonymous);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(stream).await });
        }
    });
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    let slow = tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let peer = connector(&slow, None).connect(name(), stream).await.unwrap().peer;
        flag.store(true, Ordering::SeqCst);
        peer
    });
    asked.notified().await;
    // The first handshake waits inside its verification; more of them go through meanwhile than there
    // are threads.
    for _ in 0..8 {
        let stream = TcpStream::connect(address).await.unwrap();
        connector(&quick, None).connect(name(), stream).await.unwrap();
    }
    assert!(!done.load(Ordering::SeqCst));
    answer.notify_one();
    assert_eq!(slow.await.unwrap().app.app_id, Some(super::lab::app(APP)));
}

#[tokio::test(flavor = "current_thread")]
async fn on_one_thread() {
    others_proceed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_many_threads() {
    others_proceed().await;
}

#[tokio::test]
async fn a_peer_that_nobody_can_judge_in_time_can_be_told_so() {
    let lab = Lab::new();
    let (server, client) = (lab.holder(APP), lab.holder(APP));
    let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let source =
        Held { collateral: lab.collateral(|_| {}), asked: Arc::clone(&asked), answer: Arc::clone(&answer) };
    let policy = || PeerPolicy::any_app(Policy::default());
    let clients = PeerVerifier::new(lab.verifier_with(source, Clock::fixed(now())), policy());
    let judging = JudgingAcceptor::new(&server.key, &server.certificate, &[], clients).unwrap();
    let (near, far) = tokio::io::duplex(64 << 10);
    let judged = tokio::spawn(async move { judging.accept(near).await });
    let servers = PeerVerifier::new(lab.verifier(), policy());
    let connected = connector(&servers, Some(&client)).connect(name(), far).await.unwrap();
    asked.notified().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    let judged = judged.await.unwrap().unwrap();
    assert!(judged.peer.unwrap_err().is_temporary());
    answer.notify_one();
    drop(connected);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_given_up() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let (near, _far) = tokio::io::duplex(1024);
    let refused = acceptor(&holder, &Clients::Anonymous).accept(near).await;
    assert!(matches!(refused, Err(crate::HandshakeError::TimedOut)));
}

#[tokio::test]
async fn a_peer_that_leaves_is_noticed() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let (near, far) = tokio::io::duplex(1024);
    drop(far);
    let refused = acceptor(&holder, &Clients::Anonymous).accept(near).await;
    assert!(matches!(refused, Err(crate::HandshakeError::Io(_))));
}

#[tokio::test]
async fn what_comes_behind_a_farewell_occupies_nobody() {
    let lab = Lab::new();
    let holder = lab.holder(APP);
    let servers = PeerVerifier::new(lab.verifier(), PeerPolicy::any_app(Policy::default()));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let config = Arc::new(client_config(&servers, None).unwrap());
        let mut client = rustls::ClientConnection::new(config, name()).unwrap();
        while client.is_handshaking() {
            while client.wants_write() {
                client.write_tls(&mut stream).unwrap();
            }
            client.read_tls(&mut stream).unwrap();
            client.process_new_packets().unwrap();
        }
        // The end of the handshake, the farewell and more than TLS reads at once, all in one piece.
        client.send_close_notify();
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        bytes.resize(8000, 0);
        stream.write_all(&bytes).unwrap();
        stream
    });
    let (stream, _) = listener.accept().await.unwrap();
    let acceptor = acceptor(&holder, &Clients::Anonymous);
    let accepted = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await;
    assert!(accepted.is_ok_and(|accepted| accepted.is_ok_and(|accepted| accepted.peer.is_none())));
    drop(client.join().unwrap());
}
