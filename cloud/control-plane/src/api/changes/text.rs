//! Texts that replace a file: as the part `file` of a form, or as the whole body.

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;

use crate::api::error::{ApiError, ApiResult};

/// Most parts of a form.
const MAX_PARTS: usize = 16;
const FORM: &str = "multipart/form-data";

/// A file of the interface: the types that it may be sent as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text {
    /// What is missing when it is empty.
    name: &'static str,
    types: &'static [&'static str],
}

/// A compose file.
pub(crate) const YAML: Text = Text {
    name: "compose file",
    types: &["text/yaml", "application/yaml", "text/x-yaml", "application/x-yaml", "text/plain"],
};

/// A script.
pub(crate) const SCRIPT: Text =
    Text { name: "script", types: &["text/plain", "application/x-sh", "text/x-shellscript"] };

impl Text {
    /// The text of a request; never empty.
    pub(crate) async fn read(self, request: Request) -> ApiResult<String> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        let bytes = match essence.as_str() {
            FORM => self.file(request).await?,
            // Without a type there is nothing that could be misread.
            "" => body(request).await?,
            other if self.types.contains(&other) => body(request).await?,
            _ => {
                let types = self.types.join(", ");
                return Err(refused(format!("Send the {} as {FORM} or as one of {types}", self.name)));
            }
        };
        let text = String::from_utf8(bytes.to_vec());
        let text = text.map_err(|_| refused(format!("The {} is not UTF-8 text", self.name)))?;
        if text.trim().is_empty() { Err(refused(format!("The {} is empty", self.name))) } else { Ok(text) }
    }

    /// The only part `file` of a form.
    async fn file(self, request: Request) -> ApiResult<Bytes> {
        let form = Multipart::from_request(request, &()).await;
        let mut form = form.map_err(|_| refused("The form has no usable boundary"))?;
        let mut file = None;
        for _ in 0..MAX_PARTS {
            let Some(part) = form.next_field().await.map_err(|error| broken(&error))? else {
                return file
                    .ok_or_else(|| refused(format!("The form has no part file with the {}", self.name)));
            };
            let is_file = part.name() == Some("file");
            let bytes = part.bytes().await.map_err(|error| broken(&error))?;
            if is_file && file.replace(bytes).is_some() {
                return Err(refused("The form has several parts file"));
            }
        }
        Err(refused("The form has too many parts"))
    }
}

async fn body(request: Request) -> ApiResult<Bytes> {
    request.extract().await.map_err(|_| ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE))
}

fn broken(error: &MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE),
        _ => refused("The form cannot be read"),
    }
}

fn refused(detail: impl Into<String>) -> ApiError {
    ApiError::plain(StatusCode::BAD_REQUEST, detail)
}
