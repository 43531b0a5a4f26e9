//! What makes requests to addresses that users name, as the dispatcher sees it.

use std::pin::Pin;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use cloister_outbound::{Answer, Outbound, SendError};
use url::Url;

/// An answer to come.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send + 'a>>;

/// Makes requests.
pub trait Post: Send + Sync + 'static {
    /// Posts a body and waits for the answer, `timeout` for everything together. Redirects are not followed.
    fn post<'a>(&'a self, url: &'a Url, headers: HeaderMap, body: Bytes, timeout: Duration) -> Answering<'a>;
}

impl Post for Outbound {
    fn post<'a>(&'a self, url: &'a Url, headers: HeaderMap, body: Bytes, timeout: Duration) -> Answering<'a> {
        Box::pin(Self::post(self, url, headers, body, timeout))
    }
}
