//! One HTTP request from a client to a guest and its answer back.

use std::net::IpAddr;

use cloister_guest_channel::AGENT_PORT;
use http::header::{HOST, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attempt::{Fate, Outgoing};
use super::attestation::{self, ForAgent, Question};
use super::host::{Domain, HostError, Mode, Route};
use super::refusal::Refusal;
use super::upstream::{Admission, Tried, Upstreams};
use super::{Body, headers};

/// Routes requests; shared by every connection.
pub(super) struct Proxy {
    pub(super) domain: Domain,
    pub(super) upstreams: Upstreams,
    pub(super) tasks: TaskTracker,
    pub(super) abort: CancellationToken,
}

/// Whom a connection comes from and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) scheme: &'static str,
}

/// A request that a replica was given.
struct Delivered {
    admission: Admission,
    answer: Result<Response<Incoming>, Refusal>,
}

impl Proxy {
    /// Answers a request, by the app if possible.
    pub(super) async fn answer(&self, client: Client, request: Request<Incoming>) -> Response<Body> {
        self.forward(client, request).await.unwrap_or_else(Refusal::response)
    }

    async fn forward(
        &self,
        client: Client,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        if request.method() == Method::CONNECT {
            return Err(Refusal::Method);
        }
        let host = named_host(&request)?;
        let route = self.route(host.to_str().map_err(|_| Refusal::NoHost)?)?;
        if route.mode == Mode::Passthrough {
            return Err(Refusal::TlsOnly);
        }
        let upgrade = (route.mode == Mode::Http1 && request.version() == Version::HTTP_11)
            .then(|| headers::wanted_upgrade(request.headers()))
            .flatten()
            .map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        let question = Question::of(&request, &route);
        self.readdress(&mut request, client, &route, host)?;
        let forwarded = question.map(|question| question.for_agent(request.headers()));
        if let Some((protocol, _)) = &upgrade {
            headers::set_upgrade(request.headers_mut(), protocol.clone());
        }
        let Delivered { admission, mut answer } = self.deliver(&route, &Outgoing::new(request)).await?;
        if let Some(for_agent) = forwarded.filter(|_| attestation::is_left_to_agent(&answer)) {
            answer = self.by_agent(&admission, &route, for_agent, answer).await;
        }
        self.hand_back(answer?, upgrade.map(|(_, client_side)| client_side), admission)
    }

    /// Sends a request to one replica after the other until one answers, or it may not be sent again.
    async fn deliver(&self, route: &Route, outgoing: &Outgoing) -> Result<Delivered, Refusal> {
        let mut tried = Tried::default();
        let mut failed: Option<Delivered> = None;
        loop {
            let admission = match self.upstreams.admit(route, &tried).await {
                Ok(admission) => admission,
                Err(refusal) => return failed.ok_or(refusal),
            };
            let Some(request) = outgoing.request() else { return failed.ok_or(Refusal::Unreachable) };
            let error = match admission.request(route.mode, request).await {
                Ok(response) => return Ok(Delivered { admission, answer: Ok(response) }),
                Err(error) => error,
            };
            let fate = Fate::of(&error);
            tracing::debug!(id = route.id, port = route.port, ?fate, %error, "a replica did not answer");
            tried.add(&admission, fate);
            let delivered = Delivered { admission, answer: Err(Refusal::of(&error)) };
            if tried.is_enough() || !outgoing.may_follow(fate) {
                return Ok(delivered);
            }
            failed = Some(delivered);
        }
    }

    /// The guest agent's answer instead of an app's, if it has one.
    async fn by_agent(
        &self,
        admission: &Admission,
        route: &Route,
        request: ForAgent,
        of_app: Result<Response<Incoming>, Refusal>,
    ) -> Result<Response<Incoming>, Refusal> {
        let agent = Route { port: AGENT_PORT, mode: Mode::Http1, ..route.clone() };
        let Some(request) = request.to(&self.domain.name_of(&agent)) else { return of_app };
        match admission.request(agent.mode, request.map(Either::Right)).await {
            Ok(answer) if answer.status() != StatusCode::NOT_FOUND => Ok(answer),
            _ => of_app,
        }
    }

    /// Finds the route of a host name.
    pub(super) fn route(&self, host: &str) -> Result<Route, Refusal> {
        self.domain.route(host).map_err(|error| match error {
            HostError::Foreign => Refusal::ForeignHost,
            HostError::Malformed => Refusal::MalformedName,
        })
    }

    /// Turns a request to the ingress into one to the guest.
    fn readdress(
        &self,
        request: &mut Request<Incoming>,
        client: Client,
        route: &Route,
        host: HeaderValue,
    ) -> Result<(), Refusal> {
        headers::strip_hop_by_hop(request.headers_mut());
        headers::set_forwarded(request.headers_mut(), client.address, client.scheme, &host);
        // `OPTIONS *` has no path that another hop could be asked for.
        let path = request.uri().path_and_query().filter(|path| path.as_str().starts_with('/')).cloned();
        *request.uri_mut() = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.domain.name_of(route))
            .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
            .build()
            .map_err(|_| Refusal::NoHost)?;
        if route.mode == Mode::Http2 {
            // In HTTP/2 the host is the URI's; a second one would only make room for a difference.
            request.headers_mut().remove(HOST);
            *request.version_mut() = Version::HTTP_2;
        } else {
            headers::join_cookies(request.headers_mut());
            request.headers_mut().insert(HOST, host);
            *request.version_mut() = Version::HTTP_11;
        }
        Ok(())
    }

    /// Turns the guest's response into the ingress'. The admission lasts as long as the body or tunnel.
    fn hand_back(
        &self,
        mut response: Response<Incoming>,
        client_side: Option<OnUpgrade>,
        admission: Admission,
    ) -> Result<Response<Body>, Refusal> {
        let switched = headers::wanted_upgrade(response.headers());
        headers::strip_hop_by_hop(response.headers_mut());
        // Each hop speaks its own version (RFC 9110, section 2.5).
        *response.version_mut() = Version::HTTP_11;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    let _held = &admission;
                    frame
                })
                .boxed()
            }));
        }
        let (Some(protocol), Some(client_side)) = (switched, client_side) else {
            return Err(Refusal::Unreachable);
        };
        let guest_side = hyper::upgrade::on(&mut response);
        self.tunnel(client_side, guest_side, admission);
        headers::set_upgrade(response.headers_mut(), protocol);
        Ok(response.map(BodyExt::boxed))
    }

    fn tunnel(&self, client_side: OnUpgrade, guest_side: OnUpgrade, admission: Admission) {
        let copy = async move {
            if let (Ok(client_side), Ok(guest_side)) = tokio::join!(client_side, guest_side) {
                let (mut a, mut b): (TokioIo<Upgraded>, _) =
                    (TokioIo::new(client_side), TokioIo::new(guest_side));
                // An end that breaks off ends the other; nobody is left to tell.
                let _ = copy_bidirectional(&mut a, &mut b).await;
            }
            drop(admission);
        };
        self.tasks.spawn(self.abort.clone().run_until_cancelled_owned(copy));
    }
}

/// The one host that a request names. The request line counts before the header (RFC 9112, section 3.2.2).
fn named_host(request: &Request<Incoming>) -> Result<HeaderValue, Refusal> {
    let mut fields = request.headers().get_all(HOST).iter();
    let (first, second) = (fields.next(), fields.next());
    if second.is_some() {
        return Err(Refusal::NoHost);
    }
    match request.uri().authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).map_err(|_| Refusal::NoHost),
        None => first.filter(|host| !host.is_empty()).cloned().ok_or(Refusal::NoHost),
    }
}
