//! A request of the Messages surface as a chat request.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::wrong;
use crate::body::{Body, Few, Raw, members, object, raw_text};
use crate::error::{GatewayError, shown};
use crate::format::Shaped;
use crate::format::features::MAX_ENTRIES;
use crate::format::object::{Object, inside, list};
use crate::format::reasoning::{Dialect, Wish};
use crate::routing::Route;

/// Members that are turned into others below, or do not change the answer.
const KNOWN: [&str; 17] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "metadata",
    "service_tier",
    "output_config",
    "output_format",
    "cache_control",
];
/// Members that go over as they are, and what they are called there.
const KEPT: [(&str, &str); 4] =
    [("temperature", "temperature"), ("top_p", "top_p"), ("top_k", "top_k"), ("stop_sequences", "stop")];

members! {
    struct Message { role, content }
    struct Block {
        kind as "type",
        text,
        source,
        id,
        name,
        input,
        tool_use_id,
        content,
        title,
    }
    struct Source { kind as "type", media_type, data, url }
    struct Tool { kind as "type", name, description, input_schema }
    struct Schema { kind as "type" }
    struct Choice { kind as "type", name, disable_parallel_tool_use }
    struct Thinking { kind as "type", budget_tokens }
    struct Output { effort, format }
    struct Format { kind as "type", schema }
    struct Metadata { user_id }
}

/// The request for a route.
pub(in crate::format) fn chat_request(shaped: &Shaped, route: &Route) -> Result<Bytes, GatewayError> {
    let body = Body::parse(&shaped.body)?;
    if let Some(name) = body.names().find(|name| !KNOWN.contains(name)) {
        return Err(wrong(&shown(name), "is not supported by this model"));
    }
    let mut request = Object::new()
        .text("model", &route.upstream_model)
        .json("messages", &list(&messages(&body)?))
        .maybe(limit(shaped, route), body.raw("max_tokens").map(RawValue::get));
    for (name, own) in KEPT {
        request = request.maybe(own, body.raw(name).map(RawValue::get));
    }
    if shaped.is_streaming {
        request = request.json("stream", "true").json("stream_options", r#"{"include_usage":true}"#);
    }
    let metadata: Option<Metadata<'_>> = body.raw("metadata").and_then(|metadata| object(metadata.get()));
    request = request.maybe("user", metadata.and_then(|metadata| metadata.user_id.text()));
    if let Some(tools) = body.raw("tools").filter(|tools| tools.get() != "[]") {
        request = request.json("tools", &list(&tools_of(tools)?));
        request = tool_choice(&body, request)?;
    }
    let output: Output<'_> =
        body.raw("output_config").and_then(|output| object(output.get())).unwrap_or_default();
    if let Some(format) = output.format.value().or(body.raw("output_format")) {
        request = request.json("response_format", &response_format(format)?);
    }
    for (name, value) in thinking(&body, output, route)? {
        request = request.json(name, &value);
    }
    Ok(request.bytes().into())
}

/// The name of the limit that the route knows, or else the model.
fn limit(shaped: &Shaped, route: &Route) -> &'static str {
    const NEW: &str = "max_completion_tokens";
    const OLD: &str = "max_tokens";
    match &route.upstream.supported_parameters {
        Some(known) if known.iter().any(|name| name == NEW) && !known.iter().any(|name| name == OLD) => NEW,
        Some(known) if known.iter().any(|name| name == OLD) => OLD,
        _ => shaped.limit_name,
    }
}

fn messages(body: &Body<'_>) -> Result<Vec<String>, GatewayError> {
    let mut turned = Vec::new();
    if let Some(system) = body.raw("system") {
        let text = text_of(Raw::of(system), "system")?;
        turned.push(Object::new().text("role", "system").text("content", &text).done());
    }
    let entries: Few<&RawValue, MAX_ENTRIES> =
        body.raw("messages").and_then(|list| Raw::of(list).read()).unwrap_or_default();
    for (index, entry) in entries.0.iter().enumerate() {
        let at = format!("messages[{index}]");
        let message: Message<'_> = object(entry.get()).ok_or_else(|| wrong(&at, "must be an object"))?;
        let role: String = message.role.read().unwrap_or_default();
        let content = message.content.text().ok_or_else(|| wrong(&format!("{at}.content"), "is required"))?;
        match role.as_str() {
            "user" | "assistant" | "system" if content.starts_with('"') => {
                turned.push(Object::new().text("role", &role).json("content", content).done());
            }
            "user" => user(blocks(message.content, &at)?.0, &at, &mut turned)?,
            "assistant" => assistant(blocks(message.content, &at)?.0, &at, &mut turned)?,
            _ => return Err(wrong(&format!("{at}.role"), "must be 'user' or 'assistant'")),
        }
    }
    Ok(turned)
}

fn blocks<'a>(content: Raw<'a>, at: &str) -> Result<Few<&'a RawValue, MAX_ENTRIES>, GatewayError> {
    content.read().ok_or_else(|| wrong(&format!("{at}.content"), "must be a string or an array of blocks"))
}

