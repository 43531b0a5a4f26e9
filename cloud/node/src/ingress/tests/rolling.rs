//! A rolling change under load: every replica is drained, goes away and comes back, one after the other, and
//! no request is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::support::{APP_A, Apps, VM_A, VM_A2, VM_A3, ingress, read_response, soon};
use crate::Readiness;
use crate::ingress::Limits;

const REPLICAS: [Uuid; 3] = [VM_A, VM_A2, VM_A3];
/// Clients at once, each with a kept connection of its own.
const CLIENTS: usize = 8;
/// Requests that must have been answered between two steps of the change.
const REQUESTS_PER_STEP: usize = 40;

/// A stand-in for a guest that answers with what it was sent. Without power its connections break.
struct Guest {
    address: SocketAddr,
    power: CancellationToken,
}

async fn boot() -> Guest {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let power = CancellationToken::new();
    let off = power.clone();
    tokio::spawn(power.clone().run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo));
            tokio::spawn(off.clone().run_until_cancelled_owned(connection));
        }
    }));
    Guest { address, power }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::from(body)))
}

/// What the clients have seen.
#[derive(Default)]
struct Load {
    answered: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    /// Waits for some more answers.
    async fn goes_on(&self) {
        let goal = self.answered.load(Ordering::SeqCst) + REQUESTS_PER_STEP;
        soon(async {
            while self.answered.load(Ordering::SeqCst) < goal {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// Sends one request after the other over one connection; every one must be answered in full.
async fn client(address: SocketAddr, method: &'static str, load: Arc<Load>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    for number in 0.. {
        if load.is_over.load(Ordering::SeqCst) {
            return;
        }
        let body = format!("{method} {number}");
        let request = format!(
            "{method} / HTTP/1.1\r\nhost: {APP_A}.apps.localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_response(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(&body), "{answer}");
        load.answered.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_change_under_load_loses_no_request() {
    let apps = Apps::none().replica(APP_A, VM_A).replica(APP_A, VM_A2).replica(APP_A, VM_A3);
    let apps = Arc::new(apps);
    let mut guests = Vec::new();
    for vm in REPLICAS {
        let guest = boot().await;
        apps.serve(vm, 80, guest.address);
        guests.push(guest);
    }
    let (ingress, _) = ingress(Arc::clone(&apps), Limits::default()).await;
    let load = Arc::new(Load::default());
    let mut clients = JoinSet::new();
    for method in ["GET", "POST"].into_iter().cycle().take(CLIENTS) {
        clients.spawn(client(ingress.http_address(), method, Arc::clone(&load)));
    }
    for (vm, guest) in REPLICAS.into_iter().zip(&mut guests) {
        load.goes_on().await;
        apps.set(vm, Readiness::Leaving);
        soon(apps.flows(vm).ended()).await;
        guest.power.cancel();
        load.goes_on().await;
        *guest = boot().await;
        apps.serve(vm, 80, guest.address);
        apps.set(vm, Readiness::Starting);
        load.goes_on().await;
        apps.set(vm, Readiness::Ready);
    }
    load.goes_on().await;
    load.is_over.store(true, Ordering::SeqCst);
    while let Some(client) = soon(clients.join_next()).await {
        client.unwrap();
    }
}
