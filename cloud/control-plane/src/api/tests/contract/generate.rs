//! Requests made of the schemas of our document: fitting ones, ones with one fault, and ones that nobody means well
//! with.

use std::collections::BTreeMap;
use std::fmt;

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::Union;
use proptest::string::string_regex;
use serde_json::{Map, Value, json};
use url::form_urlencoded::byte_serialize;

/// How deep values are made; optional members deeper down are left out.
const MAX_DEPTH: u32 = 8;
/// Most items of a list beyond what its schema asks for.
const MORE_ITEMS: usize = 3;
/// Longest text beyond what its schema asks for.
const MORE_CHARACTERS: u64 = 12;

/// Values that members and parameters of a name have in this installation.
pub(super) type Known = BTreeMap<&'static str, Vec<Value>>;

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) method: String,
    /// Path and query, encoded.
    pub(super) target: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(1000).collect();
        write!(f, "{} {} {:?} {body:?}", self.method, self.target, self.headers)
    }
}

/// Makes requests of a document.
pub(super) struct Generator<'a> {
    pub(super) document: &'a Value,
    pub(super) known: Known,
}

impl Generator<'_> {
    /// Requests for an operation.
    pub(super) fn requests(&self, method: &str, path: &str, operation: &Value) -> BoxedStrategy<Sent> {
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let placed = |place: &'static str| parameters.iter().filter(move |each| each["in"] == place);
        let in_path: Vec<_> = placed("path").map(|each| self.in_path(each)).collect();
        let in_query: Vec<_> = placed("query").map(|each| self.in_query(each)).collect();
        let headers = (
            weighted(0.2, select(VERSIONS)),
            weighted(0.1, select(NAMES)),
            weighted(0.1, select(WORKSPACES)),
        );
        let (method, path) = (method.to_uppercase(), path.to_owned());
        let names: Vec<_> =
            placed("path").map(|each| format!("{{{}}}", each["name"].as_str().unwrap())).collect();
        (in_path, in_query, weighted(0.1, noise()), headers, self.body(operation))
            .prop_map(move |(in_path, in_query, noise, (version, name, workspace), (content_type, body))| {
                let target = names
                    .iter()
                    .zip(in_path)
                    .fold(path.clone(), |path, (name, value)| path.replace(name.as_str(), &encoded(&value)));
                let query: Vec<_> = in_query.into_iter().flatten().chain(noise).collect();
                let query = query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
                let query = query.collect::<Vec<_>>().join("&");
                let headers = [
                    ("content-type", content_type),
                    ("x-phala-version", version),
                    ("idempotency-key", name),
                    ("x-workspace-id", workspace),
                ];
                let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned())));
                let target = if query.is_empty() { target } else { format!("{target}?{query}") };
                Sent { method: method.clone(), target, headers: headers.collect(), body }
            })
            .boxed()
    }

    fn in_path(&self, parameter: &Value) -> BoxedStrategy<String> {
        let name = parameter["name"].as_str().unwrap();
        let hostile = hostile().prop_map(text).prop_filter("a segment is not empty", |text| !text.is_empty());
        let fitting = self.fitting(&parameter["schema"], name, 0).prop_map(text);
        let fitting = fitting.prop_filter("a segment is not empty", |text| !text.is_empty());
        prop_oneof![5 => fitting, 1 => hostile].boxed()
    }

    fn in_query(&self, parameter: &Value) -> BoxedStrategy<Option<(String, String)>> {
        let name = parameter["name"].as_str().unwrap().to_owned();
        let value = prop_oneof![
            3 => self.fitting(&parameter["schema"], &name, 0).prop_map(text),
            1 => hostile().prop_map(text),
        ];
        let share = if parameter["required"] == true { 0.9 } else { 0.3 };
        weighted(share, value.prop_map(move |value| (name.clone(), value))).boxed()
    }

    /// Content types and bodies.
    fn body(&self, operation: &Value) -> BoxedStrategy<(Option<&'static str>, Vec<u8>)> {
        let raw = select(RAW).prop_map(|(content_type, bytes)| (Some(content_type), bytes.to_vec()));
        let noise = vec(any::<u8>(), 0..64).prop_map(|bytes| (None, bytes));
        let Some(types) = operation["requestBody"]["content"].as_object() else {
            return prop_oneof![8 => Just((None, Vec::new())), 1 => raw].boxed();
        };
        let Some(schema) = types.get("application/json").map(|content| &content["schema"]) else {
            return prop_oneof![6 => raw, 1 => noise].boxed();
        };
        let fitting = self.fitting(schema, "", 0);
        let broken = (fitting.clone(), any::<Index>(), hostile()).prop_map(|(mut value, at, with)| {
            let count = nodes(&value);
            replace(&mut value, &mut at.index(count), &with);
            value
        });
        let written = |value: Value| (Some("application/json"), value.to_string().into_bytes());
        prop_oneof![
            8 => fitting.prop_map(written),
            6 => broken.prop_map(written),
            1 => hostile().prop_map(written),
            1 => raw,
            1 => noise,
        ]
        .boxed()
    }

    /// Values that fit a schema. Those with a known name are mostly known ones.
    fn fitting(&self, schema: &Value, name: &str, depth: u32) -> BoxedStrategy<Value> {
        let made = self.of_schema(schema, name, depth);
        match self.known.get(name).filter(|values| !values.is_empty()) {
            Some(values) => prop_oneof![4 => select(values.clone()), 1 => made].boxed(),
            None => made,
        }
    }

    fn of_schema(&self, schema: &Value, name: &str, depth: u32) -> BoxedStrategy<Value> {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.pointer(reference.trim_start_matches('#')).unwrap();
            return self.of_schema(target, name, depth + 1);
        }
        if let Some(values) = schema["enum"].as_array() {
            return select(values.clone()).boxed();
        }
        for union in ["oneOf", "anyOf"] {
            if let Some(forms) = schema[union].as_array() {
                return Union::new(forms.iter().map(|form| self.of_schema(form, name, depth))).boxed();
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let parts: Vec<_> = parts.iter().map(|part| self.of_schema(part, name, depth)).collect();
            return parts.prop_map(|parts| merged(&parts)).boxed();
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return hostile().boxed(),
        };
        Union::new(kinds.into_iter().map(|kind| self.of_kind(kind, schema, name, depth))).boxed()
    }

    fn of_kind(&self, kind: &str, schema: &Value, name: &str, depth: u32) -> BoxedStrategy<Value> {
        match kind {
            "null" => Just(Value::Null).boxed(),
            "boolean" => any::<bool>().prop_map(Value::from).boxed(),
            "integer" => {
                let least = schema["minimum"].as_i64().unwrap_or(-2);
                let most = schema["maximum"].as_i64().unwrap_or_else(|| least.saturating_add(200));
                (least..=most).prop_map(Value::from).boxed()
            }
            "number" => (-1.0..1e6_f64).prop_map(Value::from).boxed(),
            "array" if depth > MAX_DEPTH => Just(json!([])).boxed(),
            "array" => {
                let least =
                    schema["minItems"].as_u64().and_then(|least| usize::try_from(least).ok()).unwrap_or(0);
                let items = vec(self.fitting(&schema["items"], name, depth + 1), least..=least + MORE_ITEMS);
                items.prop_map(Value::from).boxed()
            }
            "object" => self.object(schema, depth),
            _ => texts(schema),
        }
    }

    fn object(&self, schema: &Value, depth: u32) -> BoxedStrategy<Value> {
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let none = Map::new();
        let members = schema["properties"].as_object().unwrap_or(&none);
        let member = |(name, schema): (&String, &Value)| {
            let key = name.clone();
            let value = self.fitting(schema, name, depth + 1).prop_map(move |value| (key.clone(), value));
            if required.iter().any(|each| each == name) {
                value.prop_map(Some).boxed()
            } else if depth > MAX_DEPTH {
                Just(None).boxed()
            } else {
                weighted(0.35, value).boxed()
            }
        };
        let members: Vec<_> = members.iter().map(member).collect();
        let more = match schema.get("additionalProperties") {
            Some(more) if more.is_object() && depth <= MAX_DEPTH => {
                btree_map("[a-zA-Z_]{1,8}", self.fitting(more, "", depth + 1), 0..3).boxed()
            }
            _ => Just(BTreeMap::new()).boxed(),
        };
        (members, more)
            .prop_map(|(members, more)| {
                members.into_iter().flatten().chain(more).collect::<Map<_, _>>().into()
            })
            .boxed()
    }
}

