//! What a request may cost: what is set aside for it while it is under way.

use rust_decimal::Decimal;

use super::features::Features;
use crate::accounting::{Tokens, cost};
use crate::config::{ModelConfig, Pricing};

/// Tokens that an answer is expected to have where neither the request nor the model says how many it may.
const USUAL_COMPLETION: u64 = 4096;
/// Most tokens that a request is believed to allow itself.
const MAX_COMPLETION: u64 = 1 << 30;

/// Of what a request sends, a guess that is rather high; of what comes back, as much as it allows itself, or else as
/// much as the model allows, or 4096 tokens; for each of the answers that it has made. A limit that an upstream may pass
/// over is none (`keeps_limits`). What is no words comes to no more than the model takes in. At least one token of each:
/// for a model that costs anything, no request is expected to cost nothing.
pub(super) fn estimate(
    features: &Features,
    model: &ModelConfig,
    pricing: &Pricing,
    keeps_limits: bool,
) -> Decimal {
    let most = model.max_output_length.unwrap_or(MAX_COMPLETION).clamp(1, MAX_COMPLETION);
    let usual = model.max_output_length.unwrap_or(USUAL_COMPLETION);
    let each = match features.max_completion {
        Some(limit) if keeps_limits || !features.is_limit_young => limit,
        Some(limit) => limit.max(usual),
        None => usual,
    };
    let each = each.clamp(1, most);
    let most_media = model.context_length.unwrap_or(u64::MAX);
    let tokens = Tokens {
        prompt: features.prompt_tokens.saturating_add(features.media_tokens.min(most_media)).max(1),
        completion: each.saturating_mul(features.answers),
        ..Tokens::default()
    };
    cost(tokens, pricing)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::surface::Surface;

    fn model(max_output_length: Option<u64>) -> ModelConfig {
        let pricing = json!({"prompt": "0.001", "completion": "0.01"});
        let model = json!({"id": "m", "pricing": pricing, "max_output_length": max_output_length});
        serde_json::from_value(model).unwrap()
    }

    fn expected(features: &Features, model: &ModelConfig, keeps_limits: bool) -> Decimal {
        estimate(features, model, &model.pricing, keeps_limits)
    }

    fn of(surface: Surface, body: &Value, most: Option<u64>) -> String {
        let features = Features::of(surface, body.to_string().as_bytes());
        expected(&features, &model(most), false).normalize().to_string()
    }

    #[test]
    fn the_limit_of_the_surface_counts() {
        use Surface::{Chat, Completions, Embeddings, Messages, Responses};
        for (surface, body, most, expected) in [
            (Chat, json!({"max_tokens": 10}), None, "0.101"),
            (Chat, json!({"max_tokens": 10.0}), None, "0.101"),
            // Older upstreams know only the older name.
            (Chat, json!({"max_completion_tokens": 10}), None, "40.961"),
            (Chat, json!({"max_completion_tokens": 10}), Some(50), "0.501"),
            (Chat, json!({"max_completion_tokens": 5000}), None, "50.001"),
            (Completions, json!({"max_completion_tokens": 10}), None, "40.961"),
            // The larger of two is the one that an upstream may take.
            (Chat, json!({"max_completion_tokens": 1, "max_tokens": 10}), None, "0.101"),
            // Members of other surfaces limit nothing here.
            (Chat, json!({"max_output_tokens": 1}), Some(50), "0.501"),
            (Responses, json!({"max_tokens": 1, "max_output_tokens": 10}), None, "0.101"),
            (Messages, json!({"max_tokens": 10, "max_completion_tokens": 1}), None, "0.101"),
            // None at all is told by none, and the model's is the most that any can be.
            (Chat, json!({"max_tokens": 0}), Some(50), "0.501"),
            (Chat, json!({}), None, "40.961"),
            (Chat, json!({"max_tokens": 1_000_000}), Some(50), "0.501"),
            (Chat, json!({"max_tokens": 10, "n": 3}), None, "0.301"),
            (Chat, json!({"max_tokens": 10, "n": 3, "best_of": 9}), None, "0.301"),
            (Completions, json!({"max_tokens": 10, "n": 3, "best_of": 9}), None, "0.901"),
            (Completions, json!({"max_tokens": 10, "n": 2, "prompt": ["abcd", "abcd"]}), None, "0.404"),
            (Completions, json!({"max_tokens": 10, "prompt": [1, 2, 3]}), None, "0.105"),
            (Completions, json!({"max_tokens": 10, "prompt": [[1, 2], [3, 4]]}), None, "0.208"),
            (Embeddings, json!({"input": [1, 2, 3]}), Some(50), "0.005"),
            (Embeddings, json!({"input": "", "max_tokens": 10}), None, "0.001"),
            (
                Chat,
                json!({"max_tokens": 10, "messages": [{"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": "https://e.test/1"}}]}]}),
                None,
                "16.507",
            ),
            (
                Messages,
                json!({"max_tokens": 10, "messages": [{"role": "user", "content": [
                    {"type": "document", "source": {"data": "x".repeat(400), "type": "text"}}]}]}),
                None,
                "1.245",
            ),
        ] {
            assert_eq!(of(surface, &body, most), expected, "{surface:?} {body}");
        }
    }

    #[test]
    fn no_document_comes_to_more_than_a_model_takes_in() {
        let file = json!({"type": "file", "file": {"file_id": "file-1"}});
        let body = json!({"max_tokens": 1, "messages": [{"role": "user", "content": [file]}]}).to_string();
        let features = Features::of(Surface::Chat, body.as_bytes());
        let known = ModelConfig { context_length: Some(8192), ..model(None) };
        let words = Decimal::new(features.prompt_tokens.try_into().unwrap(), 3) + Decimal::new(1, 2);
        assert_eq!(expected(&features, &known, false), words + Decimal::new(8192, 3));
        assert_eq!(expected(&features, &model(None), false), words + Decimal::new(131_072, 3));
    }

    #[test]
    fn a_limit_counts_that_every_route_keeps() {
        let features = Features::of(Surface::Chat, br#"{"max_completion_tokens": 10}"#);
        assert_eq!(expected(&features, &model(None), true).to_string(), "0.101");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z ä漢]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("type|text|url|data|content|role", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever a request is like, it is not expected to cost nothing, and more answers cost no less.
        #[test]
        fn no_request_is_free(
            members in prop::collection::hash_map(
                "model|messages|input|prompt|system|tools|n|best_of|max_tokens|max_completion_tokens|max_output_tokens",
                any_json(), 0..8,
            ),
            which in 0..5_usize, most in prop::option::of(any::<u64>()), junk: Vec<u8>,
        ) {
            let surface = Surface::ALL[which];
            let body = Value::Object(members.into_iter().collect());
            let model = model(most);
            for bytes in [body.to_string().as_bytes(), &junk] {
                let features = Features::of(surface, bytes);
                let least_cost = expected(&features, &model, true);
                let least = if surface == Surface::Embeddings { "0.001" } else { "0.011" };
                prop_assert!(least_cost >= least.parse().unwrap(), "{} {}", least_cost, body);
                let mut more = features;
                more.answers *= 2;
                prop_assert!(expected(&more, &model, true) >= least_cost);
            }
        }
    }
}
