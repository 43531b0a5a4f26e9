//! What callers may set.

use axum::http::StatusCode;
use cloister_outbound::Refused;
use cloister_webhooks::{EventKind, InvalidSecret, Secret};

use super::refused;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::store::Caller;

/// Addresses that a workspace may have checked at a time.
pub(crate) const MAX_CHECKS: usize = 4;
const MAX_NAME: usize = 100;
/// Whether a name is unknown or leads inside is not told apart: it would say which names there are inside.
const NOT_PUBLIC: &str = "The URL's host must have addresses, and public ones only; check the name and what is \
     published about it, or ask the operator to allow the network";

/// An address that requests may go to, written in full. Its host is looked up.
pub(super) async fn url(api: &Api, caller: &Caller, text: &str) -> ApiResult<String> {
    let fault = |refused: Refused| ApiError::fault(&["body", "url"], "value_error", sentence(refused));
    let url = api.outbound.check(text).map_err(fault)?;
    let _slot = api.webhook_checks.take(caller.workspace_id).ok_or_else(|| {
        let text = format!("{MAX_CHECKS} addresses of the workspace are being checked already");
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })?;
    match api.outbound.vet(&url).await {
        Ok(()) => Ok(url.into()),
        Err(Refused::Address | Refused::Unknown) => Err(refused(NOT_PUBLIC)),
        Err(other) => Err(refused(sentence(other))),
    }
}

fn sentence(refused: Refused) -> String {
    let text = refused.to_string();
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// Kinds of events, as they are stored: each once.
pub(super) fn events(names: &[String]) -> ApiResult<String> {
    let mut kinds: Vec<EventKind> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let kind = name.parse().map_err(|_| {
            let known: Vec<_> = EventKind::ALL.iter().map(|kind| format!("'{kind}'")).collect();
            let message = format!("Input should be one of {}", known.join(", "));
            ApiError::fault(&["body", "events", &index.to_string()], "enum", message)
        })?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() {
        return Err(ApiError::fault(&["body", "events"], "too_short", "List should have at least 1 item"));
    }
    let names: Vec<_> = kinds.into_iter().map(EventKind::as_str).collect();
    serde_json::to_string(&names).map_err(|error| ApiError::internal(&error))
}

/// A name for people; `None` for an empty one.
pub(super) fn name(name: &str) -> ApiResult<Option<&str>> {
    let fault = |kind, message: String| Err(ApiError::fault(&["body", "name"], kind, message));
    if name.chars().count() > MAX_NAME {
        return fault("string_too_long", format!("String should have at most {MAX_NAME} characters"));
    }
    if name.contains(char::is_control) {
        return fault("value_error", "Input should have no control characters".to_owned());
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// The caller's own secret, or a new one.
pub(super) fn secret(api: &Api, own: Option<&str>) -> ApiResult<Secret> {
    match own {
        Some(text) => Secret::parse(text).map_err(|error: InvalidSecret| {
            ApiError::fault(&["body", "secret"], "value_error", format!("Not usable: {error}"))
        }),
        None => Ok(Secret::generate(api.random.bytes()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_and_stored_once() {
        let names = |names: &[&str]| events(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let stored = names(&["cvm.deleted", "cvm.created", "cvm.deleted"]).unwrap();
        assert_eq!(stored, r#"["cvm.deleted","cvm.created"]"#);
        for wrong in [&[][..], &["cvm.created", "cvm.exploded"], &["*"], &["CVM.CREATED"]] {
            assert_eq!(names(wrong).unwrap_err().status(), StatusCode::UNPROCESSABLE_ENTITY, "{wrong:?}");
        }
    }

    #[test]
    fn an_empty_name_is_none() {
        assert_eq!(name("").unwrap(), None);
        assert_eq!(name("ops").unwrap(), Some("ops"));
        assert_eq!(name(&"ä".repeat(100)).unwrap().map(str::len), Some(200));
        for wrong in ["a\u{7}".to_owned(), "x".repeat(101)] {
            assert!(name(&wrong).is_err());
        }
    }
}
