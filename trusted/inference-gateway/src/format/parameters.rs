//! The parameters of each surface: their types, their ranges, and what a model has to support for each.

use crate::body::Body;
use crate::error::{GatewayError, shown};
use crate::surface::Surface;

/// What a value has to be.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Flag,
    Text,
    List,
    Object,
    /// An integer of at least this.
    Count(u32),
    /// A number between two.
    Between(f64, f64),
    TextOr(&'static Rule),
}

use Rule::{Between, Count, Flag, List, Object, Text, TextOr};

/// Parameters and their types; what is not named may be anything.
const SAMPLING: [(&str, Rule); 17] = [
    ("model", Text),
    ("stream", Flag),
    ("stream_options", Object),
    ("temperature", Between(0.0, 2.0)),
    ("top_p", Between(0.0, 1.0)),
    ("top_k", Between(-1.0, 1e9)),
    ("min_p", Between(0.0, 1.0)),
    ("frequency_penalty", Between(-2.0, 2.0)),
    ("presence_penalty", Between(-2.0, 2.0)),
    ("repetition_penalty", Between(0.0, 2.0)),
    ("n", Count(1)),
    ("user", Text),
    ("stop", TextOr(&List)),
    ("max_tokens", Count(0)),
    ("metadata", Object),
    ("logit_bias", Object),
    ("service_tier", Text),
];

const CHAT: [(&str, Rule); 14] = [
    ("messages", List),
    ("max_completion_tokens", Count(0)),
    ("tools", List),
    ("tool_choice", TextOr(&Object)),
    ("functions", List),
    ("function_call", TextOr(&Object)),
    ("response_format", Object),
    ("parallel_tool_calls", Flag),
    ("logprobs", Flag),
    ("top_logprobs", Count(0)),
    ("store", Flag),
    ("modalities", List),
    ("verbosity", Text),
    ("chat_template_kwargs", Object),
];

const COMPLETIONS: [(&str, Rule); 3] = [("prompt", TextOr(&List)), ("echo", Flag), ("suffix", Text)];

const EMBEDDINGS: [(&str, Rule); 3] =
    [("input", TextOr(&List)), ("dimensions", Count(1)), ("encoding_format", Text)];

const RESPONSES: [(&str, Rule); 8] = [
    ("input", TextOr(&List)),
    ("instructions", TextOr(&List)),
    ("max_output_tokens", Count(1)),
    ("tools", List),
    ("tool_choice", TextOr(&Object)),
    ("text", Object),
    ("reasoning", Object),
    ("store", Flag),
];

const MESSAGES: [(&str, Rule); 7] = [
    ("messages", List),
    ("system", TextOr(&List)),
    ("max_tokens", Count(1)),
    ("tools", List),
    ("tool_choice", Object),
    ("stop_sequences", List),
    ("thinking", Object),
];

/// What every model takes: the prompt, and what does not change the answer.
const ALWAYS: [&str; 15] = [
    "model",
    "messages",
    "prompt",
    "input",
    "system",
    "instructions",
    "stream",
    "stream_options",
    "provider",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
];

/// Parameters that a model supports where it supports one of others.
const IMPLIED: [(&str, &[&str]); 19] = [
    ("max_tokens", &["max_completion_tokens"]),
    ("max_completion_tokens", &["max_tokens"]),
    ("max_output_tokens", &["max_tokens", "max_completion_tokens"]),
    ("parallel_tool_calls", &["tools"]),
    ("tool_choice", &["tools"]),
    ("functions", &["tools"]),
    ("function_call", &["tools"]),
    ("max_tool_calls", &["tools"]),
    ("top_logprobs", &["logprobs"]),
    ("response_format", &["structured_outputs"]),
    ("text", &["response_format", "structured_outputs"]),
    ("output_config", &["response_format", "structured_outputs", "reasoning"]),
    ("stop_sequences", &["stop"]),
    ("reasoning", &["reasoning_effort", "include_reasoning", "thinking"]),
    ("reasoning_effort", &["reasoning", "include_reasoning", "thinking"]),
    ("include_reasoning", &["reasoning", "reasoning_effort", "thinking"]),
    ("thinking", &["reasoning", "reasoning_effort", "include_reasoning"]),
    ("include", &["reasoning", "tools", "logprobs"]),
    ("encoding_format", &["dimensions", "input"]),
];

fn rules(surface: Surface) -> &'static [(&'static str, Rule)] {
    match surface {
        Surface::Chat => &CHAT,
        Surface::Completions => &COMPLETIONS,
        Surface::Embeddings => &EMBEDDINGS,
        Surface::Responses => &RESPONSES,
        Surface::Messages => &MESSAGES,
    }
}

/// Whether a model or route with these parameters takes another.
#[must_use]
pub fn supports(supported: &[String], parameter: &str) -> bool {
    let has = |name: &str| supported.iter().any(|supported| supported == name);
    let implied = || IMPLIED.iter().find(|(name, _)| *name == parameter).map(|(_, by)| *by);
    ALWAYS.contains(&parameter)
        || has(parameter)
        || implied().is_some_and(|by| by.iter().any(|name| has(name)))
}

