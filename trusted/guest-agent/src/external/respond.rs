//! From a request to its answer.

use std::time::Duration;

use bytes::Bytes;
use cloister_guest_channel::NODE_TOKEN_HEADER;
use cloister_node_api::GuestStats;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Body;
use tokio::time::timeout;
use tracing::warn;

use super::External;
use super::evidence::PRIVATE;
use super::log_stream;
use super::query::LogQuery;
use crate::engine::{EngineError, patiently};
use crate::failure;
use crate::machine::clock;
use crate::stats;

/// A whole body or a stream.
pub(super) type Answer = Response<Either<Full<Bytes>, Channel<Bytes>>>;

/// Where the methods of the public platform are.
const WORKER: &str = "/prpc/";
/// Longest body, in bytes: one member.
const MAX_BODY_BYTES: usize = 4 << 10;
/// Longest wait for it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_NAME_BYTES: usize = 255;
/// Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl External {
    /// Answers a request, of whose body only the methods of the public platform read the beginning.
    pub(super) async fn serve<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        if !(head.method == Method::POST && head.uri.path().starts_with(WORKER)) {
            return self.respond(&Request::from_parts(head, Bytes::new())).await;
        }
        match timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
            Ok(Ok(body)) => self.respond(&Request::from_parts(head, body.to_bytes())).await,
            _ => text(StatusCode::BAD_REQUEST, "the body is too long or did not arrive in time\n"),
        }
    }

    pub(super) async fn respond(&self, request: &Request<Bytes>) -> Answer {
        let rpc = request.uri().path().starts_with(WORKER);
        if request.method() != Method::GET && !(rpc && request.method() == Method::POST) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
        }
        match request.uri().path() {
            "/health" => text(StatusCode::OK, "ok\n"),
            "/containers" if self.public_sysinfo || self.is_node(request) => self.containers().await,
            "/containers" => text(StatusCode::FORBIDDEN, "this application keeps its containers private\n"),
            "/stats" if self.is_node(request) => machine(|stats| json(&serde_json::json!(stats))).await,
            "/metrics" if self.public_sysinfo || self.is_node(request) => {
                machine(|stats| with_type(METRICS, whole(stats::exposition(stats)))).await
            }
            "/metrics" => text(StatusCode::FORBIDDEN, "this application keeps its machine private\n"),
            "/attestation" if self.public_tcbinfo || self.is_node(request) => {
                self.evidence(request.uri()).await
            }
            "/attestation" => text(StatusCode::FORBIDDEN, PRIVATE),
            "/node/attestation" if self.is_node(request) => self.evidence(request.uri()).await,
            "/stats" | "/node/attestation" => text(StatusCode::FORBIDDEN, "this is for the node alone\n"),
            path if path.starts_with(WORKER) => {
                let may_see_evidence = self.public_tcbinfo || self.is_node(request);
                self.worker(request.uri(), request.body(), may_see_evidence).await
            }
            path => match path.strip_prefix("/logs/") {
                Some(_) if !self.public_logs && !self.is_node(request) => {
                    text(StatusCode::FORBIDDEN, "this application keeps its logs private\n")
                }
                Some(name) => self.logs(name, request.uri().query().unwrap_or_default()).await,
                None => text(StatusCode::NOT_FOUND, "there is nothing at this path\n"),
            },
        }
    }

    fn is_node<B>(&self, request: &Request<B>) -> bool {
        let token =
            request.headers().get(NODE_TOKEN_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        token.is_some_and(|token| self.node_token == token)
    }

    async fn containers(&self) -> Answer {
        match patiently(self.engine.containers()).await {
            Ok(containers) => json(&serde_json::json!({ "containers": containers })),
            Err(error) => engine_failure(&error),
        }
    }

    async fn logs(&self, name: &str, query: &str) -> Answer {
        if !is_container_name(name) {
            return text(StatusCode::BAD_REQUEST, "this is not the name or id of a container\n");
        }
        let query = match LogQuery::parse(query) {
            Ok(query) => query,
            Err(error) => return text(StatusCode::BAD_REQUEST, &format!("{error}\n")),
        };
        let inspection = match patiently(self.engine.inspect(name)).await {
            Ok(inspection) => inspection,
            Err(error) => return engine_failure(&error),
        };
        match patiently(self.engine.logs(name, &query.for_engine(clock::now()))).await {
            Ok(log) => {
                let (sender, body) = Channel::new(16);
                tokio::spawn(log_stream::copy(log, inspection.config.tty, query, sender));
                with_type("text/plain; charset=utf-8", Either::Right(body))
            }
            Err(error) => engine_failure(&error),
        }
    }
}

