//! What the gateway tells about models: which there are, what they cost, who serves them.

mod filter;
mod listing;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;

use crate::door::{self, SMALL, Share, no_room};
use crate::error::{GatewayError, Kind};
use crate::gateway::{Gateway, Live};
use filter::Filter;
use listing::{Entry, List, is_of_embeddings};

/// The endpoints about models.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/models", get(all))
        .route("/v1/models/{namespace}", get(namespace))
        .route("/v1/models/{namespace}/{*rest}", get(model))
        .route("/v1/models/providers/{provider}", get(provider))
        .route("/v1/embeddings/models", get(embeddings))
}

/// A caller with a known key, and what it wants to see.
struct Reader {
    live: Arc<Live>,
    filter: Filter,
    /// The memory of what is answered: who does not take it keeps nobody else from answers.
    share: Share,
}

impl FromRequestParts<Arc<Gateway>> for Reader {
    type Rejection = GatewayError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, GatewayError> {
        let key = door::key_of(&parts.headers).ok_or_else(door::unauthenticated)?;
        gateway.control.identify(key).await?;
        let live = gateway.live();
        let mut filter = Filter::parse(parts.uri.query().unwrap_or_default())?;
        filter.tee |= door::is_tee_host(&live.config.tee_hosts, parts);
        Ok(Self { live, filter, share: gateway.bodies.share_of(key, 1) })
    }
}

impl Reader {
    /// The models that are wanted, those of one provider with what they cost there.
    fn list(self, provider: Option<&str>, is_wanted: impl Fn(&Entry<'_>) -> bool) -> Answer {
        let entries =
            self.live.catalogue.models().filter_map(|model| Entry::of(model, self.filter, provider));
        let entries = entries.filter(is_wanted).collect();
        answer(&List::of(entries), self.share)
    }
}

type Answer = Result<Response, GatewayError>;

/// What is answered, with its memory until the client has taken it.
fn answer(told: &impl Serialize, mut share: Share) -> Answer {
    let bytes = serde_json::to_vec(told)
        .map_err(|_| GatewayError::new(Kind::Internal, "The models cannot be told"))?;
    if bytes.len() > SMALL {
        share.try_cover(bytes.len()).map_err(|_| no_room())?;
    }
    Ok(([(CONTENT_TYPE, "application/json")], Body::from(share.hold(bytes.into()))).into_response())
}

async fn all(reader: Reader) -> Answer {
    reader.list(None, |_| true)
}

async fn embeddings(reader: Reader) -> Answer {
    reader.list(None, |entry| is_of_embeddings(entry.output_modalities))
}

/// Models whose ids begin with a name and a slash, or the one model of an id without a slash.
async fn namespace(reader: Reader, Path(name): Path<String>) -> Answer {
    let is_below = |id: &str| id.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('/'));
    if reader.live.catalogue.models().any(|model| is_below(&model.config.id)) {
        return reader.list(None, |entry| is_below(entry.id));
    }
    one(reader, &name)
}

/// One model, as clients of OpenAI's interface ask for it.
async fn model(reader: Reader, Path((namespace, rest)): Path<(String, String)>) -> Answer {
    one(reader, &format!("{namespace}/{rest}"))
}

fn one(reader: Reader, id: &str) -> Answer {
    let model = reader.live.catalogue.model(id);
    let entry = model.and_then(|model| Entry::of(model, reader.filter, None));
    let entry = entry.ok_or_else(|| {
        GatewayError::new(Kind::UnknownPath, "The requested model or resource was not found")
    })?;
    answer(&entry, reader.share)
}

/// Models that one provider serves.
async fn provider(reader: Reader, Path(name): Path<String>) -> Answer {
    if !reader.live.config.upstreams.iter().any(|upstream| upstream.name == name) {
        return Err(GatewayError::new(Kind::UnknownPath, "The requested provider was not found"));
    }
    reader.list(Some(&name), |_| true)
}
