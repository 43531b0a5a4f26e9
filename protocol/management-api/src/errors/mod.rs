//! Bodies of failed requests.

mod codes;

use cloister_app_compose::decode::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use codes::{ErrorCode, catalogue};

/// A catalogued failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Code of the catalogue, `ERR-MM-NNN`.
    #[schema(example = "ERR-03-001")]
    pub error_code: String,
    /// What happened, for people; never empty.
    #[schema(example = "CVM not found")]
    pub message: String,
    /// The members of the request, or facts, that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ErrorDetail>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
    /// Where to read more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<ErrorLink>,
    /// The value of the response's `X-Request-ID`.
    pub request_id: String,
}

/// One member or fact that an error is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// Name of the member.
    pub field: String,
    /// Its value.
    pub value: Value,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A page about an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorLink {
    /// Address.
    pub url: String,
    /// What is there.
    pub label: String,
}

/// A failure without a code: one that passes by itself, or that no client needs to tell apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlainError {
    /// What happened, for people.
    #[schema(example = "Another operation is in progress")]
    pub detail: String,
}

/// A request that does not fit its schema (status 422).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValidationError {
    /// Every fault of the request.
    pub detail: Vec<ValidationFault>,
}

/// One fault of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValidationFault {
    /// Path of the member, from `body`, `query` or `path` on; list positions are decimal texts.
    #[schema(example = json!(["body", "name"]))]
    pub loc: Vec<String>,
    /// What is wrong, for people.
    #[schema(example = "Field required")]
    pub msg: String,
    /// Kind of fault.
    #[serde(rename = "type")]
    #[schema(example = "missing")]
    pub kind: String,
}

impl From<Vec<Fault>> for ValidationError {
    fn from(faults: Vec<Fault>) -> Self {
        let detail = faults.into_iter().map(|fault| ValidationFault {
            loc: fault.loc,
            msg: fault.msg,
            kind: fault.kind.to_owned(),
        });
        Self { detail: detail.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_page_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
            std::fs::write(path, catalogue()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), catalogue(), "write it with INSTA_UPDATE=always");
    }

    #[test]
    fn masked_codes_say_what_a_missing_cvm_says() {
        for code in [ErrorCode::CvmMaskedWorkspace, ErrorCode::CvmMaskedPermission] {
            assert_eq!(code.title(), ErrorCode::CvmNotFound.title());
            assert_eq!(code.remedy(), ErrorCode::CvmNotFound.remedy());
        }
    }

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(ErrorCode::ALL.windows(2).all(|pair| pair[0].as_str() < pair[1].as_str()));
    }
}
