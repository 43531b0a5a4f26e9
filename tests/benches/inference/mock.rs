//! A bare upstream: one answer to every request, and streams of events.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"A few words."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":4,"total_tokens":16}}"#;
/// Between two events of a slow stream.
const PAUSE: Duration = Duration::from_secs(1);
/// Events of a slow stream: it outlasts what is measured about it.
const SLOW_EVENTS: usize = 7200;

/// Serves for ever.
pub(crate) async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream));
    }
}

async fn connection(stream: TcpStream) {
    // A connection that breaks concerns only who broke it.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

type Events = std::pin::Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<Either<Full<Bytes>, StreamBody<Events>>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let (kind, body) = if memmem::find(&body, br#""stream":true"#).is_some() {
        let is_slow = memmem::find(&body, b"slowly").is_some();
        ("text/event-stream", Either::Right(StreamBody::new(events(is_slow))))
    } else {
        ("application/json", Either::Left(Full::new(Bytes::from_static(ANSWER.as_bytes()))))
    };
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    Ok(response)
}

fn chunk(choices: &str, usage: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\
         \"choices\":[{choices}]{usage}}}\n\n"
    )
}

fn events(is_slow: bool) -> Events {
    let content = r#"{"index":0,"delta":{"content":"word "},"finish_reason":null}"#;
    let count = if is_slow { SLOW_EVENTS } else { 8 };
    let middle = stream::iter(0..count).then(move |number| async move {
        if is_slow && number > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        chunk(content, "")
    });
    let end = [
        chunk(r#"{"index":0,"delta":{},"finish_reason":"stop"}"#, ""),
        chunk("", r#","usage":{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}"#),
        "data: [DONE]\n\n".to_owned(),
    ];
    middle.chain(stream::iter(end)).map(|event| Ok(Frame::data(Bytes::from(event)))).boxed()
}
