//! Logs under signed URLs: `GET /logs/{vm_uuid}` and `GET /logs/{vm_uuid}/{container}`

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use cloister_management_api::PlainError;
use cloister_node_api::NodeErrorCode;
use futures_util::{StreamExt, stream};
use serde_json::json;
use url::form_urlencoded;
use uuid::Uuid;

use super::Api;
use super::channel_log::Channel;
use super::error::{ApiError, ApiResult, RETRY_AFTER_S};
use super::signed_url::Signer;
use super::slots::Slot;
use crate::operations::NodeCallError;
use crate::store::CvmRow;

/// Lines of the serial console when the query does not say.
const DEFAULT_LINES: u32 = 1_000;
/// Most lines of the serial console.
const MAX_LINES: u32 = 100_000;
/// Logs of one CVM that may be read at a time: anybody who has the URL reads.
pub(super) const MAX_READS: usize = 8;
/// Most bytes of the end of a serial console in one answer.
const MAX_SERIAL_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes of the end of a serial console that is followed.
const MAX_FOLLOWED_BYTES: usize = 1024 * 1024;
/// How often a followed serial console is looked at.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// What of the end of a console is searched for in its next reading.
const ANCHOR_BYTES: usize = 4 * 1024;
const MAX_CONTAINER_NAME: usize = 128;
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// What a log URL's query says, apart from what containers' logs understand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LogQuery {
    expires: i64,
    signature: String,
    channel: Option<String>,
    lines: Option<u32>,
    pub(super) follow: bool,
    /// Messages as text instead of base64.
    text: bool,
    /// Messages alone instead of JSON objects; as the kind of log has it when nothing is said.
    bare: Option<bool>,
    /// Everything else, encoded again.
    rest: String,
}

impl LogQuery {
    fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let flag = !matches!(&*value, "false" | "0");
            match &*name {
                "expires" => parsed.expires = value.parse().unwrap_or_default(),
                "signature" => parsed.signature = value.into_owned(),
                "ch" => parsed.channel = Some(value.into_owned()),
                other => {
                    match other {
                        "tail" | "lines" => parsed.lines = value.parse().ok(),
                        "follow" => parsed.follow = flag,
                        "text" => parsed.text = flag,
                        "bare" => parsed.bare = Some(flag),
                        _ => {}
                    }
                    rest.append_pair(&name, &value);
                }
            }
        }
        parsed.rest = rest.finish();
        parsed
    }

    /// The same for a log of a whole CVM: clients print what comes as it is, so it is text unless objects are asked for.
    fn of_cvm(self) -> Self {
        Self { bare: self.bare.or(Some(!self.text)), ..self }
    }

    fn is_bare(&self) -> bool {
        self.bare.unwrap_or_default()
    }

    /// What guests understand, without the form: messages come as base64 of a channel each.
    pub(super) fn without_form(&self) -> String {
        let others = form_urlencoded::parse(self.rest.as_bytes());
        let others = others.filter(|(name, _)| !matches!(&**name, "text" | "bare"));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish()
    }

    /// A message in the form that is asked for.
    pub(super) fn message(&self, channel: &str, message: &[u8]) -> Vec<u8> {
        if self.is_bare() {
            return message.to_vec();
        }
        let message = if self.text {
            String::from_utf8_lossy(message).into_owned()
        } else {
            BASE64_STANDARD.encode(message)
        };
        (json!({"channel": channel, "message": message}).to_string() + "\n").into_bytes()
    }
}

async fn signed(api: &Api, vm: &str, container: Option<&str>, query: &LogQuery) -> ApiResult<(CvmRow, Slot)> {
    let refused = || ApiError::forbidden("This log URL is not valid, or expired; ask for the CVM again");
    let vm = Uuid::try_parse(vm).map_err(|_| refused())?;
    let signer = Signer::new(&api.log_url_key, &api.public_url, api.clock.now_ms());
    if !signer.holds(vm, container, query.expires, &query.signature) {
        return Err(refused());
    }
    let cvm = api.store.cvm_by_uuid(vm).await?.ok_or_else(|| ApiError::not_found("CVM"))?;
    let slot = api.log_reads.take(cvm.id).ok_or_else(|| {
        let text = format!("{MAX_READS} logs of this CVM are being read already; close one");
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })?;
    Ok((cvm, slot))
}

fn node_error(error: &NodeCallError) -> ApiError {
    let text = error.to_string();
    match error {
        NodeCallError::Refused(refusal) => match refusal.code {
            NodeErrorCode::UnknownVm | NodeErrorCode::UnknownContainer => {
                ApiError::plain(StatusCode::NOT_FOUND, text)
            }
            NodeErrorCode::Invalid => ApiError::plain(StatusCode::BAD_REQUEST, text),
            NodeErrorCode::Conflict => ApiError::plain(StatusCode::CONFLICT, text).retry_after(RETRY_AFTER_S),
            _ => ApiError::plain(StatusCode::BAD_GATEWAY, text),
        },
        NodeCallError::Unreachable { .. } | NodeCallError::NodeGone => {
            ApiError::plain(StatusCode::BAD_GATEWAY, text)
        }
    }
}

