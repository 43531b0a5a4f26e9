//! An OpenAPI 3.1 document that answers can be held against.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::Method;
use jsonschema::{Draft, Registry, Validator};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Names a document to the validator; nothing is ever loaded from there.
const BASE: &str = "https://contract.invalid/document";
const JSON: &str = "application/json";
/// Longest body that a message shows, in characters.
const SHOWN: usize = 2000;

/// One answer to a request.
#[derive(Debug, Clone)]
pub(in crate::api::tests) struct Answer {
    pub(super) method: Method,
    pub(super) path: String,
    /// The dated version that it is in; empty where a request was refused before one was chosen.
    pub(super) version: String,
    pub(super) status: u16,
    pub(super) content_type: String,
    /// Empty where it is not JSON.
    pub(super) body: Bytes,
}

impl Answer {
    /// Its content type without parameters.
    pub(super) fn media_type(&self) -> &str {
        self.content_type.split(';').next().unwrap_or_default().trim()
    }

    pub(super) fn is_json(&self) -> bool {
        self.media_type() == JSON
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(SHOWN).collect();
        let Self { method, path, version, status, content_type, .. } = self;
        write!(f, "{method} {path} in {version:?}: {status} {content_type} {body}")
    }
}

/// One operation of a document.
pub(super) struct Operation {
    pub(super) method: Method,
    /// As in the document.
    pub(super) path: String,
    /// The described content types of each described status.
    pub(super) statuses: BTreeMap<u16, Vec<String>>,
}

impl Operation {
    /// How well a path fits: `None` when it does not, else the literal segments, first ones first.
    fn fit(&self, path: &str) -> Option<Vec<bool>> {
        let (ours, theirs) = (self.path.split('/'), path.split('/'));
        let count = ours.clone().count();
        // A parameter for an image's reference takes the rest of a path.
        let takes_rest = self.path.ends_with("{reference}");
        let is_of_length = theirs.clone().count() == count || takes_rest && theirs.clone().count() > count;
        let fits = |(ours, theirs): (&str, &str)| {
            let is_parameter = ours.starts_with('{');
            let is_same = if is_parameter { !theirs.is_empty() } else { ours == theirs };
            is_same.then_some(!is_parameter)
        };
        if is_of_length { ours.zip(theirs).map(fits).collect() } else { None }
    }

    /// Where its responses stand in the document.
    fn pointer(&self) -> String {
        format!("/paths/{}/{}/responses", escaped(&self.path), self.method.as_str().to_lowercase())
    }
}

fn escaped(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

/// A document, with the validators of its schemas.
pub(super) struct Description {
    pub(super) document: Value,
    pub(super) operations: Vec<Operation>,
    registry: Registry<'static>,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Description {
    pub(super) fn new(document: Value) -> Self {
        let registry = Registry::new().add(BASE, document.clone()).unwrap().prepare().unwrap();
        let operations = operations(&document);
        Self { document, operations, registry, validators: Mutex::default() }
    }

    /// The operation that a request is for: the one whose path is named most exactly.
    pub(super) fn operation(&self, method: &Method, path: &str) -> Option<&Operation> {
        let exactly = self.matching(method, path);
        exactly.or_else(|| self.matching(super::described_method(method), path))
    }

    fn matching(&self, method: &Method, path: &str) -> Option<&Operation> {
        let fitting = self.operations.iter().filter(|operation| operation.method == method);
        let fitting = fitting.filter_map(|operation| Some((operation.fit(path)?, operation)));
        fitting.max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, operation)| operation)
    }

    /// What is wrong with an answer.
    pub(super) fn violations(&self, answer: &Answer) -> Vec<String> {
        let Some(operation) = self.operation(&answer.method, &answer.path) else {
            return vec!["the operation is not described".into()];
        };
        let name = format!("{} {} {}", operation.method, operation.path, answer.status);
        let Some(types) = operation.statuses.get(&answer.status) else {
            return vec![format!("{name}: the status is not described")];
        };
        let (media, is_head) = (answer.media_type(), answer.method == Method::HEAD);
        let is_described =
            if media.is_empty() { types.is_empty() } else { types.iter().any(|each| each == media) };
        // The reference describes failures by their status alone.
        let is_free = types.is_empty() && answer.status >= 400;
        if is_free || is_head {
            return Vec::new();
        }
        if !is_described {
            return vec![format!("{name}: content of type {media:?} is not described, {types:?} are")];
        }
        if !answer.is_json() {
            return Vec::new();
        }
        let pointer = format!("{}/{}/content/{}/schema", operation.pointer(), answer.status, escaped(media));
        let Ok(body) = serde_json::from_slice(&answer.body) else {
            return vec![format!("{name}: the body is no JSON")];
        };
        let validator = self.validator(&pointer, &answer.version);
        let described = |error: jsonschema::ValidationError<'_>| {
            format!("{name}: at {:?}: {}", error.instance_path().as_str(), error.masked())
        };
        validator.iter_errors(&body).map(described).collect()
    }

    /// The validator of a schema, for answers in a version.
    fn validator(&self, pointer: &str, version: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock();
        let key = format!("{version} {pointer}");
        let made = validators.entry(key).or_insert_with(|| {
            let schema = self.document.pointer(pointer).cloned().unwrap_or(Value::Bool(true));
            let schema = absolute(super::reference::of_version(schema, version));
            let options = jsonschema::options()
                .with_draft(Draft::Draft202012)
                .with_registry(&self.registry)
                .should_validate_formats(true);
            Arc::new(options.build(&schema).unwrap_or_else(|error| panic!("{pointer}: {error}")))
        });
        Arc::clone(made)
    }
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let statuses = operation["responses"].as_object().unwrap().iter().map(|(status, response)| {
                let types = response["content"].as_object().map(|types| types.keys().cloned().collect());
                (status.parse().unwrap(), types.unwrap_or_default())
            });
            let method = method.to_uppercase().parse().unwrap();
            all.push(Operation { method, path: path.clone(), statuses: statuses.collect() });
        }
    }
    all
}

