//! `/v1/embeddings`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::refused;
use crate::words::tokens;

/// Length of a vector where nobody asks for another.
const DIMENSIONS: u64 = 16;
/// Longest vector.
const MAX_DIMENSIONS: u64 = 4096;

pub(crate) async fn answer(Json(request): Json<Value>) -> Response {
    let inputs: Vec<&Value> = match &request["input"] {
        input @ Value::String(_) => vec![input],
        // A list of numbers is one input, as tokens.
        input @ Value::Array(items) if items.first().is_some_and(Value::is_number) => vec![input],
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    if inputs.is_empty() {
        return refused("'input' must be a text or a list");
    }
    let dimensions = request["dimensions"].as_u64().unwrap_or(DIMENSIONS).clamp(1, MAX_DIMENSIONS);
    let is_base64 = request["encoding_format"] == "base64";
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let numbers: Vec<f32> = (0..dimensions).map(|place| number(input, place)).collect();
            let embedding = if is_base64 {
                json!(
                    STANDARD
                        .encode(numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
                )
            } else {
                json!(numbers)
            };
            json!({ "object": "embedding", "index": index, "embedding": embedding })
        })
        .collect();
    let sent: usize = inputs.iter().map(|input| length(input)).sum();
    let usage = json!({ "prompt_tokens": sent, "total_tokens": sent });
    Json(json!({ "object": "list", "data": data, "model": request["model"], "usage": usage })).into_response()
}

fn length(input: &Value) -> usize {
    match input {
        Value::String(text) => tokens(text).len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

/// A number from -1 to 1 that depends on the input and its place; exact in 32 bits.
fn number(input: &Value, place: u64) -> f32 {
    let digest: [u8; 32] = Sha256::digest(format!("{place}:{input}")).into();
    let [first, second, ..] = digest;
    f32::from(i16::from_be_bytes([first, second])) / 32_768.0
}
