//! The public authorisation webhook (platform reference, section 10.5).

use std::fmt;
use std::time::Duration;

use bytes::BytesMut;
use cloister_kms_api::{KmsError, KmsErrorCode};
use reqwest::{Client, Response, redirect};
use serde::{Deserialize, Serialize};
use tracing::warn;
use url::{Host, Url};

use super::reasons::{code_of, printable};
use super::{BootInfo, Grant, Question};

/// Longest wait for an answer, connecting included.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// A service that decides.
#[derive(Clone)]
pub(crate) struct Webhook {
    app: Url,
    kms: Url,
    http: Client,
}

/// Why an address cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Answers over plain HTTP can be forged on their way.
    #[error("the authorisation service must be asked over https, or over http on this machine")]
    Plain,
    /// Not such an address.
    #[error("the address of the authorisation service must be an https URL without query and fragment")]
    Address,
    /// The client does not start.
    #[error("no HTTP client for the authorisation service")]
    Client(#[source] reqwest::Error),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    tee_variant: &'static str,
    mr_aggregated: String,
    os_image_hash: String,
    mr_system: String,
    app_id: String,
    compose_hash: String,
    instance_id: String,
    device_id: String,
    key_provider_info: String,
    tcb_status: String,
    advisory_ids: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    is_allowed: bool,
    #[serde(default)]
    gateway_app_id: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

impl Webhook {
    /// The service at `base`.
    pub(crate) fn new(base: &Url) -> Result<Self, WebhookError> {
        let loopback = match base.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => return Err(WebhookError::Address),
        };
        match base.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return Err(WebhookError::Plain),
            _ => return Err(WebhookError::Address),
        }
        if base.query().is_some() || base.fragment().is_some() || base.cannot_be_a_base() {
            return Err(WebhookError::Address);
        }
        let below = |path: &str| {
            let mut url = base.clone();
            url.path_segments_mut()
                .map_err(|()| WebhookError::Address)?
                .pop_if_empty()
                .extend(["bootAuth", path]);
            Ok(url)
        };
        // The process's provider of cryptography, unless the program chose one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(TIME_LIMIT)
            .timeout(TIME_LIMIT);
        let builder = if loopback { builder.no_proxy() } else { builder };
        Ok(Self {
            app: below("app")?,
            kms: below("kms")?,
            http: builder.build().map_err(WebhookError::Client)?,
        })
    }

    /// Asks about `boot`. Whatever is not a clear answer is a failure, and no permission.
    pub(crate) async fn ask(&self, question: Question, boot: &BootInfo) -> Result<Grant, KmsError> {
        let url = match question {
            Question::App => &self.app,
            Question::Kms => &self.kms,
        };
        let answer = match self.answer(url, boot).await {
            Ok(answer) => answer,
            Err(reason) => {
                warn!(%url, reason, "the authorisation service could not be asked");
                return Err(KmsError::new(
                    KmsErrorCode::InternalError,
                    format!("the authorisation service could not be asked: {reason}"),
                ));
            }
        };
        if answer.is_allowed {
            let gateway_app_id = answer.gateway_app_id.unwrap_or_default();
            return Ok(Grant { gateway_app_id, authorized_at: None });
        }
        let reason = printable(answer.reason.as_deref().unwrap_or_default());
        Err(KmsError::new(code_of(&reason), format!("the authorisation service refused: {reason}")))
    }

    async fn answer(&self, url: &Url, boot: &BootInfo) -> Result<Answer, &'static str> {
        let sent = self.http.post(url.clone()).json(&Request::of(boot)).send().await;
        let response =
            sent.map_err(|error| if error.is_timeout() { "no answer in time" } else { "no connection" })?;
        if !response.status().is_success() {
            return Err("an answer other than 2xx");
        }
        serde_json::from_slice(&body(response).await?).map_err(|_| "an answer that cannot be understood")
    }
}

async fn body(mut response: Response) -> Result<BytesMut, &'static str> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "a broken answer")? {
        if body.len().saturating_add(chunk.len()) > MAX_ANSWER_BYTES {
            return Err("an answer that is too long");
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

impl<'a> Request<'a> {
    fn of(boot: &'a BootInfo) -> Self {
        let text = |bytes: Option<&[u8]>| bytes.map(hex::encode).unwrap_or_default();
        Self {
            tee_variant: boot.tee_variant,
            mr_aggregated: hex::encode(boot.mr_aggregated),
            os_image_hash: text(boot.os_image_hash.as_ref().map(|hash| hash.as_bytes().as_slice())),
            mr_system: hex::encode(boot.mr_system),
            app_id: text(boot.app_id.as_ref().map(|id| id.as_bytes().as_slice())),
            compose_hash: text(boot.compose_hash.as_ref().map(|hash| hash.as_bytes().as_slice())),
            instance_id: text(boot.instance_id.as_ref().map(|id| id.as_bytes().as_slice())),
            device_id: hex::encode(boot.device_id),
            key_provider_info: hex::encode(&boot.key_provider_info),
            tcb_status: boot.tcb_status.to_string(),
            advisory_ids: &boot.advisory_ids,
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("app", &self.app.as_str()).finish_non_exhaustive()
    }
}
