//! A quote in any of the forms in which it may be sent.

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use cloister_app_compose::decode::Fault;
use serde_json::Value;
use url::form_urlencoded;

use crate::api::error::{ApiError, ApiResult};

/// Largest body: a quote of 64 KiB in hex, and room for the form around it.
pub(crate) const MAX_UPLOAD_BYTES: usize = 256 * 1024;
/// Most parts of a form.
const MAX_PARTS: usize = 16;

/// The bytes of a quote, and the member that they came in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(super) bytes: Vec<u8>,
    pub(super) member: &'static str,
}

/// What a form holds.
#[derive(Default)]
struct Given {
    files: Vec<Bytes>,
    texts: Vec<String>,
}

impl<S: Send + Sync> FromRequest<S> for Upload {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> ApiResult<Self> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let given = if content_type.starts_with("multipart/") {
            let form = Multipart::from_request(request, state).await;
            multipart(form.map_err(|_| refused("The form has no usable boundary"))?).await?
        } else {
            let too_large = |_| ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE);
            let body: Bytes = request.extract().await.map_err(too_large)?;
            if content_type.starts_with("application/x-www-form-urlencoded") {
                urlencoded(&body)
            } else {
                json(&body)?
            }
        };
        given.one()
    }
}

impl Given {
    /// The only quote.
    fn one(self) -> ApiResult<Upload> {
        let files: Vec<_> = self.files.into_iter().filter(|file| !file.is_empty()).collect();
        let texts: Vec<_> = self.texts.into_iter().filter(|text| !text.trim().is_empty()).collect();
        match (files.as_slice(), texts.as_slice()) {
            ([], []) => Err(refused("No quote was sent: give it as file or as hex")),
            ([file], []) => Ok(Upload { bytes: of_file(file), member: "file" }),
            ([], [text]) => {
                let bytes = unhex(text).ok_or_else(|| refused("hex is not a hexadecimal text"))?;
                Ok(Upload { bytes, member: "hex" })
            }
            _ => Err(refused("More than one quote was sent: give either file or hex, once")),
        }
    }
}

fn refused(detail: &str) -> ApiError {
    ApiError::plain(StatusCode::BAD_REQUEST, detail)
}

/// A file holds a quote, or its hex text: people keep both.
fn of_file(file: &Bytes) -> Vec<u8> {
    let text = std::str::from_utf8(file).ok();
    text.and_then(unhex).unwrap_or_else(|| file.to_vec())
}

/// Hex digits, with `0x` in front or not, with white space anywhere.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.split_ascii_whitespace().collect();
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(&digits);
    hex::decode(digits).ok().filter(|bytes| !bytes.is_empty())
}

async fn multipart(mut form: Multipart) -> ApiResult<Given> {
    let mut given = Given::default();
    for _ in 0..MAX_PARTS {
        let Some(part) = form.next_field().await.map_err(|error| broken(&error))? else {
            return Ok(given);
        };
        match part.name() {
            Some("file") => given.files.push(read(part).await?),
            Some("hex") => {
                let text = String::from_utf8(read(part).await?.to_vec());
                given.texts.push(text.map_err(|_| refused("hex is not a hexadecimal text"))?);
            }
            _ => drop(read(part).await?),
        }
    }
    Err(refused("The form has too many parts"))
}

async fn read(part: Field<'_>) -> ApiResult<Bytes> {
    part.bytes().await.map_err(|error| broken(&error))
}

fn broken(error: &MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE),
        _ => refused("The form cannot be read"),
    }
}

fn urlencoded(body: &[u8]) -> Given {
    let texts = form_urlencoded::parse(body).take(MAX_PARTS).filter(|(name, _)| name == "hex");
    Given { files: Vec::new(), texts: texts.map(|(_, text)| text.into_owned()).collect() }
}

fn json(body: &[u8]) -> ApiResult<Given> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Given::default());
    }
    let document: Value = serde_json::from_slice(body).map_err(|error| {
        let column = error.column().to_string();
        ApiError::fault(&["body", &column], "json_invalid", format!("JSON decode error: {error}"))
    })?;
    match document.get("hex") {
        None | Some(Value::Null) => Ok(Given::default()),
        Some(Value::String(text)) => Ok(Given { files: Vec::new(), texts: vec![text.clone()] }),
        Some(_) => Err(ApiError::faults(vec![Fault {
            loc: vec!["body".to_owned(), "hex".to_owned()],
            msg: "Input should be a valid string".to_owned(),
            kind: "string_type",
        }])),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hex_in_all_its_spellings() {
        for text in ["0aFF", "0x0aff", "0X0AFF", " 0aff\n", "0a ff", "0x 0a\r\nff"] {
            assert_eq!(unhex(text), Some(vec![10, 255]), "{text}");
        }
        for text in ["", "0x", "0af", "0g", "0x0x0a", "ä"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_is_bytes_or_hex() {
        assert_eq!(of_file(&Bytes::from_static(b"\x04\x00\x02\x00")), [4, 0, 2, 0]);
        assert_eq!(of_file(&Bytes::from_static(b"0x04000200\n")), [4, 0, 2, 0]);
    }

    proptest! {
        #[test]
        fn nothing_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = urlencoded(&body).one();
            let _ = json(&body).and_then(Given::one);
            let _ = of_file(&body.into());
        }
    }
}
