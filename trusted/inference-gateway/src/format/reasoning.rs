//! How much a model is to think before it answers: one wish, written in as many ways as there are engines.

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::request::json_change;
use crate::body::{Body, Change};
use crate::error::GatewayError;

/// Efforts, least first, and what they come to in tokens where a route wants a number.
const EFFORTS: [(&str, u64); 7] = [
    ("none", 0),
    ("minimal", 1024),
    ("low", 2048),
    ("medium", 8192),
    ("high", 16_384),
    ("xhigh", 32_768),
    ("max", 65_536),
];

/// How an upstream wants to be told how much to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `reasoning_effort`.
    ReasoningEffort,
    /// `reasoning`, an object.
    Reasoning,
    /// `chat_template_kwargs.thinking`.
    ChatTemplateThinking,
    /// `chat_template_kwargs.enable_thinking`.
    ChatTemplateEnableThinking,
    /// `thinking.type`.
    ThinkingType,
}

/// What a client wishes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// One of the efforts.
    pub effort: Option<&'static str>,
    /// Tokens, not 0.
    pub max_tokens: Option<u64>,
    /// Whether to think at all; `None` leaves it to the model.
    pub is_enabled: Option<bool>,
    /// Whether the answer is without what was thought.
    pub is_hidden: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    effort: Option<String>,
    max_tokens: Option<f64>,
    enabled: Option<bool>,
    exclude: Option<bool>,
}

fn effort(name: &str, at: &str) -> Result<&'static str, GatewayError> {
    let known = EFFORTS.iter().map(|(effort, _)| *effort).find(|effort| *effort == name);
    known.ok_or_else(|| {
        wrong(at, "must be one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' and 'max'")
    })
}

fn wrong(at: &str, rule: &str) -> GatewayError {
    GatewayError::parameter(at, format!("'{at}' {rule}"))
}

impl Wish {
    /// Reads `reasoning` and its aliases `reasoning_effort` and `include_reasoning`. Fails where they contradict each
    /// other.
    pub fn of(body: &Body<'_>) -> Result<Self, GatewayError> {
        const OBJECT: &str =
            "an object with 'effort' (text), 'max_tokens' (integer), 'enabled' and 'exclude' (boolean)";
        let input: Input = body.get("reasoning", OBJECT)?.unwrap_or_default();
        let alias: Option<String> = body.get("reasoning_effort", "a string")?;
        let included: Option<bool> = body.get("include_reasoning", "true or false")?;
        let own = input.effort.as_deref().map(|name| effort(name, "reasoning.effort")).transpose()?;
        let alias = alias.as_deref().map(|name| effort(name, "reasoning_effort")).transpose()?;
        if own.is_some() && alias.is_some() && own != alias {
            return Err(wrong("reasoning_effort", "contradicts 'reasoning.effort'"));
        }
        let effort = own.or(alias);
        let max_tokens = input.max_tokens.map(budget).transpose()?;
        if effort.is_some() && max_tokens.is_some() {
            return Err(wrong("reasoning.max_tokens", "and an effort exclude each other"));
        }
        let is_asked = effort.map(|effort| effort != "none").or(max_tokens.map(|_| true));
        if input.enabled.is_some() && is_asked.is_some() && input.enabled != is_asked {
            return Err(wrong("reasoning.enabled", "contradicts the effort or the number of tokens"));
        }
        if included.is_some_and(|included| input.exclude == Some(included)) {
            return Err(wrong("include_reasoning", "contradicts 'reasoning.exclude'"));
        }
        let is_hidden = input.exclude.or(included.map(|included| !included)).unwrap_or(false);
        Ok(Self { effort, max_tokens, is_enabled: is_asked.or(input.enabled), is_hidden })
    }

