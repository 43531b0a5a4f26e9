//! A chat request as a request of Anthropic's format.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::wrong;
use crate::body::{Body, Few, Raw, members, object, to_json};
use crate::error::{GatewayError, shown};
use crate::format::features::MAX_ENTRIES;
use crate::format::object::{Object, inside, list, object_in};
use crate::format::reasoning::Wish;
use crate::format::{Shaped, parameters};
use crate::routing::Route;

/// What comes out at most, in tokens, where neither client nor model says.
const DEFAULT_MAX_TOKENS: u64 = 4096;
/// Least number of tokens for thinking that is accepted.
const MIN_THINKING: u64 = 1024;

/// Members that are turned into others below.
const TURNED: [&str; 14] = [
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "stream",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "user",
    "reasoning",
    "reasoning_effort",
    "response_format",
    "temperature",
];
/// Members that do not change the answer, or are as they are in both formats.
const HARMLESS: [&str; 10] = [
    "top_p",
    "top_k",
    "thinking",
    "stream_options",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "modalities",
];
/// Members that go over as they are.
const KEPT: [&str; 3] = ["temperature", "top_p", "top_k"];

members! {
    struct Message { role, content, tool_calls, tool_call_id, thinking_blocks }
    struct Part { kind as "type", text, image_url, file, refusal }
    struct ImageUrl { url }
    struct File { file_data, filename }
    struct Call { id, kind as "type", function }
    struct Function { name, description, arguments, parameters, schema }
    /// A block of thoughts as the upstream told it: streams number them for the client.
    struct Thought { kind as "type", thinking, signature, data }
}

/// The request for a route.
pub(in crate::format) fn messages_request(shaped: &Shaped, route: &Route) -> Result<Bytes, GatewayError> {
    let body = Body::parse(&shaped.body)?;
    refuse_what_has_no_counterpart(&body)?;
    let mut turn = Turn::default();
    let entries: Few<&RawValue, MAX_ENTRIES> =
        body.raw("messages").and_then(|list| Raw::of(list).read()).unwrap_or_default();
    for (index, entry) in entries.0.iter().enumerate() {
        turn.message(entry.get(), &format!("messages[{index}]"))?;
    }
    let (system, messages) = turn.done();
    let limit: Option<f64> =
        body.get("max_tokens", "an integer")?.or(body.get("max_completion_tokens", "an integer")?);
    let limit = limit.and_then(parameters::whole).or(shaped.max_output).unwrap_or(DEFAULT_MAX_TOKENS);
    let mut request = Object::new()
        .text("model", &route.upstream_model)
        .json("max_tokens", &limit.to_string())
        .json("messages", &list(&messages.entries));
    if !system.is_empty() {
        request = request.json("system", &list(&system));
    }
    for name in KEPT {
        request = request.maybe(name, body.raw(name).map(RawValue::get));
    }
    if let Some(stop) = body.raw("stop") {
        let stop =
            if stop.get().starts_with('"') { format!("[{}]", stop.get()) } else { stop.get().to_owned() };
        request = request.json("stop_sequences", &stop);
    }
    if shaped.is_streaming {
        request = request.json("stream", "true");
    }
    if let Some(user) = body.raw("user") {
        request = request.json("metadata", &Object::new().json("user_id", user.get()).done());
    }
    if let Some(tools) = body.raw("tools").filter(|tools| tools.get() != "[]") {
        request = request.json("tools", &list(&tools_of(tools)?));
        request = request.maybe("tool_choice", tool_choice(&body)?.as_deref());
    }
    let own = body.raw("thinking").map(|thinking| thinking.get().to_owned());
    let thinking = own.or(thinking(&Wish::of(&body)?, limit)).filter(|_| !messages.has_unproved_calls);
    request = request.maybe("thinking", thinking.as_deref());
    request = request.maybe("output_config", output_config(&body)?.as_deref());
    Ok(request.bytes().into())
}

/// A member that means nothing to the route is refused, unless it says what holds anyhow.
fn refuse_what_has_no_counterpart(body: &Body<'_>) -> Result<(), GatewayError> {
    let is_neutral = |name: &str, value: &str| {
        matches!(value, "false" | "[]" | "{}" | "0" | "0.0" | "\"auto\"" | "\"none\"")
            || matches!((name, value), ("n", "1") | ("verbosity", "\"medium\""))
    };
    for name in body.names() {
        let value = body.raw(name).map_or("null", RawValue::get);
        let is_known = TURNED.contains(&name) || HARMLESS.contains(&name);
        if !is_known && !is_neutral(name, value) {
            return Err(wrong(&shown(name), "is not supported by this model"));
        }
    }
    let words: Option<Vec<String>> = body.get("modalities", "an array of strings")?;
    match words {
        Some(words) if words.iter().any(|word| word != "text") => {
            Err(wrong("modalities", "is not supported by this model"))
        }
        _ => Ok(()),
    }
}

