//! `GET /attestation` on an app's address: the evidence of the CVM behind it. An app may answer it by
//! itself; for one that does not, the guest agent answers.

use bytes::Bytes;
use cloister_guest_channel::AGENT_PORT;
use http::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;

use super::host::Route;
use super::refusal::Refusal;

const PATH: &str = "/attestation";
/// What the agent learns about the request. Credentials and cookies are the app's alone.
const PASSED_ON: [HeaderName; 5] = [
    HOST,
    ACCEPT,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
];

/// A client's question for evidence.
pub(super) struct Question {
    method: Method,
    path: PathAndQuery,
}

/// The same for the guest agent.
pub(super) struct ForAgent {
    question: Question,
    headers: HeaderMap,
}

impl Question {
    /// Reads a request; `None` when it is something else, or for the agent already.
    pub(super) fn of<B>(request: &Request<B>, route: &Route) -> Option<Self> {
        let path = request.uri().path_and_query()?;
        let asks = matches!(*request.method(), Method::GET | Method::HEAD) && path.path() == PATH;
        (asks && route.port != AGENT_PORT)
            .then(|| Self { method: request.method().clone(), path: path.clone() })
    }

    /// The request for the agent, with what its headers may hold of the app's.
    pub(super) fn for_agent(self, of_app: &HeaderMap) -> ForAgent {
        let passed_on = |name: HeaderName| Some((of_app.get(&name)?.clone(), name));
        let headers = PASSED_ON.into_iter().filter_map(passed_on).map(|(value, name)| (name, value));
        ForAgent { question: self, headers: headers.collect() }
    }
}

impl ForAgent {
    /// The request itself; `name` is that of the agent's port.
    pub(super) fn to(self, name: &str) -> Option<Request<Empty<Bytes>>> {
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(name).path_and_query(self.question.path);
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.build().ok()?;
        *request.method_mut() = self.question.method;
        *request.headers_mut() = self.headers;
        if !request.headers().contains_key(HOST) {
            // HTTP/2 has the host in the URI only.
            request.headers_mut().insert(HOST, HeaderValue::from_str(name).ok()?);
        }
        Some(request)
    }
}

/// Whether an app knows no such path, or nothing answers at its port.
pub(super) fn is_left_to_agent(of_app: &Result<Response<Incoming>, Refusal>) -> bool {
    match of_app {
        Ok(response) => response.status() == StatusCode::NOT_FOUND,
        Err(refusal) => *refusal == Refusal::Unreachable,
    }
}