    /// Whether anything about thinking itself is wished.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.is_enabled.is_none()
    }

    /// An effort, for routes that know nothing else. `None` leaves it to the route.
    #[must_use]
    pub fn as_effort(&self) -> Option<&'static str> {
        let by_budget = |tokens| {
            let fitting = EFFORTS.iter().rev().find(|(_, budget)| *budget > 0 && *budget <= tokens);
            fitting.map_or("minimal", |(effort, _)| effort)
        };
        let none = (self.is_enabled == Some(false)).then_some("none");
        self.effort.or_else(|| self.max_tokens.map(by_budget)).or(none)
    }

    /// A number of tokens, for routes that know nothing else. `None` where nothing is to be thought.
    #[must_use]
    pub fn as_budget(&self) -> Option<u64> {
        if self.is_enabled != Some(true) {
            return None;
        }
        let effort = self.effort.unwrap_or("medium");
        let by_effort = EFFORTS.iter().find(|(name, _)| *name == effort).map(|(_, budget)| *budget);
        self.max_tokens.or(by_effort)
    }

    /// What changes in a chat request for a route that speaks a dialect.
    pub fn changes(
        &self,
        dialect: Dialect,
        body: &Body<'_>,
    ) -> Result<Vec<(&'static str, Change)>, GatewayError> {
        let mut changes = vec![("reasoning", Change::Remove), ("reasoning_effort", Change::Remove)];
        let Some(is_enabled) = self.is_enabled else { return Ok(changes) };
        let mut set = |name: &'static str, change: Change| {
            changes.retain(|(changed, _)| *changed != name);
            changes.push((name, change));
        };
        match dialect {
            Dialect::ReasoningEffort => {
                if let Some(effort) = self.as_effort() {
                    set("reasoning_effort", Change::set(&effort)?);
                }
            }
            Dialect::Reasoning => match (self.effort, self.max_tokens) {
                (Some(effort), _) => set("reasoning", Change::set(&json!({ "effort": effort }))?),
                (None, Some(tokens)) => set("reasoning", Change::set(&json!({ "max_tokens": tokens }))?),
                (None, None) => set("reasoning", Change::set(&json!({ "enabled": is_enabled }))?),
            },
            Dialect::ChatTemplateThinking => set(TEMPLATE, template(body, "thinking", is_enabled)?),
            Dialect::ChatTemplateEnableThinking => {
                set(TEMPLATE, template(body, "enable_thinking", is_enabled)?);
            }
            Dialect::ThinkingType => {
                let kind = if is_enabled { "enabled" } else { "disabled" };
                set("thinking", Change::set(&json!({ "type": kind }))?);
            }
        }
        Ok(changes)
    }
}

const TEMPLATE: &str = "chat_template_kwargs";