/// Texts of a schema.
fn texts(schema: &Value) -> BoxedStrategy<Value> {
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX).min(least + MORE_CHARACTERS);
    let made = match (schema["format"].as_str(), schema["pattern"].as_str()) {
        (Some("date-time"), _) => select(TIMES).prop_map(str::to_owned).boxed(),
        (Some("uuid"), _) => {
            string_regex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}").unwrap().boxed()
        }
        (_, Some(pattern)) => {
            let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
            string_regex(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")).boxed()
        }
        _ => string_regex(&format!("[a-z0-9 -]{{{least},{most}}}")).unwrap().boxed(),
    };
    made.prop_map(Value::from).boxed()
}

const TIMES: &[&str] = &[
    "2026-01-21T10:00:00Z",
    "2026-02-01T00:00:00+02:00",
    "2026-01-20T00:00:00",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
];
const VERSIONS: &[&str] =
    &["2025-10-28", "2026-01-21", "2026-05-22", "2026-06-23", "2099-01-01", "2026-13-45", "latest", ""];
/// The same names come again, with other requests.
const NAMES: &[&str] = &["again", "once more", "", "\u{e9}"];
const WORKSPACES: &[&str] = &["tenant", "operator", "\u{e9}"];

const RAW: &[(&str, &[u8])] = &[
    ("application/json", b""),
    ("application/json", b"{"),
    ("application/json", b"null"),
    ("application/json", b"\xff\xfe"),
    ("application/json", b"{\"a\": 1e999}"),
    ("application/json", b"{\"hex\": \"00\", \"hex\": \"\\ud800\"}"),
    ("text/plain", b"services:\n  web:\n    image: nginx:3\n"),
    ("text/plain", b"a: &a [*a, *a]\n\0"),
    ("text/plain", b"\xff\xfe"),
    ("application/x-www-form-urlencoded", b"hex=00&hex=%FF&file"),
    ("multipart/form-data", b"no boundary"),
    ("multipart/form-data; boundary=b", b"--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nservices: {a: {}}\r\n--b--\r\n"),
    ("multipart/form-data; boundary=b", b"--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\nends in the midd"),
    ("application/x-tar", b"no archive"),
];

