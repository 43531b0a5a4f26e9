//! What can be changed, and what of it a record's hashes are over: the configuration that its owner may see, as one
//! row. `docs/audit.md` lists the members.

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_management_api::{RolloutId, SshKeyId, TokenId, UserId, WebhookId, WorkspaceId};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use sqlx::any::AnyRow;
use sqlx::{Column, Row};

/// Something that a change is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Cvm(i64),
    ApiKey(i64),
    SshKey(i64),
    Node(i64),
    Invitation(String),
    OsImage(OsImageHash),
    Owners(AppId),
    Rollout(i64),
    Provision(i64, ComposeHash),
    UpdateProvision(i64, ComposeHash),
    PreparedChange(i64),
    Webhook(i64),
    Workspace(i64),
    /// Of an application in a workspace.
    Budget(i64, AppId),
    /// Of a workspace.
    Billing(i64),
    User(i64),
}

/// Part of the key of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Number(i64),
    Text(String),
}

/// How a subject is found and called.
pub(super) struct Found {
    pub(super) kind: &'static str,
    /// Empty where the member with that name says it.
    pub(super) id: String,
    pub(super) sql: &'static str,
    /// The row that holds it, as in `FROM`.
    pub(super) row: &'static str,
    pub(super) keys: Vec<Key>,
}

/// Members whose value is replaced by its hash: long, sealed, or nobody else's business.
const HASHED: &str = "_sha256";

// What was accepted is a part of the configuration from then on, although the CVM gets it later.
const CVM: &str = "SELECT c.vm_uuid, c.name, c.app_id, n.name AS node, c.instance_id, c.kms_id, c.compose_hash, \
     c.encrypted_env AS encrypted_env_sha256, c.user_config AS user_config_sha256, c.os_image_hash, c.instance_type, \
     c.vcpu, c.memory_mb, c.disk_gb, c.gpus, c.ports, c.kms_urls, c.gateway_urls, c.listed, c.rollback_on_failure, \
     c.health_timeout_s, c.scheduled_delete_at_ms, o.correlation_id AS operation, o.kind AS operation_type, \
     o.cancel_requested AS operation_cancelled, r.compose_hash AS wanted_compose_hash, \
     r.encrypted_env AS wanted_encrypted_env_sha256, r.user_config AS wanted_user_config_sha256, \
     r.os_image_hash AS wanted_os_image_hash, r.instance_type AS wanted_instance_type, r.vcpu AS wanted_vcpu, \
     r.memory_mb AS wanted_memory_mb, r.disk_gb AS wanted_disk_gb, r.gpus AS wanted_gpus \
     FROM cvms c JOIN nodes n ON n.id = c.node_id \
     LEFT JOIN operations o ON o.correlation_id = c.operation_id LEFT JOIN revisions r ON r.id = o.to_revision \
     WHERE c.id = $1 AND c.deleted_at_ms IS NULL";
const API_KEY: &str = "SELECT name, key_prefix, scope, user_id, default_version, created_at_ms, expires_at_ms, \
     oauth_client, stepped_up_at_ms FROM api_keys WHERE id = $1 AND revoked_at_ms IS NULL";
const SSH_KEY: &str = "SELECT user_id, name, public_key, fingerprint, key_type, created_at_ms FROM user_ssh_keys \
     WHERE id = $1 AND deleted_at_ms IS NULL";
const NODE: &str = "SELECT name, listed, maintenance, draining, created_at_ms FROM nodes \
     WHERE id = $1 AND deleted_at_ms IS NULL";
const INVITATION: &str =
    "SELECT created_at_ms, expires_at_ms, used_by_node FROM join_tokens WHERE secret_hash = $1";
const OS_IMAGE: &str = "SELECT os_image_hash, name, version, is_dev, supports_gpu, size_bytes, state FROM os_images \
     WHERE os_image_hash = $1 AND state <> 'forgotten'";
