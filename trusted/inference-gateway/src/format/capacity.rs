//! What the gateway can take of an answer, asked of a request before anybody works for it.

use serde_json::value::RawValue;

use crate::body::{Body, Few, Raw};
use crate::error::GatewayError;
use crate::stream::MAX_CHOICES;
use crate::surface::Surface;
use crate::upstream::MAX_BODY_BYTES;

/// Most answers to one request: choices of all its prompts together.
pub(crate) const MAX_ANSWERS: u64 = MAX_CHOICES as u64;
/// Most inputs of one request for embeddings.
pub(super) const MAX_INPUTS: usize = 2048;
/// Most entries of a list that are counted.
const MAX_COUNTED: usize = 1 << 16;

/// A count that is not 0; it may be written as a fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and is not negative"
)]
pub(crate) fn count(value: &RawValue) -> Option<u64> {
    let count: f64 = serde_json::from_str(value.get()).ok()?;
    (count >= 1.0).then_some(count as u64)
}

/// Prompts of a text completion, or inputs of embeddings: a text, the numbers of tokens, or a list of either. At
/// least 1.
pub(crate) fn prompts(value: &RawValue) -> u64 {
    let json = value.get();
    if !json.starts_with('[') {
        return 1;
    }
    let Ok(Few(list)) = serde_json::from_str::<Few<&RawValue, MAX_COUNTED>>(json) else {
        return MAX_COUNTED as u64;
    };
    let is_token = |entry: &&RawValue| entry.get().starts_with(|first: char| first.is_ascii_digit());
    if list.first().is_some_and(is_token) { 1 } else { list.len().max(1) as u64 }
}

/// How many texts an upstream is to read, or to write: inputs of embeddings, else answers, whatever of them comes back.
pub(super) fn texts(surface: Surface, body: &Body<'_>) -> u64 {
    let counted = |name| body.raw(name).and_then(count).unwrap_or(1).min(MAX_ANSWERS);
    let listed = |name| body.raw(name).map_or(1, prompts);
    match surface {
        Surface::Chat => counted("n").max(counted("best_of")),
        Surface::Completions => counted("n").max(counted("best_of")).saturating_mul(listed("prompt")),
        Surface::Embeddings => listed("input"),
        Surface::Responses | Surface::Messages => 1,
    }
}

/// The limit that a request sets to each answer, in tokens: the largest, where it has several.
pub(crate) fn limit(body: &[u8]) -> Option<u64> {
    let body = Body::parse_deep(body).ok()?;
    let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    limits.into_iter().filter_map(|name| body.raw(name).and_then(count)).max()
}

/// Refuses what would be answered with more than can be passed on, naming the member.
pub(super) fn check(surface: Surface, body: &Body<'_>) -> Result<(), GatewayError> {
    let counted = |name| body.raw(name).and_then(count).unwrap_or(1);
    let listed = |name| body.raw(name).map_or(1, prompts);
    match surface {
        Surface::Chat | Surface::Completions => {
            for name in ["n", "best_of"] {
                at_most(name, counted(name), MAX_ANSWERS, "answers")?;
            }
            let prompts = if surface == Surface::Completions { listed("prompt") } else { 1 };
            at_most("prompt", prompts.saturating_mul(counted("n")), MAX_ANSWERS, "answers, 'n' for each")
        }
        Surface::Embeddings => {
            if body.raw("input").is_some_and(|input| Raw::of(input).is_empty_list()) {
                return Err(GatewayError::parameter("input", "'input' has to have an entry".to_owned()));
            }
            let inputs = listed("input");
            at_most("input", inputs, MAX_INPUTS as u64, "inputs")?;
            let is_base64 = body.raw("encoding_format").is_some_and(|format| format.get() == "\"base64\"");
            // As long as numbers are written.
            let most = MAX_BODY_BYTES as u64 / if is_base64 { 6 } else { 24 };
            let numbers = inputs.saturating_mul(counted("dimensions"));
            at_most("input", numbers, most, "numbers: ask for fewer inputs at a time, or as base64")
        }
        Surface::Responses | Surface::Messages => Ok(()),
    }
}

fn at_most(name: &str, asked: u64, most: u64, what: &str) -> Result<(), GatewayError> {
    if asked <= most {
        return Ok(());
    }
    Err(GatewayError::parameter(name, format!("'{name}' may ask for at most {most} {what}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(surface: Surface, body: &Value) -> Option<String> {
        let bytes = body.to_string().into_bytes();
        check(surface, &Body::parse(&bytes).unwrap()).err().map(|error| {
            assert_eq!(error.status().as_u16(), 400);
            error.param.unwrap()
        })
    }

    #[test]
    fn what_cannot_be_passed_on_is_not_asked_for() {
        use Surface::{Chat, Completions, Embeddings, Responses};
        let texts = |count| vec!["a"; count];
        for (surface, body, param) in [
            (Chat, json!({"n": 128}), None),
            (Chat, json!({"n": 129}), Some("n")),
            (Chat, json!({"n": 129.0}), Some("n")),
            (Chat, json!({"n": 1e300}), Some("n")),
            (Chat, json!({"best_of": 129}), Some("best_of")),
            (Chat, json!({"prompt": texts(200)}), None),
            (Completions, json!({"prompt": texts(128)}), None),
            (Completions, json!({"prompt": texts(129)}), Some("prompt")),
            (Completions, json!({"prompt": texts(65), "n": 2}), Some("prompt")),
            (Completions, json!({"prompt": vec![7; 4000]}), None),
            (Completions, json!({"prompt": vec![vec![7; 3]; 129]}), Some("prompt")),
            (Completions, json!({"prompt": texts(100_000)}), Some("prompt")),
            (Embeddings, json!({"input": texts(2048)}), None),
            (Embeddings, json!({"input": texts(2049)}), Some("input")),
            (Embeddings, json!({"input": texts(1000), "dimensions": 1000}), None),
            (Embeddings, json!({"input": texts(1000), "dimensions": 2000}), Some("input")),
            (
                Embeddings,
                json!({"input": texts(1000), "dimensions": 2000, "encoding_format": "base64"}),
                None,
            ),
            (Responses, json!({"n": 500}), None),
        ] {
            assert_eq!(refused(surface, &body).as_deref(), param, "{surface:?}");
        }
    }
}
