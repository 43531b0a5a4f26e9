//! The OpenAPI document: generated from the operations, checked in at `openapi.json`.

use cloister_management_api::{
    ErrorBody, ErrorDetail, ErrorLink, PlainError, ValidationError, ValidationFault,
};
use utoipa::OpenApi as _;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, License, OpenApi, SecurityRequirement};

/// Version of the described interface; the dated versions live inside of it.
const INTERFACE_VERSION: &str = "0.1.0";
const API_KEY: &str = "ApiKeyHeader";
const BEARER: &str = "Bearer";

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
             version; without it the version of the API key counts. Every answer carries `X-Request-ID`.",
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
    without_wildcards(document)
}

/// The router's way to write a parameter that takes the rest of a path is not OpenAPI's.
fn without_wildcards(mut document: OpenApi) -> OpenApi {
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    document
}