/// Logs come from the tenant's guest: no browser may take them for a page.
fn log_headers(content_type: String) -> [(HeaderName, String); 3] {
    [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ]
}

/// Read a log of a CVM
///
/// Only with a signed URL from `syslog_endpoint` or `logs`, to which clients append `ch=serial` for its console, or
/// `ch=stdout` or `ch=stderr` for what all of its containers print, and `tail`, `follow`, `text` and `bare`; for
/// containers also `since`, `until`, `timestamps` and `ansi`. The text as it is, or JSON lines with `text` or `bare=false`.
#[utoipa::path(
    get, path = "/logs/{vm_uuid}", tag = "Logs", operation_id = "get_vm_log", security(()),
    params(("vm_uuid" = Uuid, Path, description = "From the signed URL")),
    responses(
        (status = 200, description = "The log", body = String, content_type = "text/plain"),
        (status = 403, description = "Not signed, or expired", body = PlainError),
        (status = 404, description = "No such CVM or channel", body = PlainError),
        (status = 429, description = "Too many logs of the CVM are being read", body = PlainError),
        (status = 502, description = "The node does not answer", body = PlainError),
    ),
)]
pub(crate) async fn vm_log(
    State(api): State<Api>,
    Path(vm): Path<String>,
    RawQuery(query): RawQuery,
) -> ApiResult<Response> {
    let query = LogQuery::parse(query.as_deref().unwrap_or_default()).of_cvm();
    let (cvm, slot) = signed(&api, &vm, None, &query).await?;
    let channel = match query.channel.as_deref() {
        None | Some("serial") => None,
        Some("stdout") => Some(Channel::Stdout),
        Some("stderr") => Some(Channel::Stderr),
        Some(_) => {
            let text = "There are the channels ch=serial, ch=stdout and ch=stderr";
            return Err(ApiError::plain(StatusCode::NOT_FOUND, text));
        }
    };
    let headers = log_headers(PLAIN_TEXT.to_owned());
    if let Some(channel) = channel {
        let pieces = channel.open(&api, &cvm, query).await.map_err(|error| node_error(&error))?;
        let held = pieces.take_until(api.stop.clone().cancelled_owned()).map(move |piece| {
            let _held = &slot;
            Ok::<_, std::io::Error>(piece)
        });
        return Ok((headers, Body::from_stream(held)).into_response());
    }
    let lines = query.lines.unwrap_or(DEFAULT_LINES).min(MAX_LINES);
    let most = if query.follow { MAX_FOLLOWED_BYTES } else { MAX_SERIAL_BYTES };
    let first = serial(&api, &cvm, lines, most).await.map_err(|error| node_error(&error))?;
    let headers = log_headers(PLAIN_TEXT.to_owned());
    if !query.follow {
        // The slot is held until the text is on its way: whoever reads nothing may not make the server keep it.
        let whole = stream::iter([written(&first, &query)]).map(move |piece| {
            let _held = &slot;
            Ok::<_, std::io::Error>(piece)
        });
        return Ok((headers, Body::from_stream(whole)).into_response());
    }
    let follow = Follow { api, cvm, seen: Bytes::new(), next: Some(first), _slot: slot };
    let pieces = stream::unfold((follow, query), |(mut follow, query)| async move {
        let piece = written(&follow.piece().await?, &query);
        Some((Ok::<_, std::io::Error>(piece), (follow, query)))
    });
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The last lines of a console, of them at most the last bytes.
async fn serial(api: &Api, cvm: &CvmRow, lines: u32, most: usize) -> Result<Bytes, NodeCallError> {
    let mut answer = api.fleet.serial(cvm.node_id, cvm.vm_uuid, lines).await?;
    let mut all = Vec::new();
    while let Some(Ok(piece)) = answer.body.next().await {
        all.extend_from_slice(&piece);
        // Twice, so that the bytes are not moved for every piece.
        if all.len() >= 2 * most {
            all.drain(..all.len() - most);
        }
    }
    // In short lines a text takes many times its length on its way; a node may send more of them than it was
    // asked for.
    let count = usize::try_from(lines).unwrap_or(usize::MAX);
    let first = memchr::memrchr_iter(b'\n', &all).nth(count).map_or(0, |end| end + 1);
    let surplus = all.len().saturating_sub(most).max(first);
    Ok(Bytes::from(all).slice(surplus..))
}

/// Whether a text may become a part of a path on the node as the name of a container.
pub(super) fn is_container(text: &str) -> bool {
    (1..=MAX_CONTAINER_NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// A console in the form that the query asks for.
fn written(text: &Bytes, query: &LogQuery) -> Bytes {
    if query.is_bare() {
        return text.clone();
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.flat_map(|line| query.message("stdout", line)).collect()
}

/// A console that is read again and again.
struct Follow {
    api: Api,
    cvm: CvmRow,
    seen: Bytes,
    next: Option<Bytes>,
    _slot: Slot,
}

impl Follow {
    /// What was written since the last piece; `None` when there will be no more.
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            let now = match self.next.take() {
                Some(first) => first,
                None => self.reading().await?,
            };
            let new = added(&self.seen, &now);
            self.seen = now;
            if !new.is_empty() {
                return Some(new);
            }
        }
    }

    async fn reading(&self) -> Option<Bytes> {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = self.api.stop.cancelled() => return None,
        }
        serial(&self.api, &self.cvm, DEFAULT_LINES, MAX_FOLLOWED_BYTES).await.ok()
    }
}

/// What a console has more than in an earlier reading, of which the beginning may be gone.
fn added(seen: &Bytes, now: &Bytes) -> Bytes {
    let anchor = seen.slice(seen.len().saturating_sub(ANCHOR_BYTES)..);
    if anchor.is_empty() {
        return now.clone();
    }
    // In linear time whatever the guest wrote.
    let last = memchr::memmem::rfind(now, &anchor);
    last.map_or_else(|| now.clone(), |at| now.slice(at + anchor.len()..))
}

/// Read the log of a container
///
/// Only with a signed URL from `GET /cvms/{cvm_id}/composition`, to which clients append `since`, `until`,
/// `follow`, `text`, `bare`, `timestamps`, `tail` and `ansi`.
#[utoipa::path(
    get, path = "/logs/{vm_uuid}/{container}", tag = "Logs", operation_id = "get_container_log", security(()),
    params(
        ("vm_uuid" = Uuid, Path, description = "From the signed URL"),
        ("container" = String, Path, description = "Name or id"),
    ),
    responses(
        (status = 200, description = "The log", body = String, content_type = "text/plain"),
        (status = 403, description = "Not signed, or expired", body = PlainError),
        (status = 404, description = "No such CVM or container", body = PlainError),
        (status = 429, description = "Too many logs of the CVM are being read", body = PlainError),
        (status = 502, description = "The node or the guest does not answer", body = PlainError),
    ),
)]
pub(crate) async fn container_log(
    State(api): State<Api>,
    Path((vm, container)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> ApiResult<Response> {
    let query = LogQuery::parse(query.as_deref().unwrap_or_default());
    let (cvm, slot) = signed(&api, &vm, Some(&container), &query).await?;
    if !is_container(&container) {
        return Err(ApiError::not_found("Container"));
    }
    let log = api.fleet.container_log(cvm.node_id, cvm.vm_uuid, &container, &query.rest).await;
    let log = log.map_err(|error| node_error(&error))?;
    // A browser shows text and nothing else, whatever the guest says.
    let content_type =
        if log.content_type.starts_with("text/plain") { log.content_type } else { PLAIN_TEXT.to_owned() };
    let pieces = log.body.take_until(api.stop.clone().cancelled_owned());
    let body = Body::from_stream(pieces.map(move |piece| {
        let _held = &slot;
        piece
    }));
    Ok((log_headers(content_type), body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_keep_what_guests_understand_and_nothing_of_ours() {
        let query = LogQuery::parse("expires=5&signature=ab&ch=serial&tail=10&text&since=1h%20&follow=false");
        assert_eq!((query.expires, query.lines, query.text, query.follow), (5, Some(10), true, false));
        assert_eq!(query.rest, "tail=10&text=&since=1h+&follow=false");
        assert_eq!(query.without_form(), "tail=10&since=1h+&follow=false");
    }

    #[test]
    fn consoles_are_written_in_each_form() {
        let text = Bytes::from_static(b"one\ntwo");
        let write =
            |query: &str| String::from_utf8(written(&text, &LogQuery::parse(query)).to_vec()).unwrap();
        assert_eq!(write("bare"), "one\ntwo");
        assert_eq!(
            write("text"),
            "{\"channel\":\"stdout\",\"message\":\"one\\n\"}\n{\"channel\":\"stdout\",\"message\":\"two\"}\n"
        );
        assert!(write("").starts_with("{\"channel\":\"stdout\",\"message\":\"b25lCg==\"}"));
    }

    #[test]
    fn following_gives_each_byte_once() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (seen, now, new) in [
            ("", "a\n", "a\n"),
            ("a\n", "a\nb\n", "b\n"),
            ("a\nb\n", "b\nc\n", "b\nc\n"),
            ("a\nb\n", "a\nb\n", ""),
            ("a\n", "", ""),
        ] {
            assert_eq!(added(&bytes(seen), &bytes(now)), bytes(new), "{seen:?} {now:?}");
        }
    }
}