const OWNERS: &str = "SELECT o.owners, o.serial, p.owners AS proposed_owners, p.serial AS proposed_serial, \
     (SELECT COUNT(*) FROM approvals a WHERE a.app_id = o.app_id) AS approvals, \
     (SELECT MAX(a.id) FROM approvals a WHERE a.app_id = o.app_id) AS last_approval, \
     (SELECT COUNT(*) FROM owner_revocations v WHERE v.app_id = o.app_id) AS revocations \
     FROM app_owners o LEFT JOIN owner_proposals p ON p.app_id = o.app_id WHERE o.app_id = $1";
const ROLLOUT: &str = "SELECT r.kind, r.app_id, n.name AS node, r.state, r.reason, r.on_failure, r.max_unavailable, \
     r.arguments, r.created_at_ms FROM rollouts r LEFT JOIN nodes n ON n.id = r.node_id WHERE r.id = $1";
const PROVISION: &str = "SELECT compose_hash, app_id, name, node_id, os_image_hash, instance_type, vcpu, memory_mb, \
     disk_gb, gpus, listed, env_keys, encrypted_env AS encrypted_env_sha256, user_config AS user_config_sha256, \
     kms_id, device_id, expires_at_ms FROM provisions WHERE workspace_id = $1 AND compose_hash = $2";
const UPDATE_PROVISION: &str = "SELECT c.vm_uuid, p.compose_hash, p.expires_at_ms FROM update_provisions p \
     JOIN cvms c ON c.id = p.cvm_id WHERE p.cvm_id = $1 AND p.compose_hash = $2 AND p.applied_at_ms IS NULL";
const PREPARED_CHANGE: &str = "SELECT p.kind, c.vm_uuid, p.app_id, p.compose_hash, p.device_id, \
     p.request AS request_sha256, p.state, p.created_at_ms, p.expires_at_ms FROM prepared_changes p \
     JOIN cvms c ON c.id = p.cvm_id WHERE p.id = $1";
const WEBHOOK: &str = "SELECT url, name, events, enabled, disabled_reason, sealed_secret AS sealed_secret_sha256, \
     previous_sealed_secret AS previous_sealed_secret_sha256, previous_until_ms, created_at_ms FROM webhooks \
     WHERE id = $1 AND deleted_at_ms IS NULL";
const BUDGET: &str = "SELECT app_id, monthly_limit, alert_percent, stop, updated_at_ms FROM app_budgets \
     WHERE workspace_id = $1 AND app_id = $2";
const BILLING: &str = "SELECT b.prepaid, b.credited, b.granted, (SELECT MAX(c.id) FROM credits c \
     WHERE c.workspace_id = b.workspace_id) AS last_credit FROM billing_accounts b WHERE b.workspace_id = $1";
const USER: &str = "SELECT u.username, u.email, u.role, u.created_at_ms, p.phc AS password_sha256, \
     s.sealed_secret AS second_factor_sha256, s.confirmed_at_ms AS second_factor_confirmed_at_ms, \
     l.token_hash AS link_sha256, o.issuer AS openid_issuer, o.subject AS openid_subject, \
     (SELECT COUNT(*) FROM sessions x WHERE x.user_id = u.id) AS sessions, \
     (SELECT COUNT(*) FROM backup_codes b WHERE b.user_id = u.id) AS backup_codes FROM users u \
     LEFT JOIN passwords p ON p.user_id = u.id LEFT JOIN second_factors s ON s.user_id = u.id \
     LEFT JOIN password_links l ON l.user_id = u.id \
     LEFT JOIN openid_identities o ON o.user_id = u.id WHERE u.id = $1";
const WORKSPACE: &str = "SELECT slug, name, tier, wallet, created_at_ms FROM workspaces WHERE id = $1";

