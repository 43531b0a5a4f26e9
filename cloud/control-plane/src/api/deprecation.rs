//! What is not to be relied on for new work: old dated versions, and operations that have a better one. Answers say so
//! (`Deprecation`, RFC 9745; `Sunset`, RFC 8594), and link to the page here that says what to do instead. Nothing ends by
//! itself: a sunset is what the operator announces.

use axum::Json;
use axum::extract::State;
use axum::http::header::LINK;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use cloister_management_api::ApiVersion;
use jiff::Timestamp;
use jiff::civil::{Date, date};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use utoipa::openapi::{Deprecated, OpenApi};

use super::{Api, document};

/// Where the page is.
pub(super) const PATH: &str = "/deprecations";
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// An operation with a better one.
struct Old {
    operation: &'static str,
    since: Date,
    instead: &'static str,
}

const OPERATIONS: &[Old] = &[
    Old {
        operation: "put_cvm_compose",
        since: date(2026, 1, 21),
        instead: "Use PATCH /cvms/{cvm_id} with docker_compose_file, pre_launch_script and the other members of the \
                  manifest",
    },
    Old {
        operation: "get_cvm_configuration_pubkey",
        since: date(2026, 1, 21),
        instead: "Use POST /cvms/provision, which answers with the key, too",
    },
    Old {
        operation: "create_cvm_from_configuration",
        since: date(2026, 1, 21),
        instead: "Use POST /cvms with what POST /cvms/provision answered",
    },
];

/// Since when an operation is deprecated; `None` when it is not.
fn since(operation: &str) -> Option<Date> {
    OPERATIONS.iter().find(|old| old.operation == operation).map(|old| old.since)
}

/// Says it in the document.
pub(super) fn mark(document: &mut OpenApi) {
    for (name, operation) in document::operations(document) {
        operation.deprecated = since(&name).map(|_| Deprecated::True);
    }
}

/// Says of an answer what of it is old: its operation, or else the version, where the client or its key chose one.
pub(super) fn tell(api: &Api, response: &mut Response, operation: &str, chosen: Option<ApiVersion>) {
    let of_version = chosen.and_then(ApiVersion::deprecated_since);
    let Some(since) = self::since(operation).or(of_version).and_then(midnight) else { return };
    let headers = response.headers_mut();
    put(headers, DEPRECATION, &format!("@{}", since.as_second()));
    let Ok(page) = api.public_url.join(PATH) else { return };
    let mut links = format!("<{page}>; rel=\"deprecation\"; type=\"application/json\"");
    let sunset = chosen.filter(|_| of_version.is_some()).and_then(|version| api.sunsets.get(&version));
    if let Some(sunset) = sunset.copied().and_then(midnight)
        && let Ok(text) = DateTimePrinter::new().timestamp_to_rfc9110_string(&sunset)
    {
        put(headers, SUNSET, &text);
        links.push_str(&format!(", <{page}>; rel=\"sunset\"; type=\"application/json\""));
    }
    if let Ok(value) = HeaderValue::from_str(&links) {
        headers.append(LINK, value);
    }
}

fn put(headers: &mut axum::http::HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// The beginning of a day in UTC.
fn midnight(day: Date) -> Option<Timestamp> {
    day.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// `GET /deprecations`: what is old, since when, and what takes its place. Public.
pub(super) async fn page(State(api): State<Api>) -> Json<Value> {
    let versions = ApiVersion::ALL.map(|version| {
        json!({
            "version": version.as_str(),
            "deprecated_since": version.deprecated_since(),
            "sunset": api.sunsets.get(&version),
        })
    });
    let operations = OPERATIONS.iter().map(
        |old| json!({ "operation": old.operation, "deprecated_since": old.since, "instead": old.instead }),
    );
    Json(json!({
        "versions": versions,
        "operations": operations.collect::<Vec<_>>(),
        "what_to_do": "Send X-Phala-Version with the newest version that your client reads; docs/api-design.md says \
                       what differs",
    }))
}