/// A schema that stands on its own: what it refers to is named by the document.
fn absolute(schema: Value) -> Value {
    match schema {
        Value::String(text) if text.starts_with("#/") => format!("{BASE}{text}").into(),
        Value::Array(items) => items.into_iter().map(absolute).collect(),
        Value::Object(map) => map.into_iter().map(|(name, value)| (name, absolute(value))).collect(),
        other => other,
    }
}

/// Forbids members that no schema of the document names. What is put together by `allOf` is closed as a whole: its
/// parts are kept open under `/components/open`.
pub(super) fn close(document: &mut Value) {
    let schemas = document["components"]["schemas"].as_object().unwrap().clone();
    let open: Value = schemas.iter().map(|(name, schema)| (name.clone(), closed(schema, false))).collect();
    let shut: Value = schemas.iter().map(|(name, schema)| (name.clone(), closed(schema, true))).collect();
    document["components"] = json!({"schemas": shut, "open": open});
    for operation in document["paths"].as_object_mut().unwrap().values_mut().filter_map(Value::as_object_mut)
    {
        for responses in operation.values_mut().filter_map(|operation| operation["responses"].as_object_mut())
        {
            for types in responses.values_mut().filter_map(|response| response.get_mut("content")) {
                for content in types.as_object_mut().unwrap().values_mut() {
                    content["schema"] = closed(&content["schema"], true);
                }
            }
        }
    }
}

/// A schema whose inner schemas are closed, and itself if asked for.
fn closed(schema: &Value, itself: bool) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    let each = |value: &Value, itself: bool| match value {
        Value::Array(items) => items.iter().map(|item| closed(item, itself)).collect(),
        Value::Object(map) => map.iter().map(|(name, item)| (name.clone(), closed(item, itself))).collect(),
        other => other.clone(),
    };
    let is_composed = members.contains_key("allOf")
        || members.contains_key("properties")
            && (members.contains_key("oneOf") || members.contains_key("anyOf"));
    let mut made = serde_json::Map::new();
    for (name, value) in members {
        let value = match name.as_str() {
            "properties" | "prefixItems" => each(value, true),
            "items" | "additionalProperties" => closed(value, true),
            "allOf" => each(value, false),
            "oneOf" | "anyOf" => each(value, itself && !is_composed),
            "$ref" if !itself => value.as_str().unwrap().replace("/schemas/", "/open/").into(),
            _ => value.clone(),
        };
        made.insert(name.clone(), value);
    }
    let is_object = is_composed || members.contains_key("properties");
    if itself && is_object && !members.contains_key("additionalProperties") {
        made.insert("unevaluatedProperties".into(), false.into());
    }
    made.into()
}