/// The client's own arguments of the template, as they are, with one more.
fn template(body: &Body<'_>, name: &str, is_enabled: bool) -> Result<Change, GatewayError> {
    let own = body.raw(TEMPLATE).map_or("{}", RawValue::get);
    let arguments = Body::parse(own.as_bytes())
        .map_err(|_| wrong(TEMPLATE, "must be an object with each member once"))?;
    json_change(arguments.rewrite(&[(name, Change::set(&is_enabled)?)]))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded on both sides")]
fn budget(tokens: f64) -> Result<u64, GatewayError> {
    if tokens.fract() == 0.0 && (1.0..=1e9).contains(&tokens) {
        Ok(tokens as u64)
    } else {
        Err(wrong("reasoning.max_tokens", "must be an integer of at least 1"))
    }
}

/// What is wished in one word: `enabled`, `disabled` or `unspecified`.
#[must_use]
pub fn wish(body: &Body<'_>) -> &'static str {
    #[derive(Deserialize)]
    struct Thinking {
        #[serde(rename = "type")]
        kind: String,
    }
    let thinking: Option<Thinking> = body.get("thinking", "").ok().flatten();
    let by_thinking = thinking.map(|thinking| thinking.kind != "disabled");
    match Wish::of(body).ok().and_then(|wish| wish.is_enabled).or(by_thinking) {
        Some(true) => "enabled",
        Some(false) => "disabled",
        None => "unspecified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(members: &str) -> Result<Wish, GatewayError> {
        Wish::of(&Body::parse(members.as_bytes()).unwrap())
    }

    #[test]
    fn a_wish_in_every_spelling() {
        for (members, effort, max_tokens, is_enabled, is_hidden) in [
            ("{}", None, None, None, false),
            (r#"{"reasoning":{}}"#, None, None, None, false),
            (r#"{"reasoning":{"effort":"low"}}"#, Some("low"), None, Some(true), false),
            (r#"{"reasoning_effort":"none"}"#, Some("none"), None, Some(false), false),
            (
                r#"{"reasoning":{"effort":"max"},"reasoning_effort":"max"}"#,
                Some("max"),
                None,
                Some(true),
                false,
            ),
            (r#"{"reasoning":{"max_tokens":2000,"exclude":true}}"#, None, Some(2000), Some(true), true),
            (r#"{"reasoning":{"enabled":false}}"#, None, None, Some(false), false),
            (r#"{"include_reasoning":false}"#, None, None, None, true),
            (r#"{"include_reasoning":true,"reasoning":{"exclude":false}}"#, None, None, None, false),
        ] {
            let expected = Wish { effort, max_tokens, is_enabled, is_hidden };
            assert_eq!(read(members).unwrap(), expected, "{members}");
        }
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        for (members, param) in [
            (r#"{"reasoning":3}"#, "reasoning"),
            (r#"{"reasoning":{"effort":"much"}}"#, "reasoning.effort"),
            (r#"{"reasoning_effort":"much"}"#, "reasoning_effort"),
            (r#"{"reasoning_effort":1}"#, "reasoning_effort"),
            (r#"{"reasoning_effort":"low","reasoning":{"effort":"high"}}"#, "reasoning_effort"),
            (r#"{"reasoning":{"max_tokens":0}}"#, "reasoning.max_tokens"),
            (r#"{"reasoning":{"max_tokens":-1}}"#, "reasoning.max_tokens"),
            (r#"{"reasoning":{"max_tokens":5,"effort":"low"}}"#, "reasoning.max_tokens"),
            (r#"{"reasoning":{"max_tokens":5,"enabled":false}}"#, "reasoning.enabled"),
            (r#"{"reasoning":{"effort":"none","enabled":true}}"#, "reasoning.enabled"),
            (r#"{"reasoning":{"exclude":true},"include_reasoning":true}"#, "include_reasoning"),
        ] {
            let error = read(members).unwrap_err();
            assert_eq!((error.param.as_deref(), error.status().as_u16()), (Some(param), 400), "{members}");
        }
    }

    #[test]
    fn dialects() {
        let change = |members: &str, dialect| {
            let body = Body::parse(members.as_bytes()).unwrap();
            let changes = Wish::of(&body).unwrap().changes(dialect, &body).unwrap();
            String::from_utf8(body.rewrite(&changes)).unwrap()
        };
        let low = r#"{"reasoning":{"effort":"low"}}"#;
        for (members, dialect, expected) in [
            (low, Dialect::ReasoningEffort, r#"{"reasoning_effort":"low"}"#),
            (low, Dialect::Reasoning, low),
            (low, Dialect::ChatTemplateThinking, r#"{"chat_template_kwargs":{"thinking":true}}"#),
            (low, Dialect::ThinkingType, r#"{"thinking":{"type":"enabled"}}"#),
            (
                r#"{"reasoning_effort":"none","chat_template_kwargs":{"a":1}}"#,
                Dialect::ChatTemplateEnableThinking,
                r#"{"chat_template_kwargs":{"a":1,"enable_thinking":false}}"#,
            ),
            (
                r#"{"reasoning":{"max_tokens":9000}}"#,
                Dialect::ReasoningEffort,
                r#"{"reasoning_effort":"medium"}"#,
            ),
            (
                r#"{"reasoning":{"max_tokens":9}}"#,
                Dialect::ReasoningEffort,
                r#"{"reasoning_effort":"minimal"}"#,
            ),
            (
                r#"{"reasoning":{"enabled":false}}"#,
                Dialect::ReasoningEffort,
                r#"{"reasoning_effort":"none"}"#,
            ),
            (r#"{"reasoning":{"enabled":true}}"#, Dialect::ReasoningEffort, "{}"),
            (r#"{"reasoning":{"enabled":true}}"#, Dialect::Reasoning, r#"{"reasoning":{"enabled":true}}"#),
            (r#"{"reasoning":{}}"#, Dialect::ThinkingType, "{}"),
        ] {
            assert_eq!(change(members, dialect), expected, "{members} {dialect:?}");
        }
    }

    #[test]
    fn arguments_of_templates_go_out_as_they_came() {
        let zeros = "0, ".repeat(1 << 19);
        let own = format!(r#""a": [{zeros}1.50], "big": 12345678901234567890123"#);
        let arguments = format!(r#"{{"reasoning_effort":"low","chat_template_kwargs":{{{own}}}}}"#);
        let body = Body::parse(arguments.as_bytes()).unwrap();
        let changes = Wish::of(&body).unwrap().changes(Dialect::ChatTemplateThinking, &body).unwrap();
        let written = own.replace(": ", ":").replace("], ", "],");
        let expected = format!(r#"{{"chat_template_kwargs":{{{written},"thinking":true}}}}"#);
        assert!(body.rewrite(&changes) == expected.as_bytes());
        let body = Body::parse(br#"{"reasoning_effort":"low","chat_template_kwargs":[]}"#).unwrap();
        let error = Wish::of(&body).unwrap().changes(Dialect::ChatTemplateThinking, &body).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(TEMPLATE));
    }

    #[test]
    fn budgets() {
        let budget = |members: &str| read(members).unwrap().as_budget();
        assert_eq!(budget(r#"{"reasoning":{"enabled":true}}"#), Some(8192));
        assert_eq!(budget(r#"{"reasoning_effort":"low"}"#), Some(2048));
        assert_eq!(budget(r#"{"reasoning_effort":"none"}"#), None);
        assert_eq!(budget("{}"), None);
    }
}
