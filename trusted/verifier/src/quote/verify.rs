//! Verification of a quote with given collateral at a given time: no I/O, no clock.

use std::sync::Arc;

use cloister_evidence::{Measurement, Registers};
use dcap_qvl::quote::Report;
use dcap_qvl::verify::QuoteVerifier;
use dcap_qvl::{QuoteClaims, QuotePolicy};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{Enclave, Envelope, VerifiedQuote};
use crate::{Collateral, TcbStatus, TrustRoot, TrustRoots, VerifyError};

/// Longest collateral, in bytes over all its members.
const MAX_COLLATERAL_BYTES: usize = 4 << 20;

/// Verifies `bytes`, whose outer form is `envelope`.
pub(crate) fn verify(
    bytes: &[u8],
    envelope: &Envelope,
    roots: &TrustRoots,
    collateral: Arc<Collateral>,
    now: Timestamp,
) -> Result<VerifiedQuote, VerifyError> {
    if collateral.size() > MAX_COLLATERAL_BYTES {
        return Err(VerifyError::Malformed { kind: "collateral", reason: "it is too long".into() });
    }
    let (root, der) = root_of(envelope, roots, &collateral)?;
    check_body(&envelope.quote.report)?;
    let seconds =
        u64::try_from(now.as_second()).map_err(|_| VerifyError::rejected(root, "the time is before 1970"))?;
    let claims = QuoteVerifier::new(der.to_vec())
        // Judgement is left to our own policy.
        .verify_with_policy(bytes, &*collateral, seconds, &QuotePolicy::claims_only(seconds))
        .map_err(|error| VerifyError::rejected(root, format_args!("{error:#}")))?;
    verified(root, envelope, claims, collateral, now)
}

/// The accepted root at the end of the chain that vouches for the platform.
fn root_of<'a>(
    envelope: &Envelope,
    roots: &'a TrustRoots,
    collateral: &Collateral,
) -> Result<(TrustRoot, &'a [u8]), VerifyError> {
    let root = match &collateral.pck_certificate_chain {
        Some(chain) => last_certificate(chain).and_then(|der| roots.named(&der)),
        None => envelope.root(roots),
    };
    let root = root.ok_or(VerifyError::UnknownRoot)?;
    roots.certificate(root).map(|der| (root, der)).ok_or(VerifyError::UnknownRoot)
}

fn last_certificate(chain: &str) -> Option<Vec<u8>> {
    x509_parser::pem::Pem::iter_from_buffer(chain.as_bytes()).last()?.ok().map(|pem| pem.contents)
}

/// What the platform demands beyond the vendor's own rules (platform reference, section 4.7).
fn check_body(report: &Report) -> Result<(), VerifyError> {
    if let Some(body) = report.as_td10() {
        // Bit 0 of the first byte; the other bits of it mean the same threat.
        if body.td_attributes.first().is_none_or(|bits| *bits != 0) {
            return Err(VerifyError::Debug);
        }
        if body.mr_signer_seam != [0; 48] {
            return Err(VerifyError::Rule("the TDX module was not signed by Intel"));
        }
    }
    if report.as_td15().is_some_and(|body| body.mr_service_td != [0; 48]) {
        return Err(VerifyError::Rule("a service machine is bound to the machine and may change it"));
    }
    Ok(())
}

fn verified(
    trust_root: TrustRoot,
    envelope: &Envelope,
    claims: QuoteClaims,
    collateral: Arc<Collateral>,
    verified_at: Timestamp,
) -> Result<VerifiedQuote, VerifyError> {
    let wrong = |what: &str| VerifyError::rejected(trust_root, what);
    let time = |seconds: u64| {
        i64::try_from(seconds)
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or_else(|| wrong("a date of the collateral is out of range"))
    };
    let pck = claims.platform.pck;
    let ppid: [u8; 16] = pck.ppid.try_into().map_err(|_| wrong("the platform's id is not 16 bytes"))?;
    let tcb_status = TcbStatus::from(claims.tcb.status);
    if tcb_status == TcbStatus::Revoked {
        return Err(wrong("the platform is revoked"));
    }
    let body = claims.report.as_td10();
    let of = |register: fn(&dcap_qvl::quote::TDReport10) -> [u8; 48]| {
        body.map_or(Measurement::ZERO, |body| Measurement::from_bytes(register(body)))
    };
    let enclave = claims.report.as_sgx();
    Ok(VerifiedQuote {
        trust_root,
        tee: envelope.tee,
        version: claims.header.version,
        tcb_status,
        advisory_ids: claims.tcb.advisory_ids,
        tcb_date: i64::try_from(claims.platform.tcb_date_tag).unwrap_or(i64::MAX),
        tcb_evaluation: claims.tcb.eval_data_number,
        ppid,
        device_id: Sha256::digest(ppid).into(),
        fmspc: pck.fmspc,
        registers: body.map(|body| Registers {
            mrtd: Measurement::from_bytes(body.mr_td),
            rtmr0: Measurement::from_bytes(body.rt_mr0),
            rtmr1: Measurement::from_bytes(body.rt_mr1),
            rtmr2: Measurement::from_bytes(body.rt_mr2),
            rtmr3: Measurement::from_bytes(body.rt_mr3),
        }),
        mr_config_id: of(|body| body.mr_config_id),
        mr_owner: of(|body| body.mr_owner),
        mr_owner_config: of(|body| body.mr_owner_config),
        td_attributes: body.map_or([0; 8], |body| body.td_attributes),
        enclave: enclave.map(|enclave| Enclave {
            mr_enclave: enclave.mr_enclave,
            mr_signer: enclave.mr_signer,
            isv_prod_id: enclave.isv_prod_id,
            isv_svn: enclave.isv_svn,
        }),
        report_data: body
            .map(|body| body.report_data)
            .or_else(|| enclave.map(|enclave| enclave.report_data))
            .ok_or_else(|| wrong("the quote has no report data"))?,
        collateral,
        issued_at: time(claims.latest_issue_date)?,
        valid_until: time(claims.earliest_expiration_date)?,
        verified_at,
    })
}