/// Checks types always, and support and ranges where it is known what the model supports. Gives the names of the
/// parameters that not every model takes.
pub(super) fn check(
    surface: Surface,
    body: &Body<'_>,
    supported: Option<&[String]>,
) -> Result<Vec<String>, GatewayError> {
    let mut parameters = Vec::new();
    for name in body.names() {
        let Some(value) = body.raw(name) else { continue };
        let all = rules(surface).iter().chain(&SAMPLING);
        if let Some((_, rule)) = all.into_iter().find(|(known, _)| *known == name) {
            if !rule.is_type_of(value.get()) {
                return Err(wrong(name, &format!("must be {}", rule.words())));
            }
            if supported.is_some() && !rule.has_in_range(value.get()) {
                return Err(wrong(name, &format!("must be {}", rule.range())));
            }
        }
        if supported.is_some_and(|supported| !supports(supported, name)) {
            return Err(wrong(&shown(name), "is not supported by this model"));
        }
        if !ALWAYS.contains(&name) {
            parameters.push(name.to_owned());
        }
    }
    Ok(parameters)
}

fn wrong(name: &str, what: &str) -> GatewayError {
    GatewayError::parameter(name, format!("'{name}' {what}"))
}

/// A count that was written as any number; `None` for what is no count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded on both sides")]
pub(super) fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=1e12).contains(&number)).then_some(number as u64)
}

impl Rule {
    fn is_type_of(self, json: &str) -> bool {
        let first = json.as_bytes().first();
        let number = || json.parse::<f64>().ok();
        match self {
            Flag => matches!(json, "true" | "false"),
            Text => first == Some(&b'"'),
            List => first == Some(&b'['),
            Object => first == Some(&b'{'),
            Count(_) => number().is_some_and(|number| number.fract() == 0.0),
            Between(..) => number().is_some(),
            TextOr(other) => first == Some(&b'"') || other.is_type_of(json),
        }
    }

    fn has_in_range(self, json: &str) -> bool {
        let number = || json.parse::<f64>().unwrap_or(f64::NAN);
        match self {
            Count(least) => number() >= f64::from(least),
            Between(least, most) => (least..=most).contains(&number()),
            Flag | Text | List | Object | TextOr(_) => true,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Flag => "true or false",
            Text => "a string",
            List => "an array",
            Object => "an object",
            Count(_) => "an integer",
            Between(..) => "a number",
            TextOr(List) => "a string or an array",
            TextOr(_) => "a string or an object",
        }
    }

    fn range(self) -> String {
        match self {
            Count(least) => format!("at least {least}"),
            Between(least, most) => format!("between {least} and {most}"),
            Flag | Text | List | Object | TextOr(_) => self.words().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(
        surface: Surface,
        body: &str,
        supported: Option<&[&str]>,
    ) -> Result<Vec<String>, GatewayError> {
        let supported: Option<Vec<String>> =
            supported.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        check(surface, &Body::parse(body.as_bytes()).unwrap(), supported.as_deref())
    }

    #[test]
    fn wrong_types_are_refused_whatever_is_known() {
        for (surface, body, param) in [
            (Surface::Chat, r#"{"model":1}"#, "model"),
            (Surface::Chat, r#"{"messages":"hi"}"#, "messages"),
            (Surface::Chat, r#"{"temperature":"hot"}"#, "temperature"),
            (Surface::Chat, r#"{"stream":1}"#, "stream"),
            (Surface::Chat, r#"{"max_tokens":1.5}"#, "max_tokens"),
            (Surface::Chat, r#"{"tools":{}}"#, "tools"),
            (Surface::Chat, r#"{"tool_choice":[]}"#, "tool_choice"),
            (Surface::Completions, r#"{"prompt":{}}"#, "prompt"),
            (Surface::Embeddings, r#"{"input":true}"#, "input"),
            (Surface::Embeddings, r#"{"dimensions":"3"}"#, "dimensions"),
            (Surface::Responses, r#"{"input":3}"#, "input"),
            (Surface::Messages, r#"{"tool_choice":"auto"}"#, "tool_choice"),
            (Surface::Messages, r#"{"stop_sequences":"x"}"#, "stop_sequences"),
        ] {
            let error = checked(surface, body, None).unwrap_err();
            assert_eq!((error.param.as_deref(), error.status().as_u16()), (Some(param), 400), "{body}");
        }
        assert!(
            checked(Surface::Chat, r#"{"temperature":null,"stop":["a"],"max_tokens":5.0}"#, None).is_ok()
        );
    }

    #[test]
    fn ranges_and_support_hold_where_they_are_known() {
        for (body, param) in [
            (r#"{"temperature":2.1}"#, "temperature"),
            (r#"{"temperature":-0.1}"#, "temperature"),
            (r#"{"max_tokens":-1}"#, "max_tokens"),
            (r#"{"tools":[]}"#, "tools"),
            (r#"{"tool_choice":"auto"}"#, "tool_choice"),
            (r#"{"made_up":1}"#, "made_up"),
        ] {
            let known = Some(&["temperature", "max_completion_tokens"][..]);
            assert_eq!(
                checked(Surface::Chat, body, known).unwrap_err().param.as_deref(),
                Some(param),
                "{body}"
            );
            assert!(checked(Surface::Chat, body, None).is_ok(), "{body}");
        }
        let body = r#"{"model":"m","messages":[],"stream":true,"max_tokens":1,"temperature":0,"user":"u","tools":null}"#;
        let known = Some(&["temperature", "max_completion_tokens"][..]);
        assert_eq!(checked(Surface::Chat, body, known).unwrap(), ["max_tokens", "temperature"]);
    }

    #[test]
    fn one_parameter_stands_for_its_relatives() {
        let supported = ["tools".to_owned(), "reasoning".to_owned(), "stop".to_owned()];
        for name in ["tool_choice", "reasoning_effort", "thinking", "stop_sequences", "messages", "provider"]
        {
            assert!(supports(&supported, name), "{name}");
        }
        assert!(!supports(&supported, "seed") && !supports(&supported, "max_tokens"));
    }
}
