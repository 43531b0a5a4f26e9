//! An endpoint that asks the real node and then says what the test wants.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reqwest::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use url::Url;

/// What the endpoint does with a request.
pub(crate) enum Reply {
    /// This body.
    Text(StatusCode, String),
    /// This body, after which it wants no requests for so many seconds.
    Later(u64),
    /// A body without an end, as fast as it is taken.
    Endless,
    /// The beginning of a body, and then nothing.
    Stuck,
}

impl Reply {
    pub(crate) fn json(value: &Value) -> Self {
        Self::Text(StatusCode::OK, value.to_string())
    }
}

/// Request and the real node's answer to reply.
pub(crate) type Behaviour = Arc<dyn Fn(&Value, Value) -> Reply + Send + Sync>;

pub(crate) struct Proxy {
    pub(crate) url: Url,
    asked: Arc<AtomicUsize>,
}

impl Proxy {
    /// Requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// An endpoint that only passes on.
pub(crate) async fn honest(node: &Url) -> Proxy {
    proxy(node, |_, answer| Reply::json(&answer)).await
}

pub(crate) async fn proxy(
    node: &Url,
    behaviour: impl Fn(&Value, Value) -> Reply + Send + Sync + 'static,
) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/v2/secret-api-key", listener.local_addr().unwrap())).unwrap();
    let (asked, behaviour, node): (Arc<AtomicUsize>, Behaviour, _) =
        (Arc::default(), Arc::new(behaviour), node.clone());
    let counter = Arc::clone(&asked);
    let client = Client::builder().no_proxy().build().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (node, client) = (node.clone(), client.clone());
            let (behaviour, counter) = (Arc::clone(&behaviour), Arc::clone(&counter));
            let service = service_fn(move |request: Request<Incoming>| {
                counter.fetch_add(1, Ordering::SeqCst);
                answer(request, node.clone(), client.clone(), Arc::clone(&behaviour))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Proxy { url, asked }
}

async fn answer(
    request: Request<Incoming>,
    node: Url,
    client: Client,
    behaviour: Behaviour,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let asked = request.into_body().collect().await.unwrap().to_bytes();
    let sent = client.post(node).header("content-type", "application/json").body(asked.clone()).send();
    let real = serde_json::from_slice(&sent.await.unwrap().bytes().await.unwrap()).unwrap();
    let reply = behaviour(&serde_json::from_slice(&asked).unwrap(), real);
    let whole = |text: String| Full::new(Bytes::from(text)).boxed();
    let endless = |first: usize| {
        let frames = futures_util::stream::iter(std::iter::repeat_with(|| {
            Ok(Frame::data(Bytes::from_static(&[b' '; 1 << 14])))
        }));
        if first == 0 {
            BodyExt::boxed(StreamBody::new(frames))
        } else {
            use futures_util::StreamExt as _;
            BodyExt::boxed(StreamBody::new(frames.take(first).chain(futures_util::stream::pending())))
        }
    };
    let response = Response::builder();
    Ok(match reply {
        Reply::Text(status, text) => response.status(status).body(whole(text)),
        Reply::Later(seconds) => {
            response.status(429).header("retry-after", seconds.to_string()).body(whole(String::new()))
        }
        Reply::Endless => response.body(endless(0)),
        Reply::Stuck => response.body(endless(1)),
    }
    .unwrap())
}