/// Messages of the same role in a row become one.
#[derive(Debug, Default)]
struct Turn {
    system: Vec<String>,
    entries: Vec<String>,
    role: &'static str,
    blocks: Vec<String>,
    /// Whether the calls of the last answer come without the thoughts that led to them.
    has_unproved_calls: bool,
}

impl Turn {
    fn message(&mut self, json: &str, at: &str) -> Result<(), GatewayError> {
        let message: Message<'_> = object(json).ok_or_else(|| wrong(at, "must be an object"))?;
        let role: String = message.role.read().unwrap_or_default();
        let content = |blocks: &mut Vec<String>| blocks_of(message.content, blocks, &format!("{at}.content"));
        match role.as_str() {
            "system" | "developer" => content(&mut self.system),
            "user" => {
                self.role("user");
                content(&mut self.blocks)
            }
            "tool" => {
                self.role("user");
                let mut blocks = Vec::new();
                content(&mut blocks)?;
                let id = message
                    .tool_call_id
                    .text()
                    .ok_or_else(|| wrong(&format!("{at}.tool_call_id"), "is required"))?;
                let result = Object::of_type("tool_result").json("tool_use_id", id);
                self.blocks.push(result.json("content", &list(&blocks)).done());
                Ok(())
            }
            "assistant" => {
                self.role("assistant");
                let thoughts: Few<&RawValue, MAX_ENTRIES> =
                    message.thinking_blocks.read().unwrap_or_default();
                for (index, thought) in thoughts.0.iter().enumerate() {
                    let thought: Thought<'_> = object(thought.get()).ok_or_else(|| {
                        wrong(&format!("{at}.thinking_blocks[{index}]"), "must be an object")
                    })?;
                    self.blocks.push(String::from_utf8(to_json(&thought)).unwrap_or_default());
                }
                content(&mut self.blocks)?;
                let calls = calls_of(message.tool_calls, &format!("{at}.tool_calls"))?;
                self.has_unproved_calls = !calls.is_empty() && thoughts.0.is_empty();
                self.blocks.extend(calls);
                Ok(())
            }
            _ => Err(wrong(&format!("{at}.role"), "is not supported by this model")),
        }
    }

    fn role(&mut self, role: &'static str) {
        if self.role != role {
            self.flush();
            self.role = role;
        }
    }

    fn flush(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        if !blocks.is_empty() {
            self.entries.push(Object::new().text("role", self.role).json("content", &list(&blocks)).done());
        }
    }

    /// Blocks of the system, and the messages.
    fn done(mut self) -> (Vec<String>, Self) {
        self.flush();
        (std::mem::take(&mut self.system), self)
    }
}

/// The blocks of a content: a text or parts. Empty texts are left out: the format refuses them.
fn blocks_of(content: Raw<'_>, blocks: &mut Vec<String>, at: &str) -> Result<(), GatewayError> {
    let Some(json) = content.text() else { return Ok(()) };
    if json.starts_with('"') {
        blocks.extend(text_block(json));
        return Ok(());
    }
    let parts: Few<&RawValue, MAX_ENTRIES> =
        content.read().ok_or_else(|| wrong(at, "must be a string or an array of parts"))?;
    for (index, part) in parts.0.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let part: Part<'_> = object(part.get()).ok_or_else(|| wrong(&at, "must be an object"))?;
        let kind: String = part.kind.read().unwrap_or_default();
        let block = match kind.as_str() {
            "text" => part.text.text().and_then(text_block),
            "refusal" => part.refusal.text().and_then(text_block),
            "image_url" => {
                let url =
                    part.image_url.text().and_then(object::<ImageUrl<'_>>).and_then(|image| image.url.text());
                Some(
                    media_block("image", url, None)
                        .ok_or_else(|| wrong(&at, "needs a data: or https: address"))?,
                )
            }
            "file" => {
                let file: File<'_> = part.file.text().and_then(object).unwrap_or_default();
                let block = media_block("document", file.file_data.text(), file.filename.text());
                Some(block.ok_or_else(|| wrong(&at, "needs 'file_data' with a data: address"))?)
            }
            _ => return Err(wrong(&at, "has a type that this model does not support")),
        };
        blocks.extend(block);
    }
    Ok(())
}

fn text_block(json: &str) -> Option<String> {
    (json.starts_with('"') && json != "\"\"").then(|| Object::of_type("text").json("text", json).done())
}

/// A picture or document: in the request itself, or at an address.
fn media_block(kind: &str, url: Option<&str>, title: Option<&str>) -> Option<String> {
    let url = inside(url?)?;
    let source = if let Some((media, data)) =
        url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"))
    {
        let is_media = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+' | b'-' | b'.');
        let data = is_base64(data).then(|| format!("\"{data}\""))?;
        media
            .bytes()
            .all(is_media)
            .then(|| Object::of_type("base64").text("media_type", media).json("data", &data))?
    } else {
        let is_address = url.starts_with("https://") || url.starts_with("http://");
        is_address.then(|| Object::of_type("url").json("url", &format!("\"{url}\"")))?
    };
    Some(Object::of_type(kind).json("source", &source.done()).maybe("title", title).done())
}

