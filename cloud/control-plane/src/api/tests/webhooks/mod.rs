//! Webhooks through the API: managed, sent to with a real dispatcher, followed.

mod manage;
mod send;
mod stream;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use cloister_outbound::{Lookup, LookupError, Outbound, OutboundConfig, Resolve};
use cloister_webhooks::EventKind;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Answer, Installation};
use crate::webhooks::{Dispatcher, DispatcherOptions, Emission, Limits, Subject, emit};

const BASE: &str = "/workspace/webhooks";
const INSIDE: &str = "10.20.30.40";

/// Name servers that know a handful of names.
#[derive(Debug)]
struct Names;

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        let public: IpAddr = [93, 184, 215, 14].into();
        let inside: IpAddr = INSIDE.parse().unwrap();
        let found = match host {
            "hooks.example.org" | "more.example.org" => Ok(vec![public]),
            "inside.example.org" => Ok(vec![inside]),
            "both.example.org" => Ok(vec![public, inside]),
            "mute.example.org" => Err(LookupError::NoAnswer),
            _ => Err(LookupError::Unknown),
        };
        Box::pin(std::future::ready(found))
    }
}

/// Requests to this machine and to nothing else that is not public.
pub(super) fn outbound() -> Outbound {
    let config = OutboundConfig {
        allowed: vec!["127.0.0.0/8".parse().unwrap()],
        plain_http_to_allowed: true,
        extra_roots: Vec::new(),
    };
    Outbound::new(config, Arc::new(Names))
}

/// A request that a receiver got.
struct Received {
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// A receiver on this machine that answers with one status.
struct Receiver {
    url: String,
    requests: mpsc::UnboundedReceiver<Received>,
}

type Sink = (mpsc::UnboundedSender<Received>, StatusCode);

impl Receiver {
    async fn start(status: u16) -> Self {
        let (tell, requests) = mpsc::unbounded_channel();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        let router = Router::new().route("/hook", post(receive)).with_state((tell, status));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, requests }
    }

    async fn next(&mut self) -> Received {
        self.requests.recv().await.unwrap()
    }
}

async fn receive(State((tell, status)): State<Sink>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let pair = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    tell.send(Received { headers: headers.iter().map(pair).collect(), body }).unwrap();
    status
}

impl Installation {
    fn dispatcher(&self) -> Dispatcher {
        let app = &self.app;
        Dispatcher::start(DispatcherOptions {
            store: app.store.clone(),
            post: Arc::new(app.outbound.clone()),
            secrets: Arc::clone(&app.webhook_secrets),
            clock: app.clock.clone(),
            token_key: app.log_url_key,
            public_url: app.public_url.clone(),
            limits: Limits::default(),
            figures: Arc::clone(&app.webhook_figures),
            observer: None,
        })
    }

    /// A webhook of the tenant with its secret.
    async fn webhook(&self, url: &str, events: &[&str]) -> Value {
        self.call("POST", BASE, json!({ "url": url, "events": events })).await.expect(201).json()
    }

    async fn of_webhook(&self, method: &str, webhook: &Value, rest: &str, body: Value) -> Answer {
        let id = webhook["id"].as_str().unwrap();
        self.call(method, &format!("{BASE}/{id}{rest}"), body).await
    }

    /// Events of a kind in a workspace, in one change.
    async fn happen(&self, workspace_id: i64, kind: EventKind, count: usize) {
        let mut change = self.app.store.upkeep().await.unwrap();
        for number in 0..count {
            let emission = Emission {
                workspace_id,
                kind,
                subject: Subject::App("6f809b3214eb9a69571ad008289d9551fa9a4272".parse().unwrap()),
                operation: None,
                data: json!({ "number": number }),
            };
            emit(&mut change, self.app.random, &emission, self.app.clock.now_ms()).await.unwrap();
        }
        change.commit().await.unwrap();
    }
}
