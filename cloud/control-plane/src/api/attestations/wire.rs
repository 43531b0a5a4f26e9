//! Quotes as answers show them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_evidence::{Measurement, Quote};
use cloister_management_api::{EvidenceVerdict, ParsedQuote, QuoteBody, QuoteCollateral, QuoteHeader};

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::evidence::Verdict;
use crate::store::QuoteRow;

fn prefixed(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

fn register(value: &Measurement) -> String {
    prefixed(value.as_bytes())
}

/// A quote that parses.
pub(super) fn parsed(quote: &Quote<'_>, verified: bool) -> ParsedQuote {
    let body = quote.td_report().map_or_else(
        || QuoteBody { reportdata: prefixed(quote.report_data()), ..QuoteBody::default() },
        |td| QuoteBody {
            // The only member without 0x; clients know it so.
            tee_tcb_svn: hex::encode(td.tee_tcb_svn),
            mrseam: register(&td.mrseam),
            mrsignerseam: register(&td.mrsignerseam),
            seamattributes: prefixed(td.seamattributes),
            tdattributes: prefixed(td.tdattributes),
            xfam: prefixed(td.xfam),
            mrtd: register(&td.mrtd),
            mrconfig: register(&td.mrconfigid),
            mrowner: register(&td.mrowner),
            mrownerconfig: register(&td.mrownerconfig),
            rtmr0: register(&td.rtmr0),
            rtmr1: register(&td.rtmr1),
            rtmr2: register(&td.rtmr2),
            rtmr3: register(&td.rtmr3),
            reportdata: prefixed(td.reportdata),
        },
    );
    ParsedQuote {
        header: QuoteHeader {
            version: quote.header.version,
            ak_type: quote.header.ak_type,
            tee_type: quote.header.tee_type,
            qe_vendor: prefixed(quote.header.qe_vendor),
            user_data: prefixed(quote.header.user_data),
        },
        cert_data: quote.certification.pem_chain().unwrap_or_default().to_owned(),
        body,
        verified,
    }
}

/// The bytes of a stored quote.
pub(super) fn bytes(row: &QuoteRow) -> Vec<u8> {
    BASE64_STANDARD.decode(&row.quote).unwrap_or_default()
}

/// What a stored quote was verified with.
pub(super) async fn collateral(api: &Api, row: &QuoteRow) -> ApiResult<Option<QuoteCollateral>> {
    let Some(digest) = &row.collateral_digest else { return Ok(None) };
    let document = api.store.collateral(digest).await?;
    Ok(document.and_then(|document| serde_json::from_str(&document).ok()))
}

/// A verdict as answers about CVMs show it.
pub(crate) fn evidence_verdict(verdict: &Verdict) -> EvidenceVerdict {
    EvidenceVerdict {
        verified: verdict.verified,
        trust_root: verdict.trust_root.clone(),
        is_hardware: verdict.is_hardware,
        tcb_status: verdict.tcb_status.clone(),
        advisory_ids: verdict.advisory_ids.clone(),
        reasons: verdict.reasons.clone(),
    }
}
