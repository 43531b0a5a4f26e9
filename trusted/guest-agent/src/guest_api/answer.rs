//! Answers that every published client reads: a length instead of chunks, and ASCII only.

use std::fmt::Write as _;

use bytes::Bytes;
use cloister_attester::AttestError;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

use super::keys::KeyError;
use super::message::MessageError;
use super::report_data::ReportDataError;
use crate::attestation::DocumentError;
use crate::failure;

/// Why a request gets no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    ReportData(#[from] ReportDataError),
    #[error(transparent)]
    Attest(#[from] AttestError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0}")]
    Refused(String),
    #[error("Service not found: {0}")]
    Unknown(String),
    #[error("this agent speaks JSON only: add ?json to the path, or send Content-Type: application/json")]
    Protobuf,
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("other long requests are being served; try again")]
    Crowded,
}

impl ApiError {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Attest(AttestError::Busy) | Self::Document(DocumentError::Attest(AttestError::Busy)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// The JSON answer to a request.
pub(crate) fn answer(result: &Result<serde_json::Value, ApiError>) -> Response<Full<Bytes>> {
    match result {
        Ok(value) => respond(StatusCode::OK, value),
        Err(error) => respond(error.status(), &serde_json::json!({ "error": failure::chain(error) })),
    }
}

/// JSON with a status.
pub(crate) fn respond(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let body = ascii(&serde_json::to_string(value).unwrap_or_default());
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The same JSON text in ASCII: other characters stand in texts only, where they can be escaped.
fn ascii(json: &str) -> String {
    if json.is_ascii() {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() * 2);
    for character in json.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ascii_means_the_same(texts: Vec<String>) {
            let json = serde_json::to_string(&texts).unwrap();
            let escaped = ascii(&json);
            prop_assert!(escaped.is_ascii());
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), texts);
        }
    }
}
