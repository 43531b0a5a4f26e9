//! Bodies by their schemas in the document: one that is right, and others that differ from it in one thing.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::world::World;
use crate::api::tests::authorisation::SSH_KEY;

/// Media types of bodies that are sent here, the preferred one first.
const MEDIA_TYPES: [&str; 4] = ["application/json", "text/plain", "text/yaml", "application/x-tar"];

/// What an operation takes.
pub(super) struct Body {
    pub(super) content_type: &'static str,
    pub(super) text: String,
    /// The same where it is JSON.
    pub(super) value: Option<Value>,
    required: Vec<String>,
    /// Each member with the types that it may have.
    members: Vec<(String, BTreeSet<String>)>,
}

impl Body {
    /// A body that is right for an operation of the document; `None` where it takes none.
    pub(super) fn of(document: &Value, operation: &Value, world: &World) -> Option<Self> {
        let content = operation["requestBody"]["content"].as_object()?;
        let content_type = MEDIA_TYPES.into_iter().find(|name| content.contains_key(*name)).unwrap();
        if content_type != "application/json" {
            let text = "services:\n  web:\n    image: nginx:2\n".to_owned();
            return Some(Self { content_type, text, value: None, required: Vec::new(), members: Vec::new() });
        }
        let schema = Schema { document, world };
        let (mut members, mut required) = (Vec::new(), Vec::new());
        schema.collect(&content[content_type]["schema"], &mut members, &mut required);
        let mut object = Map::new();
        let chosen = members.iter().filter(|(name, _)| required.contains(name));
        for (name, member) in chosen {
            object.insert(name.clone(), schema.value(name, member));
        }
        // With nothing that has to be there, one that may.
        if let Some((name, member)) = members.first().filter(|_| object.is_empty()) {
            object.insert(name.clone(), schema.value(name, member));
        }
        let members = members.iter().map(|(name, member)| (name.clone(), schema.types(member))).collect();
        let value = Value::Object(object);
        Some(Self { content_type, text: value.to_string(), value: Some(value), required, members })
    }

    /// The same with a member that nobody knows.
    pub(super) fn with_unknown(&self) -> Option<String> {
        let mut value = self.value.clone()?;
        value["a_member_that_nobody_knows"] = json!({"of": ["any", 1]});
        Some(value.to_string())
    }

    /// For each member: the same with a value of a type that it may not have.
    pub(super) fn with_wrong_types(&self) -> Vec<(String, String)> {
        let Some(value) = &self.value else { return Vec::new() };
        let wrong = |types: &BTreeSet<String>| {
            // Whole numbers and truth values are written in several ways; these are none of them.
            let candidates =
                [("object", json!({"a": []})), ("string", json!("a text")), ("array", json!([[]]))];
            let other = candidates.into_iter().find(|(name, _)| !types.contains(*name));
            other.filter(|_| !types.is_empty()).map(|(_, value)| value)
        };
        let all = self.members.iter().filter_map(|(name, types)| {
            let mut changed = value.clone();
            changed[name] = wrong(types)?;
            Some((name.clone(), changed.to_string()))
        });
        all.collect()
    }

    /// For each member that has to be there: the same without it.
    pub(super) fn without_each(&self) -> Vec<(String, String)> {
        let Some(value) = &self.value else { return Vec::new() };
        let all = self.required.iter().map(|name| {
            let mut changed = value.clone();
            changed.as_object_mut().unwrap().remove(name);
            (name.clone(), changed.to_string())
        });
        all.collect()
    }
}

/// Reads schemas of a document.
struct Schema<'a> {
    document: &'a Value,
    world: &'a World,
}

impl<'a> Schema<'a> {
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => {
                self.resolved(self.document.pointer(reference.trim_start_matches('#')).unwrap())
            }
            None => schema,
        }
    }

    /// The alternatives or parts of a schema; itself where it has none.
    fn parts(&self, schema: &'a Value) -> Vec<&'a Value> {
        let schema = self.resolved(schema);
        let parts = ["oneOf", "anyOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array());
        let parts: Vec<_> = parts.flatten().flat_map(|part| self.parts(part)).collect();
        if parts.is_empty() { vec![schema] } else { parts }
    }

    /// The members of an object and the names of those that have to be there.
    fn collect(&self, schema: &'a Value, members: &mut Vec<(String, &'a Value)>, required: &mut Vec<String>) {
        for part in self.parts(schema) {
            let properties = part["properties"].as_object().into_iter().flatten();
            members.extend(properties.map(|(name, member)| (name.clone(), member)));
            let names = part["required"].as_array().into_iter().flatten();
            required.extend(names.map(|name| name.as_str().unwrap().to_owned()));
        }
    }

    /// The types that a value may have; none where it may have any.
    fn types(&self, schema: &'a Value) -> BTreeSet<String> {
        let mut types = BTreeSet::new();
        for part in self.parts(schema) {
            match &part["type"] {
                Value::String(name) => types.extend([name.clone()]),
                Value::Array(names) => {
                    types.extend(names.iter().map(|name| name.as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        types.remove("null");
        types
    }

    /// A value for a member: by its name where not every value of its type is one, else any of its type.
    fn value(&self, name: &str, schema: &'a Value) -> Value {
        if let Some(value) = self.world.member(name) {
            return value;
        }
        for part in self.parts(schema) {
            if let Some(first) = part["enum"].as_array().and_then(|values| values.first()) {
                return first.clone();
            }
        }
        let types = self.types(schema);
        let minimum = || self.resolved(schema)["minimum"].as_i64().unwrap_or(1).max(1);
        match types.first().map(String::as_str) {
            Some("array") => json!([]),
            Some("boolean") => json!(true),
            Some("integer" | "number") => json!(minimum()),
            Some("object") => json!({}),
            _ => json!("a text"),
        }
    }
}

/// Values for members whose type says too little.
pub(super) fn fixed(name: &str) -> Option<Value> {
    Some(match name {
        "name" => json!("matrix-app"),
        "username" => json!("newcomer"),
        "compose_file" => {
            json!({"name": "", "docker_compose_file": "services:\n  web:\n    image: nginx:1\n"})
        }
        "compose_manifest" => json!({"docker_compose_file": "services:\n  web:\n    image: nginx:2\n"}),
        "docker_compose_file" => json!("services:\n  web:\n    image: nginx:2\n"),
        "characterfile" => json!("{}"),
        "instance_type" => json!("tdx.small"),
        "encrypted_env" => json!("ab".repeat(61)),
        "amount" | "monthly_limit" => json!("5"),
        "alert_percent" => json!(80),
        "keys" => json!([SSH_KEY]),
        "public_key" => json!(SSH_KEY),
        "url" => json!("https://hooks.example.org/"),
        "events" => json!(["cvm.created"]),
        "since" => json!("2026-01-01T00:00:00Z"),
        "scheduled_delete_at" => json!("2030-01-01T00:00:00Z"),
        "grant_type" => json!("urn:ietf:params:oauth:grant-type:device_code"),
        "os_image_name" => json!("cloister-0.1.0"),
        "hex" => json!("00"),
        _ => return None,
    })
}