/// The machine as it is now, in some form.
async fn machine(form: impl FnOnce(&GuestStats) -> Answer) -> Answer {
    match stats::gather().await {
        Ok(stats) => form(&stats),
        Err(error) => {
            warn!("cannot read what the kernel says of the machine: {error}");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the machine's figures cannot be read; try again\n")
        }
    }
}

/// What the engine accepts as a name, or the hex digits of an id.
fn is_container_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

fn engine_failure(error: &EngineError) -> Answer {
    match error {
        EngineError::Status(StatusCode::NOT_FOUND) => {
            text(StatusCode::NOT_FOUND, "there is no such container; /containers lists them\n")
        }
        EngineError::Connect(_) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "the container engine is not running yet; try again\n")
        }
        other => {
            warn!("the container engine failed: {}", failure::chain(other));
            text(StatusCode::BAD_GATEWAY, "the container engine failed; try again\n")
        }
    }
}

pub(super) fn text(status: StatusCode, message: &str) -> Answer {
    let mut answer = with_type("text/plain; charset=utf-8", whole(message.to_owned()));
    *answer.status_mut() = status;
    answer
}

fn json(value: &serde_json::Value) -> Answer {
    with_type("application/json", whole(value.to_string()))
}

fn whole(body: String) -> Either<Full<Bytes>, Channel<Bytes>> {
    Either::Left(Full::new(body.into()))
}

fn with_type(kind: &'static str, body: Either<Full<Bytes>, Channel<Bytes>>) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use cloister_guest_channel::NodeToken;

    use super::*;
    use crate::engine::Engine;

    fn external(public: bool) -> External {
        External {
            engine: Engine::at("/nonexistent/engine.sock"),
            public_logs: public,
            public_sysinfo: public,
            public_tcbinfo: public,
            node_token: NodeToken::from_bytes([1; 32]),
            attestation: tokio::sync::watch::channel(None).1,
            quotes: crate::external::quote_slots(),
        }
    }

    async fn get(external: &External, path: &str, token: Option<NodeToken>) -> (u16, String) {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(NODE_TOKEN_HEADER, token.header_value());
        }
        let answer = external.respond(&request.body(Bytes::new()).unwrap()).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn private_surfaces_are_the_nodes_alone() {
        for path in ["/containers", "/logs/web"] {
            let private = external(false);
            assert_eq!(get(&private, path, None).await.0, 403, "{path}");
            let wrong = NodeToken::from_bytes([2; 32]);
            assert_eq!(get(&private, path, Some(wrong)).await.0, 403, "{path}");
            let right = NodeToken::from_bytes([1; 32]);
            assert_eq!(get(&private, path, Some(right)).await.0, 503, "{path}");
            assert_eq!(get(&external(true), path, None).await.0, 503, "{path}");
        }
    }

    #[tokio::test]
    async fn refuses_what_it_does_not_serve() {
        let external = external(true);
        assert_eq!(get(&external, "/health", None).await, (200, "ok\n".into()));
        assert_eq!(get(&external, "/", None).await.0, 404);
        assert_eq!(get(&external, "/logs/", None).await.0, 400);
        assert_eq!(get(&external, "/logs/a%2Fb", None).await.0, 400);
        assert_eq!(get(&external, "/logs/a/../b", None).await.0, 400);
        assert_eq!(get(&external, "/logs/web?tail=x", None).await.0, 400);
        let post = Request::post("/health").body(Bytes::new()).unwrap();
        assert_eq!(external.respond(&post).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