fn block<'a>(json: &'a RawValue, at: &str) -> Result<(String, Block<'a>), GatewayError> {
    let block: Block<'a> = object(json.get()).ok_or_else(|| wrong(at, "must be an object"))?;
    Ok((block.kind.read().unwrap_or_default(), block))
}

/// Texts in a row as one.
fn text_of(content: Raw<'_>, at: &str) -> Result<String, GatewayError> {
    if let Some(text) = content.read::<String>() {
        return Ok(text);
    }
    let entries: Few<&RawValue, MAX_ENTRIES> =
        content.read().ok_or_else(|| wrong(at, "must be a string or an array"))?;
    let mut texts: Vec<String> = Vec::new();
    for entry in entries.0 {
        let (kind, block) = block(entry, at)?;
        if kind == "text" {
            texts.push(block.text.read().unwrap_or_default());
        }
    }
    Ok(texts.join("\n"))
}

/// Results of tools come first, each as a message of its own; pictures among them follow with what the user says.
fn user(blocks: Vec<&RawValue>, at: &str, turned: &mut Vec<String>) -> Result<(), GatewayError> {
    let mut parts = Vec::new();
    for (index, json) in blocks.into_iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        let (kind, block) = block(json, &at)?;
        if kind != "tool_result" {
            parts.push(part(&kind, block, &at)?);
            continue;
        }
        let id =
            block.tool_use_id.text().ok_or_else(|| wrong(&format!("{at}.tool_use_id"), "is required"))?;
        let text = if block.content.value().is_some() { text_of(block.content, &at)? } else { String::new() };
        let message = Object::new().text("role", "tool").json("tool_call_id", id).text("content", &text);
        turned.push(message.done());
        let inner: Few<&RawValue, MAX_ENTRIES> = block.content.read().unwrap_or_default();
        for json in inner.0 {
            let (kind, block) = self::block(json, &at)?;
            if kind != "text" {
                parts.push(part(&kind, block, &at)?);
            }
        }
    }
    if !parts.is_empty() {
        turned.push(Object::new().text("role", "user").json("content", &list(&parts)).done());
    }
    Ok(())
}

fn part(kind: &str, block: Block<'_>, at: &str) -> Result<String, GatewayError> {
    let source = || block.source.text().and_then(object::<Source<'_>>).unwrap_or_default();
    let unusable = || wrong(&format!("{at}.source"), "cannot be used with this model");
    match kind {
        "text" => {
            let text = block.text.text().filter(|text| text.starts_with('"'));
            let text = text.ok_or_else(|| wrong(&format!("{at}.text"), "must be a string"))?;
            Ok(Object::of_type("text").json("text", text).done())
        }
        "image" => {
            let url = address(source()).ok_or_else(unusable)?;
            let image = Object::new().json("url", &url).done();
            Ok(Object::of_type("image_url").json("image_url", &image).done())
        }
        "document" => {
            let source = source();
            if source.kind.text() == Some("\"text\"") {
                return Ok(Object::of_type("text")
                    .json("text", source.data.text().ok_or_else(unusable)?)
                    .done());
            }
            let is_inline = source.kind.text() == Some("\"base64\"");
            let data = address(source).filter(|_| is_inline).ok_or_else(unusable)?;
            let name = block.title.text().unwrap_or("\"document.pdf\"");
            let file = Object::new().json("filename", name).json("file_data", &data).done();
            Ok(Object::of_type("file").json("file", &file).done())
        }
        _ => Err(wrong(at, "has a type that this model does not support")),
    }
}

/// Where a picture or document is, as a JSON text.
fn address(source: Source<'_>) -> Option<String> {
    match source.kind.text()? {
        "\"base64\"" => {
            let media: String = source.media_type.read()?;
            let is_media =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+' | b'-' | b'.');
            let data = inside(source.data.text()?)?;
            media.bytes().all(is_media).then(|| format!("\"data:{media};base64,{data}\""))
        }
        "\"url\"" => source.url.text().filter(|url| url.starts_with('"')).map(ToOwned::to_owned),
        _ => None,
    }
}

/// What the model said and called; what it thought stays here.
fn assistant(blocks: Vec<&RawValue>, at: &str, turned: &mut Vec<String>) -> Result<(), GatewayError> {
    let (mut texts, mut calls) = (String::new(), Vec::new());
    for (index, json) in blocks.into_iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        let (kind, block) = block(json, &at)?;
        match kind.as_str() {
            "text" => texts.push_str(block.text.text().and_then(inside).unwrap_or_default()),
            "thinking" | "redacted_thinking" => {}
            "tool_use" => {
                let (Some(id), Some(name)) = (block.id.text(), block.name.text()) else {
                    return Err(wrong(&at, "needs an 'id' and a 'name'"));
                };
                let arguments = raw_text(block.input.text().unwrap_or("{}"));
                let function = Object::new().json("name", name).json("arguments", arguments.get()).done();
                calls.push(
                    Object::new().json("id", id).text("type", "function").json("function", &function).done(),
                );
            }
            _ => return Err(wrong(&at, "has a type that this model does not support")),
        }
    }
    let content =
        if texts.is_empty() && !calls.is_empty() { "null".to_owned() } else { format!("\"{texts}\"") };
    let message = Object::new().text("role", "assistant").json("content", &content);
    let calls = (!calls.is_empty()).then(|| list(&calls));
    turned.push(message.maybe("tool_calls", calls.as_deref()).done());
    Ok(())
}

