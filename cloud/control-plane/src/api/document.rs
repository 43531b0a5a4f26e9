//! The OpenAPI document: generated from the operations, checked in at `openapi.json`.

use std::collections::BTreeSet;

use cloister_management_api::{
    ErrorBody, ErrorDetail, ErrorLink, PlainError, ValidationError, ValidationFault,
};
use utoipa::OpenApi as _;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, OneOf, Schema, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    Components, Content, InfoBuilder, License, OpenApi, Ref, RefOr, Required, ResponseBuilder,
    SecurityRequirement,
};

use utoipa_axum::router::OpenApiRouter;

use super::access::{self, Access};
use super::{deprecation, idempotency};

/// Version of the described interface; the dated versions live inside of it.
const INTERFACE_VERSION: &str = "0.1.0";
const JSON: &str = "application/json";
const API_KEY: &str = "ApiKeyHeader";
const BEARER: &str = "Bearer";
const TOO_OFTEN: &str = "The API key asks too often; repeat the request after `Retry-After`";
const UNCHANGED: &str = "The document is one of those that `If-None-Match` names";
const RUNS: &str =
    "A request with the same `Idempotency-Key` is being carried out; repeat it after `Retry-After`";

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
    with_overlapping_forms(&mut document);
    with_common(&mut document, &streams());
    with_tags(&mut document);
    deprecation::mark(&mut document);
    without_wildcards(document)
}

/// The forms of several versions overlap: what is one of them may be another one, too.
fn with_overlapping_forms(document: &mut OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::OneOf(forms)) = schema else { continue };
        let any = AnyOfBuilder::new().description(forms.description.take());
        let any = forms.items.drain(..).fold(any, AnyOfBuilder::item);
        *schema = RefOr::T(Schema::AnyOf(any.build()));
    }
}

/// Every operation, with its name.
pub(super) fn operations(document: &mut OpenApi) -> impl Iterator<Item = (String, &mut Operation)> {
    let items = document.paths.paths.values_mut();
    items
        .flat_map(|item| [&mut item.post, &mut item.patch, &mut item.get, &mut item.put, &mut item.delete])
        .flatten()
        .map(|operation| (operation.operation_id.clone().unwrap_or_default(), operation))
}

/// What holds for documents that have a tag.
fn with_tags(document: &mut OpenApi) {
    let documents = [super::routes::documents(), super::routes::public_documents()];
    let documents = documents
        .map(OpenApiRouter::into_openapi)
        .into_iter()
        .flat_map(|mut described| operations(&mut described).map(|(name, _)| name).collect::<Vec<_>>());
    let documents = documents.collect::<BTreeSet<_>>();
    for (_, operation) in operations(document).filter(|(name, _)| documents.contains(name)) {
        let unchanged = ResponseBuilder::new().description(UNCHANGED).header("ETag", tag()).build();
        operation.responses.responses.insert("304".to_owned(), unchanged.into());
        if let Some(RefOr::T(shown)) = operation.responses.responses.get_mut("200") {
            shown.headers.insert("ETag".to_owned(), tag().into());
        }
        operation.parameters.get_or_insert_default().push(if_none_match().into());
    }
}

fn tag() -> Header {
    HeaderBuilder::new().description(Some("The document's entity tag, a strong one")).build()
}

