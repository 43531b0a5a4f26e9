//! `POST /attestations/verify`

use std::error::Error as _;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_evidence::Quote;
use cloister_management_api::{
    NodeProvider, PlainError, QuoteVerification, ValidationError, VerifyQuoteForm, VerifyQuoteRequest,
};
use sha2::{Digest, Sha256};

use super::upload::Upload;
use super::wire;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::view::time;
use crate::evidence::{Unjudged, Verdict, judge};
use crate::proof_of_cloud::Registration;
use crate::store::{QuoteRow, StoreError};

/// How long a verdict is not written anew while it stays the same, in milliseconds.
const FRESH_MS: i64 = 60_000;

/// Verify a quote
///
/// Public. A quote that is not genuine is an answer too: `success` is false, and `reasons` says why. Which
/// root vouches for a genuine one, and how current its platform is, `trust_root` and `tcb_status` say; a
/// development root stands for no hardware. The quote is kept for a while, with what it was verified with.
#[utoipa::path(
    post, path = "/attestations/verify", tag = "Attestation", operation_id = "verify_quote", security(()),
    request_body(content(
        (VerifyQuoteRequest = "application/json"),
        (VerifyQuoteForm = "multipart/form-data"),
        (VerifyQuoteRequest = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "The verdict", body = QuoteVerification),
        (status = 400, description = "No quote, more than one, or no hexadecimal text", body = PlainError),
        (status = 413, description = "The quote is too large", body = PlainError),
        (status = 422, description = "The bytes are no quote", body = ValidationError),
        (status = 429, description = "Too many quotes are being verified", body = PlainError),
        (status = 502, description = "The vendor's collateral cannot be had", body = PlainError),
    ),
)]
pub(crate) async fn verify(State(api): State<Api>, upload: Upload) -> ApiResult<Json<QuoteVerification>> {
    let _place = api.intake.place()?;
    let judged = judge(&api.verifier, &upload.bytes).await.map_err(|error| refusal(&error, &upload))?;
    let now_ms = api.clock.now_ms();
    let collateral = judged.quote.as_ref().map(|quote| serde_json::to_string(&*quote.collateral));
    let collateral = collateral.transpose().map_err(|error| ApiError::internal(&error))?;
    let found = QuoteRow {
        checksum: hex::encode(Sha256::digest(&upload.bytes)),
        quote: BASE64_STANDARD.encode(&upload.bytes),
        uploaded_at_ms: now_ms,
        verified_at_ms: now_ms,
        verified: i64::from(judged.verdict.verified),
        verdict: serde_json::to_string(&judged.verdict).map_err(|error| ApiError::internal(&error))?,
        collateral_digest: collateral.as_ref().map(|document| hex::encode(Sha256::digest(document))),
    };
    let row = match api.store.quote(&found.checksum).await? {
        Some(known) if says_the_same(&known, &found) => known,
        Some(_) => keep(&api, &found, collateral).await?,
        None => {
            api.intake.count_new(now_ms)?;
            keep(&api, &found, collateral).await?
        }
    };
    answer(&api, &upload, &row, &judged.verdict).await.map(Json)
}

/// Whether a verdict of a moment ago still stands: the same quote sent again and again does not make the
/// database write again and again.
fn says_the_same(known: &QuoteRow, found: &QuoteRow) -> bool {
    let age_ms = found.verified_at_ms.saturating_sub(known.verified_at_ms);
    (0..FRESH_MS).contains(&age_ms)
        && known.verdict == found.verdict
        && known.collateral_digest == found.collateral_digest
}

fn refusal(error: &Unjudged, upload: &Upload) -> ApiError {
    match error {
        Unjudged::NotAQuote(reason) => {
            ApiError::fault(&["body", upload.member], "quote_invalid", format!("Not a quote: {reason}"))
        }
        Unjudged::Collateral(_) => {
            tracing::warn!(error = error.source(), "a quote cannot be verified: no collateral");
            let text = "The vendor's collateral service does not answer; try again later";
            ApiError::plain(StatusCode::BAD_GATEWAY, text).retry_after(RETRY_AFTER_S)
        }
        Unjudged::Store(error) => ApiError::internal(error),
        Unjudged::Register(error) => ApiError::internal(error),
        Unjudged::Busy => {
            ApiError::plain(StatusCode::TOO_MANY_REQUESTS, "Too many quotes are being verified")
                .retry_after(RETRY_AFTER_S)
        }
    }
}

/// Stores the quote with its verdict and what it was verified with.
async fn keep(api: &Api, found: &QuoteRow, collateral: Option<String>) -> Result<QuoteRow, StoreError> {
    let mut change = api.store.upkeep().await?;
    if let Some((digest, document)) = found.collateral_digest.as_ref().zip(collateral) {
        change.put_collateral(digest, &document).await?;
    }
    let row = change.put_quote(found).await?;
    change.commit().await?;
    Ok(row)
}

async fn answer(
    api: &Api,
    upload: &Upload,
    row: &QuoteRow,
    verdict: &Verdict,
) -> ApiResult<QuoteVerification> {
    let quote = Quote::parse(&upload.bytes).map_err(|error| ApiError::internal(&error))?;
    let provider = provider(api, verdict);
    Ok(QuoteVerification {
        id: row.checksum.clone(),
        success: verdict.verified,
        proof_of_cloud: provider.proof_of_cloud,
        quote: wire::parsed(&quote, verdict.verified),
        checksum: row.checksum.clone(),
        can_download: true,
        uploaded_at: time(row.uploaded_at_ms),
        verified_at: time(row.verified_at_ms),
        quote_collateral: wire::collateral(api, row).await?.unwrap_or_default(),
        node_provider: provider,
        reasons: verdict.reasons.clone(),
        trust_root: verdict.trust_root.clone(),
        is_hardware: verdict.is_hardware,
        tcb_status: verdict.tcb_status.clone(),
        advisory_ids: verdict.advisory_ids.clone(),
    })
}

/// Who runs the machine of a verified quote, as far as that is registered.
fn provider(api: &Api, verdict: &Verdict) -> NodeProvider {
    let registration = verdict.hardware_platform().and_then(|key| api.proof_of_cloud.registration(&key));
    NodeProvider {
        proof_of_cloud: registration.is_some(),
        ppid: verdict.ppid.clone().unwrap_or_default(),
        provider: registration.map_or_else(String::new, |Registration { provider, .. }| provider),
    }
}
