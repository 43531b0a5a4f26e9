//! An upstream that does what a test tells it, down to the byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// What it does once it has read a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Writes these bytes.
    Send(Vec<u8>),
    /// Lets time pass.
    Pause(Duration),
    /// Waits until it is let.
    Wait(Arc<Semaphore>),
    /// Nothing any more, until the other side hangs up.
    Hang,
    /// Hangs up.
    Close,
}

/// A request that it got.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Request line and headers, in lower case.
    pub head: String,
    pub body: Vec<u8>,
    pub at: Instant,
}

/// How often something happened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub connections: AtomicUsize,
    /// Hung up by the other side while it hung.
    pub left: AtomicUsize,
    /// Of those, how many in an orderly way: with TLS, after a `close_notify`.
    pub orderly: AtomicUsize,
    /// Bytes that came after the TLS handshake, if there is one.
    pub bytes: AtomicUsize,
}

#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub address: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub counts: Arc<Counts>,
    /// PEM, and the hash of its key.
    pub certificate: Option<(String, [u8; 32])>,
}

type Script = Arc<dyn Fn(usize, &Seen) -> Vec<Act> + Send + Sync>;

impl Fake {
    /// The script is asked for each request, with its number.
    pub(crate) async fn start(script: impl Fn(usize, &Seen) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::serve(Arc::new(script), Vec::new()).await
    }

    /// The same, with TLS and a certificate of its own.
    pub(crate) async fn start_tls(script: impl Fn(usize, &Seen) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::serve(Arc::new(script), vec![own_certificate()]).await
    }

    /// The same; from the second connection on its certificate is another one.
    pub(crate) async fn start_tls_changing(
        script: impl Fn(usize, &Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Arc::new(script), vec![own_certificate(), own_certificate()]).await
    }

    /// With a certificate for each connection, the last one for all that follow; without any in clear.
    async fn serve(script: Script, tls: Vec<(rustls::ServerConfig, (String, [u8; 32]))>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            counts: Arc::default(),
            certificate: tls.first().map(|(_, certificate)| certificate.clone()),
        };
        let mine = fake.clone();
        let acceptors: Vec<_> =
            tls.into_iter().map(|(config, _)| TlsAcceptor::from(Arc::new(config))).collect();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = mine.counts.connections.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptors.get(number).or(acceptors.last()).cloned();
                let (mine, script) = (mine.clone(), Arc::clone(&script));
                tokio::spawn(async move {
                    match acceptor {
                        None => mine.talk(stream, &script).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                mine.talk(stream, &script).await;
                            }
                        }
                    }
                });
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    async fn talk(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &Script) {
        while let Some(seen) = self.read(&mut stream).await {
            let number = {
                let mut all = self.seen.lock();
                all.push(seen.clone());
                all.len() - 1
            };
            for act in script(number, &seen) {
                match act {
                    Act::Send(bytes) => {
                        if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                            self.counts.left.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                    Act::Pause(time) => tokio::time::sleep(time).await,
                    Act::Wait(gate) => gate.acquire().await.unwrap().forget(),
                    Act::Hang => {
                        let end = loop {
                            match stream.read(&mut [0; 1024]).await {
                                Ok(read) if read > 0 => {}
                                end => break end,
                            }
                        };
                        self.counts.orderly.fetch_add(end.is_ok().into(), Ordering::Relaxed);
                        self.counts.left.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    Act::Close => {
                        drop(stream.shutdown().await);
                        return;
                    }
                }
            }
        }
    }

    async fn read(&self, stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 16 << 10]);
        loop {
            if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .map_or(0, |length| length.parse().unwrap());
                if bytes.len() >= end + 4 + length {
                    let body = bytes[end + 4..end + 4 + length].to_vec();
                    return Some(Seen { head, body, at: Instant::now() });
                }
            }
            let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
            self.counts.bytes.fetch_add(read, Ordering::Relaxed);
            bytes.extend_from_slice(&piece[..read]);
        }
    }
}

/// The address of somebody who takes one request, breaks the connection and is not there any more.
pub(crate) async fn gone_after_one() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(listener);
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut piece).await.unwrap();
            bytes.extend_from_slice(&piece[..read]);
        }
    });
    url
}

/// A whole answer with a length.
pub(crate) fn reply(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A whole answer in JSON.
pub(crate) fn json(status: u16, body: &str) -> Vec<u8> {
    reply(status, "content-type: application/json\r\n", body.as_bytes())
}

/// The head of a stream in chunks.
pub(crate) fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_vec()
}

/// A piece of a stream; an empty one ends it.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Looks for a condition until it holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(2);
    while !holds() {
        assert!(Instant::now() < end, "it never came to hold");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A client that keeps to what it is told.
pub(crate) fn client() -> reqwest::Client {
    let tls = super::tls::by_authorities(None).unwrap();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy();
    builder.redirect(reqwest::redirect::Policy::none()).tcp_nodelay(true).build().unwrap()
}

/// A configuration of TLS with a certificate of its own; the certificate in PEM, and the hash of its key.
fn own_certificate() -> (rustls::ServerConfig, (String, [u8; 32])) {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(own.cert.der().to_vec())], key)
        .unwrap();
    let spki = rcgen::PublicKeyData::subject_public_key_info(&own.signing_key);
    (config, (own.cert.pem(), Sha256::digest(spki).into()))
}

/// Where connections for HTTP/2 come in, its URL, and its certificate in PEM.
async fn http2_door() -> (TlsAcceptor, TcpListener, String, String) {
    let (mut config, (pem, _)) = own_certificate();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    (acceptor, listener, url, pem)
}

/// An upstream of HTTP/2. The script is asked for each request, with its number: it answers with so many bytes, or says
/// that it has not begun. Its URL, its certificate in PEM, and how many requests it got.
pub(crate) async fn http2(
    script: impl Fn(usize) -> Option<usize> + Send + Sync + 'static,
) -> (String, String, Arc<AtomicUsize>) {
    let (acceptor, listener, url, pem) = http2_door().await;
    let requests = Arc::new(AtomicUsize::new(0));
    let (counted, script) = (Arc::clone(&requests), Arc::new(script));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, counted, script) = (acceptor.clone(), Arc::clone(&counted), Arc::clone(&script));
            tokio::spawn(async move {
                let mut connection =
                    h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let Some(bytes) = script(counted.fetch_add(1, Ordering::Relaxed)) else {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    };
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    body.send_data(vec![b'1'; bytes].into(), true).unwrap();
                }
            });
        }
    });
    (url, pem, requests)
}

/// An upstream of HTTP/2 whose first connection ends before it begins with any request (`GOAWAY`, RFC 9113, 6.8), for
/// this reason; those that follow answer. Its URL, its certificate in PEM, and how many connections there were.
pub(crate) async fn http2_going_away(reason: h2::Reason) -> (String, String, Arc<AtomicUsize>) {
    let (acceptor, listener, url, pem) = http2_door().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                go_away(&mut stream, reason).await.unwrap();
                continue;
            }
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    body.send_data("1".into(), true).unwrap();
                }
            });
        }
    });
    (url, pem, connections)
}

/// Reads up to the head of a request, and says that no request is begun with.
async fn go_away(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), reason: h2::Reason) -> io::Result<()> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&SETTINGS).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await?;
        if head[3] == HEADERS {
            break;
        }
    }
    // Of all streams, none: the last that was begun with has the number 0.
    stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await?;
    stream.write_all(&u32::from(reason).to_be_bytes()).await?;
    stream.shutdown().await
}
