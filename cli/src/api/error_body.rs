//! The error bodies of the management API, for people.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Exit, Failure};

/// Code of "CVM not found".
const UNKNOWN_CVM: &str = "ERR-03-001";

/// Status of a change that those who decide for the application have to allow first.
const APPROVAL_NEEDED: u16 = 465;

/// Every form of error body at once: coded (`message` and friends) or plain and validation (`detail`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    error_code: Option<String>,
    message: Option<String>,
    detail: Value,
    details: Vec<Detail>,
    suggestions: Vec<String>,
    request_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Detail {
    field: Option<String>,
    value: Value,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Invalid {
    loc: Vec<Value>,
    msg: String,
}

/// The failure that an error answer stands for.
pub(super) fn failure(status: StatusCode, body: &[u8], header_request_id: Option<String>) -> Failure {
    let body: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let message = match (&body.message, &body.detail) {
        (Some(message), _) => message.clone(),
        (None, Value::String(detail)) => detail.clone(),
        (None, Value::Array(items)) => validation_text(items),
        _ => format!("the server answered {status}"),
    };
    let code = body.error_code.map(|code| format!(" ({code})")).unwrap_or_default();
    let mut failure = Failure::new(exit_of(status), format!("{}{code}", message.trim_end_matches('.')));
    if status.as_u16() == APPROVAL_NEEDED {
        failure.approval = Some(Box::new(body.details.into_iter().filter_map(Detail::member).collect()));
    } else {
        failure.hints.extend(body.details.iter().filter_map(Detail::text));
    }
    failure.hints.extend(body.suggestions);
    failure.hints.extend(next_step(status, &code).map(str::to_owned));
    failure.request_id = body.request_id.or(header_request_id);
    failure
}

impl Detail {
    fn member(self) -> Option<(String, Value)> {
        Some((self.field?, self.value))
    }

    fn text(&self) -> Option<String> {
        match (&self.message, &self.field) {
            (Some(message), _) => Some(message.clone()),
            // For programs.
            (None, Some(_)) if self.value.is_object() => None,
            (None, Some(field)) => Some(format!("{field}: {}", plain(&self.value))),
            (None, None) => None,
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `body.compose_file.name: too short`, one per line.
fn validation_text(items: &[Value]) -> String {
    let one = |item: &Value| {
        let invalid = Invalid::deserialize(item).unwrap_or_default();
        let path: Vec<String> = invalid.loc.iter().map(plain).collect();
        format!("{}: {}", path.join("."), invalid.msg)
    };
    items.iter().map(one).collect::<Vec<_>>().join("\n  ")
}

const fn exit_of(status: StatusCode) -> Exit {
    match status.as_u16() {
        401 | 403 => Exit::Unauthorised,
        404 => Exit::NotFound,
        408 | 504 => Exit::TimedOut,
        409 | 429 | 503 => Exit::Conflict,
        502 => Exit::Unreachable,
        APPROVAL_NEEDED | 467 | 468 => Exit::AwaitsApproval,
        _ => Exit::Failed,
    }
}

fn next_step(status: StatusCode, code: &str) -> Option<&'static str> {
    match status.as_u16() {
        404 if code.contains(UNKNOWN_CVM) => Some("see which there are: cloister cvms list"),
        401 => Some("keep a valid key: cloister login"),
        429 => Some("wait a moment and repeat the command"),
        500 => Some("repeat the command; if it fails again, tell the operator the request id"),
        503 => Some("the node or server is under maintenance; repeat the command later"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(status: u16, body: &str) -> String {
        let failure =
            failure(StatusCode::from_u16(status).unwrap(), body.as_bytes(), Some("req-1".to_owned()));
        format!("{:?} {} {:?} {:?}", failure.exit, failure.message, failure.hints, failure.request_id)
    }

    #[test]
    fn every_form_of_error_body_becomes_a_sentence() {
        let coded = r#"{"error_code":"ERR-01-004","message":"The name is taken.","details":[{"field":"name","value":"hello"}],"suggestions":["Choose another one"],"request_id":"req-2"}"#;
        let validation = r#"{"detail":[{"loc":["body","name"],"msg":"too short","type":"value_error"}]}"#;
        let lines = [
            shown(409, coded),
            shown(409, r#"{"detail":"Another operation is in progress"}"#),
            shown(422, validation),
            shown(401, r#"{"detail":"Authentication required"}"#),
            shown(500, "<html>"),
            shown(404, ""),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r#"
        Conflict The name is taken (ERR-01-004) ["name: hello", "Choose another one"] Some("req-2")
        Conflict Another operation is in progress [] Some("req-1")
        Failed body.name: too short [] Some("req-1")
        Unauthorised Authentication required ["keep a valid key: cloister login"] Some("req-1")
        Failed the server answered 500 Internal Server Error ["repeat the command; if it fails again, tell the operator the request id"] Some("req-1")
        NotFound the server answered 404 Not Found [] Some("req-1")
        "#);
    }
}