fn tools_of(tools: &RawValue) -> Result<Vec<String>, GatewayError> {
    let tools: Few<&RawValue, MAX_ENTRIES> =
        Raw::of(tools).read().ok_or_else(|| wrong("tools", "must be an array"))?;
    let turned = tools.0.iter().enumerate().map(|(index, tool)| {
        let tool: Tool<'_> = object(tool.get()).unwrap_or_default();
        let is_own = matches!(tool.kind.text(), None | Some("\"custom\""));
        let (true, Some(name)) = (is_own, tool.name.text()) else {
            return Err(wrong(&format!("tools[{index}]"), "has a type that this model does not support"));
        };
        // Other inputs could not be told as what they are: objects.
        let is_of_objects = |schema| {
            object::<Schema<'_>>(schema).is_some_and(|schema| schema.kind.text() == Some("\"object\""))
        };
        if !tool.input_schema.text().is_none_or(is_of_objects) {
            return Err(wrong(&format!("tools[{index}].input_schema.type"), "must be 'object'"));
        }
        let function = Object::new()
            .json("name", name)
            .maybe("description", tool.description.text())
            .maybe("parameters", tool.input_schema.text());
        Ok(Object::of_type("function").json("function", &function.done()).done())
    });
    turned.collect()
}

fn tool_choice(body: &Body<'_>, request: Object) -> Result<Object, GatewayError> {
    let Some(choice) = body.raw("tool_choice") else { return Ok(request) };
    let choice: Choice<'_> = object(choice.get()).unwrap_or_default();
    let chosen = match choice.kind.text() {
        Some("\"auto\"") => "\"auto\"".to_owned(),
        Some("\"none\"") => "\"none\"".to_owned(),
        Some("\"any\"") => "\"required\"".to_owned(),
        Some("\"tool\"") => {
            let function = Object::new().json("name", choice.name.text().unwrap_or("\"\"")).done();
            Object::of_type("function").json("function", &function).done()
        }
        _ => return Err(wrong("tool_choice.type", "must be 'auto', 'any', 'tool' or 'none'")),
    };
    let request = request.json("tool_choice", &chosen);
    let is_single = choice.disable_parallel_tool_use.text() == Some("true");
    Ok(if is_single { request.json("parallel_tool_calls", "false") } else { request })
}

fn response_format(format: &RawValue) -> Result<String, GatewayError> {
    let format: Format<'_> = object(format.get()).unwrap_or_default();
    let (Some("\"json_schema\""), Some(schema)) = (format.kind.text(), format.schema.text()) else {
        return Err(wrong("output_config.format", "must be a 'json_schema' with a 'schema'"));
    };
    let schema = Object::new().text("name", "answer").json("schema", schema).json("strict", "true").done();
    Ok(Object::of_type("json_schema").json("json_schema", &schema).done())
}

/// What is wished of thinking, in the route's dialect.
fn thinking(
    body: &Body<'_>,
    output: Output<'_>,
    route: &Route,
) -> Result<Vec<(&'static str, String)>, GatewayError> {
    let thinking: Option<Thinking<'_>> = body.raw("thinking").and_then(|thinking| object(thinking.get()));
    let effort = output.effort.text();
    let wished = match thinking.map(|thinking| (thinking.kind.text(), thinking.budget_tokens.text())) {
        Some((Some("\"enabled\""), Some(budget))) => Object::new().json("max_tokens", budget),
        Some((Some("\"enabled\"" | "\"adaptive\""), _)) if effort.is_none() => {
            Object::new().json("enabled", "true")
        }
        Some((Some("\"disabled\""), _)) => Object::new().json("enabled", "false"),
        Some((None, _)) => return Err(wrong("thinking.type", "is required")),
        _ => Object::new().maybe("effort", effort),
    };
    let wished = Object::new().json("reasoning", &wished.done()).bytes();
    let wish =
        Wish::of(&Body::parse(&wished)?).map_err(|_| wrong("thinking", "is not a wish that can be met"))?;
    // Not to think is the habit of most models; to say so to one that cannot is an error.
    let dialect = match route.upstream.reasoning_dialect {
        None if wish.is_enabled != Some(true) => return Ok(Vec::new()),
        dialect => dialect.unwrap_or(Dialect::ReasoningEffort),
    };
    let none = Body::parse(b"{}")?;
    let changes = wish.changes(dialect, &none)?.into_iter();
    Ok(changes.filter_map(|(name, change)| Some((name, change.value()?.get().to_owned()))).collect())
}