/// What nobody means well with.
fn hostile() -> BoxedStrategy<Value> {
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let values = vec![
        json!(""),
        json!("\0"),
        json!("a\0b"),
        json!(" "),
        json!("\u{202e}\u{1f4a5}e\u{301}"),
        json!("x".repeat(2000)),
        json!("../../etc/passwd"),
        json!("' OR 1=1; --"),
        json!("%00%ff\r\nx: y"),
        json!("99999999999999999999999999"),
        json!("-1"),
        json!("0x"),
        json!("null"),
        json!("1e309"),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!(-1),
        json!(0),
        json!(true),
        Value::Null,
        json!([]),
        json!([[], {}, null]),
        json!({}),
        json!({"": {"": null}}),
        deep,
    ];
    select(values).boxed()
}

/// A parameter that nobody knows.
fn noise() -> impl Strategy<Value = (String, String)> {
    (hostile(), hostile()).prop_map(|(name, value)| (text(name), text(value)))
}

/// A value as a parameter has it.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

fn merged(parts: &[Value]) -> Value {
    parts
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// How many places of a value can be replaced: itself and what is in it.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0_usize,
    }
}

/// Puts another value at a place; whether that was in this one.
fn replace(value: &mut Value, place: &mut usize, with: &Value) -> bool {
    if *place == 0 {
        *value = with.clone();
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| replace(item, place, with)),
        Value::Object(map) => map.values_mut().any(|item| replace(item, place, with)),
        _ => false,
    }
}
