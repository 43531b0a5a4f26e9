//! Receivers of webhooks, by host name: what they answer is said beforehand, what they got is kept.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use cloister_outbound::{Answer, SendError, Stage};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use url::Url;

use crate::webhooks::post::{Answering, Post};

/// What a receiver answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Status(u16),
    /// With `Retry-After`, in seconds.
    Later(u16, u64),
    Refused,
    /// Nothing, until [`Receivers::release`]; then as if time were up.
    Hangs,
}

/// What a receiver got.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// What the test wrote into the event.
    pub(super) fn marker(&self) -> String {
        self.json()["data"]["marker"].as_str().unwrap_or_default().to_owned()
    }
}

/// All of them. One without a script answers 200.
#[derive(Default)]
pub(super) struct Receivers {
    replies: Mutex<HashMap<String, VecDeque<Reply>>>,
    always: Mutex<HashMap<String, Reply>>,
    requests: Mutex<Vec<Request>>,
    release: Notify,
}

impl Receivers {
    /// What a host answers next, one after the other.
    pub(super) fn script(&self, host: &str, replies: &[Reply]) {
        self.replies.lock().entry(host.to_owned()).or_default().extend(replies);
    }

    /// What a host answers without a script.
    pub(super) fn always(&self, host: &str, reply: Reply) {
        self.always.lock().insert(host.to_owned(), reply);
    }

    /// Ends everything that hangs now.
    pub(super) fn release(&self) {
        self.release.notify_waiters();
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    pub(super) fn requests_to(&self, host: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.host == host).collect()
    }

    pub(super) fn markers(&self, host: &str) -> Vec<String> {
        self.requests_to(host).iter().map(Request::marker).collect()
    }

    fn reply(&self, host: &str) -> Reply {
        let scripted = self.replies.lock().get_mut(host).and_then(VecDeque::pop_front);
        scripted.or_else(|| self.always.lock().get(host).copied()).unwrap_or(Reply::Status(200))
    }
}

impl Post for Receivers {
    fn post<'a>(&'a self, url: &'a Url, headers: HeaderMap, body: Bytes, _: Duration) -> Answering<'a> {
        let host = url.host_str().unwrap().to_owned();
        Box::pin(async move {
            let released = self.release.notified();
            let reply = self.reply(&host);
            self.requests.lock().push(Request { host, headers, body });
            let answer = |status, retry_after| Answer {
                status,
                retry_after,
                body: Bytes::new(),
                elapsed: Duration::ZERO,
            };
            match reply {
                Reply::Status(status) => Ok(answer(status, None)),
                Reply::Later(status, seconds) => Ok(answer(status, Some(Duration::from_secs(seconds)))),
                Reply::Refused => Err(SendError::ConnectionRefused),
                Reply::Hangs => {
                    released.await;
                    Err(SendError::Timeout(Stage::Answering))
                }
            }
        })
    }
}
