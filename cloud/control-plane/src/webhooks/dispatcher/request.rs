//! The request of one attempt: the body is the same each time, its time and signatures are new.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use cloister_management_api::WebhookId;
use cloister_webhooks::{Envelope, EventId, EventKind, Headered, Secret, WorkspaceRef, sign};
use jiff::Timestamp;
use url::Url;

use super::super::secrets::{Secrets, SecretsError};
use crate::governance::with_token;
use crate::store::TakenDelivery;

/// What goes to the receiver.
pub(super) struct Request {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no request. What is stored is not what this version writes.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the webhook's URL cannot be read; give it another one")]
    Url(#[from] url::ParseError),
    #[error(transparent)]
    Secret(#[from] SecretsError),
    #[error("this version of the service does not know the event")]
    Event,
}

/// What requests are made with.
pub(super) struct Composer<'a> {
    pub(super) secrets: &'a Secrets,
    /// What commit tokens are made with.
    pub(super) token_key: &'a [u8; 32],
    /// Base URL of the API as clients see it.
    pub(super) public_url: &'a Url,
}

impl Composer<'_> {
    /// The request of an attempt that is made now.
    pub(super) fn request(&self, taken: &TakenDelivery, now_ms: i64) -> Result<Request, RequestError> {
        let (kind, id) = identity(taken).ok_or(RequestError::Event)?;
        let data = taken.data.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let happened = taken.happened_at_ms.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
        let (Some(data), Some(happened)) = (data, happened) else { return Err(RequestError::Event) };
        let data = with_token(data, self.token_key, self.public_url, kind.as_str());
        let workspace = WorkspaceRef { id: taken.workspace_slug.clone(), name: taken.workspace_name.clone() };
        let body = Envelope::new(id.clone(), kind, happened, workspace, data).to_bytes();
        let webhook_id = WebhookId(taken.webhook_id).to_string();
        let event = Headered { webhook_id: &webhook_id, event_id: &id, kind };
        let signed = sign(&self.secrets(taken, now_ms)?, &event, now_ms.div_euclid(1000), &body);
        let header = |(name, value): (&'static str, String)| {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::try_from(value).ok()?))
        };
        let headers = signed.into_iter().filter_map(header).collect();
        Ok(Request { url: Url::parse(&taken.url)?, headers, body: body.into() })
    }

    /// The new secret, and the one before it while both sign.
    fn secrets(&self, taken: &TakenDelivery, now_ms: i64) -> Result<Vec<Secret>, SecretsError> {
        let previous = taken
            .previous_sealed_secret
            .as_ref()
            .filter(|_| taken.previous_until_ms.is_some_and(|until_ms| now_ms < until_ms));
        let sealed = std::iter::once(&taken.sealed_secret).chain(previous);
        sealed.map(|sealed| self.secrets.unseal(taken.webhook_id, sealed)).collect()
    }
}

fn identity(taken: &TakenDelivery) -> Option<(EventKind, EventId)> {
    Some((taken.event_type.parse().ok()?, taken.event_id.parse().ok()?))
}
