//! A server on loopback that answers what a test tells it, byte for byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cloister_outbound::{Answer, Outbound, SendError};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Longer than anything takes that is to succeed.
pub(crate) const ENOUGH: Duration = Duration::from_secs(10);

/// What happens after a request was read.
#[derive(Clone)]
pub(crate) enum Reply {
    /// These bytes, and the next request.
    Send(Vec<u8>),
    /// These bytes, and the end of the connection.
    Last(Vec<u8>),
    /// These bytes, and silence.
    Hang(Vec<u8>),
    /// The first bytes, and then the second ones for ever.
    Flood(Vec<u8>, Vec<u8>),
}

impl Reply {
    pub(crate) fn ok(body: &str) -> Self {
        Self::Send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }
}

/// Which reply the nth request of the nth connection gets, both counted from 0.
type Script = Arc<dyn Fn(usize, usize) -> Reply + Send + Sync>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    script: Script,
    requests: Mutex<Vec<String>>,
    opened: watch::Sender<usize>,
    closed: watch::Sender<usize>,
}

impl Server {
    pub(crate) async fn new(script: impl Fn(usize, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::listening(None, script).await
    }

    pub(crate) async fn with_tls(
        config: ServerConfig,
        script: impl Fn(usize, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listening(Some(TlsAcceptor::from(Arc::new(config))), script).await
    }

    async fn listening(
        tls: Option<TlsAcceptor>,
        script: impl Fn(usize, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Arc::new(script),
            requests: Mutex::default(),
            opened: watch::Sender::new(0),
            closed: watch::Sender::new(0),
        });
        let inner = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                inner.opened.send_modify(|opened| *opened += 1);
                let (tls, inner) = (tls.clone(), Arc::clone(&inner));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, connection, &inner).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, connection, &inner).await;
                            }
                        }
                    }
                    inner.closed.send_modify(|closed| *closed += 1);
                });
            }
        });
        Self { address, shared, task: task.abort_handle() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The requests so far: head and body as they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(crate) fn opened(&self) -> usize {
        *self.shared.opened.borrow()
    }

    /// Until so many connections have ended.
    pub(crate) async fn closed(&self, count: usize) {
        self.shared.closed.subscribe().wait_for(|closed| *closed >= count).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, connection: usize, shared: &Shared) {
    for request in 0.. {
        let Some(received) = read_request(&mut stream).await else { return };
        shared.requests.lock().unwrap().push(received);
        match (shared.script)(connection, request) {
            Reply::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Reply::Last(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Reply::Hang(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.read_u8().await;
                return;
            }
            Reply::Flood(first, then) => {
                let _ = stream.write_all(&first).await;
                while stream.write_all(&then).await.is_ok() {}
                return;
            }
        }
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    loop {
        read.push(stream.read_u8().await.ok()?);
        if read.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(read).unwrap();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}

/// Posts a small body and waits long enough.
pub(crate) async fn post(client: &Outbound, url: &str) -> Result<Answer, SendError> {
    post_within(client, url, ENOUGH).await
}

pub(crate) async fn post_within(
    client: &Outbound,
    url: &str,
    timeout: Duration,
) -> Result<Answer, SendError> {
    let url = client.check(url)?;
    client.post(&url, HeaderMap::new(), Bytes::from_static(b"{}"), timeout).await
}
