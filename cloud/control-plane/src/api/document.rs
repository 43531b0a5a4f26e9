//! The OpenAPI document: generated from the operations, checked in at `openapi.json`.

use cloister_management_api::{
    ErrorBody, ErrorDetail, ErrorLink, PlainError, ValidationError, ValidationFault,
};
use utoipa::OpenApi as _;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    Components, Content, Deprecated, InfoBuilder, License, OpenApi, Ref, RefOr, Required, Response,
    ResponseBuilder, SecurityRequirement,
};

use super::access::{self, Access};

/// Version of the described interface; the dated versions live inside of it.
const INTERFACE_VERSION: &str = "0.1.0";
const API_KEY: &str = "ApiKeyHeader";
const BEARER: &str = "Bearer";
const TOO_OFTEN: &str = "The API key asks too often; repeat the request after `Retry-After`";
const RUNS: &str =
    "A request with the same `Idempotency-Key` is being carried out; repeat it after `Retry-After`";

/// Operations for clients that know no better way.
const DEPRECATED: [&str; 3] =
    ["create_cvm_from_configuration", "get_cvm_configuration_pubkey", "put_cvm_compose"];

/// Bodies of the failures that operations share; the generator does not follow these by itself.
#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(
    ErrorBody,
    ErrorDetail,
    ErrorLink,
    PlainError,
    ValidationError,
    ValidationFault
)))]
struct Failures;

/// The document of the interface that this crate serves.
#[must_use]
pub fn document() -> OpenApi {
    let mut document = super::routes::operations().into_openapi();
    document.merge(Failures::openapi());
    completed(document)
}

/// Adds what does not come from single operations.
fn completed(mut document: OpenApi) -> OpenApi {
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    document.info = InfoBuilder::new()
        .title("Cloister management API")
        .version(INTERFACE_VERSION)
        .description(Some(
            "Confidential virtual machines from compose files. The header `X-Phala-Version` chooses a dated \
             version; without it the version of the API key counts. Every answer carries `X-Request-ID`, and \
             `RateLimit` where keys have a rate.",
        ))
        .license(Some(license))
        .build();
    let components = document.components.get_or_insert_with(Components::new);
    let header = ApiKeyValue::with_description("X-API-Key", "An API key, `phak_…`");
    components.add_security_scheme(API_KEY, SecurityScheme::ApiKey(ApiKey::Header(header)));
    components.add_security_scheme(BEARER, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    let none: [&str; 0] = [];
    document.security =
        Some(vec![SecurityRequirement::new(API_KEY, none), SecurityRequirement::new(BEARER, none)]);
    with_common(&mut document, &streams());
    without_wildcards(document)
}

/// What holds for all operations of a kind: keys have a rate, and a change has its effect once.
fn with_common(document: &mut OpenApi, streams: &[String]) {
    let items = document.paths.paths.values_mut();
    for operation in items
        .flat_map(|item| [&mut item.post, &mut item.patch, &mut item.get, &mut item.put, &mut item.delete])
    {
        let Some(operation) = operation else { continue };
        let name = operation.operation_id.as_deref().unwrap_or_default();
        if DEPRECATED.contains(&name) {
            operation.deprecated = Some(Deprecated::True);
        }
        let Some(rule) = access::rule_named(name) else { continue };
        if !matches!(rule.access, Access::AnyKey | Access::Key(_)) {
            continue;
        }
        operation.responses.responses.entry("429".to_owned()).or_insert_with(|| refusal(TOO_OFTEN));
        let is_stream = streams.iter().any(|stream| stream == rule.operation);
        if matches!(rule.method, "POST" | "PATCH") && rule.changes.is_some() && !is_stream {
            operation.responses.responses.entry("409".to_owned()).or_insert_with(|| refusal(RUNS));
            operation.parameters.get_or_insert_default().push(idempotency_key().into());
        }
    }
}

/// Names of operations whose bodies are not read whole: they are not known again.
fn streams() -> Vec<String> {
    let document = super::routes::protected_streams().into_openapi();
    let operations = document.paths.paths.into_values().flat_map(|item| [item.post, item.patch]);
    operations.flatten().filter_map(|operation| operation.operation_id).collect()
}

fn refusal(description: &str) -> RefOr<Response> {
    let body = Content::new(Some(Ref::from_schema_name("PlainError")));
    ResponseBuilder::new().description(description).content("application/json", body).build().into()
}

fn idempotency_key() -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(255));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "A name for this request, 1 to 255 printable ASCII characters. Repeated within 24 hours it has no second \
             effect and gets the same answer, with `Idempotency-Replayed: true`; another request of the same name is \
             refused with 422",
        ))
        .schema(Some(text))
        .build()
}

/// The router's way to write a parameter that takes the rest of a path is not OpenAPI's.
fn without_wildcards(mut document: OpenApi) -> OpenApi {
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    document
}
