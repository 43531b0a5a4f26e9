//! Models as they are shown.

use std::sync::Arc;

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::{Map, Value};

use super::filter::Filter;
use crate::config::ModelConfig;
use crate::routing::{Model, Route};

/// Parameters of any model that makes text: whatever else is known of it, a limit reaches its upstream under one name or the
/// other.
const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// A list, as clients of OpenAI's interface expect it.
#[derive(Debug, Serialize)]
pub(super) struct List<'a> {
    object: &'static str,
    data: Vec<Entry<'a>>,
}

impl<'a> List<'a> {
    pub(super) const fn of(data: Vec<Entry<'a>>) -> Self {
        Self { object: "list", data }
    }
}

/// A model.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    pub(super) id: &'a str,
    object: &'static str,
    owned_by: &'a str,
    name: &'a str,
    description: &'a str,
    created: u64,
    is_tee: bool,
    is_zdr: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_length: Option<u64>,
    pricing: Prices,
    pub(super) providers: Vec<&'a str>,
    input_modalities: &'a [String],
    pub(super) output_modalities: &'a [String],
    supported_parameters: Vec<&'a str>,
    metadata: &'a Map<String, Value>,
}

/// Prices per token, as decimal strings.
#[derive(Debug, Serialize)]
struct Prices {
    prompt: Decimal,
    completion: Decimal,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation: Option<Decimal>,
}

impl<'a> Entry<'a> {
    /// A model with those of its routes that count; nothing if none does. Its prices are those that none of them goes
    /// beyond, or none of one provider, which has to be among them then.
    pub(super) fn of(model: &'a Model, filter: Filter, provider: Option<&str>) -> Option<Self> {
        let routes: Vec<_> = model.routes.iter().filter(|route| filter.admits(route)).collect();
        let is_asked_for = |route: &&Arc<Route>| provider.is_none_or(|name| name == route.upstream.name);
        let mut priced = routes.iter().copied().filter(is_asked_for).peekable();
        priced.peek()?;
        let pricing = model.dearest(priced);
        let providers = routes.iter().map(|route| route.upstream.name.as_str()).collect();
        let config = &model.config;
        let id = config.id.as_str();
        Some(Self {
            id,
            object: "model",
            owned_by: id.split_once('/').map_or("system", |(vendor, _)| vendor),
            name: config.name.as_deref().unwrap_or(id),
            description: &config.description,
            created: config.created,
            is_tee: model.routes.iter().any(|route| route.is_tee()),
            is_zdr: model.routes.iter().any(|route| route.upstream.zdr),
            context_length: config.context_length,
            max_output_length: config.max_output_length,
            pricing: Prices {
                prompt: pricing.prompt,
                completion: pricing.completion,
                cache_read: pricing.cache_read,
                cache_creation: pricing.cache_creation,
            },
            providers,
            input_modalities: &config.input_modalities,
            output_modalities: &config.output_modalities,
            supported_parameters: parameters(config),
            metadata: &config.metadata,
        })
    }
}

/// Whether it makes embeddings and no text.
pub(super) fn is_of_embeddings(output_modalities: &[String]) -> bool {
    output_modalities.iter().any(|modality| modality == "embeddings")
}

fn parameters(config: &ModelConfig) -> Vec<&str> {
    match &config.supported_parameters {
        Some(known) => known.iter().map(String::as_str).collect(),
        None if is_of_embeddings(&config.output_modalities) => Vec::new(),
        None => LIMITS.to_vec(),
    }
}
