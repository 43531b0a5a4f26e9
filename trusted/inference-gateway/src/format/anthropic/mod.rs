//! Anthropic's format: as upstreams speak it, as clients of the Messages surface speak it, and turned into the other.

mod follow;
mod from_chat;
mod from_messages;
mod native;
mod to_chat;
mod to_messages;

pub(super) use from_chat::messages_request;
pub(super) use from_messages::chat_request;
pub(super) use native::Native;
pub(super) use to_chat::ToChat;
pub(super) use to_messages::ToMessages;

use crate::error::GatewayError;

/// Why a model stopped, in Anthropic's words and in OpenAI's; of several, the first one is the translation.
const STOPS: [(&str, &str); 8] = [
    ("end_turn", "stop"),
    ("max_tokens", "length"),
    ("tool_use", "tool_calls"),
    ("tool_use", "function_call"),
    ("refusal", "content_filter"),
    ("stop_sequence", "stop"),
    ("pause_turn", "stop"),
    ("model_context_window_exceeded", "length"),
];

/// Anthropic's word as OpenAI's. One that is not known stays: any other would be made up, and `stop` would make an answer
/// look whole that an engine aborted.
fn finish_reason(stop_reason: &str) -> &str {
    STOPS.iter().find(|(anthropic, _)| *anthropic == stop_reason).map_or(stop_reason, |(_, openai)| openai)
}

/// OpenAI's word as Anthropic's, in the same way.
fn stop_reason(finish_reason: &str) -> &str {
    STOPS
        .iter()
        .find(|(_, openai)| *openai == finish_reason)
        .map_or(finish_reason, |(anthropic, _)| anthropic)
}

fn wrong(name: &str, what: &str) -> GatewayError {
    GatewayError::parameter(name, format!("'{name}' {what}"))
}
