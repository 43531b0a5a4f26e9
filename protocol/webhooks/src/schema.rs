//! The catalogue: a JSON Schema of each kind's body, and a body to try a receiver with.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::{
    BODY_VERSION, BudgetData, CvmData, Envelope, EventId, EventKind, Initiator, Kms, OnchainAction,
    PendingApprovalData, WorkspaceRef,
};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Where `OpenAPI` documents keep what they refer to, and where a schema by itself does.
const COMPONENTS: &str = "#/components/schemas/";
const DEFINITIONS: &str = "#/$defs/";
const COMPOSE_HASH: &str = "6f809b3214eb9a69571ad008289d9551fa9a42726f809b3214eb9a69571ad008";
const APP_ID: &str = "0x6f809b3214eb9a69571ad008289d9551fa9a4272";
const CVM_ID: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
const TOKEN: &str = "00000000-0000-4000-8000-000000000000";

/// Which data a kind has.
enum Shape {
    Cvm,
    PendingApproval,
    Budget,
}

const fn shape(kind: EventKind) -> Shape {
    match kind {
        EventKind::CvmCreated
        | EventKind::CvmStarted
        | EventKind::CvmCreateFailed
        | EventKind::CvmRestarted
        | EventKind::CvmUpdated
        | EventKind::CvmStopped
        | EventKind::CvmDeleted => Shape::Cvm,
        EventKind::UpdatePendingApproval | EventKind::ReplicaPendingApproval => Shape::PendingApproval,
        EventKind::BudgetAlert | EventKind::BudgetExceeded => Shape::Budget,
    }
}

/// JSON Schema (2020-12) of the whole body of a kind of event. Bodies may get further members.
#[must_use]
pub fn schema(kind: EventKind) -> Value {
    let (data, definitions) = match shape(kind) {
        Shape::Cvm => parts::<CvmData>(),
        Shape::PendingApproval => parts::<PendingApprovalData>(),
        Shape::Budget => parts::<BudgetData>(),
    };
    let text = |description: &str| json!({"type": "string", "description": description});
    let mut schema = json!({
        "$schema": DIALECT,
        "title": kind.as_str(),
        "description": kind.description(),
        "type": "object",
        "required": ["id", "event", "version", "created_at", "workspace", "data"],
        "properties": {
            "id": {
                "type": "string", "pattern": "^evt_[0-9a-f]{16}$",
                "description": "Identity of the event; the same in every attempt to deliver it.",
            },
            "event": {"const": kind.as_str()},
            "version": {"const": BODY_VERSION},
            "created_at": {"type": "string", "format": "date-time", "description": "When it happened."},
            "workspace": {
                "type": "object", "required": ["id", "name"],
                "properties": {"id": text("Name in URLs."), "name": text("Name for people.")},
            },
            "data": data,
        },
    });
    if let Some(schema) = schema.as_object_mut().filter(|_| !definitions.is_empty()) {
        schema.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema
}

/// The schema of a payload, and of what it refers to.
fn parts<T: PartialSchema + ToSchema>() -> (Value, Map<String, Value>) {
    let mut named: Vec<(String, RefOr<Schema>)> = Vec::new();
    T::schemas(&mut named);
    let named: BTreeMap<String, Value> = named.into_iter().map(|(name, part)| (name, alone(&part))).collect();
    (alone(&T::schema()), named.into_iter().collect())
}

fn alone(schema: &RefOr<Schema>) -> Value {
    let mut value = serde_json::to_value(schema).unwrap_or_default();
    refer_inside(&mut value);
    value
}

fn refer_inside(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(target) if name == "$ref" => {
                        *target = target.replace(COMPONENTS, DEFINITIONS);
                    }
                    other => refer_inside(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(refer_inside),
        _ => {}
    }
}

/// A body of this kind as an example. Nothing of it exists.
#[must_use]
pub fn sample(kind: EventKind) -> Envelope {
    let workspace = WorkspaceRef { id: "example".to_owned(), name: "Example".to_owned() };
    Envelope::new(EventId::new([0; 8]), kind, Timestamp::UNIX_EPOCH, workspace, sample_data(kind))
}

/// The data of such a body. Nothing of it exists: ids and tokens lead nowhere.
#[must_use]
pub fn sample_data(kind: EventKind) -> Value {
    let data = match shape(kind) {
        Shape::Cvm => serde_json::to_value(cvm(kind)),
        Shape::PendingApproval => serde_json::to_value(pending_approval(kind)),
        Shape::Budget => serde_json::to_value(budget(kind)),
    };
    data.unwrap_or_default()
}

fn cvm(kind: EventKind) -> CvmData {
    let (status, error) = match kind {
        EventKind::CvmCreateFailed => ("error", Some("the application did not become ready in time")),
        EventKind::CvmStopped => ("stopped", None),
        EventKind::CvmDeleted => ("deleted", None),
        _ => ("running", None),
    };
    CvmData {
        cvm_id: CVM_ID.to_owned(),
        cvm_name: "my-app-01".to_owned(),
        app_id: APP_ID.to_owned(),
        status: status.to_owned(),
        error: error.map(ToOwned::to_owned),
    }
}

fn pending_approval(kind: EventKind) -> PendingApprovalData {
    let path = match kind {
        EventKind::ReplicaPendingApproval => "commit-replica",
        _ => "commit-update",
    };
    let action = OnchainAction {
        to: APP_ID.to_owned(),
        method: "addComposeHash".to_owned(),
        calldata: format!("0x{COMPOSE_HASH}"),
    };
    PendingApprovalData {
        cvm_id: CVM_ID.to_owned(),
        cvm_name: "my-app-01".to_owned(),
        compose_hash: COMPOSE_HASH.to_owned(),
        app_id: APP_ID.to_owned(),
        device_id: COMPOSE_HASH.to_owned(),
        kms: Some(Kms { chain_id: 8453, contract_address: APP_ID.to_owned() }),
        onchain_action: Some(action.clone()),
        onchain_actions: vec![action],
        commit_token: TOKEN.to_owned(),
        commit_url: format!("https://cloud.example/{path}/{CVM_ID}#{TOKEN}"),
        api_commit_url: format!("https://cloud.example/api/v1/cvms/{CVM_ID}/{path}?token={TOKEN}"),
        expires_at: "1970-01-15T00:00:00Z".to_owned(),
        initiated_by: Initiator { user_id: "usr_example".to_owned(), username: "ada".to_owned() },
    }
}

fn budget(kind: EventKind) -> BudgetData {
    let (spent, percent) = match kind {
        EventKind::BudgetExceeded => ("100.25", 100),
        _ => ("80.5", 80),
    };
    BudgetData {
        app_id: APP_ID.to_owned(),
        month: "1970-01".to_owned(),
        monthly_limit: "100".to_owned(),
        spent: spent.to_owned(),
        percent,
        stop: false,
    }
}