impl Subject {
    pub(super) fn found(&self) -> Found {
        let number =
            |kind, id: String, sql, row, key: i64| Found { kind, id, sql, row, keys: vec![Key::Number(key)] };
        let text = |kind, id: String, sql, row, key: String| Found {
            kind,
            id,
            sql,
            row,
            keys: vec![Key::Text(key)],
        };
        match self {
            // The row says its UUID: CVMs are called by it for ever.
            Self::Cvm(id) => number("cvm", String::new(), CVM, "cvms WHERE id = $1", *id),
            Self::ApiKey(id) => {
                number("api_key", TokenId(*id).to_string(), API_KEY, "api_keys WHERE id = $1", *id)
            }
            Self::SshKey(id) => {
                number("ssh_key", SshKeyId(*id).to_string(), SSH_KEY, "user_ssh_keys WHERE id = $1", *id)
            }
            Self::Node(id) => number("node", String::new(), NODE, "nodes WHERE id = $1", *id),
            // The whole hash would do no harm, but nobody compares that many digits.
            Self::Invitation(hash) => text(
                "invitation",
                hash.chars().take(16).collect(),
                INVITATION,
                "join_tokens WHERE secret_hash = $1",
                hash.clone(),
            ),
            Self::OsImage(hash) => text(
                "os_image",
                hash.to_string(),
                OS_IMAGE,
                "os_images WHERE os_image_hash = $1",
                hash.to_string(),
            ),
            Self::Owners(app) => {
                text("app", app.to_string(), OWNERS, "app_owners WHERE app_id = $1", app.to_string())
            }
            Self::Rollout(id) => {
                number("rollout", RolloutId(*id).to_string(), ROLLOUT, "rollouts WHERE id = $1", *id)
            }
            Self::Provision(workspace, hash) => Found {
                kind: "provision",
                id: hash.to_string(),
                sql: PROVISION,
                row: "provisions WHERE workspace_id = $1 AND compose_hash = $2",
                keys: vec![Key::Number(*workspace), Key::Text(hash.to_string())],
            },
            Self::UpdateProvision(cvm, hash) => Found {
                kind: "provision",
                id: hash.to_string(),
                sql: UPDATE_PROVISION,
                row: "update_provisions WHERE cvm_id = $1 AND compose_hash = $2",
                keys: vec![Key::Number(*cvm), Key::Text(hash.to_string())],
            },
            Self::PreparedChange(id) => number(
                "prepared_change",
                String::new(),
                PREPARED_CHANGE,
                "prepared_changes WHERE id = $1",
                *id,
            ),
            Self::Webhook(id) => {
                number("webhook", WebhookId(*id).to_string(), WEBHOOK, "webhooks WHERE id = $1", *id)
            }
            Self::Budget(workspace, app) => Found {
                kind: "budget",
                id: app.to_string(),
                sql: BUDGET,
                row: "app_budgets WHERE workspace_id = $1 AND app_id = $2",
                keys: vec![Key::Number(*workspace), Key::Text(app.to_string())],
            },
            Self::Billing(id) => number(
                "billing",
                WorkspaceId(*id).to_string(),
                BILLING,
                "billing_accounts WHERE workspace_id = $1",
                *id,
            ),
            Self::User(id) => number("user", UserId(*id).to_string(), USER, "users WHERE id = $1", *id),
            Self::Workspace(id) => {
                number("workspace", WorkspaceId(*id).to_string(), WORKSPACE, "workspaces WHERE id = $1", *id)
            }
        }
    }
}

/// What a row calls its subject, where the number of the row is nobody's name for it.
pub(super) fn name_in(kind: &str, configuration: &Value) -> Option<String> {
    let member = match kind {
        "cvm" | "prepared_change" => "vm_uuid",
        "node" => "name",
        _ => return None,
    };
    configuration.get(member)?.as_str().map(str::to_owned)
}

/// The configuration in a row: its columns by their names.
pub(super) fn configuration(row: &AnyRow) -> Result<Value, sqlx::Error> {
    let mut members = Map::new();
    for column in row.columns() {
        let value = match row.try_get::<Option<String>, _>(column.ordinal()) {
            Ok(text) => text.map_or(Value::Null, |text| hashed(column.name(), text)),
            Err(_) => row.try_get::<Option<i64>, _>(column.ordinal())?.map_or(Value::Null, Value::from),
        };
        members.insert(column.name().to_owned(), value);
    }
    Ok(Value::Object(members))
}

fn hashed(member: &str, text: String) -> Value {
    if member.ends_with(HASHED) { hex::encode(Sha256::digest(text)).into() } else { text.into() }
}