fn if_none_match() -> Parameter {
    ParameterBuilder::new()
        .name("If-None-Match")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("The `ETag` of the document that the client has; 304 when it still is this one"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// What holds for all operations of a kind: how they are refused before anything of theirs runs, that keys have a rate,
/// and that a change has its effect once.
fn with_common(document: &mut OpenApi, streams: &[String]) {
    for (name, operation) in operations(document) {
        let Some(rule) = access::rule_named(&name) else { continue };
        let is_keyed = matches!(rule.access, Access::AnyKey | Access::Key(_));
        let is_stream = streams.iter().any(|stream| stream == rule.operation);
        let is_kept = !is_stream && !idempotency::NOT_KEPT.contains(&rule.operation);
        let is_creating = matches!(rule.method, "POST" | "PATCH") && rule.changes.is_some();
        let kind = Kind {
            is_keyed,
            is_repeatable: is_keyed && is_creating && is_kept,
            has_body: operation.request_body.is_some(),
        };
        let common = COMMON.iter().filter(|(when, _)| when(kind)).map(|(_, refusal)| refusal);
        let further = FURTHER.iter().filter(|(operation, _)| *operation == rule.operation);
        for refusal in common.chain(further.map(|(_, refusal)| refusal)) {
            may_refuse(operation, refusal);
        }
        if kind.is_repeatable {
            operation.parameters.get_or_insert_default().push(idempotency_key().into());
        }
    }
}

/// What decides how an operation may be refused.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// It needs an API key.
    is_keyed: bool,
    /// It may be named, to be done once.
    is_repeatable: bool,
    has_body: bool,
}

/// A refusal that is described here.
struct Refusal {
    status: &'static str,
    /// Name of its schema.
    body: &'static str,
    description: &'static str,
}

const PLAIN: &str = "PlainError";
const CODED: &str = "ErrorBody";
const FAULTS: &str = "ValidationError";

const fn refusal(status: &'static str, body: &'static str, description: &'static str) -> Refusal {
    Refusal { status, body, description }
}

const SCOPE: &str = "The scope of the API key is not enough, or the key is bound to another workspace than \
                     `X-Workspace-Id` names";

/// Whether operations of a kind are refused like this.
type When = fn(Kind) -> bool;

/// Refusals that operations of a kind share.
const COMMON: &[(When, Refusal)] = &[
    (|_| true, refusal("400", PLAIN, "`X-Phala-Version` is not a date")),
    (|kind| kind.is_keyed, refusal("401", PLAIN, "No credential, or an invalid, expired or revoked one")),
    (|kind| kind.is_keyed, refusal("403", PLAIN, SCOPE)),
    (|kind| kind.is_repeatable, refusal("409", PLAIN, RUNS)),
    (|kind| kind.has_body || kind.is_repeatable, refusal("413", PLAIN, "The body is too large")),
    (
        |kind| kind.has_body || kind.is_repeatable,
        refusal("422", FAULTS, "The request does not fit its schema"),
    ),
    (|kind| kind.is_repeatable, refusal("422", PLAIN, "The `Idempotency-Key` was used for another request")),
    (|kind| kind.is_keyed, refusal("429", PLAIN, TOO_OFTEN)),
];

const COMPOSE: Refusal = refusal("422", CODED, "The compose file is invalid (ERR-01-003)");
const NO_CVM: Refusal = refusal("404", CODED, "There is no such CVM (ERR-03-001)");

/// Refusals of an operation in another form than one that it has with the same status: an attribute takes one only.
const FURTHER: &[(&str, Refusal)] = &[
    ("patch_cvm", COMPOSE),
    ("put_cvm_compose", COMPOSE),
    ("replace_cvm_compose_file", COMPOSE),
    ("provision_cvm_compose_file", COMPOSE),
    ("update_cvm_docker_compose", COMPOSE),
    ("update_cvm_pre_launch_script", COMPOSE),
    ("create_rollout", COMPOSE),
    ("create_rollout", NO_CVM),
    ("redeploy_app_revision", NO_CVM),
    ("redeploy_cvm_revision", refusal("404", PLAIN, "There is no such revision")),
    ("add_app_instance", refusal("404", CODED, "There is no such node (ERR-01-001)")),
    ("add_app_instance", refusal("409", CODED, "The name is taken (ERR-01-004)")),
    ("set_cvm_ssh_keys", refusal("404", PLAIN, "There is no such key, or no such member of the workspace")),
    ("create_token", refusal("429", CODED, "Keys are made too often (ERR-05-002)")),
];

/// Describes a refusal of an operation, beside those of the same status that have another form.
fn may_refuse(operation: &mut Operation, refusal: &Refusal) {
    let body: RefOr<Schema> = Ref::from_schema_name(refusal.body).into();
    let responses = &mut operation.responses.responses;
    let described = responses.get_mut(refusal.status);
    let Some(RefOr::T(response)) = described else {
        let content = Content::new(Some(body));
        let response = ResponseBuilder::new().description(refusal.description).content(JSON, content).build();
        responses.insert(refusal.status.to_owned(), response.into());
        return;
    };
    let content = response.content.entry(JSON.to_owned()).or_insert_with(|| Content::default().into());
    let RefOr::T(content) = content else { return };
    let mut forms = match content.schema.take() {
        Some(RefOr::T(Schema::OneOf(forms))) => forms.items,
        form => form.into_iter().collect(),
    };
    if !forms.contains(&body) {
        let described = response.description.trim_end_matches('.').to_owned();
        response.description = format!("{described}. {}", refusal.description);
        forms.push(body);
    }
    content.schema = match forms.len() {
        1 => forms.pop(),
        _ => Some(RefOr::T(Schema::OneOf(OneOf { items: forms, ..OneOf::new() }))),
    };
}

/// Names of operations whose bodies are not read whole: they are not known again.
fn streams() -> Vec<String> {
    let document = super::routes::protected_streams().into_openapi();
    let operations = document.paths.paths.into_values().flat_map(|item| [item.post, item.patch]);
    operations.flatten().filter_map(|operation| operation.operation_id).collect()
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
