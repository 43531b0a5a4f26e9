//! An installation in which each kind of thing that a path can name is there once, and copies of it.

use cloister_management_api::{RevisionId, RolloutId, SshKeyId, TokenId, WebhookId};
use serde_json::{Value, json};

use super::bodies::fixed;
use crate::api::tests::authorisation::{SSH_KEY, rollout};
use crate::api::tests::{Installation, account};
use crate::operations::CvmStatus;

/// What a parameter of a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    /// Something of the tenant, or of everybody.
    There,
    /// Of the right form, and nothing.
    Unknown,
    /// Of no form that an id has.
    Malformed,
    /// No text at all.
    NotText,
}

/// Names of parameters that belong to a workspace.
const OWNED: [&str; 11] = [
    "app_id",
    "compose_hash",
    "cvm_id",
    "delivery",
    "event_id",
    "key_id",
    "revision_id",
    "rollout_id",
    "slug",
    "token_id",
    "webhook_id",
];

/// Whether a path names something of a workspace.
pub(super) fn is_owned(path: &str) -> bool {
    OWNED.iter().any(|name| path.contains(&format!("{{{name}}}")))
}

pub(super) struct World {
    pub(super) installation: Installation,
    pub(super) stranger: String,
    pub(super) reader: String,
    /// What was made, by the name of the parameter.
    ids: Value,
    provision: Value,
}

impl World {
    /// A new one.
    pub(super) async fn new() -> Self {
        let installation = Installation::new().await;
        let cvm = installation.create("tenant-app").await;
        installation.settle(&cvm, CvmStatus::Running).await;
        let provision = installation.provision("tenant-app-2").await;
        let own_key = json!({"name": "laptop", "public_key": SSH_KEY});
        let ssh_key = installation.call("POST", "/user/ssh-keys", own_key).await.expect(201).json();
        let reader = json!({"name": "reader", "scope": "read"});
        let reader = installation.call("POST", "/tokens", reader).await.expect(201).json();
        let token = installation.call("POST", "/tokens", json!({"name": "spare"})).await.expect(201).json();
        let now_ms = installation.app.clock.now_ms();
        let (_, _, stranger) = account(&installation.app.store, "stranger", "user", 7, now_ms).await;
        let rollout = rollout(&installation, &cvm).await;
        let hook = json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]});
        let hook = installation.call("POST", "/workspace/webhooks", hook).await.expect(201).json();
        let path = format!("/workspace/webhooks/{}/test", hook["id"].as_str().unwrap());
        let event = installation.call("POST", &path, Value::Null).await.expect(200).json();
        let quote = json!({"hex": hex::encode(installation.tee.quote([7; 64]))});
        let quote =
            installation.call_with(&[], "POST", "/attestations/verify", quote).await.expect(200).json();
        let ids = json!({
            "app_id": cvm["app_id"], "cvm_id": cvm["id"], "vm_uuid": cvm["vm_uuid"], "token_id": token["id"],
            "key_id": ssh_key["id"], "webhook_id": hook["id"], "rollout_id": RolloutId(rollout).to_string(),
            "revision_id": RevisionId(1).to_string(), "event_id": event["event_id"], "checksum": quote["checksum"],
        });
        let reader = reader["token"].as_str().unwrap().to_owned();
        Self { installation, stranger, reader, ids, provision }
    }

    /// An installation with nothing in it but what these ids name.
    pub(super) fn around(installation: Installation, ids: Value) -> Self {
        let (stranger, reader) = (String::new(), String::new());
        Self { installation, stranger, reader, ids, provision: Value::Null }
    }

    /// Nothing is written to it any more: it is there to be copied.
    pub(super) async fn at_rest(self) -> Self {
        self.installation.app.store.close().await;
        self
    }

    /// Another one that is the same, and has nothing to do with this one.
    pub(super) async fn copy(&self) -> Self {
        Self {
            installation: self.installation.copy().await,
            stranger: self.stranger.clone(),
            reader: self.reader.clone(),
            ids: self.ids.clone(),
            provision: self.provision.clone(),
        }
    }

    /// A path with ids in place of its parameters: of the first one as it is wanted, of the others those that are there.
    pub(super) fn path(&self, path: &str, first: Id) -> String {
        let mut wanted = first;
        let segments = path.split('/').map(|segment| {
            let name = segment.strip_prefix('{').and_then(|rest| rest.split('}').next());
            let Some(name) = name else { return segment.to_owned() };
            let tail = segment.split_once('}').map_or("", |(_, tail)| tail);
            format!("{}{tail}", self.parameter(name, std::mem::replace(&mut wanted, Id::There)))
        });
        let path = segments.collect::<Vec<_>>().join("/");
        // Whoever may follow these would do so for minutes.
        path.replace("/events/stream", "/events/stream?after=x")
    }

    fn parameter(&self, name: &str, id: Id) -> String {
        match id {
            Id::There => self.there(name),
            Id::Unknown => unknown(name),
            Id::Malformed => "-%00-%20%C3%A4".to_owned(),
            Id::NotText => "%ff%fe".to_owned(),
        }
    }

    fn there(&self, name: &str) -> String {
        match (&self.ids[name], name) {
            (Value::Null, "slug" | "username" | "workspace") => "tenant".to_owned(),
            (Value::Null, "node") => "local".to_owned(),
            (Value::Null, "family") => "cpu".to_owned(),
            (Value::Null, "delivery") => "1".to_owned(),
            (Value::Null, _) => unknown(name),
            (id, _) => id.to_string().replace('"', ""),
        }
    }

    /// A value for a member of a body.
    pub(super) fn member(&self, name: &str) -> Option<Value> {
        Some(match name {
            "app_id" | "compose_hash" => self.provision[name].clone(),
            "cvm_ids" | "vm_uuids" => json!([self.ids["vm_uuid"]]),
            "ssh_key_ids" => json!([self.ids["key_id"]]),
            _ => return fixed(name),
        })
    }
}

/// An id of the right form that nothing has.
fn unknown(name: &str) -> String {
    match name {
        "app_id" => "cd".repeat(20),
        "chain" => "base".to_owned(),
        "checksum" | "compose_hash" | "os_image_hash" => "ab".repeat(32),
        "container" => "web".to_owned(),
        "cvm_id" | "delivery" => "999999".to_owned(),
        "event_id" => "evt_0123456789abcdef".to_owned(),
        "family" | "kms_id" | "node" | "slug" | "username" | "workspace" => "nobody".to_owned(),
        "key_id" => SshKeyId(999_999).to_string(),
        "reference" => "cloister.local/x:1".to_owned(),
        "revision_id" => RevisionId(999_999).to_string(),
        "rollout_id" => RolloutId(999_999).to_string(),
        "token_id" => TokenId(999_999).to_string(),
        "user_code" => "BCDF-GHJK".to_owned(),
        "vm_uuid" => "11111111-2222-4333-8444-555555555555".to_owned(),
        "webhook_id" => WebhookId(999_999).to_string(),
        other => panic!("what is no {other}? say it here"),
    }
}