/// Also where JSON escapes its slashes.
fn is_base64(data: &str) -> bool {
    data.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\\' | b'-' | b'_'))
}

fn calls_of(calls: Raw<'_>, at: &str) -> Result<Vec<String>, GatewayError> {
    let calls: Few<&RawValue, MAX_ENTRIES> = match calls.text() {
        None => return Ok(Vec::new()),
        Some(_) => calls.read().ok_or_else(|| wrong(at, "must be an array"))?,
    };
    let turned = calls.0.iter().enumerate().map(|(index, call)| {
        let at = format!("{at}[{index}]");
        let call: Call<'_> = object(call.get()).ok_or_else(|| wrong(&at, "must be an object"))?;
        let function: Option<Function<'_>> = call.function.text().and_then(object);
        let (Some(id), Some(function)) = (call.id.text(), function) else {
            return Err(wrong(&at, "needs an 'id' and a 'function'"));
        };
        let arguments: String = function.arguments.read().unwrap_or_default();
        let at = format!("{at}.function.arguments");
        let input = object_in(&arguments).ok_or_else(|| wrong(&at, "must be an object in JSON"))?;
        let call = Object::of_type("tool_use").json("id", id).maybe("name", function.name.text());
        Ok(call.json("input", input).done())
    });
    turned.collect()
}

fn tools_of(tools: &RawValue) -> Result<Vec<String>, GatewayError> {
    let tools: Few<&RawValue, MAX_ENTRIES> =
        Raw::of(tools).read().ok_or_else(|| wrong("tools", "must be an array"))?;
    let turned = tools.0.iter().enumerate().map(|(index, tool)| {
        let tool: Call<'_> = object(tool.get()).unwrap_or_default();
        let function: Option<Function<'_>> = tool.function.text().and_then(object);
        let function = function.ok_or_else(|| wrong(&format!("tools[{index}]"), "must be a function"))?;
        let schema = function.parameters.text().unwrap_or(r#"{"type":"object","properties":{}}"#);
        let turned = Object::new().maybe("name", function.name.text());
        Ok(turned.maybe("description", function.description.text()).json("input_schema", schema).done())
    });
    turned.collect()
}

fn tool_choice(body: &Body<'_>) -> Result<Option<String>, GatewayError> {
    let is_single = body.get("parallel_tool_calls", "true or false")? == Some(false);
    let choice = body.raw("tool_choice");
    let chosen = match choice.map(RawValue::get) {
        None if !is_single => return Ok(None),
        None | Some("\"auto\"") => Object::of_type("auto"),
        Some("\"none\"") => return Ok(Some(Object::of_type("none").done())),
        Some("\"required\"") => Object::of_type("any"),
        Some(named) => {
            let call: Call<'_> = object(named).unwrap_or_default();
            let function: Option<Function<'_>> = call.function.text().and_then(object);
            let name = function.and_then(|function| function.name.text());
            let name =
                name.ok_or_else(|| wrong("tool_choice", "must be 'auto', 'none', 'required' or a function"))?;
            Object::of_type("tool").json("name", name)
        }
    };
    let chosen = if is_single { chosen.json("disable_parallel_tool_use", "true") } else { chosen };
    Ok(Some(chosen.done()))
}

/// Thinking has its share of the limit, and leaves something of it.
fn thinking(wish: &Wish, limit: u64) -> Option<String> {
    if !wish.is_enabled? {
        return Some(Object::of_type("disabled").done());
    }
    let budget = wish.as_budget()?.max(MIN_THINKING).min(limit.saturating_sub(1));
    let enabled = Object::of_type("enabled").json("budget_tokens", &budget.to_string());
    (budget >= MIN_THINKING).then(|| enabled.done())
}

fn output_config(body: &Body<'_>) -> Result<Option<String>, GatewayError> {
    #[derive(Deserialize)]
    struct Format<'a> {
        #[serde(rename = "type")]
        kind: String,
        #[serde(borrow, default)]
        json_schema: Raw<'a>,
    }
    let Some(format) = body.raw("response_format") else { return Ok(None) };
    let format: Format<'_> = object(format.get()).ok_or_else(|| wrong("response_format", "needs a type"))?;
    match format.kind.as_str() {
        "text" => Ok(None),
        "json_schema" => {
            let schema: Option<Function<'_>> = format.json_schema.text().and_then(object);
            let schema = schema.and_then(|schema| schema.schema.text());
            let schema = schema.ok_or_else(|| wrong("response_format.json_schema.schema", "is required"))?;
            let format = Object::of_type("json_schema").json("schema", schema).done();
            Ok(Some(Object::new().json("format", &format).done()))
        }
        _ => Err(wrong("response_format", "has a type that this model does not support")),
    }
}
